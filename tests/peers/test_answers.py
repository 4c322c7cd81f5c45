import contextlib
from collections.abc import AsyncIterator

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from shine_node.peers.answers import BinaryFrame, next_answer
from tests.peers.conftest import Run
from tests.support.scripted_peer import PeerConnection, ScriptedPeer, success

pytestmark = pytest.mark.core


@contextlib.asynccontextmanager
async def talk() -> AsyncIterator[tuple[ClientConnection, PeerConnection]]:
    """Open a connection to a scripted peer, and give both ends."""
    async with ScriptedPeer() as peer, connect(peer.url, proxy=None, compression=None) as ours:
        await peer.until(lambda: bool(peer.connections))
        yield ours, peer.connections[0]


def test_an_answer_and_what_is_none(run: Run) -> None:
    async def story() -> None:
        async with talk() as (ours, theirs):
            await theirs.send("no json")
            await theirs.send(success({"op": "Op", "requestId": "7"}, {"x": 1}))
            assert await next_answer(ours) is None
            answer = await next_answer(ours)
            assert answer is not None
            assert (answer.request_id, answer.ok, answer.payload) == ("7", True, {"x": 1})

    run(story())


def test_a_binary_frame_is_told_from_text(run: Run) -> None:
    async def story() -> None:
        async with talk() as (ours, theirs):
            await theirs.send(success({"op": "Op", "requestId": "7"}).encode())
            with pytest.raises(BinaryFrame, match="a binary frame"):
                await next_answer(ours)

    run(story())


def test_the_end_of_the_connection(run: Run) -> None:
    async def story() -> None:
        async with talk() as (ours, theirs):
            theirs.cut()
            with pytest.raises(ConnectionClosed):
                await next_answer(ours)

    run(story())
