"""Who is connected: sessions of connections, events to all of a login, ends of a session; over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve

from shine_node.api.connection import Connection, LiveSession
from shine_node.api.live import Live
from shine_node.client.connection import Connection as Client
from shine_node.client.connection import ConnectionLost
from tests.support.clock import ManualClock
from tests.support.nodes import PATIENCE, eventually, run

ALICE = LiveSession("alice", "a1")
ALICE_TOO = LiveSession("alice", "a2")
BOB = LiveSession("bob", "b1")


class Room:
    """A server that has nothing but live connections, each with its client."""

    def __init__(self, live: Live, url: str, arrived: asyncio.Queue[Connection], stack: AsyncExitStack) -> None:
        self.live = live
        self._url = url
        self._arrived = arrived
        self._stack = stack

    async def enter(self, session: LiveSession | None = None) -> tuple[Connection, Client]:
        """Connect; the server's and the client's side of it."""
        client = await self._stack.enter_async_context(await Client.open(self._url))
        async with asyncio.timeout(PATIENCE):
            connection = await self._arrived.get()
        if session is not None:
            self.live.attach(connection, session)
        return connection, client


@asynccontextmanager
async def room() -> AsyncIterator[Room]:
    live = Live()
    arrived: asyncio.Queue[Connection] = asyncio.Queue()

    async def end_own(connection: Connection, payload: dict[str, Any]) -> dict[str, object]:
        live.end_session(connection.need_session(), asking=connection)
        return {"answered": True}

    async def handle(websocket: ServerConnection) -> None:
        connection = Connection(
            websocket, handlers={"EndOwn": end_own}, clock=ManualClock(), requests_per_second=100, address="test"
        )
        await arrived.put(connection)
        await connection.serve()

    async with serve(handle, "127.0.0.1", 0, close_timeout=1) as server, AsyncExitStack() as stack:
        yield Room(live, f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/ws", arrived, stack)


async def events(client: Client, count: int) -> list[tuple[str, dict[str, Any]]]:
    found = [await client.next_event(timeout=PATIENCE) for _ in range(count)]
    assert len({event.event_id for event in found}) == count
    return [(event.op, event.payload) for event in found]


async def loss(client: Client) -> str:
    with pytest.raises(ConnectionLost) as lost:
        await client.next_event(timeout=PATIENCE)
    return str(lost.value)


def test_an_event_goes_to_every_live_session_of_a_login_and_to_nobody_else() -> None:
    async def story() -> None:
        async with room() as here:
            _, phone = await here.enter(ALICE)
            _, same_phone = await here.enter(ALICE)
            _, desk = await here.enter(ALICE_TOO)
            _, bob = await here.enter(BOB)
            await here.enter()
            here.live.push("alice", "First", {"n": 1})
            here.live.push("nobody", "Lost", {})
            here.live.push("alice", "Second", {"n": 2})
            here.live.push("bob", "Other", {})
            for client in (phone, same_phone, desk):
                assert await events(client, 2) == [("First", {"n": 1}), ("Second", {"n": 2})]
            assert await events(bob, 1) == [("Other", {})]

    run(story())


def test_who_knows_already_gets_no_event() -> None:
    async def story() -> None:
        async with room() as here:
            sender, phone = await here.enter(ALICE)
            _, desk = await here.enter(ALICE)
            here.live.push("alice", "Sent", {}, but_not=sender)
            here.live.push("alice", "ToAll", {})
            assert await events(phone, 1) == [("ToAll", {})]
            assert await events(desk, 2) == [("Sent", {}), ("ToAll", {})]

    run(story())


def test_a_connection_has_one_session_the_latest() -> None:
    async def story() -> None:
        async with room() as here:
            connection, client = await here.enter(ALICE)
            here.live.attach(connection, BOB)
            assert connection.session == BOB
            assert (here.live.has("alice"), here.live.has("bob"), here.live.connections) == (False, True, 1)
            here.live.push("alice", "Lost", {})
            here.live.push("bob", "Mine", {})
            assert await events(client, 1) == [("Mine", {})]
            here.live.detach(connection)
            here.live.detach(connection)
            assert connection.session is None
            assert here.live.connections == 0

    run(story())


def test_a_connection_that_ends_is_forgotten() -> None:
    async def story() -> None:
        async with room() as here:
            _, client = await here.enter(ALICE)
            await here.enter(ALICE)
            assert here.live.connections == 2
            await client.close()

            async def forgotten() -> bool:
                return here.live.connections == 1

            await eventually(forgotten)
            assert here.live.has("alice")

    run(story())


def test_the_end_of_a_session_ends_its_connections_only() -> None:
    async def story() -> None:
        async with room() as here:
            ended = [await here.enter(ALICE) for _ in range(2)]
            _, desk = await here.enter(ALICE_TOO)
            here.live.end_session(ALICE)
            here.live.end_session(LiveSession("nobody", "x"))
            assert here.live.connections == 1
            assert all(connection.session is None for connection, _ in ended)
            for _, client in ended:
                assert "1008: this session was closed" in await loss(client)
            here.live.push("alice", "StillHere", {})
            assert await events(desk, 1) == [("StillHere", {})]

    run(story())


def test_who_ends_the_own_session_is_answered_first() -> None:
    async def story() -> None:
        async with room() as here:
            connection, client = await here.enter(ALICE)
            _, other = await here.enter(ALICE)
            assert await client.request("EndOwn", {}, timeout=PATIENCE) == {"answered": True}
            assert connection.session is None
            assert "1008" in await loss(client)
            assert "1008" in await loss(other)

    run(story())


def test_a_new_key_ends_all_connections_of_a_login() -> None:
    async def story() -> None:
        async with room() as here:
            ended = [await here.enter(ALICE), await here.enter(ALICE_TOO)]
            _, bob = await here.enter(BOB)
            here.live.end_login("alice")
            here.live.end_login("nobody")
            assert (here.live.has("alice"), here.live.connections) == (False, 1)
            for connection, client in ended:
                assert connection.session is None
                assert "1008: the device key was replaced" in await loss(client)
            here.live.push("bob", "StillHere", {})
            assert await events(bob, 1) == [("StillHere", {})]

    run(story())


def test_whether_anybody_else_listens() -> None:
    async def story() -> None:
        async with room() as here:
            sender, _ = await here.enter(ALICE)
            assert here.live.has("alice")
            assert here.live.has("alice", but_not=None)
            assert not here.live.has("alice", but_not=sender)
            await here.enter(ALICE_TOO)
            assert here.live.has("alice", but_not=sender)
            assert not here.live.has("bob", but_not=sender)

    run(story())
