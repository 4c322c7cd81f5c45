"""What leaves on a connection: its order, the bound on what waits, and ends that a deaf side cannot delay."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from shine_node.api import outbound
from shine_node.api.outbound import AT_A_STRETCH, TRY_AGAIN_LATER, Outbound
from tests.support.nodes import PATIENCE, run

MAX_BYTES = 65536
MUCH = 2**20
"""More than the buffers of two sockets take at once, by far, if it comes often enough."""

Served = Callable[[Outbound, ServerConnection], Awaitable[None]]


@asynccontextmanager
async def connected(served: Served, *, max_bytes: int = MAX_BYTES) -> AsyncIterator[ClientConnection]:
    """Serve one connection in a way of its own, and read from it as the test likes: not at all to begin with."""
    done = asyncio.Event()

    async def handle(websocket: ServerConnection) -> None:
        out = Outbound(websocket, max_bytes=max_bytes, address="test")
        try:
            await served(out, websocket)
            await websocket.wait_closed()
            await out.finish()
        finally:
            done.set()

    async with serve(handle, "127.0.0.1", 0, compression=None, write_limit=65536, close_timeout=1) as server:
        port = server.sockets[0].getsockname()[1]
        url = f"ws://127.0.0.1:{port}/ws"
        async with connect(url, compression=None, max_size=None, max_queue=1, proxy=None, close_timeout=1) as client:
            yield client
            client.transport.abort()
            async with asyncio.timeout(PATIENCE):
                await done.wait()


async def read_all(client: ClientConnection) -> tuple[list[str], int | None]:
    """Read until the end: what came, and the code of the end."""
    texts: list[str] = []
    try:
        while True:
            async with asyncio.timeout(PATIENCE):
                texts.append(str(await client.recv()))
    except ConnectionClosed:
        return texts, client.close_code


def test_answers_leave_in_their_order_and_events_in_theirs() -> None:
    async def served(out: Outbound, websocket: ServerConnection) -> None:
        answers = [asyncio.create_task(out.send(f"answer {number}")) for number in range(20)]
        for number in range(20):
            out.push(f"event {number}")
        await asyncio.gather(*answers)
        assert await websocket.recv() == "all is here"
        out.end(1000, "enough")

    async def story() -> None:
        async with connected(served) as client:
            texts = [str(await client.recv()) for _ in range(40)]
            for kind in ("answer", "event"):
                assert [text for text in texts if kind in text] == [f"{kind} {number}" for number in range(20)]
            await client.send("all is here")
            assert await read_all(client) == ([], 1000)

    run(story())


def test_events_that_come_later_find_their_way_too() -> None:
    async def served(out: Outbound, websocket: ServerConnection) -> None:
        for text in ("1", "2"):
            out.push(text)
            assert await websocket.recv() == text

    async def story() -> None:
        async with connected(served) as client:
            for text in ("1", "2"):
                assert await client.recv() == text
                await client.send(text)

    run(story())


def test_events_that_are_held_follow_the_answer_that_they_were_held_for() -> None:
    async def served(out: Outbound, websocket: ServerConnection) -> None:
        out.push("before")
        with out.events_held():
            out.push("meanwhile")
            for _ in range(5):
                await asyncio.sleep(0)
            await out.send("ping")
        await out.send("page")
        assert await websocket.recv() == "all is here"
        with out.events_held():
            pass
        out.end(1000, "enough")

    async def story() -> None:
        async with connected(served) as client:
            texts = [str(await client.recv()) for _ in range(4)]
            assert texts.index("page") < texts.index("meanwhile")
            assert texts.index("ping") < texts.index("page")
            assert texts.index("before") < texts.index("meanwhile")
            await client.send("all is here")
            assert await read_all(client) == ([], 1000)

    run(story())


def test_many_events_to_a_side_that_reads_at_once_let_others_have_their_turn() -> None:
    count = 10 * AT_A_STRETCH

    async def served(out: Outbound, websocket: ServerConnection) -> None:
        for number in range(count):
            out.push(str(number))
        turns = 0
        while out._events:
            await asyncio.sleep(0)
            turns += 1
        assert turns >= 10
        assert await websocket.recv() == "all is here"

    async def story() -> None:
        async with connected(served, max_bytes=MUCH) as client:
            assert [await client.recv() for _ in range(count)] == [str(number) for number in range(count)]
            await client.send("all is here")

    run(story())


def test_nothing_is_sent_after_the_end() -> None:
    async def served(out: Outbound, websocket: ServerConnection) -> None:
        assert not out.ended
        out.end(1008, "this session was closed")
        out.end(1000, "a second end changes nothing")
        assert out.ended
        out.push("event")
        await out.send("answer")

    async def story() -> None:
        async with connected(served) as client:
            assert await read_all(client) == ([], 1008)
            assert client.close_reason == "this session was closed"

    run(story())


@pytest.mark.parametrize("kind", ["events", "answers"])
def test_a_side_that_reads_too_slowly_is_cut_and_told_why(kind: str) -> None:
    pushed = 0
    cut = asyncio.Event()

    async def served(out: Outbound, websocket: ServerConnection) -> None:
        nonlocal pushed
        answers: list[asyncio.Task[None]] = []
        while not out.ended and pushed < 200:
            pushed += 1
            if kind == "events":
                out.push("x" * MUCH)
            else:
                answers.append(asyncio.create_task(out.send("x" * MUCH)))
            await asyncio.sleep(0)
        cut.set()
        for answer in answers:
            await answer  # none of them waits for ever

    async def story() -> None:
        async with connected(served) as client:
            async with asyncio.timeout(PATIENCE):
                await cut.wait()
            texts, code = await read_all(client)
            assert code == TRY_AGAIN_LATER
            assert len(texts) < pushed < 200

    run(story())


def test_one_text_over_the_bound_is_sent_all_the_same() -> None:
    async def served(out: Outbound, websocket: ServerConnection) -> None:
        out.push("x" * MUCH)  # nothing waits before it
        assert await websocket.recv() == "read"
        out.end(1000, "done")

    async def story() -> None:
        async with connected(served, max_bytes=1) as client:
            assert len(await client.recv()) == MUCH
            await client.send("read")
            assert await read_all(client) == ([], 1000)

    run(story())


def test_what_is_under_way_is_no_longer_waiting() -> None:
    """A page may be larger than the bound: while it is under way, events may wait."""

    async def served(out: Outbound, websocket: ServerConnection) -> None:
        page = asyncio.create_task(out.send("x" * 20 * MUCH))
        await asyncio.sleep(0)
        assert not page.done()
        out.push("event")
        out.push("another")
        assert not out.ended
        await out.until_taken()
        await asyncio.wait_for(page, PATIENCE)

    async def story() -> None:
        async with connected(served, max_bytes=1000) as client:
            assert len(await client.recv()) == 20 * MUCH
            assert [await client.recv(), await client.recv()] == ["event", "another"]

    run(story())


def test_an_end_does_not_wait_for_a_side_that_never_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbound, "PARTING_SECONDS", 0.2)
    over = asyncio.Event()

    async def served(out: Outbound, websocket: ServerConnection) -> None:
        for _ in range(50):  # until the buffers of both sockets are full
            sending = asyncio.create_task(out.send("x" * MUCH))
            done, _ = await asyncio.wait([sending], timeout=0.5)
            if not done:
                break
        assert not sending.done()
        out.end(1008, "this session was closed")
        await out.finish()
        await sending
        assert websocket.close_code == 1006
        over.set()

    async def story() -> None:
        async with connected(served):
            async with asyncio.timeout(PATIENCE):
                await over.wait()

    run(story())


def test_a_side_that_has_left_is_no_defect(caplog: pytest.LogCaptureFixture) -> None:
    async def served(out: Outbound, websocket: ServerConnection) -> None:
        await websocket.wait_closed()
        await out.send("answer")
        out.push("event")
        await out.finish()
        out.push("too late")
        await out.send("too late")

    async def story() -> None:
        with caplog.at_level("DEBUG", logger=outbound.__name__):
            async with connected(served) as client:
                await client.close()
        assert "left before its answer" in caplog.text

    run(story())
    gc.collect()
