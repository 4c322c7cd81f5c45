"""The asking side of a batch: page after page, each stored before it is acknowledged, against peers of many kinds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from shine_node.peers.directory import KnownPeer
from shine_node.peers.repeats import QUIET_SECONDS
from shine_node.peers.turns import Ending, Turn
from shine_node.protocol.access import AccessServer
from shine_node.protocol.errors import (
    BadFields,
    BadRequestFormat,
    BadSignature,
    CallerTimeout,
    LeftAlone,
    LinkDown,
    LinkError,
    LinkLost,
    PeerRefused,
    QueueFull,
    Refusal,
    RequestTimeout,
    ServerBusy,
    StorageFull,
)
from shine_node.store.lineage import Lineage
from shine_node.sync import pulling as pulling_module
from shine_node.sync import storing as storing_module
from shine_node.sync.paces import FIRST_REST
from shine_node.sync.pulling import (
    BUSY_ROUNDS,
    MAX_CURSOR_CHARACTERS,
    MAX_SYNC_ID_CHARACTERS,
    Pulled,
    Puller,
)
from tests.support.clock import ManualClock

PEER = KnownPeer("Server2", "wss://server2.example/ws", True)
OP = "DmSyncBatch"
FRAME = 500_000


def item(name: str, login: str = "alice") -> dict[str, Any]:
    return {"syncId": name, "login": login, "blobsB64": []}


def page(*items: Any, cursor: str = "", more: bool = False) -> dict[str, Any]:
    return {"items": list(items), "cursor": cursor, "hasMore": more}


class World:
    """A peer that answers from a list of pages, and this server's way in."""

    def __init__(self, *pages: Any, offered: bool = True) -> None:
        self.pages = list(pages)
        self.asked: list[dict[str, Any]] = []
        self.stored: list[str] = []
        self.news = 0
        self.clock = ManualClock()
        self.kept: dict[str, str] = {}
        self.turn = Turn(self.is_over, self.kept)
        self.pages_a_turn = 0
        """After how many pages a turn is over, 0 for never."""
        self.pages_of_turn = 0
        self.refuse: Callable[[str], Refusal | None] = lambda name: None
        self.before_answer: Callable[[], None] = lambda: None
        self.slow = ""
        """The entry that is stored only after others."""
        self.puller = Puller(
            op=OP,
            peers=self,
            clock=self.clock,
            apply=self.apply,
            shares=lambda owner, server: (owner, server) in {("alice", "Server2"), ("bob", "Server2")},
            page_limit=100,
            max_frame_bytes=FRAME,
            offered=lambda server: offered,
            on_stored=self.note,
        )

    async def request(
        self, server: AccessServer, op: str, payload: Mapping[str, object], *, timeout: float | None = None
    ) -> dict[str, Any]:
        assert (server, op, timeout) == (AccessServer(PEER.server_login, PEER.url), OP, None)
        self.note_asked(payload)
        self.before_answer()
        answer = self.pages.pop(0) if self.pages else page(cursor=str(payload.get("cursor", "")))
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, dict)
        return answer

    def note_asked(self, payload: Mapping[str, object]) -> None:
        """Keep a request without what all have: how large the answer may be."""
        asked = dict(payload)
        assert asked.pop("maxBytes") == FRAME
        self.asked.append(asked)

    async def apply(self, server_login: str, items: Sequence[Mapping[str, Any]]) -> list[Refusal | None]:
        assert server_login == PEER.server_login
        for _ in range(20 if any(one["syncId"] == self.slow for one in items) else 1):
            await asyncio.sleep(0)
        refusals = [self.refuse(one["syncId"]) for one in items]
        self.stored += [one["syncId"] for one, refusal in zip(items, refusals, strict=True) if refusal is None]
        return refusals

    def note(self) -> None:
        self.news += 1

    def is_over(self) -> bool:
        self.pages_of_turn += 1
        return self.pages_of_turn == self.pages_a_turn

    def run(self) -> int:
        return self.take_turn().stored

    def take_turn(self) -> Pulled:
        self.pages_of_turn = 0
        return asyncio.run(self.puller.run(PEER, self.turn))


def test_each_page_is_stored_and_acknowledged_with_the_next_request_the_last_one_with_one_more() -> None:
    world = World(page(item("a"), item("b"), cursor="1", more=True), page(item("c", "Bob"), cursor="2"))
    assert world.run() == 3
    assert world.stored == ["a", "b", "c"]
    assert world.asked == [
        {"ackSyncIds": [], "limit": 100},
        {"ackSyncIds": ["a", "b"], "limit": 100, "cursor": "1"},
        {"ackSyncIds": ["c"], "limit": 100, "cursor": "2"},
    ]
    assert world.news == 2


def test_with_nothing_new_one_request_is_all() -> None:
    world = World(page())
    assert world.run() == 0
    assert len(world.asked) == 1
    assert world.news == 0


def test_pages_without_entries_are_passed_over() -> None:
    world = World(page(cursor="1", more=True), page(item("a"), cursor="2", more=True), page(cursor="3"))
    assert world.run() == 1
    assert [asked.get("cursor") for asked in world.asked] == [None, "1", "2"]


def test_what_is_refused_is_logged_not_acknowledged_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    world = World(page(item("a"), item("bad"), 7, {"login": "alice"}, item("x", "mallory"), item("b"), cursor="1"))
    world.refuse = lambda name: BadSignature("forged") if name == "bad" else None
    with caplog.at_level(logging.WARNING):
        assert world.run() == 2
    assert world.asked[1]["ackSyncIds"] == ["a", "b"]
    [record] = caplog.records
    assert "4 of 6 entries of DmSyncBatch from Server2 were refused, the first, bad, because of" in record.getMessage()


@pytest.mark.parametrize("first", ["good", "bad"])
def test_a_name_that_stands_for_a_refused_entry_too_is_not_acknowledged(first: str) -> None:
    same, bad = item("same"), item("same", "mallory")
    two = [same, bad] if first == "good" else [bad, same]
    world = World(page(*two, item("other"), {"syncId": ["other"]}, {"syncId": 5}, cursor="1"))
    assert world.run() == 1
    assert sorted(world.stored) == ["other", "same"]
    assert world.asked[1]["ackSyncIds"] == ["other"]


def test_what_is_no_item_is_named_in_the_log_by_one_short_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert World(page("a\nb" * 500)).run() == 0
    [record] = caplog.records
    assert "\n" not in record.getMessage()
    assert len(record.getMessage()) < 500


def test_the_same_cursor_for_ever_ends_the_session(caplog: pytest.LogCaptureFixture) -> None:
    world = World(*(page(item("a"), cursor="1", more=True) for _ in range(9)))
    with caplog.at_level(logging.WARNING):
        assert world.run() == 2
    assert len(world.asked) == 3, "what the second page brought is acknowledged, and then it is over"
    assert "the same page" in caplog.text


def test_refused_entries_are_told_once_a_turn_and_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.refuse = lambda name: BadSignature("forged") if name.startswith("bad") else None

    def pages() -> list[dict[str, Any]]:
        return [page(item(f"bad{number}"), item("a"), cursor=str(number), more=number < 5) for number in range(1, 6)]

    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            world.pages = pages()
            assert world.run() == 5
    assert [record.getMessage() for record in caplog.records] == [
        "5 of 10 entries of DmSyncBatch from Server2 were refused, the first, bad1, because of BAD_SIGNATURE: forged"
    ]
    world.pages = pages()[:2]  # and the third has another cursor, and ends it
    with caplog.at_level(logging.WARNING):
        asyncio.run(world.clock.advance(QUIET_SECONDS))
        world.run()
    assert "2 of 4 entries" in caplog.records[-1].getMessage()


def test_refused_entries_are_told_of_a_session_that_ends_in_an_error_too(caplog: pytest.LogCaptureFixture) -> None:
    world = World(page(7, cursor="1", more=True), LinkLost("server2", OP))
    with caplog.at_level(logging.WARNING), pytest.raises(LinkLost):
        world.run()
    assert "1 of 1 entries" in caplog.text


def test_the_same_page_for_ever_is_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            world.pages = [page(more=True)]
            assert world.take_turn() == Pulled(0, False)
    assert len(caplog.records) == 1


# --- turns ---


def test_a_turn_that_is_over_acknowledges_its_last_page_and_the_next_one_goes_on_behind_it() -> None:
    world = World(
        page(item("a"), cursor="1", more=True),
        page(item("b"), cursor="2", more=True),
        page(item("ignored"), cursor="3", more=True),
        page(item("c"), cursor="3", more=True),
        page(item("d"), cursor="4"),
    )
    world.pages_a_turn = 2
    assert world.take_turn() == Pulled(2, True)
    assert world.kept == {OP: "2"}
    assert world.asked[-1] == {"ackSyncIds": ["b"], "limit": 1, "cursor": "2"}
    assert world.take_turn() == Pulled(2, False)
    assert world.stored == ["a", "b", "c", "d"]
    assert world.asked[3:] == [
        {"ackSyncIds": [], "limit": 100, "cursor": "2"},
        {"ackSyncIds": ["c"], "limit": 100, "cursor": "3"},
        {"ackSyncIds": ["d"], "limit": 1, "cursor": "4"},
    ]
    assert world.kept == {}
    world.run()
    assert world.asked[-1] == {"ackSyncIds": [], "limit": 100}, "and then a new session begins"


def test_nothing_is_acknowledged_where_nothing_was_stored() -> None:
    world = World(page(cursor="1", more=True))
    world.pages_a_turn = 1
    assert world.take_turn() == Pulled(0, True)
    assert len(world.asked) == 1


@pytest.mark.parametrize("pages_a_turn", [1, 2, 3])
def test_entries_that_cannot_be_stored_never_hide_those_behind_them_however_short_the_turns(pages_a_turn: int) -> None:
    entries = [f"bad{number}" for number in range(40)] + ["good"]

    class Serving(World):
        async def request(
            self, server: AccessServer, op: str, payload: Mapping[str, object], *, timeout: float | None = None
        ) -> dict[str, Any]:
            self.note_asked(payload)
            after = int(str(payload.get("cursor", 0)))
            end = after + int(str(payload["limit"]))
            return page(*map(item, entries[after:end]), cursor=str(min(end, len(entries))), more=end < len(entries))

    world = Serving()
    world.puller._paces._page_limit = 4
    world.pages_a_turn = pages_a_turn
    world.refuse = lambda name: BadSignature("forged") if name.startswith("bad") else None
    turns = 0
    while world.take_turn().more:
        turns += 1
        assert turns < 12, "it never comes to an end"
    assert world.stored == ["good"]
    assert world.asked[-1]["ackSyncIds"] == ["good"]


def test_what_is_told_at_the_end_of_a_turn_says_that_the_store_was_restored() -> None:
    world = with_lineage(World(marked("lost-1", cursor="1", more=True)))
    world.pages_a_turn = 1
    assert world.take_turn() == Pulled(0, True)
    assert [(asked.get("restored"), asked["limit"]) for asked in world.asked] == [(None, 100), (True, 1)]


def test_the_acknowledgement_of_a_turn_says_nothing_of_the_size_of_pages() -> None:
    lost = LinkLost("server2", OP)
    world = World(page(item("a"), cursor="1", more=True), lost, page(), page())
    world.pages_a_turn = 1
    with pytest.raises(LinkLost):
        world.run()
    assert world.kept == {}, "what was lost begins anew"
    world.run()
    assert [asked["limit"] for asked in world.asked] == [100, 1, 100]


# --- answers that ask too much ---


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (page(*map(item, map(str, range(101))), cursor="1"), "an answer holds 101 entries where at most 100 were"),
        (page(item("a"), cursor="x" * (MAX_CURSOR_CHARACTERS + 1)), "cursor of an answer has more than 1024"),
        ({**page(item("a"), cursor="1"), "storeMark": "x" * 65}, "storeMark of an answer has more than 64"),
    ],
)
def test_an_answer_that_is_more_than_was_asked_for_is_refused_whole(answer: dict[str, Any], says: str) -> None:
    world = World(answer)
    with pytest.raises(BadFields, match=says):
        world.run()
    assert world.stored == []
    assert len(world.asked) == 1
    assert world.kept == {}


def test_a_page_of_just_what_was_asked_for_is_taken() -> None:
    longest = "x" * MAX_SYNC_ID_CHARACTERS
    names = [*map(str, range(99)), longest]
    world = World({**page(*map(item, names), cursor="c" * MAX_CURSOR_CHARACTERS), "storeMark": "x" * 64})
    assert world.run() == 100
    assert world.asked[1]["ackSyncIds"] == names


def test_the_limit_that_counts_is_the_one_that_was_asked_for() -> None:
    world = World(LinkLost("server2", OP), page(*map(item, map(str, range(26))), cursor="1"))
    with pytest.raises(LinkLost):
        world.run()
    with pytest.raises(BadFields, match="26 entries where at most 25"):
        world.run()


def test_an_entry_whose_name_is_too_long_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    world = World(page(item("x" * (MAX_SYNC_ID_CHARACTERS + 1)), item("b"), cursor="1"))
    with caplog.at_level(logging.WARNING):
        assert world.run() == 1
    assert world.stored == world.asked[1]["ackSyncIds"] == ["b"]
    assert "its syncId has more than 256 characters" in caplog.text


@pytest.mark.parametrize("answer", [{"items": 5}, {"items": [], "cursor": 5}])
def test_an_answer_that_is_none_ends_the_session(answer: dict[str, Any]) -> None:
    with pytest.raises(BadRequestFormat):
        World(answer).run()


def test_a_link_that_is_lost_over_a_page_has_smaller_ones_asked_for_until_they_come() -> None:
    lost = LinkLost("server2", OP)
    world = World(lost, lost, page(cursor="1", more=True), page(cursor="2", more=True), page(cursor="3"))
    for _ in range(2):
        with pytest.raises(LinkLost):
            world.run()
    world.run()
    assert [asked["limit"] for asked in world.asked] == [100, 25, 6, 12, 24]
    world.pages = [page(cursor=str(number), more=number < 5) for number in range(1, 6)]
    asyncio.run(world.clock.advance(FIRST_REST))  # meanwhile, as many as did not come are not asked for again
    world.run()
    assert [asked["limit"] for asked in world.asked[5:]] == [24, 48, 96, 100, 100]


@pytest.mark.parametrize("kind", [RequestTimeout, CallerTimeout])
def test_a_page_that_does_not_come_in_time_is_asked_for_in_smaller_ones(kind: type[LinkError]) -> None:
    world = World(kind("server2", OP), kind("server2", OP), page(item("a"), cursor="1"))
    for _ in range(2):
        with pytest.raises(kind):
            world.run()
    assert world.run() == 1
    assert [asked["limit"] for asked in world.asked] == [100, 25, 6, 12]


@pytest.mark.parametrize(
    "other", [LinkDown("server2", OP), QueueFull("server2", OP), PeerRefused("server2", OP, 500, "INTERNAL_ERROR")]
)
def test_what_says_nothing_of_the_size_of_pages_leaves_it_as_it_is(other: LinkError) -> None:
    world = World(other, LinkLost("server2", OP), other, other, page())
    for failed in [type(other), LinkLost, type(other), type(other)]:
        with pytest.raises(failed):
            world.run()
    world.run()
    assert [asked["limit"] for asked in world.asked] == [100, 100, 25, 25, 25]


def test_a_peer_that_gives_not_even_one_entry_is_left_alone_for_a_while() -> None:
    async def story() -> None:
        lost = LinkLost("server2", OP)
        world = World(lost, lost, lost, lost)
        for _ in range(4):
            with pytest.raises(LinkLost):
                await world.puller.step(PEER, world.turn)
        assert [asked["limit"] for asked in world.asked] == [100, 25, 6, 1]
        with pytest.raises(LeftAlone, match=r"at Server2: left alone .*limits\.maxFrameBytes; again in 60 s"):
            await world.puller.step(PEER, world.turn)
        await world.clock.advance(FIRST_REST - 1)
        with pytest.raises(LeftAlone, match="again in 1 s"):
            await world.puller.step(PEER, world.turn)
        assert len(world.asked) == 4
        await world.clock.advance(1)
        world.pages = [page(item("a"), cursor="1")]
        assert await world.puller.step(PEER, world.turn) is Ending.DONE
        assert [asked["limit"] for asked in world.asked[4:]] == [1, 2]
        assert world.stored == ["a"]

    asyncio.run(story())


def test_entries_that_are_refused_before_the_one_that_does_not_come_do_not_have_it_asked_for_for_ever() -> None:
    """What is refused comes again and again: that it came says nothing of what lies behind it."""
    entries = ["bad1", "bad2", "too large", "good"]

    class Serving(World):
        async def request(
            self, server: AccessServer, op: str, payload: Mapping[str, object], *, timeout: float | None = None
        ) -> dict[str, Any]:
            self.note_asked(payload)
            after = int(str(payload.get("cursor", 0)))
            some = entries[after : after + int(str(payload["limit"]))]
            if "too large" in some:
                raise LinkLost("server2", OP)
            return page(*map(item, some), cursor=str(after + len(some)), more=True)

    async def story() -> None:
        world = Serving()
        world.refuse = lambda name: BadSignature("forged") if name.startswith("bad") else None
        lost = 0
        while True:
            try:
                await world.puller.step(PEER, world.turn)
            except LinkLost:
                lost += 1
                assert lost < 10, "it is asked for for ever"
            except LeftAlone:
                break
        assert world.stored == []
        assert lost == 5, "at 100, 25, 6, 2 and 1"

    asyncio.run(story())


def test_what_this_server_is_too_busy_for_is_tried_again_after_a_pause() -> None:
    async def story() -> None:
        world = World(page(item("a"), item("b"), item("c"), cursor="1"))
        busy = {"b": 2}

        def refuse(name: str) -> Refusal | None:
            if busy.get(name):
                busy[name] -= 1
                return ServerBusy("not now")
            return None

        world.refuse = refuse
        pulling = asyncio.ensure_future(world.puller.run(PEER, world.turn))
        while not pulling.done():
            await world.clock.advance(0.1)
        assert pulling.result() == Pulled(3, False)
        assert sorted(world.stored) == ["a", "b", "c"]
        assert world.asked[1]["ackSyncIds"] == ["a", "b", "c"]

    asyncio.run(story())


def test_a_server_that_stays_too_busy_gives_the_session_up_and_acknowledges_nothing() -> None:
    async def story() -> None:
        world = World(page(item("a"), item("b"), cursor="1"))
        world.refuse = lambda name: ServerBusy("not now") if name == "b" else None
        pulling = asyncio.ensure_future(world.puller.run(PEER, world.turn))
        for _ in range(3 * BUSY_ROUNDS):
            await world.clock.advance(0.2)
        with pytest.raises(ServerBusy):
            await pulling
        assert len(world.asked) == 1

    asyncio.run(story())


def test_a_store_without_room_ends_the_session() -> None:
    world = World(page(item("a")))

    async def full(server_login: str, items: Sequence[Mapping[str, Any]]) -> list[Refusal | None]:
        raise StorageFull("full")

    world.puller._apply = full  # type: ignore[method-assign]
    with pytest.raises(StorageFull):
        world.run()


def test_a_long_page_is_stored_in_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storing_module, "AT_ONCE", 3)
    names = [f"id{number}" for number in range(10)]
    world = World(page(*map(item, names), cursor="1"))
    assert world.run() == 10
    assert sorted(world.stored) == sorted(names)
    assert world.asked[1]["ackSyncIds"] == names, "in their order, whichever stretch was done first"


def test_the_next_page_is_asked_for_while_the_last_stretch_of_this_one_is_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(storing_module, "AT_ONCE", 2)
    world = World(page(*map(item, "abcd"), cursor="1", more=True), page(*map(item, "efg"), cursor="2"))
    stored_when_asked: list[list[str]] = []
    world.before_answer = lambda: stored_when_asked.append(list(world.stored))
    world.slow = "c"
    assert world.run() == 7
    assert [asked["ackSyncIds"] for asked in world.asked] == [[], ["a", "b"], ["c", "d", "e", "f", "g"]]
    assert stored_when_asked[1] == ["a", "b"]
    assert sorted(world.stored) == list("abcdefg")
    assert world.news == 2


def test_what_was_stored_late_is_told_where_the_turn_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storing_module, "AT_ONCE", 2)
    world = World(page(*map(item, "abcd"), cursor="1", more=True))
    world.pages_a_turn = 1
    world.slow = "c"
    assert world.take_turn() == Pulled(4, True)
    assert [asked["ackSyncIds"] for asked in world.asked] == [[], ["a", "b", "c", "d"]]


def test_so_much_is_asked_for_that_a_peer_remembers_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storing_module, "AT_ONCE", 2)
    monkeypatch.setattr(pulling_module, "REMEMBERED", 100)
    world = World(page(*map(item, "abcd"), cursor="1", more=True))
    assert world.run() == 4
    assert [asked["ackSyncIds"] for asked in world.asked] == [[], ["a", "b", "c", "d"]]


def test_an_error_ends_what_is_under_way_and_tells_of_what_was_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(storing_module, "AT_ONCE", 2)
    world = World(page(7, *map(item, "abcd"), cursor="1", more=True), LinkLost("server2", OP))
    world.slow = "c"
    with pytest.raises(LinkLost):
        world.run()
    assert world.stored == ["a", "b"]
    assert "1 of 5 entries" in caplog.text


@pytest.mark.parametrize(("offered", "permanent", "asked"), [(True, True, 2), (False, True, 0), (True, False, 0)])
def test_a_session_asks_only_who_offers_it_and_is_somebodys_other_server(
    offered: bool, permanent: bool, asked: int, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(page(item("a"), cursor="1"), offered=offered)
    with caplog.at_level(logging.INFO):
        ended = asyncio.run(world.puller.step(PEER._replace(permanent=permanent), world.turn))
    assert ended is Ending.DONE
    assert len(world.asked) == asked
    assert ("1 entries of DmSyncBatch came from Server2" in caplog.text) is (asked > 0)


def test_a_session_with_nothing_new_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        world = World(page())
        assert asyncio.run(world.puller.step(PEER, world.turn)) is Ending.DONE
    assert caplog.records == []


@pytest.mark.parametrize(("items", "ended"), [([item("a")], Ending.AT_ONCE), ([7], Ending.LATER), ([], Ending.LATER)])
def test_what_is_left_is_fetched_at_once_if_anything_of_it_is_of_use(items: list[Any], ended: Ending) -> None:
    world = World(page(*items, cursor="1", more=True))
    world.pages_a_turn = 1
    assert asyncio.run(world.puller.step(PEER, world.turn)) is ended


# --- a store that was restored ---


def marked(mark: str, *items: Any, cursor: str = "", more: bool = False) -> dict[str, Any]:
    """A page of a peer that remembers a mark of this server's store."""
    return {**page(*items, cursor=cursor, more=more), "storeMark": mark}


def with_lineage(world: World, *, ended: Mapping[str, int] | None = None) -> World:
    """Let the puller say where its store is: at the fifth commit of its run, and one further with each request."""
    positions = iter(range(5, 100))
    lineage = Lineage(ended or {}, "now", lambda: next(positions))
    world.puller._lineage = lambda: lineage
    return world


def test_a_peer_is_told_how_far_the_store_has_come() -> None:
    world = with_lineage(World(marked("", item("a"), cursor="1")))
    assert world.run() == 1
    assert [asked["storeMark"] for asked in world.asked] == ["now-5", "now-6"]
    assert not any("restored" in asked for asked in world.asked)


def test_what_it_has_come_past_needs_no_word() -> None:
    world = with_lineage(World(marked("then-7")), ended={"then": 7})
    assert world.run() == 0
    assert len(world.asked) == 1


@pytest.mark.parametrize("cursor", ["", "1"])
def test_a_store_that_lacks_what_the_peer_remembers_says_so_once_in_a_session(cursor: str) -> None:
    world = with_lineage(World(*(marked("then-8", cursor=cursor) for _ in range(9))), ended={"then": 7})
    assert world.run() == 0
    assert [asked.get("restored") for asked in world.asked] == [None, True]


def test_it_says_so_with_what_it_acknowledges_and_goes_on() -> None:
    pages = [marked("lost-1", item("a"), cursor="1", more=True), marked("now-6", item("b"), cursor="2")]
    world = with_lineage(World(*pages))
    assert world.run() == 2
    assert [asked.get("restored") for asked in world.asked] == [None, True, None]
    assert [asked["ackSyncIds"] for asked in world.asked] == [[], ["a"], ["b"]]


def test_a_mark_that_is_no_text_ends_the_session() -> None:
    with pytest.raises(BadRequestFormat):
        with_lineage(World({**page(), "storeMark": 5})).run()
