"""Who is told a user's records, how often, and which calls are repeated for it (PROTOCOL.md §3)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shine_node.delivery import tellings
from shine_node.delivery.background import Background
from shine_node.delivery.tellings import AGAIN_SECONDS, TELLING_SECONDS, Tellings
from shine_node.protocol.access import AccessServer
from tests.delivery.rooms import SET_ACCESS, Held, Payload, Rooms, breaks, down, refuses, run, until
from tests.store.rooms import NOW, OWN, identity, servers

[R1] = servers("r1")
[R2] = servers("r2")


class Office:
    """Tellings of one server about alice, who has had two records."""

    def __init__(self, rooms: Rooms) -> None:
        self.rooms = rooms
        self.peers = rooms.peers
        self.background = Background()
        self.tellings = Tellings(peers=rooms.peers, users=rooms.users, clock=rooms.clock, background=self.background)

    async def tell(self, server: AccessServer = R1, login: str = "alice", *, since: int | None = None) -> bool:
        """Tell on behalf of a call that began just now, or earlier."""
        return await self.tellings.tell(server, login, since=self.tellings.ended if since is None else since)

    def begin(self, server: AccessServer = R1, login: str = "alice") -> asyncio.Task[bool]:
        return asyncio.create_task(self.tell(server, login))

    def told(self, server: str = "r1") -> list[int]:
        """The times of the records that a server was told of, in order."""
        return [c.payload["timeMs"] for c in self.peers.calls if (c.server, c.op) == (server, SET_ACCESS)]


@contextlib.asynccontextmanager
async def office(folder: Path) -> AsyncIterator[Office]:
    async with Rooms(folder) as rooms:
        await rooms.know("alice", "old.server", time_ms=NOW - 2000)
        await rooms.know("alice", OWN)
        it = Office(rooms)
        try:
            yield it
        finally:
            await it.background.close()


def test_all_records_are_told_oldest_first(tmp_path: Path) -> None:
    async def story() -> None:
        async with office(tmp_path) as it:
            assert await it.tell() is True
            assert it.told() == [NOW - 2000, NOW - 1000]
            assert it.tellings.ended == 1

    run(story())


def test_one_that_is_refused_gets_a_second_chance_where_another_was_taken(tmp_path: Path) -> None:
    async def story() -> None:
        async with office(tmp_path) as it:

            async def only_the_newest(server: AccessServer, op: str, payload: Payload) -> Payload:
                if payload["timeMs"] == NOW - 2000:
                    return await refuses(403, "FORBIDDEN")(server, op, payload)
                return {"applied": True}

            it.peers.on("r1", SET_ACCESS, only_the_newest)
            assert await it.tell() is True
            assert it.told() == [NOW - 2000, NOW - 1000, NOW - 2000]
            it.peers.on("r2", SET_ACCESS, refuses(403, "FORBIDDEN"))
            assert await it.tell(R2) is True
            assert it.told("r2") == [NOW - 2000, NOW - 1000]

    run(story())


def test_who_needs_it_meanwhile_shares_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with office(tmp_path) as it:
            held = Held()
            it.peers.on("r1", SET_ACCESS, held)
            calls = [it.begin() for _ in range(20)]
            await until(lambda: held.waiting)
            calls.append(it.begin())
            other = it.begin(R2)
            assert await other is True, "another server is told by itself"
            calls[0].cancel()  # whoever began it may go away
            held.release()
            assert await asyncio.gather(*calls[1:]) == [True] * 20
            assert it.told() == [NOW - 2000, NOW - 1000]

    run(story())


def test_a_call_that_began_before_one_ended_needs_no_other(tmp_path: Path) -> None:
    async def story() -> None:
        async with office(tmp_path) as it:
            since = it.tellings.ended
            assert await it.tell() is True
            assert await it.tell(since=since) is True
            assert it.told() == [NOW - 2000, NOW - 1000]
            it.peers.on("r2", SET_ACCESS, down)
            since = it.tellings.ended
            assert await it.tell(R2) is False
            assert await it.tell(R2, since=since) is False, "nor does it help where that one failed"
            assert it.told("r2") == [NOW - 2000]

    run(story())


def test_the_same_is_not_told_again_for_some_seconds(tmp_path: Path) -> None:
    async def story() -> None:
        async with office(tmp_path) as it:
            assert await it.tell() is True
            await it.rooms.clock.advance(AGAIN_SECONDS - 0.1)
            assert await it.tell() is False
            assert len(it.told()) == 2
            await it.rooms.clock.advance(0.1)
            assert await it.tell() is True
            assert len(it.told()) == 4

    run(story())


def test_a_newer_record_is_told_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with office(tmp_path) as it:
            assert await it.tell() is True
            await it.rooms.know("alice", OWN, "a2", time_ms=NOW)
            assert await it.tell() is True
            assert it.told() == [NOW - 2000, NOW - 1000, NOW - 2000, NOW - 1000, NOW]
            assert await it.tell() is False

    run(story())


def test_another_url_is_another_server_and_the_login_may_be_spelled_otherwise(tmp_path: Path) -> None:
    async def story() -> None:
        async with office(tmp_path) as it:
            held = Held()
            it.peers.on("r1", SET_ACCESS, held)
            first = it.begin()
            await until(lambda: held.waiting == 1)
            same = asyncio.create_task(it.tell(R1._replace(server_login="R1")))
            await asyncio.sleep(0)
            held.release()
            assert await asyncio.gather(first, same) == [True, True]
            assert len(it.told()) == 2
            with pytest.raises(AssertionError, match="the address is that of the record"):
                await it.tell(R1._replace(url="wss://elsewhere.example/ws"))

    run(story())


def test_who_has_nothing_to_be_told_of_is_not_worth_a_repetition(tmp_path: Path) -> None:
    async def story() -> None:
        async with office(tmp_path) as it:
            assert await it.tell(login="nobody") is False
            unsigned = identity("carol").access_record(servers(OWN), time_ms=0)._replace(signature=b"")
            await it.rooms.users.add(unsigned, local=True)
            assert await it.tell(login="carol") is False
            assert it.told() == []

    run(story())


def test_a_server_that_takes_its_time_over_each_record_does_not_hold_attempts_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    async def story() -> None:
        async with office(tmp_path) as it:
            held = Held()
            it.peers.on("r1", SET_ACCESS, held)
            call = it.begin()
            await until(lambda: held.waiting)
            await it.rooms.clock.advance(TELLING_SECONDS - 0.1)
            assert not call.done()
            await it.rooms.clock.advance(0.1)
            assert await call is False
            assert held.waiting == 0
            assert await it.tell() is False, "and is left alone for a while"

    run(story())
    assert "r1 could not be told the records of alice: it takes too long" in caplog.text


def test_a_defect_reaches_those_who_wait_and_keeps_nobody_out(tmp_path: Path) -> None:
    async def story() -> None:
        async with office(tmp_path) as it:
            it.peers.on("r1", SET_ACCESS, breaks)
            with pytest.raises(ZeroDivisionError):
                await it.tell()
            await it.rooms.clock.advance(AGAIN_SECONDS)
            it.peers.on("r1", SET_ACCESS, Held())
            call = it.begin()
            await until(lambda: it.told()[1:])
            call.cancel()

    run(story())


def test_what_is_remembered_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tellings, "MAX_REMEMBERED", 3)

    async def story() -> None:
        async with office(tmp_path) as it:
            for number in range(10):
                assert await it.tell(*servers(f"s{number}")) is True
                assert len(it.tellings) <= 4
            assert await it.tell(*servers("s9")) is False
            assert await it.tell(*servers("s0")) is True, "the oldest are forgotten"
            await it.rooms.clock.advance(AGAIN_SECONDS)
            assert await it.tell() is True
            assert len(it.tellings) == 1

    run(story())
