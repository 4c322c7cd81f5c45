"""The heads of HTTP requests: what is read from them, and what is refused."""

from __future__ import annotations

from http import HTTPStatus

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shine_node.api.http_request import (
    MAX_HEADERS,
    MAX_HEADERS_BYTES,
    MAX_LINE_BYTES,
    Refused,
    Request,
    RequestLine,
)


def read(come: bytes) -> Request | RequestLine | HTTPStatus | None:
    """Return what there is to know after so many bytes: nothing, the line, the request, or why it is refused."""
    try:
        line = RequestLine.read(come)
        return line and (Request.read(line, come) or line)
    except Refused as refusal:
        assert refusal.text
        return refusal.status


def request_of(*headers: str) -> Request:
    found = read("\r\n".join(["GET / HTTP/1.1", "Host: x", *headers, "", ""]).encode("iso-8859-1"))
    assert isinstance(found, Request)
    return found


def test_a_request_is_read_when_all_of_it_has_come_and_not_before() -> None:
    whole = b"HEAD /a/b.js?x=1?y HTTP/1.1\r\nHost: one\r\nAccept:\t*/* \r\nX-A: 1\r\nx-a:2\r\n\r\n"
    for length in range(len(whole)):
        found = read(whole[:length])
        assert found is None if length < 29 else isinstance(found, RequestLine), length
    for more in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 100_000):
        found = read(whole + more)
        assert isinstance(found, Request)
        assert found.line == ("HEAD", "/a/b.js?x=1?y", (1, 1), 27)
        assert found.line.path == "/a/b.js"
        assert found.headers == {"host": "one", "accept": "*/*", "x-a": "1, 2"}


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("http://node.example/ws", "/ws"),
        ("HTTPS://node.example:7070/a/b.js?x=http://c/d", "/a/b.js"),
        ("http://node.example", "/"),
        ("http://node.example?x", "/"),
        ("http://node.example//ws", "//ws"),
        ("http:///ws", "http:///ws"),
        ("http:/ws", "http:/ws"),
        ("ftp://node.example/ws", "ftp://node.example/ws"),
        ("/http://node.example/ws", "/http://node.example/ws"),
        ("*", "*"),
        ("node.example:443", "node.example:443"),
    ],
)
def test_a_target_may_be_a_whole_url(target: str, path: str) -> None:
    line = RequestLine.read(f"GET {target} HTTP/1.1\r\n".encode())
    assert line is not None and (line.target, line.path) == (target, path)


def test_with_http_1_0_there_need_be_no_header() -> None:
    found = read(b"GET / HTTP/1.0\r\n\r\n")
    assert isinstance(found, Request)
    assert (found.line.version, found.headers) == ((1, 0), {})


@pytest.mark.parametrize(
    "come",
    [
        b"\x16\x03\x01\x02\x00",  # TLS, where none is spoken: its client waits for an answer
        b"\r\n\r\n",
        b" GET / HTTP/1.1\r\n",
        b"\x00",
        b"nonsense\r\n",
        b"GET /\r\n",
        b"GET  / HTTP/1.1\r\n",
        b"GET / HTTP/1.1 \r\n",
        b"GET / /x HTTP/1.1\r\n",
        b"GET /\x00 HTTP/1.1\r\n",
        b"GET /\x7f HTTP/1.1\r\n",
        b"GET /\xc3\xa4 HTTP/1.1\r\n",
        b"GET /\t HTTP/1.1\r\n",
        b"GET / HTTP/1.1\n\n",
        b"GET /\nX: y HTTP/1.1\r\n",
        b"GET /\rX: y HTTP/1.1\r\n",
        b"GET / http/1.1\r\n",
        b"GET / HTTP/1.10\r\n",
        b"GET / HTTP/11\r\n",
        b"G(T / HTTP/1.1\r\n",
        b"GET / HTTP/1.1\r\n\r\n",  # without a host
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nnonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: a\x00b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: a\nY: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: a\rY: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX\xe4: a\r\n\r\n",
    ],
)
def test_what_is_malformed_is_refused(come: bytes) -> None:
    assert read(come) is HTTPStatus.BAD_REQUEST


@pytest.mark.parametrize("version", [b"0.9", b"1.2", b"2.0", b"3.0"])
def test_other_versions_are_refused(version: bytes) -> None:
    assert read(b"GET / HTTP/" + version + b"\r\n") is HTTPStatus.HTTP_VERSION_NOT_SUPPORTED


def test_a_line_has_a_greatest_length() -> None:
    fits = b"GET /" + b"x" * (MAX_LINE_BYTES - 14) + b" HTTP/1.1"
    assert len(fits) == MAX_LINE_BYTES
    assert isinstance(read(fits + b"\r\n"), RequestLine)
    assert read(fits) is None
    assert read(fits + b"\r") is None
    for longer in (b"x\r\n", b"xx", b"\n\n", b"x" * 100_000):
        assert read(fits + longer) is HTTPStatus.REQUEST_URI_TOO_LONG


def test_headers_have_a_greatest_length_and_number() -> None:
    line = b"GET / HTTP/1.1"
    headers = b"\r\nHost: x\r\nX: "
    fits = line + headers + b"x" * (MAX_HEADERS_BYTES - len(headers) - 4)
    assert isinstance(read(fits + b"\r\n\r\n"), Request)
    assert isinstance(read(fits + b"\r\n\r"), RequestLine)
    for longer in (b"x\r\n\r\n", b"x" * 4, b"x" * 100_000):
        assert read(fits + longer) is HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    assert request_of(*["X: y"] * (MAX_HEADERS - 1))
    many = b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * MAX_HEADERS + b"\r\n"
    assert read(many) is HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE


@pytest.mark.parametrize(
    ("headers", "has"),
    [
        ([], False),
        (["Content-Length: 0"], False),
        (["Content-Length: 1"], True),
        (["Content-Length: 00"], True),
        (["Content-Length: 0", "Content-Length: 5"], True),
        (["Content-Length:"], True),
        (["Transfer-Encoding: chunked"], True),
        (["transfer-encoding: identity", "Content-Length: 0"], True),
    ],
)
def test_whether_a_body_follows(headers: list[str], has: bool) -> None:
    assert request_of(*headers).has_body is has


def test_the_words_of_a_header() -> None:
    request = request_of("Upgrade: h2c, WebSocket", "Upgrade:, x ;q=1 ,")
    assert request.words("upgrade") == {"h2c", "websocket", "x ;q=1"}
    assert request.words("connection") == set()


@given(st.binary(max_size=200), st.integers(0, 200))
@example(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 26)
def test_anything_at_all_is_read_or_refused_and_more_does_not_unsay_it(come: bytes, length: int) -> None:
    before, after = read(come[:length]), read(come)
    if isinstance(before, HTTPStatus | Request):
        assert after == before
    if isinstance(before, RequestLine) and isinstance(after, Request):
        assert after.line == before
