"""Clients that let what they are sent wait, against the library's connection with its bounds, on real sockets."""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import uvloop
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from shine_node.api import guarded as guarded_module
from shine_node.api.guarded import GuardedConnection
from shine_node.clock import SystemClock
from tests.api.talk import Talk
from tests.support.nodes import PATIENCE, eventually

PING = b"\x89\xfd\0\0\0\0" + b"x" * 125
MUCH = 100 * 2**20


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Any:
    def run_story(story: Any) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(asyncio.wait_for(story, 4 * PATIENCE))

    return run_story


class House:
    """A server that sends as much as it is asked for."""

    def __init__(self) -> None:
        self.url = ""
        self.connections: list[GuardedConnection] = []
        self.ended = 0

    async def serve(self, connection: ServerConnection) -> None:
        assert isinstance(connection, GuardedConnection)
        self.connections.append(connection)
        with suppress(ConnectionClosed):
            while True:
                await connection.send("x" * int(await connection.recv()))
        self.ended += 1

    async def until_ended(self, number: int) -> None:
        async def so() -> bool:
            return self.ended == number

        await eventually(so)

    async def until_paused(self, connection: GuardedConnection) -> None:
        async def so() -> bool:
            return connection._watch is not None

        await eventually(so)

    async def narrow(self) -> Talk:
        """Return a client behind whose socket little can hide."""
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        host, port = self.url.removeprefix("ws://").split(":")
        sock.connect((host, int(port)))
        return await Talk.open(self.url, sock=sock)


@asynccontextmanager
async def a_house(*, most_unread: int = MUCH, unread_seconds: float = 4 * PATIENCE) -> AsyncIterator[House]:
    house = House()
    make: Any = functools.partial(
        GuardedConnection, most_unread=most_unread, unread_seconds=unread_seconds, monotonic=SystemClock().monotonic
    )
    async with serve(
        house.serve,
        "127.0.0.1",
        0,
        compression=None,
        create_connection=make,
        ping_interval=None,
        write_limit=65536,
        close_timeout=0.2,
    ) as server:
        house.url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield house


def test_one_that_reads_is_left_alone(run: Any) -> None:
    async def story() -> None:
        async with a_house(most_unread=1000, unread_seconds=0.05) as house, await Talk.open(house.url) as talk:
            for _ in range(20):
                await talk.say("100")
                assert await asyncio.wait_for(talk.socket.recv(), PATIENCE) == "x" * 100
            await asyncio.wait_for(await talk.socket.ping(), PATIENCE)
            assert house.ended == 0

    run(story())


def test_a_flood_of_empty_pings_is_cut_after_a_few_whatever_comes_in_one_piece(run: Any) -> None:
    """One stranger who wrote them for five seconds once kept every other client waiting for as long."""

    async def story() -> None:
        async with a_house() as house:
            talk = await Talk.open(house.url)
            talk.socket.transport.write(b"\x89\x80abcd" * 100_000)
            await house.until_ended(1)
            [connection] = house.connections
            in_a_stretch = guarded_module.STRETCH_BYTES // len(b"\x89\x80abcd") + 1
            assert 0 < connection._control_frames <= guarded_module.MAX_CONTROL_FRAMES + in_a_stretch
            talk.leave()

    run(story())


def test_pings_are_counted_anew_after_a_while(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded_module, "COUNT_SECONDS", 0.0)

    async def story() -> None:
        async with a_house() as house, await Talk.open(house.url) as talk:
            for _ in range(guarded_module.MAX_CONTROL_FRAMES + 50):
                await asyncio.wait_for(await talk.socket.ping(), PATIENCE)
            assert house.ended == 0

    run(story())


def test_one_that_only_pings_is_cut_when_too_much_waits(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded_module, "MAX_CONTROL_FRAMES", 10**9)

    async def story() -> None:
        async with a_house(most_unread=65536) as house:
            talk = await house.narrow()
            talk.stop_reading()

            async def cut() -> bool:
                if not talk.socket.transport.is_closing():
                    talk.socket.transport.write(PING * 2000)
                return house.ended == 1

            await eventually(cut)
            talk.leave()

    run(story())


def test_one_that_reads_nothing_for_too_long_is_cut(run: Any) -> None:
    async def story() -> None:
        async with a_house(unread_seconds=0.2) as house:
            talk = await house.narrow()
            talk.stop_reading()
            await talk.say(str(2**23))
            await house.until_ended(1)
            assert house.connections[0]._watch is None
            talk.leave()

    run(story())


def test_one_that_reads_slowly_is_not_cut(run: Any) -> None:
    async def story() -> None:
        async with a_house() as house:
            talk = await house.narrow()
            talk.stop_reading()
            await talk.say(str(2**23))
            [connection] = house.connections
            await house.until_paused(connection)
            unread = connection.transport.get_write_buffer_size()
            first = connection._watch
            assert first is not None
            first.cancel()
            connection._look(unread + 1)  # as if the time were over, and a byte had been read meanwhile
            assert connection._watch is not first
            assert not connection.transport.is_closing()
            talk.resume_reading()
            assert len(await asyncio.wait_for(talk.socket.recv(), PATIENCE)) == 2**23

            async def at_rest() -> bool:
                return connection._watch is None

            await eventually(at_rest)  # it has caught up: nothing is looked at any more
            await talk.say("5")
            assert await asyncio.wait_for(talk.socket.recv(), PATIENCE) == "xxxxx"
            await talk.close()

    run(story())


def test_one_that_leaves_while_much_waits_is_forgotten(run: Any) -> None:
    async def story() -> None:
        async with a_house() as house:
            talk = await house.narrow()
            talk.stop_reading()
            await talk.say(str(2**23))
            [connection] = house.connections
            await house.until_paused(connection)
            talk.leave()
            await house.until_ended(1)
            assert connection._watch is None

    run(story())
