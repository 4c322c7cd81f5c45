"""When sessions with peers begin and end, and what a part that fails does to the others (PROTOCOL.md §6)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from shine_node.peers.directory import KnownPeer
from shine_node.peers.repeats import QUIET_SECONDS
from shine_node.peers.turns import Ending, Turn
from shine_node.protocol.errors import LeftAlone, LinkLost, PeerRefused, StorageFull
from shine_node.sync import sessions as sessions_module
from shine_node.sync.outcomes import NONE_YET
from shine_node.sync.sessions import LONE_PART_SECONDS, PART_SECONDS, Sessions, Step
from tests.delivery.rooms import run, until
from tests.support.clock import ManualClock, settle

INTERVAL = 30.0


class World:
    """Who is connected, and what sessions did: two parts, the first of which can be held and can fail."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.links: dict[str, KnownPeer] = {}
        self.done: list[tuple[str, str]] = []
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.under_way = 0
        self.ending = Ending.DONE
        self.slow: set[str] = set()
        """Peers of which there is always more, a second a page."""
        self.kept: list[dict[str, str]] = []
        self.times: list[tuple[str, float]] = []
        """Who gave way in the first part, and after which time."""
        self.sessions = Sessions(
            steps=[Step("first", self.first), Step("second", self.second)],
            clock=self.clock,
            interval_seconds=INTERVAL,
            connected=self.links.get,
        )

    async def first(self, peer: KnownPeer, turn: Turn) -> Ending:
        self.done.append(("first", peer.server_login))
        self.kept.append(dict(turn.kept))
        turn.kept["first"] = str(len(self.kept))
        self.under_way += 1
        began = self.clock.monotonic()
        try:
            await self.gate.wait()
            if peer.server_login in self.slow:
                while not turn.over():
                    await self.clock.sleep(1)
                self.times.append((peer.server_login, self.clock.monotonic() - began))
                return self.ending
        finally:
            self.under_way -= 1
        if self.error is not None:
            raise self.error
        assert not turn.over()
        return Ending.DONE

    async def second(self, peer: KnownPeer, turn: Turn) -> Ending:
        assert not turn.over(), "it has a time of its own"
        self.done.append(("second", peer.server_login))
        return Ending.DONE

    def connects(self, login: str, *, permanent: bool = True) -> None:
        """Have a link come up, as the pool tells of it."""
        self.links[login.lower()] = KnownPeer(login, f"wss://{login}.example/ws", permanent)
        self.sessions.start(login)

    def loses(self, login: str) -> None:
        """Have a link go down."""
        del self.links[login]

    @property
    def parts(self) -> list[str]:
        """What was done, without the names."""
        return [part for part, _ in self.done]


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    made = World()
    try:
        yield made
    finally:
        await made.sessions.close()


def test_a_session_runs_all_parts_in_order_after_each_connection_and_at_the_interval() -> None:
    async def story() -> None:
        async with world() as w:
            w.connects("Server2")
            await settle()
            assert w.done == [("first", "Server2"), ("second", "Server2")]
            await w.clock.advance(INTERVAL - 0.1)
            assert len(w.done) == 2
            await w.clock.advance(0.1)
            assert w.parts == ["first", "second"] * 2
            w.loses("server2")
            await w.clock.advance(10 * INTERVAL)
            assert len(w.done) == 4, "not without a link"
            w.connects("Server2")
            await settle()
            assert len(w.done) == 6
            await w.clock.advance(INTERVAL)
            assert len(w.done) == 8

    run(story())


def test_a_link_that_came_back_has_a_session_at_once_not_at_the_interval() -> None:
    async def story() -> None:
        async with world() as w:
            w.connects("server2")
            await settle()
            await w.clock.advance(5)
            w.loses("server2")
            w.connects("server2")
            await settle()
            assert w.parts == ["first", "second"] * 2
            await w.clock.advance(INTERVAL)
            assert len(w.done) == 6, "and the interval counts from then"

    run(story())


def test_one_session_at_a_time_with_a_peer_and_one_more_for_a_connection_that_came_meanwhile() -> None:
    async def story() -> None:
        async with world() as w:
            w.gate.clear()
            w.connects("server2")
            await settle()
            w.connects("SERVER2")
            w.connects("server2")
            await settle()
            assert w.parts == ["first"]
            w.gate.set()
            await settle()
            assert w.parts == ["first", "second"] * 2

    run(story())


def test_a_link_on_demand_has_one_session_a_connection() -> None:
    async def story() -> None:
        async with world() as w:
            w.connects("rare", permanent=False)
            await settle()
            assert w.parts == ["first", "second"]
            assert w.clock.sleeping == 0, "nothing keeps it open"
            await w.clock.advance(10 * INTERVAL)
            assert len(w.done) == 2
            w.gate.clear()
            w.connects("rare", permanent=False)
            await settle()
            w.connects("rare", permanent=False)
            w.gate.set()
            await settle()
            assert w.parts == ["first", "second"] * 3, "it was connected twice"

    run(story())


def test_a_link_that_becomes_permanent_has_sessions_at_the_interval() -> None:
    async def story() -> None:
        async with world() as w:
            w.connects("server2", permanent=False)
            await settle()
            w.connects("server2", permanent=True)
            await settle()
            await w.clock.advance(INTERVAL)
            assert len(w.done) == 6

    run(story())


def test_who_is_told_of_and_is_not_connected_has_no_session() -> None:
    async def story() -> None:
        async with world() as w:
            w.sessions.start("server2")
            await settle()
            assert w.done == []
            w.connects("server2")
            await settle()
            assert len(w.done) == 2

    run(story())


def test_peers_have_sessions_side_by_side_but_not_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions_module, "MAX_SESSIONS", 2)

    async def story() -> None:
        async with world() as w:
            w.gate.clear()
            for login in ("a", "b", "c"):
                w.connects(login)
            await settle()
            assert w.under_way == 2
            w.gate.set()
            await settle()
            assert sorted(w.done) == [(part, login) for part in ("first", "second") for login in ("a", "b", "c")]

    run(story())


def test_a_link_that_is_lost_ends_the_session_and_the_next_one_is_whole() -> None:
    async def story() -> None:
        async with world() as w:
            w.error = LinkLost("server2", "DmSyncBatch")
            w.connects("server2")
            await settle()
            assert w.parts == ["first"]
            w.error = None
            await w.clock.advance(INTERVAL)
            assert w.parts == ["first", "first", "second"]

    run(story())


@pytest.mark.parametrize(
    ("error", "level", "goes_on"),
    [
        (LinkLost("server2", "DmSyncBatch"), logging.INFO, False),
        (PeerRefused("server2", "DmSyncBatch", 503, "SERVER_BUSY"), logging.WARNING, True),
        (LeftAlone("server2", "DmSyncBatch"), logging.WARNING, True),
        (StorageFull("the disk is full"), logging.WARNING, True),
        (ZeroDivisionError("a defect"), logging.ERROR, True),
    ],
)
def test_what_a_part_raises_is_told_and_harms_no_later_session(
    caplog: pytest.LogCaptureFixture, error: Exception, level: int, goes_on: bool
) -> None:
    caplog.set_level(logging.INFO)

    async def story() -> None:
        async with world() as w:
            w.error = error
            w.connects("server2")
            await settle()
            w.error = None
            await w.clock.advance(INTERVAL)
            assert w.parts == ["first", *["second"] * goes_on, "first", "second"]

    run(story())
    [record] = [record for record in caplog.records if record.name == "shine_node.sync.sessions"]
    assert record.levelno == level
    assert "server2" in record.getMessage()
    assert "first" in record.getMessage()


# --- turns ---


def test_slow_peers_that_always_have_more_do_not_keep_the_places_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions_module, "MAX_SESSIONS", 2)

    async def story() -> None:
        async with world() as w:
            w.slow, w.ending = {"slow1", "slow2", "slow3"}, Ending.AT_ONCE
            for login in ("slow1", "slow2", "slow3", "quick1", "quick2"):
                w.connects(login)
            await settle()
            assert w.under_way == 2
            await w.clock.advance(PART_SECONDS)
            assert {("second", login) for login in ("slow1", "slow2")} <= set(w.done), (
                "their next parts have their time"
            )
            await settle()
            assert ("second", "quick1") in w.done
            assert ("second", "quick2") in w.done
            for _ in range(3):
                before = w.parts.count("first")
                await w.clock.advance(PART_SECONDS)
                assert w.parts.count("first") > before
            assert {login for login, _ in w.times} == {"slow1", "slow2", "slow3"}, "each has its turns"
            assert {seconds for _, seconds in w.times} == {PART_SECONDS}

    run(story())


def test_a_lone_peer_goes_on_in_turns_of_its_own_and_its_later_parts_are_not_starved() -> None:
    async def story() -> None:
        async with world() as w:
            w.slow, w.ending = {"slow"}, Ending.AT_ONCE
            w.connects("slow")
            await w.clock.advance(LONE_PART_SECONDS - 1)
            assert w.parts == ["first"]
            await w.clock.advance(1)
            assert w.parts == ["first", "second", "first"], "it goes on at once"
            await w.clock.advance(2 * LONE_PART_SECONDS)
            assert w.parts == ["first", "second"] * 3 + ["first"]
            assert w.times == [("slow", LONE_PART_SECONDS)] * 3

    run(story())


def test_a_peer_gives_way_soon_to_one_that_comes_while_it_is_at_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions_module, "MAX_SESSIONS", 1)

    async def story() -> None:
        async with world() as w:
            w.slow, w.ending = {"slow"}, Ending.AT_ONCE
            w.connects("slow")
            await w.clock.advance(PART_SECONDS + 5)
            w.connects("quick")
            await w.clock.advance(1)
            assert w.done == [
                ("first", "slow"),
                ("second", "slow"),
                ("first", "quick"),
                ("second", "quick"),
                ("first", "slow"),
            ]
            assert w.times == [("slow", PART_SECONDS + 6)]

    run(story())


def test_what_is_left_of_no_use_waits_for_the_interval() -> None:
    async def story() -> None:
        async with world() as w:
            w.slow, w.ending = {"slow"}, Ending.LATER
            w.connects("slow")
            await w.clock.advance(LONE_PART_SECONDS + INTERVAL - 1)
            assert w.parts == ["first", "second"]
            await w.clock.advance(1)
            assert w.parts == ["first", "second", "first"]

    run(story())


def test_a_link_on_demand_has_turns_until_nothing_more_is_left() -> None:
    async def story() -> None:
        async with world() as w:
            w.slow, w.ending = {"rare"}, Ending.AT_ONCE
            w.connects("rare", permanent=False)
            await w.clock.advance(LONE_PART_SECONDS)
            assert w.parts == ["first", "second", "first"]
            w.ending = Ending.DONE
            await w.clock.advance(10 * LONE_PART_SECONDS)
            assert w.parts == ["first", "second"] * 2

    run(story())


def test_what_parts_keep_is_there_in_the_next_turn_and_gone_after_a_lost_link() -> None:
    async def story() -> None:
        async with world() as w:
            w.connects("server2")
            await w.clock.advance(INTERVAL)
            assert w.kept == [{}, {"first": "1"}]
            w.connects("server2")  # the link was lost, and is up again
            await settle()
            assert w.kept[2:] == [{}]
            w.error = LinkLost("server2", "DmSyncBatch")
            await w.clock.advance(INTERVAL)
            w.error = None
            await w.clock.advance(INTERVAL)
            assert w.kept[3:] == [{"first": "3"}, {}]

    run(story())


# --- what the operator is told ---


def test_how_the_sessions_have_ended() -> None:
    async def story() -> None:
        async with world() as w:
            outcome = w.sessions.outcomes.of
            assert outcome("server2") == NONE_YET
            w.error = StorageFull("the disk is full")
            w.connects("Server2")
            await settle()
            began = w.clock.now_ms()
            assert outcome("server2") == (None, began, "first: STORAGE_FULL: the disk is full")
            for error, problem in (
                (LinkLost("server2", "DmSyncBatch"), "first: DmSyncBatch at server2: link lost"),
                (ZeroDivisionError("a defect"), "first: a defect, which is in the log"),
            ):
                w.error = error
                await w.clock.advance(INTERVAL)
                assert outcome("server2") == (None, began, problem)
            w.error = None
            await w.clock.advance(INTERVAL)
            well = w.clock.now_ms()
            assert outcome("server2") == (well, None, "")
            w.slow, w.ending = {"Server2"}, Ending.AT_ONCE
            await w.clock.advance(INTERVAL + LONE_PART_SECONDS)
            more = "first: there is more, which is under way"
            assert outcome("server2") == (well, w.clock.now_ms(), more)

    run(story())


@pytest.mark.parametrize(
    "error",
    [
        LinkLost("server2", "DmSyncBatch"),
        PeerRefused("server2", "DmSyncBatch", 503, "SERVER_BUSY"),
        ZeroDivisionError("a defect"),
    ],
)
def test_what_goes_wrong_again_and_again_is_told_once_a_minute(
    caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    caplog.set_level(logging.INFO)

    async def story() -> None:
        async with world() as w:
            w.error = error
            w.connects("server2")
            for _ in range(20):
                w.connects("server2")
                await settle()
            assert len(caplog.records) == 1
            await w.clock.advance(QUIET_SECONDS)
            assert len(caplog.records) == 2

    run(story())


@pytest.mark.parametrize("moment", ["in a part", "in the pause", "waiting for a turn"])
def test_the_end_ends_sessions_wherever_they_are_and_begins_none(monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    monkeypatch.setattr(sessions_module, "MAX_SESSIONS", 1)

    async def story() -> None:
        w = World()
        if moment != "in the pause":
            w.gate.clear()
        w.connects("server2")
        if moment == "waiting for a turn":
            w.connects("server3")
        await settle()
        done = len(w.done)
        await asyncio.wait_for(w.sessions.close(), 20)
        assert w.under_way == 0
        w.connects("server2")
        w.connects("server4")
        await w.clock.advance(10 * INTERVAL)
        await until(lambda: w.clock.sleeping == 0)
        assert len(w.done) == done

    run(story())
