"""The asking side of a batch: page after page, each stored before it is acknowledged, against peers of many kinds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from shine_node.peers.directory import KnownPeer
from shine_node.protocol.access import AccessServer
from shine_node.protocol.errors import BadRequestFormat, BadSignature, LinkLost, Refusal, ServerBusy, StorageFull
from shine_node.store.lineage import Lineage
from shine_node.sync import pulling as pulling_module
from shine_node.sync.pulling import BUSY_ROUNDS, Puller
from tests.support.clock import ManualClock

PEER = KnownPeer("Server2", "wss://server2.example/ws", True)
OP = "DmSyncBatch"


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
        self.refuse: Callable[[str], Refusal | None] = lambda name: None
        self.puller = Puller(
            op=OP,
            peers=self,
            clock=self.clock,
            apply=self.apply,
            shares=lambda owner, server: (owner, server) in {("alice", "Server2"), ("bob", "Server2")},
            page_limit=100,
            offered=lambda server: offered,
            on_stored=self.note,
        )

    async def request(
        self, server: AccessServer, op: str, payload: Mapping[str, object], *, timeout: float | None = None
    ) -> dict[str, Any]:
        assert (server, op, timeout) == (AccessServer(PEER.server_login, PEER.url), OP, None)
        self.asked.append(dict(payload))
        answer = self.pages.pop(0) if self.pages else page(cursor=str(payload.get("cursor", "")))
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, dict)
        return answer

    async def apply(self, server_login: str, items: Sequence[Mapping[str, Any]]) -> list[Refusal | None]:
        assert server_login == PEER.server_login
        await asyncio.sleep(0)
        refusals = [self.refuse(one["syncId"]) for one in items]
        self.stored += [one["syncId"] for one, refusal in zip(items, refusals, strict=True) if refusal is None]
        return refusals

    def note(self) -> None:
        self.news += 1

    def run(self) -> int:
        return asyncio.run(self.puller.run(PEER))


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


def test_a_session_has_a_bounded_number_of_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulling_module, "MAX_PAGES", 3)
    world = World(*(page(cursor=str(number), more=True) for number in range(9)))
    assert world.run() == 0
    assert len(world.asked) == 3


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
    world.run()
    assert [asked["limit"] for asked in world.asked[5:]] == [48, 96, 100, 100, 100]


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
        pulling = asyncio.ensure_future(world.puller.run(PEER))
        while not pulling.done():
            await world.clock.advance(0.1)
        assert pulling.result() == 3
        assert sorted(world.stored) == ["a", "b", "c"]
        assert world.asked[1]["ackSyncIds"] == ["a", "b", "c"]

    asyncio.run(story())


def test_a_server_that_stays_too_busy_gives_the_session_up_and_acknowledges_nothing() -> None:
    async def story() -> None:
        world = World(page(item("a"), item("b"), cursor="1"))
        world.refuse = lambda name: ServerBusy("not now") if name == "b" else None
        pulling = asyncio.ensure_future(world.puller.run(PEER))
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
    monkeypatch.setattr(pulling_module, "AT_ONCE", 3)
    names = [f"id{number}" for number in range(10)]
    world = World(page(*map(item, names), cursor="1"))
    assert world.run() == 10
    assert sorted(world.stored) == sorted(names)
    assert world.asked[1]["ackSyncIds"] == names, "in their order, whichever stretch was done first"


@pytest.mark.parametrize(("offered", "permanent", "asked"), [(True, True, 2), (False, True, 0), (True, False, 0)])
def test_a_session_asks_only_who_offers_it_and_is_somebodys_other_server(
    offered: bool, permanent: bool, asked: int, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(page(item("a"), cursor="1"), offered=offered)
    with caplog.at_level(logging.INFO):
        asyncio.run(world.puller.step(PEER._replace(permanent=permanent)))
    assert len(world.asked) == asked
    assert ("1 entries of DmSyncBatch came from Server2" in caplog.text) is (asked > 0)


def test_a_session_with_nothing_new_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        asyncio.run(World(page()).puller.step(PEER))
    assert caplog.records == []


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
