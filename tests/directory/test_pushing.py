"""Who is told which records of the owners that two servers share, how often, and what it costs (PROTOCOL.md §3)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from shine_node.directory import pushing
from shine_node.directory.pushing import AccessPush, tell_record
from shine_node.peers.directory import KnownPeer
from shine_node.peers.turns import Ending, Turn
from shine_node.protocol.access import AccessRecord, AccessServer, parse_record
from shine_node.protocol.errors import LinkLost, PeerRefused, RequestTimeout
from shine_node.store.readers import Readers
from tests.directory.houses import House, asked, cuts, house_in, record_of, refuses
from tests.store.rooms import NOW, OWN
from tests.support.nodes import run
from tests.support.scripted_peer import PeerConnection, ScriptedPeer, never, refusal

OP = "SetUserAccess"
INTERVAL = 300.0
ALICE, BOB, CAROL = (record_of(login, OWN, "one") for login in ("Alice", "Bob", "Carol"))


class Learns:
    """A peer's ``SetUserAccess``: it knows of these users these records, and does otherwise for some of them."""

    def __init__(self, *known: AccessRecord) -> None:
        self.newest = {record.key: record.time_ms for record in known}
        self.does: dict[tuple[str, int], Any] = {}
        """What is done instead with the record of a login and time."""

    async def __call__(self, connection: PeerConnection, request: dict[str, Any]) -> None:
        record = parse_record(request["payload"], allow_insecure=True)
        behaviour = self.does.get((record.key, record.time_ms))
        if behaviour is not None:
            await behaviour(connection, request)
            return
        applied = record.time_ms > self.newest.get(record.key, -1)
        if applied:
            self.newest[record.key] = record.time_ms
        await connection.answer(request, {"applied": applied})


def later(status: int, code: str, payload: dict[str, Any]) -> Any:
    """A behaviour that refuses, and says more of it."""

    async def refuse(connection: PeerConnection, request: dict[str, Any]) -> None:
        await connection.send(refusal(request, status, code).replace('"payload":{}', f'"payload":{encoded(payload)}'))

    return refuse


def encoded(payload: dict[str, Any]) -> str:
    return "{" + ",".join(f'"{name}":{value}' for name, value in payload.items()) + "}"


class Office:
    """The pushing of one server that has a link to ``one``; a session is what keeps something between turns."""

    def __init__(self, house: House, peer: ScriptedPeer, readers: Readers) -> None:
        self.house = house
        self.peer = peer
        self.push = AccessPush(
            readers=readers, users=house.users, peers=house.pool, clock=house.clock, interval_seconds=INTERVAL
        )
        self.kept: dict[str, str] = {}

    async def know(self, *records: AccessRecord) -> None:
        for record in records:
            await self.house.users.add(record)

    async def step(self, over: Callable[[], bool] = lambda: False, *, permanent: bool = True) -> Ending:
        peer = KnownPeer(self.peer.login, self.peer.url, permanent)
        return await self.push.step(peer, Turn(over, self.kept))

    def another_connection(self) -> None:
        """A lost link empties what the session keeps."""
        self.kept.clear()

    async def connected_again(self) -> None:
        await self.house.clock.advance(2)
        await self.house.until_connected()
        self.another_connection()

    def told(self) -> list[tuple[str, int]]:
        """Login and age of each record that the peer was told, since the last call."""
        found = [(payload["login"], payload["timeMs"] - NOW) for payload in asked(self.peer, OP)[self._seen :]]
        self._seen += len(found)
        return found

    _seen = 0


@asynccontextmanager
async def office_in(folder: Path, does: Any = None, *records: AccessRecord) -> AsyncIterator[Office]:
    """Have a server that knows these records, with a peer that does so."""
    peer = ScriptedPeer("one", {OP: does or Learns()})
    async with house_in(folder, peer) as house:
        readers = Readers(house.store)
        try:
            office = Office(house, peer, readers)
            await office.know(*records)
            yield office
        finally:
            await asyncio.to_thread(readers.close)


def logged(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "shine_node.directory.pushing" and r.levelno >= level]


def aged(login: str, *ages: int) -> list[AccessRecord]:
    """Records of one user, so many milliseconds old."""
    return [record_of(login, OWN, "one", time_ms=NOW - age) for age in ages]


# --- one record ---


def test_one_record_is_told_and_whether_it_was_news(tmp_path: Path) -> None:
    async def story() -> None:
        async with office_in(tmp_path, Learns(BOB)) as it:
            place = AccessServer("one", it.peer.url)
            assert await tell_record(it.house.pool, place, ALICE) is True
            assert await tell_record(it.house.pool, place, BOB) is False
            it.peer.script[OP] = later_success
            assert await tell_record(it.house.pool, place, BOB) is False, "only true is true"

    async def later_success(connection: PeerConnection, request: dict[str, Any]) -> None:
        await connection.answer(request, {"applied": 1})

    run(story())


# --- rounds ---


def test_the_newest_record_of_each_shared_owner_is_told_once_on_a_connection(tmp_path: Path) -> None:
    async def story() -> None:
        strangers = record_of("Dave", OWN), record_of("Erin", OWN, "two"), record_of("Frank", "one", "two")
        async with office_in(tmp_path, Learns(ALICE, BOB), *aged("Alice", 9), ALICE, BOB, *strangers) as it:
            assert await it.step() is Ending.DONE
            assert it.told() == [("Alice", 0), ("Bob", 0)]
            await it.house.clock.advance(INTERVAL)
            assert await it.step() is Ending.DONE
            assert it.told() == [], "it has answered that it knows these"

            await it.know(CAROL)
            assert await it.step() is Ending.DONE
            assert it.told() == [], "not within the interval"
            await it.house.clock.advance(INTERVAL)
            assert await it.step() is Ending.DONE
            assert it.told() == [("Carol", 0)]

    run(story())


def test_a_peer_to_which_it_is_news_is_told_the_older_ones_too_oldest_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def story() -> None:
        async with office_in(tmp_path, Learns(*aged("Alice", 20), BOB), *aged("Alice", 20, 0, 30, 10), BOB) as it:
            assert await it.step() is Ending.DONE
            assert it.told() == [("Alice", 0), ("Alice", -30), ("Alice", -20), ("Alice", -10), ("Bob", 0)]
            it.another_connection()
            await it.house.clock.advance(INTERVAL)
            assert await it.step() is Ending.DONE
            assert it.told() == [("Alice", 0), ("Bob", 0)]

    run(story())
    assert logged(caplog, logging.INFO) == ["one did not know the newest records of 1 of its users"]


def test_a_peer_without_a_permanent_link_is_told_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with office_in(tmp_path, None, ALICE) as it:
            assert await it.step(permanent=False) is Ending.DONE
            assert it.told() == []

    run(story())


def test_a_link_that_comes_and_goes_makes_one_round_in_an_interval(tmp_path: Path) -> None:
    async def story() -> None:
        async with office_in(tmp_path, Learns(), ALICE, BOB) as it:
            for second in range(int(INTERVAL)):
                it.another_connection()
                assert await it.step() is Ending.DONE
                assert it.told() == ([("Alice", 0), ("Bob", 0)] if not second else [])
                await it.house.clock.advance(1)
            assert await it.step() is Ending.DONE
            assert it.told() == [("Alice", 0), ("Bob", 0)]

    run(story())


def test_a_link_that_is_lost_in_a_round_does_not_begin_it_anew(tmp_path: Path) -> None:
    async def story() -> None:
        learns = Learns(ALICE, BOB, CAROL)
        learns.does["bob", NOW] = cuts
        async with office_in(tmp_path, learns, ALICE, BOB, CAROL) as it:
            with pytest.raises(LinkLost):
                await it.step()
            assert it.told() == [("Alice", 0), ("Bob", 0)]
            await it.connected_again()
            assert await it.step() is Ending.DONE
            assert it.told() == [("Carol", 0)], "a record that ends links keeps no other from the peer"
            learns.does.clear()
            await it.house.clock.advance(INTERVAL)
            assert await it.step() is Ending.DONE
            assert it.told() == [("Alice", 0), ("Bob", 0), ("Carol", 0)], "the connection was another"

    run(story())


def test_one_that_does_not_answer_a_record_is_told_the_others(tmp_path: Path) -> None:
    async def story() -> None:
        learns = Learns(ALICE, BOB)
        learns.does["alice", NOW] = never
        async with office_in(tmp_path, learns, ALICE, BOB) as it:
            step = asyncio.create_task(it.step())
            await it.peer.until_asked(1)
            await it.house.clock.advance(60)
            with pytest.raises(RequestTimeout):
                await step
            await it.connected_again()
            assert await it.step() is Ending.DONE
            assert it.told() == [("Alice", 0), ("Bob", 0)]

    run(story())


def test_older_records_that_could_not_be_told_are_told_in_the_next_round(tmp_path: Path) -> None:
    async def story() -> None:
        learns = Learns(*aged("Alice", 40))
        learns.does["alice", NOW - 20] = cuts
        async with office_in(tmp_path, learns, *aged("Alice", 30, 20, 10, 0)) as it:
            with pytest.raises(LinkLost):
                await it.step()
            assert it.told() == [("Alice", 0), ("Alice", -30), ("Alice", -20)]
            learns.does.clear()
            await it.connected_again()
            assert await it.step() is Ending.DONE
            await it.house.clock.advance(INTERVAL)
            assert await it.step() is Ending.DONE
            assert it.told() == [("Alice", 0), ("Alice", -20), ("Alice", -10)], "though the newest is known there now"
            it.another_connection()
            await it.house.clock.advance(INTERVAL)
            assert await it.step() is Ending.DONE
            assert it.told() == [("Alice", 0)]

    run(story())


# --- turns ---


def test_a_turn_that_is_over_leaves_the_rest_to_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushing, "ROWS_AT_ONCE", 2)
    strangers = [record_of(f"user{number}", "one") for number in range(3)]

    async def story() -> None:
        async with office_in(tmp_path, Learns(ALICE, BOB), ALICE, *strangers, BOB) as it:
            endings = [await it.step(lambda: True) for _ in range(4)]
            assert endings == [Ending.AT_ONCE] * 3 + [Ending.DONE]
            assert it.told() == [("Alice", 0), ("Bob", 0)]
            it.another_connection()
            await it.house.clock.advance(INTERVAL)
            assert await it.step() is Ending.DONE, "all pages in one turn that is long enough"
            assert it.told() == [("Alice", 0), ("Bob", 0)]

    run(story())


def test_a_turn_has_a_bounded_number_of_owners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushing, "OWNERS_A_TURN", 3)
    owners = [record_of(f"user{number}", OWN, "one") for number in range(7)]

    async def story() -> None:
        async with office_in(tmp_path, Learns(*owners), *owners) as it:
            for number in (3, 3):
                assert await it.step() is Ending.AT_ONCE
                assert len(it.told()) == number
            assert await it.step() is Ending.DONE
            assert it.told() == [("user6", 0)]

    run(story())


def test_a_user_with_many_records_gives_way_too(tmp_path: Path) -> None:
    async def story() -> None:
        async with office_in(tmp_path, Learns(BOB), *aged("Alice", 30, 20, 10, 0), BOB) as it:
            for age in (30, 20, 10):
                assert await it.step(lambda: True) is Ending.AT_ONCE
                assert it.told() == [("Alice", 0), ("Alice", -age)]
            assert await it.step(lambda: True) is Ending.AT_ONCE
            assert it.told() == [("Alice", 0)]
            assert await it.step() is Ending.DONE
            assert it.told() == [("Bob", 0)]

    run(story())


# --- refusals ---


def test_what_is_refused_for_good_is_told_once_and_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        learns = Learns(CAROL)
        learns.does["alice", NOW] = refuses(403, "REGISTRATION_CLOSED")
        learns.does["bob", NOW] = refuses(409, "ROOT_KEY_MISMATCH")
        async with office_in(tmp_path, learns, ALICE, BOB, CAROL) as it:
            assert await it.step() is Ending.DONE
            assert it.told() == [("Alice", 0), ("Bob", 0), ("Carol", 0)]
            await it.house.clock.advance(INTERVAL)
            assert await it.step() is Ending.DONE
            assert it.told() == [], "not again on this connection"

    run(story())
    [line] = logged(caplog)
    text = "one does not take 2 records of its users, the first one of Alice: SetUserAccess at one: refused (403 REG"
    assert line.startswith(text)


def test_a_refused_older_record_does_not_keep_the_others_from_the_peer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        learns = Learns()
        learns.does["alice", NOW - 20] = refuses(400, "BAD_FIELDS")
        async with office_in(tmp_path, learns, *aged("Alice", 30, 20, 10, 0)) as it:
            assert await it.step() is Ending.DONE
            assert it.told() == [("Alice", 0), ("Alice", -30), ("Alice", -20), ("Alice", -10)]

    run(story())
    assert len(logged(caplog)) == 1


@pytest.mark.parametrize(
    "refuse",
    [
        later(503, "SERVER_BUSY", {"retryAfterMs": 1000}),
        later(429, "RATE_LIMITED", {"retryAfterMs": 1000}),
        later(429, "RATE_LIMITED", {}),
        later(507, "STORAGE_FULL", {}),
    ],
)
@pytest.mark.parametrize("age", [0, 10])
def test_a_peer_that_can_take_nothing_now_is_asked_for_no_more_before_the_next_session(
    tmp_path: Path, refuse: Any, age: int
) -> None:
    async def story() -> None:
        learns = Learns(BOB)
        learns.does["alice", NOW - age] = refuse
        async with office_in(tmp_path, learns, *aged("Alice", 10, 0), BOB) as it:
            for _ in range(3):
                with pytest.raises(PeerRefused):
                    await it.step()
                assert it.told() == [("Alice", 0), ("Alice", -10)][: 1 + bool(age)]
            learns.does.clear()
            assert await it.step() is Ending.DONE
            assert it.told() == [("Alice", 0), ("Alice", -10), ("Bob", 0)]

    run(story())


@pytest.mark.parametrize(
    "refuse", [later(429, "RATE_LIMITED", {"retryAfterMs": 86_400_000}), refuses(500, "INTERNAL_ERROR")]
)
def test_an_owner_of_whom_it_can_take_nothing_for_long_keeps_no_other_from_it(tmp_path: Path, refuse: Any) -> None:
    async def story() -> None:
        learns = Learns(BOB)
        learns.does["alice", NOW] = refuse
        async with office_in(tmp_path, learns, ALICE, BOB) as it:
            assert await it.step() is Ending.DONE
            assert it.told() == [("Alice", 0), ("Bob", 0)]

    run(story())


def test_a_peer_that_does_not_know_the_operation_is_asked_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with office_in(tmp_path, refuses(400, "UNKNOWN_OP"), ALICE, BOB) as it:
            assert await it.step() is Ending.DONE
            assert await it.step() is Ending.DONE
            assert it.told() == [("Alice", 0)]

    run(story())
    assert len(logged(caplog)) == 1


def test_the_log_is_told_once_a_minute(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with office_in(tmp_path, refuses(403, "FORBIDDEN"), ALICE, BOB) as it:
            while await it.step(lambda: True) is Ending.AT_ONCE:
                pass
            assert len(it.told()) == 2

    run(story())
    assert len(logged(caplog)) == 1


# --- memory ---


def test_what_is_remembered_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushing, "MAX_REMEMBERED", 2)

    async def story() -> None:
        async with office_in(tmp_path, None, ALICE) as it:
            await it.step()
            assert len(it.told()) == 1
            for login in ("two", "three"):
                assert await it.push.step(KnownPeer(login, it.peer.url, True), Turn(lambda: False, {})) is Ending.DONE
            await it.step()
            assert len(it.told()) == 1, "of the one that was not needed for longest it is forgotten"
            assert len(it.push._rounds) == 2

    run(story())
