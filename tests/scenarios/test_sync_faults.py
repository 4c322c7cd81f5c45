"""A real server and one that gives pages as it is told: bad entries, lost links, lost answers, and when it is asked."""

from __future__ import annotations

import itertools
import logging
from pathlib import Path
from typing import Any

import orjson
import pytest

from shine_node.client.messages import SignedPair
from tests.scenarios.sync_world import DM, SETTINGS, STATUS, Giver, history, item, session, unsynced
from tests.scenarios.world import HOUR, SESSIONS, Home, Person, Scripted, World, tell
from tests.support.clock import ManualClock
from tests.support.scripted_peer import PeerConnection

INCOMING = "ReceiveIncomingMessage"


class Cast:
    """Alice at the real ``a2`` and at a giver named ``a1``; bob, to whom she writes, at a server that says yes."""

    def __init__(self, world: World, a2: Home, giver: Giver, r1: Scripted, alice: Person) -> None:
        self.world, self.a2, self.giver, self.r1, self.alice = world, a2, giver, r1, alice

    def old(self, count: int) -> list[SignedPair]:
        """Messages of alice that are two hours old."""
        self.world.clock.jump(round(-2 * HOUR * 1000))
        pairs = [self.alice.writes("bob", f"message {number}") for number in range(count)]
        self.world.clock.jump(round(2 * HOUR * 1000))
        return pairs

    def has(self, *pairs: SignedPair) -> list[bool]:
        """Which pairs the real server has."""
        return [self.a2.blobs(pair.outgoing_key) == (pair.incoming, pair.outgoing) for pair in pairs]

    async def gives(self, *pages: list[dict[str, Any]] | str) -> None:
        """Have pages given in the next session, and let that session pass."""
        self.giver.pages = list(pages)
        self.giver.asked.clear()
        await session(self.world)


class Outbox(Giver):
    """A giver of an outbox, like a server that knows nothing of ``maxBytes``: it minds the limit and the cursor alone.

    It is silent where more than ``most`` are asked for, as if the page took too long.
    """

    def __init__(self, login: str, clock: ManualClock) -> None:
        super().__init__(login, clock)
        self.outbox: list[dict[str, Any]] = []
        self.acknowledged: set[str] = set()
        self.most = 500

    @property
    def limits(self) -> list[int]:
        """How many it was asked for, each time."""
        return [batch["limit"] for batch in self.batches()]

    async def _give(self, connection: PeerConnection, request: dict[str, Any]) -> None:
        payload = request["payload"]
        after, limit = int(payload.get("cursor") or 0), payload["limit"]
        self.acknowledged.update(payload["ackSyncIds"])
        left = [index for index, one in enumerate(self.outbox) if one["syncId"] not in self.acknowledged]
        left = [index for index in left if index >= after]
        if limit <= self.most:
            some = left[:limit]
            cursor = str(some[-1] + 1) if some else str(after)
            items = [self.outbox[index] for index in some]
            await connection.answer(request, {"items": items, "cursor": cursor, "hasMore": len(left) > limit})


async def cast(world: World, *, giver_type: type[Giver] = Giver, **sync: int) -> Cast:
    a2 = await world.home("a2", sync=sync)
    giver = giver_type("a1", world.clock)
    await giver.start()
    world._stack.push_async_callback(giver.stop)
    r1 = await world.scripted("r1")
    alice = await world.person("alice", a2, giver)
    await world.person("bob", r1, known_at=(a2,))
    await world.passes(SESSIONS)
    await giver.until_asked(DM, 1)
    await world.rest()
    return Cast(world, a2, giver, r1, alice)


def test_a_bad_entry_is_refused_said_in_the_log_stops_nothing_and_comes_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(world: World) -> None:
        c = await cast(world)
        good = c.old(3)
        mallory = await world.person("mallory", c.a2, known_at=())
        foreign = mallory.writes("bob", "not of an owner of both servers")
        forged = good[0]._replace(outgoing=good[0].outgoing[:-1] + b"\xff")
        cut_short = good[1]._replace(incoming=good[1].incoming[:-9])
        page = [
            item("good 0", good[2]),
            item("forged", forged),
            item("cut short", cut_short),
            item("foreign", foreign, owner="mallory"),
            item("under another name", foreign),
            {"syncId": "nothing", "login": "alice"},
            {"login": "alice", "blobsB64": []},
            item("good 1", good[1]),
        ]
        with caplog.at_level(logging.WARNING):
            await c.gives(page, [item("good 2", good[0])])
        assert c.has(*good) == [True] * 3
        first, second, third = c.giver.batches()
        assert first["ackSyncIds"] == []
        assert second["ackSyncIds"] == ["good 0", "good 1"]
        assert third["ackSyncIds"] == ["good 2"]
        assert history(c.a2, "mallory").items == {}
        [text] = [r.getMessage() for r in caplog.records if "were refused" in r.getMessage()]
        assert text.startswith("6 of 9 entries of DmSyncBatch from a1 were refused, the first, forged, because of BAD_")
        caplog.clear()
        with caplog.at_level(logging.DEBUG, logger="shine_node.sync.pulling"):  # quietly, so soon after
            await c.gives([item("forged", forged)])
        assert "1 of 1 entries of DmSyncBatch" in caplog.text, "it came again, and is refused again"

    tell(tmp_path, story)


@pytest.mark.parametrize("trouble", ["cut", "silence"])
def test_a_link_or_an_answer_that_is_lost_in_the_middle_loses_nothing(tmp_path: Path, trouble: str) -> None:
    async def story(world: World) -> None:
        c = await cast(world)
        one, two, three = c.old(3)
        c.giver.pages = [[item("1", one)], trouble]
        asked = len(c.giver.batches())
        if trouble == "silence":
            # The peer keeps the world from resting: the clock is moved by hand until the request is given up.
            await world.clock.advance(SESSIONS)
            await c.giver.until_asked(DM, asked + 2)
            await world.clock.advance(12)
            c.giver.cut()
        await session(world, 2)
        assert c.has(one) == [True]
        assert c.giver.batches()[asked + 1]["ackSyncIds"] == ["1"], "it was said, and not heard"
        await c.gives([item("1", one), item("2", two)], [item("3", three)])
        assert c.has(one, two, three) == [True] * 3
        assert [batch["ackSyncIds"] for batch in c.giver.batches()] == [[], ["1", "2"], ["3"]]
        assert len(history(c.a2).items) == 3, "what comes again is the same again"

    tell(tmp_path, story)


def test_a_peer_that_gives_one_cursor_for_ever_ends_its_session(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(world: World) -> None:
        c = await cast(world)
        pairs = c.old(2)
        c.giver.cursor = "x"
        with caplog.at_level(logging.WARNING):
            await c.gives([item("1", pairs[0])], [item("2", pairs[1])], [item("1", pairs[0])], [])
        assert len(c.giver.batches()) == 3
        assert "gives the same page of DmSyncBatch" in caplog.text
        await c.gives([])
        assert c.giver.batches()[0]["ackSyncIds"] == [], "the next session begins anew"

    tell(tmp_path, story)


def test_a_page_of_more_than_was_asked_for_is_refused_whole(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story(world: World) -> None:
        c = await cast(world, pageLimit=2)
        pairs = c.old(3)
        items = [item(f"{number}", pair) for number, pair in enumerate(pairs)]
        with caplog.at_level(logging.WARNING):
            await c.gives(items)
        assert c.has(*pairs) == [False] * 3
        assert len(c.giver.batches()) == 1
        assert "part messages of the session with a1 was given up: BAD_FIELDS: an answer holds 3 entries" in caplog.text
        problem = c.a2.node._sessions.outcomes.of("a1").problem
        assert problem == "messages: BAD_FIELDS: an answer holds 3 entries where at most 2 were asked for"
        await c.gives(items[:2], items[2:])
        assert c.has(*pairs) == [True] * 3
        assert c.a2.node._sessions.outcomes.of("a1").problem == ""

    tell(tmp_path, story)


def test_an_entry_that_does_not_fit_into_the_callers_frame_hides_nothing_and_costs_no_link(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(world: World) -> None:
        a1 = await world.home("a1", limits={"maxBodyBytes": 2**20, "maxFrameBytes": 2**23})
        a2, r1 = await world.home("a2"), await world.scripted("r1")
        alice = await world.person("alice", a1, a2)
        await world.person("bob", r1, known_at=(a1, a2))
        await world.passes(SESSIONS)
        await a2.stop()
        pairs = [alice.writes("bob", text) for text in ("before", "x" * 600_000, "between", "x" * 600_000, "behind")]
        for pair in pairs:
            await world.passes(1)
            await world.send(a1, pair)
        await world.passes(HOUR)
        await a2.start()
        await session(world)
        small = [pairs[0], pairs[2], pairs[4]]
        assert [a2.blobs(pair.outgoing_key)[1] for pair in small] == [pair.outgoing for pair in small]
        [record] = [record for record in caplog.records if record.name == "shine_node.sync.serving"]
        assert "is larger than a2 takes: raise limits.maxFrameBytes there" in record.getMessage()
        await session(world, 4)
        assert unsynced(a1) == 2, "what could not be given is not taken for given"
        [peer] = a2.node.pool.snapshot().peers
        assert peer.reconnects == 0
        assert a2.node._sessions.outcomes.of("a1").problem == ""

    tell(tmp_path, story)


def test_an_older_peer_with_an_entry_that_does_not_fit_costs_few_links_and_nothing_else(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        c = await cast(world, giver_type=Outbox)
        giver = c.giver
        assert isinstance(giver, Outbox)
        pairs = c.old(3)
        giver.delivered = {pair.outgoing_key for pair in pairs}
        large = {"syncId": "large", "login": "alice", "blobsB64": ["x" * 2**20]}
        giver.outbox = [item("0", pairs[0]), item("1", pairs[1]), large, item("2", pairs[2])]
        before = giver.connections
        await world.passes(HOUR)
        assert c.has(*pairs) == [True, True, False]
        assert giver.connections - before < 12, "it was left alone for 1, 2, 4, 8, 16 and 32 minutes"
        assert "messages: DmSyncBatch at a1: left alone" in c.a2.node._sessions.outcomes.of("a1").problem
        asked, connections = len(giver.limits), giver.connections
        giver.asked.clear()
        live = c.alice.writes("bob", "now")
        await world.send(c.a2, live)
        await session(world, 2)
        ops = [op for op, _, _ in giver.asked]
        assert "ReceiveOutcomingMessage" in ops
        assert c.a2.state(live) == "delivered"
        assert ops.count(SETTINGS) >= 2
        assert DM not in ops
        assert asked < 25
        assert giver.connections == connections
        giver.acknowledged.add("large")  # it was removed
        await world.passes(HOUR)
        assert c.has(*pairs) == [True] * 3
        assert c.a2.node._sessions.outcomes.of("a1").problem == ""
        assert giver.limits[-1] > 1

    tell(tmp_path, story)


def test_a_page_that_takes_too_long_is_asked_for_in_smaller_ones(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        c = await cast(world, giver_type=Outbox)
        giver = c.giver
        assert isinstance(giver, Outbox)
        pairs = c.old(30)
        giver.delivered = {pair.outgoing_key for pair in pairs}
        giver.outbox, giver.most = [item(str(number), pair) for number, pair in enumerate(pairs)], 50
        giver.asked.clear()
        # The peer keeps the world from resting: the clock is moved by hand until the request is given up.
        await world.clock.advance(SESSIONS)
        await giver.until_asked(DM, 1)
        await world.clock.advance(12)
        connections = giver.connections
        await session(world)
        assert c.has(*pairs) == [True] * 30
        assert giver.limits[:3] == [100, 25, 50]
        assert giver.connections == connections

    tell(tmp_path, story)


def test_a_name_that_stands_for_a_refused_entry_too_is_not_acknowledged(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        c = await cast(world)
        one, two, three = c.old(3)
        bad = two._replace(outgoing=two.outgoing[:-1] + b"\xff")
        await c.gives([item("same", one), item("same", bad), item("other", three)])
        assert [batch["ackSyncIds"] for batch in c.giver.batches()] == [[], ["other"]]

    tell(tmp_path, story)


def test_old_pairs_are_asked_about_at_the_offsets_from_their_arrival_and_nothing_is_sent(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        c = await cast(world)
        pairs = c.old(40)
        c.giver.delivered = {pair.outgoing_key for pair in pairs[:20]}
        c.giver.pages = [[item(str(number), pair) for number, pair in enumerate(pairs)]]
        await world.passes(SESSIONS + 10)
        arrived = c.giver.times(DM)[-1]
        assert {c.a2.state(pair) for pair in pairs[:20]} == {"delivered"}
        assert {c.a2.state(pair) for pair in pairs[20:]} == {"accepted"}
        late = {pair.outgoing_key for pair in pairs[20:30]}
        await world.passes(20 * 60)
        c.giver.delivered |= late
        await world.passes(HOUR)
        assert [c.a2.state(pair) for pair in pairs] == ["delivered"] * 30 + ["failed"] * 10
        asked = [(at - arrived, p["messageKey"]) for op, at, p in c.giver.asked if op == STATUS]
        rounds = [0, 30, 300, 1500, 3600]
        for pair in pairs:
            times = [at for at, key in asked if key == pair.outgoing_key]
            ends = 1 if pair in pairs[:20] else 4 if pair in pairs[20:30] else 5
            assert len(times) == ends
            assert all(due <= at <= due + 10 for at, due in zip(times, rounds, strict=False))
        await world.passes(HOUR)
        assert c.r1.calls == []

    tell(tmp_path, story)


def test_a_session_begins_after_each_connection_and_at_each_interval_one_at_a_time(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        c = await cast(world)
        c.giver.asked.clear()
        began = world.seconds
        await world.passes(3 * SESSIONS)
        times = [round(at - began) for at in c.giver.times(DM)]
        assert len(times) == 3
        assert [later - earlier for earlier, later in itertools.pairwise(times)] == [SESSIONS, SESSIONS]
        connections = c.giver.connections
        c.giver.cut()
        c.giver.asked.clear()
        await world.passes(5)
        assert c.giver.connections > connections
        assert len(c.giver.times(DM)) == 1, "at once, not at the interval"

    tell(tmp_path, story)


def test_a_pair_of_servers_with_nothing_new_exchanges_two_small_requests_an_interval(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        c = await cast(world)
        pairs = c.old(30)
        c.giver.delivered = {pair.outgoing_key for pair in pairs}
        await c.gives([item(str(number), pair) for number, pair in enumerate(pairs)])
        await session(world)
        assert {c.a2.state(pair) for pair in pairs} == {"delivered"}
        c.giver.asked.clear()
        before = c.a2.node.store.position
        await world.passes(4 * SESSIONS)
        sync = [op for op, _, _ in c.giver.asked if op in (DM, SETTINGS)]
        assert sync == [SETTINGS, DM] * 4
        assert all(len(orjson.dumps(payload)) < 100 for op, _, payload in c.giver.asked if op in (DM, SETTINGS))
        assert {op for op, _, _ in c.giver.asked} == {DM, SETTINGS}
        assert c.a2.node.store.position == before, "nothing is written"

    tell(tmp_path, story)


def test_a_server_that_does_not_offer_it_is_not_asked(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a2, r1 = await world.home("a2"), await world.scripted("a1")
        await world.person("alice", a2, r1)
        await world.passes(3 * SESSIONS)
        assert DM not in r1.ops

    tell(tmp_path, story)
