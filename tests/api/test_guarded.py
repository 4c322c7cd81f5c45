"""Clients that send or keep waiting too much, against the library's connection with its bounds, on real sockets."""

from __future__ import annotations

import asyncio
import functools
import random
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from shine_node.api import guarded as guarded_module
from shine_node.api.guarded import MAX_FRAGMENTS, GuardedConnection
from shine_node.clock import SystemClock
from tests.api.talk import Talk
from tests.cli.certificates import write_certificate
from tests.support.nodes import PATIENCE, eventually

PING, PONG = b"\x89\x80\0\0\0\0", b"\x8a\x80\0\0\0\0"
TEXT, FIRST, MORE, LAST = (first + b"\x81\0\0\0\0" + b"1" for first in (b"\x81", b"\x01", b"\x00", b"\x80"))
"""Frames with no mask to speak of and one byte, as a client writes them."""
MUCH = 100 * 2**20


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Any:
    def run_story(story: Any) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(asyncio.wait_for(story, 4 * PATIENCE))

    return run_story


class House:
    """A server that sends as much as it is asked for, while its doors are open."""

    def __init__(self) -> None:
        self.url = ""
        self.connections: list[GuardedConnection] = []
        self.heard: list[str] = []
        self.open = asyncio.Event()
        self.open.set()
        self.ended = 0

    async def serve(self, connection: ServerConnection) -> None:
        assert isinstance(connection, GuardedConnection)
        self.connections.append(connection)
        with suppress(ConnectionClosed):
            while True:
                await self.open.wait()
                heard = str(await connection.recv())
                self.heard.append(heard)
                await connection.send("x" * int(heard.strip()))
        self.ended += 1

    async def until_heard(self, number: int) -> None:
        async def so() -> bool:
            return len(self.heard) >= number

        await eventually(so)

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
async def a_house(
    *, most_unread: int = MUCH, unread_seconds: float = 4 * PATIENCE, **options: Any
) -> AsyncIterator[House]:
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
        **options,
    ) as server:
        house.url = f"ws{'s' if 'ssl' in options else ''}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield house
        finally:
            house.open.set()


def test_one_that_reads_is_left_alone(run: Any) -> None:
    async def story() -> None:
        async with a_house(most_unread=1000, unread_seconds=0.05) as house, await Talk.open(house.url) as talk:
            for _ in range(20):
                await talk.say("100")
                assert await asyncio.wait_for(talk.socket.recv(), PATIENCE) == "x" * 100
            await asyncio.wait_for(await talk.socket.ping(), PATIENCE)
            assert house.ended == 0

    run(story())


@pytest.mark.parametrize("frame", [PING, PONG], ids=["pings", "pongs"])
def test_a_flood_of_control_frames_is_cut_after_a_few_whatever_comes_in_one_piece(run: Any, frame: bytes) -> None:
    """One stranger who wrote them for five seconds once kept every other client waiting for as long."""

    async def story() -> None:
        async with a_house() as house:
            talk = await Talk.open(house.url)
            talk.socket.transport.write(frame * 100_000)
            await house.until_ended(1)
            [connection] = house.connections
            in_a_stretch = guarded_module.MOST_BYTES // len(frame) + 1
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
    ping = b"\x89\xfd\0\0\0\0" + b"x" * 125

    async def story() -> None:
        async with a_house(most_unread=65536) as house:
            talk = await house.narrow()
            talk.stop_reading()

            async def cut() -> bool:
                if not talk.socket.transport.is_closing():
                    talk.socket.transport.write(ping * 2000)
                return house.ended == 1

            await eventually(cut)
            talk.leave()

    run(story())


def test_one_whose_message_is_in_too_many_pieces_is_cut(run: Any) -> None:
    async def story() -> None:
        async with a_house() as house:
            talk = await Talk.open(house.url)
            blank = MORE[:-1] + b" "
            talk.socket.transport.write(FIRST + blank * (MAX_FRAGMENTS - 1) + LAST[:-1] + b" ")
            assert await asyncio.wait_for(talk.socket.recv(), PATIENCE) == "x"
            talk.socket.transport.write(TEXT + FIRST + blank * (MAX_FRAGMENTS + 1))
            await house.until_ended(1)
            assert house.heard == ["1" + " " * MAX_FRAGMENTS, "1"]
            talk.leave()

    run(story())


def test_one_that_asks_on_while_much_waits_for_it_is_cut(run: Any) -> None:
    async def story() -> None:
        async with a_house(most_unread=2**22) as house:
            talk = await house.narrow()
            talk.stop_reading()
            await talk.say(str(2**24))
            [connection] = house.connections
            await house.until_paused(connection)
            assert not connection.transport.is_closing()
            await talk.say("1")
            await house.until_ended(1)
            talk.leave()

    run(story())


# --- turns ---


def test_many_frames_that_come_at_once_have_their_turns_and_all_are_heard_in_order(run: Any) -> None:
    async def story() -> None:
        async with a_house() as house, await Talk.open(house.url) as talk:
            house.open.clear()
            await talk.say("0")
            await house.until_heard(1)
            [connection] = house.connections
            for _ in range(2):
                connection.data_received(TEXT * 5000)  # as the loop does it, and it has the loop back at once
            assert len(connection.recv_messages.frames) < guarded_module.MOST_BYTES // len(TEXT) + 20
            assert len(connection._come) > 50_000
            assert not connection.transport.is_reading()
            numbers = [str(number % 7) for number in range(3000)]
            talk.socket.transport.write(b"".join(TEXT[:-1] + number.encode() for number in numbers))
            house.open.set()
            await house.until_heard(13_001)
            assert house.heard[1:] == ["1"] * 10_000 + numbers
            for length in (10_000, 3000):
                for _ in range(length):
                    await asyncio.wait_for(talk.socket.recv(), PATIENCE)
            assert connection.transport.is_reading()

    run(story())


def test_large_messages_and_small_ones_are_heard_in_order_however_their_bytes_come(run: Any) -> None:
    async def story() -> None:
        chance = random.Random(7)
        async with a_house() as house, await Talk.open(house.url) as talk:
            sent = [str(number % 10) + " " * chance.choice([0, 3, 2000, 70_000, 300_000]) for number in range(200)]
            sending = asyncio.gather(*(talk.say(text) for text in sent))
            for text in sent:
                assert await asyncio.wait_for(talk.socket.recv(), PATIENCE) == "x" * int(text[0])
            assert house.heard == sent
            await sending

    run(story())


def test_pieces_grow_where_frames_are_large_and_are_small_again_where_they_are_many(run: Any) -> None:
    async def story() -> None:
        async with a_house() as house, await Talk.open(house.url) as talk:
            await talk.say("1" + " " * 300_000)
            assert await asyncio.wait_for(talk.socket.recv(), PATIENCE) == "x"
            [connection] = house.connections
            assert connection._piece == guarded_module.MOST_BYTES
            connection.data_received(TEXT * 5000)
            assert connection._piece == guarded_module.FEWEST_BYTES
            for _ in range(5000):
                assert await asyncio.wait_for(talk.socket.recv(), PATIENCE) == "x"

    run(story())


def test_of_large_messages_one_waits_and_no_more_are_read(run: Any) -> None:
    async def story() -> None:
        async with a_house() as house, await Talk.open(house.url) as talk:
            house.open.clear()
            await talk.say("0")
            await house.until_heard(1)
            [connection] = house.connections
            sending = asyncio.gather(*(talk.say("0" + " " * 2**19) for _ in range(20)))

            async def full() -> bool:
                return connection._filled  # between two turns nothing is read either

            await eventually(full)
            for _ in range(20):
                assert len(connection.recv_messages.frames) == 1
                assert not connection.transport.is_reading()
                await asyncio.sleep(0)
            house.open.set()
            for _ in range(21):
                assert await asyncio.wait_for(talk.socket.recv(), PATIENCE) == ""
            await sending

    run(story())


def test_others_have_their_turns_meanwhile(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that asks for nothing but turns: pongs are heard by nobody."""
    monkeypatch.setattr(guarded_module, "MAX_CONTROL_FRAMES", 10**9)

    async def story() -> None:
        async with a_house() as house, await Talk.open(house.url) as bad, await Talk.open(house.url) as good:
            await bad.say("0")
            await house.until_heard(1)
            [connection, _] = house.connections
            connection.data_received(PONG * 200_000)
            for number in range(3):
                await good.say(str(number))
                assert await asyncio.wait_for(good.socket.recv(), PATIENCE) == "x" * number
            assert len(connection._come) > 0

            async def done() -> bool:
                return not connection._come

            await eventually(done)
            await bad.say("3")

    run(story())


def test_what_came_before_the_end_is_heard_as_far_as_it_may_wait(run: Any, tmp_path: Path) -> None:
    cert, key = write_certificate(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    trust = ssl.create_default_context(cafile=str(cert))

    async def story() -> None:
        async with a_house(ssl=tls) as house:
            talk = await Talk.open(house.url, ssl=trust, server_hostname="localhost")
            house.open.clear()
            talk.socket.transport.write(TEXT * 10_000)
            talk.socket.transport.close()
            house.open.set()
            await house.until_ended(1)
            assert set(house.heard) == {"1"}
            assert not house.connections[0]._come

    run(story())


@pytest.mark.parametrize("frames", [TEXT, TEXT * 10_000, PONG * 10_000 + TEXT], ids=["none", "texts", "pongs"])
def test_the_end_of_the_stream_amid_turns(run: Any, frames: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded_module, "MAX_CONTROL_FRAMES", 10**9)

    async def story() -> None:
        async with a_house() as house:
            talk = await Talk.open(house.url)
            await talk.say("0")
            await house.until_heard(1)
            [connection] = house.connections
            connection.data_received(frames)
            connection.eof_received()
            assert not connection._come
            await house.until_ended(1)
            talk.leave()

    run(story())


# --- what is not read ---


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
