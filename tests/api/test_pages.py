"""The chat page: what is served and how, what is refused, over real sockets with TLS and without."""

from __future__ import annotations

import asyncio
import gzip
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shine_node.api import pages as pages_module
from shine_node.api.endpoint import Endpoint
from shine_node.api.http_request import Request, RequestLine
from shine_node.api.pages import PATH, TYPES, WEB_FOLDER, PageSet, load_pages
from shine_node.clock import SystemClock
from shine_node.config import ListenAddress
from shine_node.node import Node
from tests.api.browsing import Browsing, ask
from tests.api.talk import Talk
from tests.api.test_endpoint import Gate, limits, tls_of
from tests.support.nodes import run
from tests.support.tree import ROOT
from tests.support.whole_node import config

HTML = "<!doctype html><title>Чат</title>" + "<p>The same again and again.</p>" * 100
FILES = {
    "/index.html": HTML.encode(),
    "/app.js": b"export const one = 1;\n" * 50,
    "/tiny.js": b"1;",
    "/sw.js": b"addEventListener('fetch', () => {});",
    "/look/style.css": b"body { color: black }\n" * 50,
    "/icon.svg": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    "/icon.png": b"\x89PNG" + bytes(1000),
    "/app.webmanifest": b'{"name": "SHiNE"}',
}
SAFE = {
    "Connection": "close",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files of a page, and with some that are none of anybody's business."""
    web = tmp_path / "web"
    others = ("/notes.txt", "/.hidden.js", "/.git/config.js", "/app.js.map", "/a b.js", "/data.json", "/no-suffix")
    for name, content in {**FILES, **dict.fromkeys(others, b"secret")}.items():
        path = web / name[1:]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (web / "folder.js").mkdir()
    (tmp_path / "outside.js").write_bytes(b"secret")
    return web


@asynccontextmanager
async def served(pages: PageSet, *, secure: bool, folder: Path) -> AsyncIterator[tuple[Endpoint, Browsing, Any]]:
    tls, trust = tls_of(folder) if secure else (None, None)
    endpoint = Endpoint(handlers=Gate().handlers, limits=limits(), clock=SystemClock(), tls=tls, pages=pages)
    await endpoint.start((ListenAddress("127.0.0.1", 0),))
    try:
        [address] = endpoint.addresses
        trusting = {"ssl": trust, "server_hostname": "localhost"} if secure else {}

        async def talk() -> Talk:
            return await Talk.open(f"ws{'s' if secure else ''}://127.0.0.1:{address[1]}{PATH}", **trusting)

        yield endpoint, Browsing(address, trust), talk
    finally:
        await endpoint.close()
        assert len(endpoint._sockets) == 0


@pytest.fixture(params=[False, True], ids=["http", "https"])
def secure(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


# --- what is served ---


def test_files_of_known_kinds_are_served_and_no_others(folder: Path, secure: bool) -> None:
    pages = load_pages(folder)
    assert pages.paths == {*FILES, "/"}
    kinds = {path: TYPES[Path(path).suffix] for path in FILES} | {"/": "text/html; charset=utf-8"}

    async def story() -> None:
        async with served(pages, secure=secure, folder=folder) as (endpoint, browsing, _):
            for path, kind in kinds.items():
                fetched = await browsing.get(path)
                content = FILES[path if path != "/" else "/index.html"]
                assert (fetched.status, fetched.reason, fetched.body) == (200, "OK", content)
                assert fetched.headers["content-type"] == kind
                assert kind.startswith("image/png") or "charset=utf-8" in kind
                assert fetched.headers["content-length"] == str(len(content))
                assert fetched.headers["cache-control"] == "no-cache"
                head = await browsing.fetch(ask("HEAD", path), body=False)
                dated = {"date": head.headers["date"]}
                assert (head.status, head.headers) == (200, fetched.headers | dated)
            assert endpoint.connections == 0

    run(story())


def test_head_has_no_body_at_all(folder: Path, secure: bool) -> None:
    async def story() -> None:
        async with served(load_pages(folder), secure=secure, folder=folder) as (_, browsing, _talk):
            for path, status in (("/", 200), ("/none", 404), (PATH, 405)):
                async with await browsing.visit() as visit:
                    visit.writer.write(ask("HEAD", path))
                    assert (await visit.hear(body=False)).status == status
                    if not secure:  # with TLS it is the client that closes
                        assert await visit.end() == b""

    run(story())


def test_every_answer_has_the_headers_that_keep_a_page_safe(folder: Path, secure: bool) -> None:
    async def story() -> None:
        async with served(load_pages(folder), secure=secure, folder=folder) as (_, browsing, _talk):
            asked = (
                (ask("GET", "/"), 200),
                (ask("GET", "/none"), 404),
                (ask("PUT", "/"), 405),
                (b"nonsense\r\n\r\n", 400),
            )
            for words, status in asked:
                fetched = await browsing.fetch(words)
                assert fetched.status == status
                assert SAFE.items() <= {name: fetched.headers.get(name.lower()) for name in SAFE}.items()
                assert "server" not in fetched.headers
                assert "set-cookie" not in fetched.headers
                if status == 200:
                    assert fetched.headers["cross-origin-opener-policy"] == "same-origin"
                    assert "camera=()" in fetched.headers["permissions-policy"]
                moment = parsedate_to_datetime(fetched.headers["date"]).timestamp()
                assert abs(moment - SystemClock().now_ms() / 1000) < 300
                rules = dict(rule.split(" ", 1) for rule in fetched.headers["content-security-policy"].split("; "))
                assert rules == {
                    "default-src": "'none'",
                    "script-src": "'self'",
                    "style-src": "'self'",
                    "connect-src": "'self'",
                    "img-src": "'self' data:",
                    "manifest-src": "'self'",
                    "worker-src": "'self'",
                    "base-uri": "'none'",
                    "form-action": "'none'",
                    "frame-ancestors": "'none'",
                    "require-trusted-types-for": "'script'",
                }

    run(story())


def test_the_page_and_websockets_share_the_port(folder: Path, secure: bool) -> None:
    async def story() -> None:
        async with (
            served(load_pages(folder), secure=secure, folder=folder) as (endpoint, browsing, open_talk),
            await open_talk() as talk,
        ):
            fetched = await asyncio.gather(*(browsing.get("/app.js") for _ in range(20)))
            assert {one.body for one in fetched} == {FILES["/app.js"]}
            await talk.succeed("Echo")
            assert endpoint.connections == 1

    run(story())


def test_files_that_change_later_are_served_as_they_were(folder: Path) -> None:
    pages = load_pages(folder)
    (folder / "app.js").write_bytes(b"changed")
    (folder / "new.js").write_bytes(b"new")
    assert answer(pages, "GET", "/app.js") == (200, FILES["/app.js"])
    assert answer(pages, "GET", "/new.js")[0] == 404


# --- what a client has already, and how it is packed ---


def answer(pages: PageSet, method: str, path: str, *headers: str) -> tuple[int, bytes]:
    found = pages.answer(request_of(ask(method, path, *headers)))
    return found.status, found.body


def request_of(words: bytes) -> Request:
    line = RequestLine.read(words)
    assert line is not None
    request = Request.read(line, words)
    assert request is not None
    return request


def headers_of(pages: PageSet, path: str, *headers: str) -> dict[str, str]:
    return dict(pages.answer(request_of(ask("GET", path, *headers))).headers)


def test_what_a_client_has_is_not_sent_again(folder: Path, secure: bool) -> None:
    async def story() -> None:
        async with served(load_pages(folder), secure=secure, folder=folder) as (_, browsing, _talk):
            for coding in ("identity", "gzip"):
                accepts = f"Accept-Encoding: {coding}"
                first = await browsing.get("/app.js", accepts)
                tag = first.headers["etag"]
                again = await browsing.get("/app.js", accepts, f"If-None-Match: {tag}")
                assert (again.status, again.body) == (304, b"")
                assert "content-length" not in again.headers
                kept = ("etag", "cache-control", "vary")
                assert [again.headers[name] for name in kept] == [first.headers[name] for name in kept]
                assert again.headers["connection"] == "close"
                assert "content-security-policy" not in again.headers  # the client has it, with the tag
                other = await browsing.get("/index.html", accepts, f"If-None-Match: {tag}")
                assert (other.status, other.headers["etag"] != tag) == (200, True)

    run(story())


def test_a_policy_comes_with_what_lives_by_its_own(folder: Path) -> None:
    """A module, a style or an icon of a page lives by that of the page; a worker and what is opened itself do not."""
    pages = load_pages(folder)
    everywhere = {"X-Content-Type-Options", "Cross-Origin-Resource-Policy"}
    itself = {"Content-Security-Policy", "Referrer-Policy"}
    document = {"Cross-Origin-Opener-Policy", "Permissions-Policy"}
    expected = dict.fromkeys(("/", *FILES), everywhere)
    expected |= dict.fromkeys(("/sw.js", "/icon.svg", "/none"), everywhere | itself)
    expected |= dict.fromkeys(("/", "/index.html"), everywhere | itself | document)
    assert {path: headers_of(pages, path).keys() & (everywhere | itself | document) for path in expected} == expected
    for path in expected:
        headers = headers_of(pages, path)
        assert {headers.get(name) for name in everywhere} == {"nosniff", "same-origin"}
        assert headers.get("Content-Security-Policy", "default-src 'none'").startswith("default-src 'none'")


def test_the_policy_of_the_real_page_reaches_its_worker() -> None:
    """Its script is where the page registers it from; another name would leave it without a policy."""
    pages = load_pages(WEB_FOLDER)
    assert "Content-Security-Policy" in headers_of(pages, "/sw.js")
    assert answer(pages, "GET", "/sw.js")[0] == 200
    assert 'const address = "sw.js";' in (WEB_FOLDER / "ui" / "offline.js").read_text()


def test_a_page_with_another_policy_is_another_page(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = headers_of(load_pages(folder), "/")["ETag"]
    assert headers_of(load_pages(folder), "/")["ETag"] == before
    monkeypatch.setattr(pages_module, "_SAFE", (("Content-Security-Policy", "default-src 'none'"),))
    assert headers_of(load_pages(folder), "/")["ETag"] != before


def test_how_a_client_may_say_what_it_has(folder: Path) -> None:
    pages = load_pages(folder)
    tag = headers_of(pages, "/app.js")["ETag"]
    for known in (tag, f"W/{tag}", f'"other", {tag}', f'W/"a,b" ,W/{tag}', "*"):
        assert answer(pages, "GET", "/app.js", f"If-None-Match: {known}") == (304, b"")
        assert answer(pages, "HEAD", "/app.js", f"If-None-Match: {known}") == (304, b"")
    assert answer(pages, "GET", "/app.js", 'If-None-Match: "a"', f"If-None-Match: {tag}")[0] == 304
    for unknown in ("", '""', tag[:-1], tag[1:-1], tag.upper(), f'"{tag[1:-1]}-gzip"', '"*"', "*, *", "x" * 5000):
        assert answer(pages, "GET", "/app.js", f"If-None-Match: {unknown}")[0] == 200


def test_the_tag_is_of_the_content_and_a_strong_one(folder: Path) -> None:
    before = load_pages(folder)
    (folder / "app.js").write_bytes(FILES["/app.js"] + b" ")
    after = load_pages(folder)
    assert headers_of(before, "/app.js")["ETag"] != headers_of(after, "/app.js")["ETag"]
    assert headers_of(before, "/icon.svg")["ETag"] == headers_of(after, "/icon.svg")["ETag"]
    tags = {headers_of(before, "/app.js", f"Accept-Encoding: {coding}")["ETag"] for coding in ("gzip", "br")}
    assert len(tags) == 2
    assert all(tag.startswith('"') for tag in tags)


@pytest.mark.parametrize(
    ("accepts", "packed"),
    [
        (None, False),
        ("", False),
        ("identity", False),
        ("br", False),
        ("gzip", True),
        ("GZIP", True),
        ("gzip, deflate, br, zstd", True),
        ("br;q=1.0, gzip;q=0.8", True),
        ("gzip;q=0.001", True),
        ("*", True),
        ("*;q=0.5, identity", True),
        ("gzip;q=0", False),
        ("gzip; q=0", False),
        ("gzip;q=0.000, *", False),
        ("*;q=0", False),
        ("*;q=0, gzip", True),
        ("identity;q=1, *;q=0", False),
        ("notgzip", False),
        ("gzip ;;;", True),
        (",,;q=0,", False),
    ],
)
def test_whoever_takes_it_packed_gets_it_packed(folder: Path, accepts: str | None, packed: bool) -> None:
    pages = load_pages(folder)
    headers = [] if accepts is None else [f"Accept-Encoding: {accepts}"]
    said = headers_of(pages, "/app.js", *headers)
    status, body = answer(pages, "GET", "/app.js", *headers)
    assert status == 200
    assert said["Content-Length"] == str(len(body))
    assert said["Vary"] == "Accept-Encoding"
    assert said.get("Content-Encoding") == ("gzip" if packed else None)
    assert (gzip.decompress(body) if packed else body) == FILES["/app.js"]
    assert (len(body) < len(FILES["/app.js"])) is packed


@pytest.mark.parametrize("path", ["/tiny.js", "/icon.png"])
def test_what_is_no_smaller_when_packed_or_is_packed_already_is_sent_as_it_is(folder: Path, path: str) -> None:
    pages = load_pages(folder)
    said = headers_of(pages, path, "Accept-Encoding: gzip")
    assert said.keys().isdisjoint({"Vary", "Content-Encoding"})
    assert answer(pages, "GET", path, "Accept-Encoding: gzip") == (200, FILES[path])


# --- what is refused ---

TRICKS = [
    "//",
    "//index.html",
    "/./",
    "/./index.html",
    "/../web/index.html",
    "/look/../index.html",
    "/..",
    "/../../outside.js",
    "/../outside.js",
    "/%2e%2e/outside.js",
    "/%2e%2e%2foutside.js",
    "/..%2foutside.js",
    "/..%5coutside.js",
    "/..\\outside.js",
    "/%69ndex.html",
    "/index.html%00",
    "/index.html%00.js",
    "/index.html/",
    "/index.html.",
    "/INDEX.HTML",
    "/index",
    "/look",
    "/look/",
    "/web/index.html",
    "/notes.txt",
    "/.hidden.js",
    "/.git/config.js",
    "/a%20b.js",
    "/app.js.map",
    "/no-suffix",
    "/folder.js",
    "/;/index.html",
    "/index.html;x",
    "/index.html#x",
    "/%77s",
    "/ws/",
    "/WS",
    "//ws",
    "/favicon.ico",
]


def test_only_exact_paths_are_found(folder: Path, secure: bool) -> None:
    async def story() -> None:
        async with served(load_pages(folder), secure=secure, folder=folder) as (_, browsing, _talk):
            for path in TRICKS:
                fetched = await browsing.get(path)
                assert (fetched.status, fetched.body) == (404, b"The WebSocket endpoint is /ws.\n"), path
                assert fetched.headers["content-type"] == "text/plain; charset=utf-8"
                assert fetched.headers["cache-control"] == "no-store"

    run(story())


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (ask("GET", "/?x=1"), 200),
        (ask("GET", "/app.js?v=/../x"), 200),
        (ask("GET", "/", "Content-Length: 0"), 200),
        (b"GET / HTTP/1.1\r\nHost: 198.51.100.7:1\r\n\r\n", 200),
        (b"GET / HTTP/1.1\r\nHost:\r\n\r\n", 200),
        (b"GET / HTTP/1.0\r\n\r\n", 200),
        (ask("GET", "/") + ask("GET", "/app.js") * 5, 200),  # only the first one is answered
        (ask("GET", "/", "Origin: https://other.example", "Cookie: a=b"), 200),
        (ask("GET", "/", "Expect: 100-continue"), 200),
        (ask("GET", "/", "Range: bytes=0-3"), 200),
        (ask("GET", "/", "Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings"), 200),
        (ask("GET", "/", "Upgrade: WebSocket", "Connection: Upgrade"), 404),
        (ask("GET", "/", "Content-Length: 5") + b"12345", 400),
        (ask("HEAD", "/", "Content-Length: 5") + b"12345", 400),
        (ask("GET", "/", "Transfer-Encoding: chunked") + b"0\r\n\r\n", 400),
        (ask("POST", "/", "Content-Length: 100000") + b"x" * 100_000, 405),
        (ask("POST", "/", "Content-Length: 100000"), 405),
        (ask("POST", "/none"), 404),
        (ask("GET", "http://node.example/"), 200),
        (ask("GET", "http://other.example/ws"), 426),
        (ask("GET", "ftp://node.example/"), 400),
        (ask("GET", "index.html"), 400),
        (ask("GET", "?"), 400),
        (ask("OPTIONS", "*"), 400),
        (ask("CONNECT", "other.example:443"), 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET /\x00 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /\xd1\x87 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET / HTTP/1.1\n\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00", 400),
        (b"\x00" * 100, 400),
        (b"GET /" + b"x" * 10_000, 414),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 40_000, 431),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n", 431),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (b"GET /ws HTTP/1.0\r\nHost: a\r\n\r\n", 505),
        (ask("GET", "/ws"), 426),
        (ask("GET", "/ws?x=1"), 426),
    ],
)
def test_each_request_has_its_answer(folder: Path, secure: bool, words: bytes, status: int) -> None:
    has_body = not words.startswith(b"HEAD")

    async def story() -> None:
        async with served(load_pages(folder), secure=secure, folder=folder) as (_, browsing, _talk):
            fetched = await browsing.fetch(words, body=has_body)
            assert fetched.status == status
            assert fetched.body or not has_body

    run(story())


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "get", "FOO", "CONNECT"])
def test_other_methods_are_told_which_there_are(folder: Path, secure: bool, method: str) -> None:
    async def story() -> None:
        async with served(load_pages(folder), secure=secure, folder=folder) as (_, browsing, _talk):
            for path, allowed in (("/", "GET, HEAD"), ("/app.js", "GET, HEAD"), (PATH, "GET")):
                fetched = await browsing.fetch(ask(method, path))
                assert (fetched.status, fetched.headers["allow"]) == (405, allowed)

    run(story())


PAGES = PageSet()
REAL = load_pages(WEB_FOLDER)


@given(st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=60))
@example("index.html")
@example("ws?/")
def test_whatever_the_path_the_answer_is_a_page_or_a_refusal(path: str) -> None:
    for pages in (PAGES, REAL):
        found = pages.answer(request_of(ask("GET", f"/{path}")))
        asked = f"/{path}".partition("?")[0]
        expected = 200 if asked in pages.paths else 505 if asked == PATH else 404
        assert found.status == expected  # of HTTP/1.1, that path never comes here
        encoded = found.encode(0)
        assert encoded.startswith(f"HTTP/1.1 {expected} {HTTPStatus(expected).phrase}\r\n".encode())
        assert b"Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n" in encoded


@given(st.lists(st.text(st.sampled_from("/.%2eE5cC\\index.htmlws?#;:@\t\0 "), max_size=30), min_size=1, max_size=20))
def test_strange_targets_over_a_socket_are_answered_and_nothing_breaks(paths: list[str]) -> None:
    async def story() -> None:
        async with served(REAL, secure=False, folder=Path()) as (_, browsing, _talk):
            for path in paths:
                fetched = await browsing.get(path)
                assert fetched.status in {200, 400, 404, 426}
                assert fetched.status != 200 or path.partition("?")[0] in REAL.paths

    run(story())


# --- how the program comes by its pages ---


def test_a_folder_without_a_page_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"no index\.html"):
        load_pages(tmp_path)
    with pytest.raises(OSError, match=r"no index\.html"):
        load_pages(tmp_path / "none")
    (tmp_path / "index.html").write_text("x")
    assert load_pages(tmp_path).paths == {"/", "/index.html"}
    (tmp_path / "gone.js").symlink_to("nowhere")
    assert load_pages(tmp_path).paths == {"/", "/index.html"}


def test_all_files_of_the_chat_page_are_served_and_belong_to_the_package() -> None:
    files = {path for path in WEB_FOLDER.rglob("*") if path.is_file()}
    assert {f"/{path.relative_to(WEB_FOLDER).as_posix()}" for path in files} | {"/"} == REAL.paths, (
        f"only files with the suffixes {', '.join(TYPES)} are served"
    )
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = settings["tool"]["setuptools"]["package-data"]["shine_node"]
    assert files <= {path for pattern in patterns for path in WEB_FOLDER.parent.glob(pattern)}


def test_the_whole_page_is_small() -> None:
    answers = [REAL.answer(request_of(ask("GET", path, "Accept-Encoding: gzip"))) for path in REAL.paths - {"/"}]
    assert sum(len(found.encode(0)) for found in answers) < 150_000


def test_a_node_serves_its_page_unless_it_is_switched_off(tmp_path: Path) -> None:
    async def story(on: bool) -> None:
        node = Node(config(tmp_path / str(on), server={"chatPage": on}))
        try:
            await node.start()
            browsing = Browsing(node.addresses[0])
            for path in ("/", "/index.html"):
                fetched = await browsing.get(path)
                if on:
                    assert (fetched.status, fetched.body) == (200, (WEB_FOLDER / "index.html").read_bytes())
                else:
                    assert (fetched.status, fetched.body) == (404, b"The WebSocket endpoint is /ws.\n")
            async with await Talk.open(node.url) as talk:
                await talk.succeed("Ping")
        finally:
            await node.stop()

    run(story(True))
    run(story(False))


def test_pages_of_other_sites_may_open_websockets(folder: Path, secure: bool) -> None:
    async def story() -> None:
        async with served(load_pages(folder), secure=secure, folder=folder) as (_, browsing, _talk):
            fetched = await browsing.fetch(
                ask(
                    "GET",
                    PATH,
                    "Upgrade: websocket",
                    "Connection: Upgrade",
                    "Sec-WebSocket-Version: 13",
                    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
                    "Origin: https://other.example",
                )
            )
            assert fetched.status == 101

    run(story())
