"""What a socket meets first, over real sockets: how requests come, and what is cut."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from shine_node.api import endpoint as endpoint_module
from shine_node.api.endpoint import Endpoint
from shine_node.api.front import MOST_UNHEARD_BYTES
from shine_node.api.pages import Page, PageSet
from shine_node.clock import SystemClock
from shine_node.config import ListenAddress
from tests.api.browsing import Browsing, ask
from tests.api.talk import Talk
from tests.api.test_endpoint import Gate, limits, tls_of, until_no_socket
from tests.support.nodes import PATIENCE

TEXT = b"The page.\n"
PAGES = PageSet({"/": Page("/", "text/plain", TEXT), "/large": Page("/large", "text/plain", bytes(2**24))})
HANDSHAKE = (
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
)
PING = b"\x89\x80\0\0\0\0"
PONG = b"\x8a\0"


class Place:
    """An endpoint, and how it is reached."""

    def __init__(self, endpoint: Endpoint, trust: ssl.SSLContext | None) -> None:
        self.endpoint, self.trust = endpoint, trust
        [self.address] = endpoint.addresses
        self.browsing = Browsing(self.address, trust)

    async def talk(self) -> Talk:
        options = {"ssl": self.trust, "server_hostname": "localhost"} if self.trust else {}
        return await Talk.open(f"ws{'s' if self.trust else ''}://127.0.0.1:{self.address[1]}/ws", **options)


@pytest.fixture(params=[False, True], ids=["http", "https"])
def tls(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, Any]:
    """The context of the server and that of a client."""
    return tls_of(tmp_path) if request.param else (None, None)


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Any:
    """Run a story on one kind of loop or the other."""

    def runs(story: Any) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(asyncio.wait_for(story, 4 * PATIENCE))

    return runs


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the time for a handshake, or for a page, be over soon."""
    monkeypatch.setattr(endpoint_module, "HANDSHAKE_SECONDS", 1)


@asynccontextmanager
async def a_place(tls: tuple[Any, Any]) -> AsyncIterator[Place]:
    context, trust = tls
    endpoint = Endpoint(handlers=Gate().handlers, limits=limits(), clock=SystemClock(), tls=context, pages=PAGES)
    await endpoint.start((ListenAddress("127.0.0.1", 0),))
    try:
        yield Place(endpoint, trust)
    finally:
        await endpoint.close()
        assert len(endpoint._sockets) == 0


@pytest.mark.parametrize("words", [ask("GET", "/"), ask("GET", "/ws", *HANDSHAKE)], ids=["page", "websocket"])
def test_a_request_may_come_byte_by_byte(run: Any, tls: Any, words: bytes) -> None:
    async def story() -> None:
        async with a_place(tls) as place:
            for pieces in ([words], [bytes([byte]) for byte in words]):
                async with await place.browsing.visit() as visit:
                    for piece in pieces:
                        visit.writer.write(piece)
                        await asyncio.sleep(0)  # a turn of the loop for each piece, so that each is sent by itself
                    fetched = await visit.hear()
                    assert (fetched.status, fetched.body) in {(200, TEXT), (101, b"")}
                    if fetched.status == 101:
                        visit.writer.write(PING)
                        assert await asyncio.wait_for(visit.reader.readexactly(2), PATIENCE) == PONG
            await until_no_socket(place.endpoint)

    run(story())


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (ask("GET", "/none"), 404),
        (ask("HEAD", "/ws", *HANDSHAKE), 405),
        (b"GET /ws HTTP/1.0\r\n\r\n", 505),
    ],
)
def test_what_is_refused_is_told_so_and_what_comes_behind_is_not_heard(
    run: Any, tls: Any, words: bytes, status: int
) -> None:
    async def story() -> None:
        async with a_place(tls) as place, await place.browsing.visit() as visit:
            visit.writer.write(words + ask("GET", "/") * 10)
            assert (await visit.hear(body=not words.startswith(b"HEAD"))).status == status
            if not place.trust:
                assert await visit.end() == b""

    run(story())


def test_the_server_is_told_when_a_visitor_goes(run: Any, tls: Any) -> None:
    async def story() -> None:
        async with a_place(tls) as place:
            for words in (b"", b"GET / HT", ask("GET", "/")[:-2], ask("GET", "/large"), ask("GET", "/ws")):
                async with await place.browsing.visit() as visit:
                    visit.writer.write(words)
                    await visit.writer.drain()
                await until_no_socket(place.endpoint)

    run(story())


def test_one_that_ends_its_side_first_is_answered_all_the_same(run: Any) -> None:
    async def story() -> None:
        async with a_place((None, None)) as place, await place.browsing.visit() as visit:
            visit.writer.write(ask("GET", "/large"))
            visit.writer.write_eof()
            assert len((await visit.hear()).body) == 2**24
            assert await visit.end() == b""
            await until_no_socket(place.endpoint)

    run(story())


def test_one_that_takes_too_long_is_cut(run: Any, tls: Any, short: None) -> None:
    slow = {
        "says nothing": b"",
        "has half a line": b"GET /",
        "has half a page's request": ask("GET", "/")[:-2],
        "has half a handshake": ask("GET", "/ws", *HANDSHAKE)[:-2],
        "does not go with its page": ask("GET", "/"),
        "does not go without a handshake": ask("GET", "/ws"),
    }

    async def story() -> None:
        async with a_place(tls) as place:

            async def is_cut(words: bytes) -> None:
                async with await place.browsing.visit() as visit:
                    visit.writer.write(words)
                    await visit.end()

            async with asyncio.TaskGroup() as group:
                for how, words in slow.items():
                    group.create_task(is_cut(words), name=how)
            await until_no_socket(place.endpoint)

    run(story())


def test_one_that_does_not_read_its_page_is_cut(run: Any, tls: Any, short: None) -> None:
    async def story() -> None:
        async with a_place(tls) as place:
            narrow = socket.socket()
            narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            narrow.connect(place.address)
            name = "localhost" if place.trust else None
            _, writer = await asyncio.open_connection(sock=narrow, ssl=place.trust, server_hostname=name)
            writer.transport.pause_reading()
            writer.write(ask("GET", "/large"))
            await until_no_socket(place.endpoint)
            writer.transport.abort()

    run(story())


def test_a_websocket_stays_when_the_time_of_its_handshake_is_over(run: Any, tls: Any, short: None) -> None:
    async def story() -> None:
        async with a_place(tls) as place, await place.talk() as talk:
            await talk.succeed("Echo")
            async with await place.browsing.visit() as later:
                await later.end()  # this one is cut, so the time of the other one was over before
            await talk.succeed("Echo")
            assert len(place.endpoint._sockets) == 1

    run(story())


def test_a_body_that_nobody_asked_for_is_not_heard_to_the_end(run: Any, tls: Any) -> None:
    async def story() -> None:
        async with a_place(tls) as place:
            head = ask("POST", "/", f"Content-Length: {2**40}")
            async with await place.browsing.visit() as visit:
                visit.writer.write(head + bytes(MOST_UNHEARD_BYTES // 2))
                assert (await visit.hear()).status == 405
                assert len(place.endpoint._sockets) == 1
                with pytest.raises(ConnectionError):
                    while True:
                        visit.writer.write(bytes(65536))
                        await asyncio.wait_for(visit.writer.drain(), PATIENCE)
            await until_no_socket(place.endpoint)

    run(story())


def test_the_end_of_the_server_does_not_wait_for_visitors(run: Any, tls: Any) -> None:
    async def story() -> None:
        async with a_place(tls) as place:
            visits = [await place.browsing.visit() for _ in range(3)]
            visits[1].writer.write(ask("GET", "/")[:-2])
            visits[2].writer.write(ask("GET", "/"))
            assert (await visits[2].hear()).body == TEXT
            await asyncio.wait_for(place.endpoint.close(), endpoint_module.HANDSHAKE_SECONDS - 1)
            for visit in visits:
                assert await visit.end() == b""
                visit.leave()

    run(story())
