"""A peer that lets what it is sent wait, against the library's connection with its bound, on real sockets."""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from shine_node.clock import SystemClock
from shine_node.peers import guarded as guarded_module
from shine_node.peers.guarded import GuardedConnection
from tests.peers.conftest import Run
from tests.peers.links import narrow
from tests.support.scripted_peer import PATIENCE, PeerConnection, ScriptedPeer

pytestmark = pytest.mark.core

PING = b"\x89\x7d" + b"x" * 125


@contextlib.asynccontextmanager
async def talk(most_unread: int) -> AsyncIterator[tuple[GuardedConnection, PeerConnection]]:
    """Open a guarded connection to a scripted peer behind whose socket little can hide, and give both ends."""
    make: Any = functools.partial(GuardedConnection, most_unread=most_unread, monotonic=SystemClock().monotonic)
    async with ScriptedPeer() as peer:
        narrow(peer)
        async with connect(peer.url, proxy=None, compression=None, ping_interval=None, create_connection=make) as ours:
            assert isinstance(ours, GuardedConnection)
            await peer.until(lambda: bool(peer.connections))
            yield ours, peer.connections[0]
            peer.connections[0].cut()


def test_one_that_reads_is_left_alone(run: Run) -> None:
    async def story() -> None:
        async with talk(1000) as (ours, theirs):
            for _ in range(50):
                async with asyncio.timeout(PATIENCE):
                    await (await theirs.socket.ping())
                ours.check_unread()
            assert ours.cut_because == ""

    run(story())


@pytest.mark.parametrize("frame", [b"\x89\x00", PING, b"\x81\x00"], ids=["empty pings", "pings", "empty texts"])
def test_a_flood_of_small_frames_is_cut_after_a_few_whatever_comes_in_one_piece(run: Run, frame: bytes) -> None:
    """A linked peer that wrote empty pings once kept every client of the server waiting for half a minute."""

    async def story() -> None:
        async with talk(2**30) as (ours, theirs):
            theirs.socket.transport.write(frame * 100_000)
            async with asyncio.timeout(PATIENCE):
                with pytest.raises(ConnectionClosed):
                    while True:
                        await ours.recv()
            assert ours.cut_because == "the peer floods this server with tiny frames"
            in_a_stretch = guarded_module.STRETCH_BYTES // len(frame) + 1
            assert ours._small_frames <= guarded_module.MAX_SMALL_FRAMES + in_a_stretch

    run(story())


def test_small_frames_are_counted_anew_after_a_while(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded_module, "COUNT_SECONDS", 0.0)

    async def story() -> None:
        async with talk(2**20) as (ours, theirs):
            for _ in range(guarded_module.MAX_SMALL_FRAMES + 50):
                async with asyncio.timeout(PATIENCE):
                    await (await theirs.socket.ping())
            assert ours.cut_because == ""

    run(story())


def test_one_that_only_pings_is_cut_when_too_much_waits(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded_module, "MAX_SMALL_FRAMES", 10**9)

    async def story() -> None:
        async with talk(65_536) as (ours, theirs):
            theirs.freeze()
            async with asyncio.timeout(PATIENCE):
                while not ours.cut_because:
                    theirs.socket.transport.write(PING * 500)
                    await asyncio.sleep(0.002)
                with pytest.raises(ConnectionClosed):
                    await ours.recv()
            assert ours.cut_because == "the peer does not read: over 65536 bytes wait for it"
            ours.cut("another reason")
            assert "does not read" in ours.cut_because, "the first reason is the one"

    run(story())


def test_what_this_server_sent_counts_too(run: Run) -> None:
    async def story() -> None:
        async with talk(65_536) as (ours, theirs):
            theirs.freeze()
            sending = asyncio.ensure_future(ours.send("x" * 16_000_000))
            await asyncio.sleep(0)
            ours.check_unread()
            assert ours.cut_because
            await asyncio.wait((sending,))
            sending.exception()

    run(story())
