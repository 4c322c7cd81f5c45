"""The serving side of a batch: what a request may hold, what acknowledges what, and the page that follows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from shine_node.peers.repeats import QUIET_SECONDS
from shine_node.protocol.encoding import encode_base64
from shine_node.protocol.envelope import encode_answer
from shine_node.protocol.errors import BadFields, BadLogin, BadRequestFormat, ServerBusy, StorageFull
from shine_node.store.environment import Job, Store, Transaction
from shine_node.store.layout import Table
from shine_node.store.lineage import get_doubt, get_peer_mark
from shine_node.store.readers import Readers
from shine_node.sync import serving as serving_module
from shine_node.sync.serving import (
    AHEAD_SECONDS,
    ENVELOPE_BYTES,
    MAX_AHEAD,
    MAX_CURSOR_BYTES,
    FeedPage,
    Sent,
    SyncServing,
)
from tests.delivery.rooms import until
from tests.store.rooms import MAP_SIZE
from tests.support.clock import ManualClock


class Numbers:
    """A feed of numbers: it notes what it is asked, and in which transaction what was acknowledged."""

    def __init__(self, greatest: int) -> None:
        self.greatest = greatest
        self.asked: list[dict[str, Any]] = []
        self.acknowledged: list[tuple[str, object]] = []
        self.full = False
        self.too_large = ""

    def page(self, txn: Transaction, server: str, **asked: Any) -> FeedPage:
        self.asked.append({"server": server, **asked})
        first = int(asked["after"].decode() or 0)
        numbers = range(first + 1, min(first + asked["limit"], self.greatest) + 1)
        entries = [(f"id{n}", ("mark", n), {"login": "alice", "number": n}) for n in numbers]
        last = numbers[-1] if numbers else first
        return FeedPage(entries, str(last).encode() if numbers else b"", last < self.greatest, self.too_large)

    def acknowledge(self, txn: Transaction, server: str, mark: object) -> None:
        if self.full:
            raise StorageFull("the server's store is full")
        self.acknowledged.append((server, mark))
        txn.put(Table.META, b"acknowledged", str(len(self.acknowledged)).encode())


@asynccontextmanager
async def serving(
    folder: Path, feed: Numbers, *, max_frame_bytes: int = 2**20, clock: ManualClock | None = None
) -> AsyncIterator[SyncServing]:
    store = Store(folder / "shine.mdb", map_size=MAP_SIZE)
    store.start()
    readers = Readers(store)
    try:
        yield SyncServing(
            feed=feed, store=store, readers=readers, clock=clock or ManualClock(), max_frame_bytes=max_frame_bytes
        )
    finally:
        readers.close()
        store.close()


def numbers_of(answer: Mapping[str, Any]) -> list[int]:
    return [item["number"] for item in answer["items"]]


def test_a_session_reads_page_after_page_and_acknowledges_each_with_the_next(tmp_path: Path) -> None:
    async def story() -> None:
        feed, sent = Numbers(5), Sent()
        async with serving(tmp_path, feed) as served:
            first = await served.answer("server2", sent, {"ackSyncIds": [], "limit": 2})
            assert first["items"] == [
                {"syncId": "id1", "login": "alice", "number": 1},
                {"syncId": "id2", "login": "alice", "number": 2},
            ]
            assert first["hasMore"] is True
            second = await served.answer(
                "server2", sent, {"ackSyncIds": ["id1", "id2"], "cursor": first["cursor"], "limit": 2}
            )
            assert numbers_of(second) == [3, 4]
            third = await served.answer("server2", sent, {"ackSyncIds": ["id4"], "cursor": second["cursor"]})
            assert feed.acknowledged[:2] == [("server2", ("mark", 1)), ("server2", ("mark", 2))]
            assert numbers_of(third) == [5]
            assert third["hasMore"] is False
            last = await served.answer("server2", sent, {"ackSyncIds": ["id5"], "cursor": third["cursor"]})
            assert last == {"items": [], "cursor": third["cursor"], "hasMore": False}
            assert [mark for _, mark in feed.acknowledged[2:]] == [("mark", 4), ("mark", 5)]

    asyncio.run(story())


def test_what_was_not_sent_here_and_what_was_acknowledged_before_changes_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        feed, sent, elsewhere = Numbers(2), Sent(), Sent()
        async with serving(tmp_path, feed) as served:
            page = await served.answer("server2", sent, {"limit": 2})
            await served.answer("server2", elsewhere, {"ackSyncIds": ["id1"], "cursor": page["cursor"]})
            assert feed.acknowledged == []
            again = {"ackSyncIds": ["id1", "id1", "id9"], "cursor": page["cursor"]}
            await served.answer("server2", sent, again)
            await served.answer("server2", sent, again)
            assert feed.acknowledged == [("server2", ("mark", 1))]

    asyncio.run(story())


def test_a_request_without_a_cursor_acknowledges_and_then_begins_a_new_session(tmp_path: Path) -> None:
    async def story() -> None:
        feed, sent = Numbers(4), Sent()
        async with serving(tmp_path, feed) as served:
            await served.answer("server2", sent, {"limit": 2})
            page = await served.answer("server2", sent, {"ackSyncIds": ["id2"], "limit": 1})
            assert numbers_of(page) == [1]
            assert feed.acknowledged == [("server2", ("mark", 2))]
            await served.answer("server2", sent, {"ackSyncIds": ["id2"], "cursor": page["cursor"]})
            assert len(feed.acknowledged) == 1, "the session before is over"

    asyncio.run(story())


@pytest.mark.parametrize(
    ("payload", "refusal"),
    [
        ({"ackSyncIds": "id1"}, BadRequestFormat),
        ({"ackSyncIds": ["id1", 5]}, BadRequestFormat),
        ({"ackSyncIds": ["id1"], "limit": "all"}, BadRequestFormat),
        ({"ackSyncIds": ["id1"], "cursor": 5}, BadRequestFormat),
        ({"ackSyncIds": ["id1"], "cursor": "no Base64"}, BadFields),
        ({"ackSyncIds": ["id1"], "cursor": encode_base64(bytes(401))}, BadFields),
        ({"ackSyncIds": ["id1"], "maxBytes": 0}, BadFields),
        ({"ackSyncIds": ["id1"], "maxBytes": -1}, BadFields),
        ({"ackSyncIds": ["id1"], "maxBytes": 2**53}, BadFields),
        ({"ackSyncIds": ["id1"], "maxBytes": "1000000"}, BadRequestFormat),
        ({"ackSyncIds": ["id1"], "maxBytes": True}, BadRequestFormat),
        ({"ackSyncIds": ["id1"], "maxBytes": 1.5}, BadRequestFormat),
        ({"ackSyncIds": ["id1"], "storeMark": 5}, BadRequestFormat),
        ({"ackSyncIds": ["id1"], "storeMark": "m" * 65}, BadFields),
        ({"ackSyncIds": ["id1"], "storeMark": "é"}, BadFields),
        ({"ackSyncIds": ["id1"], "login": 5}, BadRequestFormat),
        ({"ackSyncIds": ["id1"], "login": ""}, BadFields),
        ({"ackSyncIds": ["id1"], "login": "a b"}, BadLogin),
    ],
)
def test_a_request_that_is_wrong_acknowledges_nothing(
    tmp_path: Path, payload: dict[str, Any], refusal: type[Exception]
) -> None:
    async def story() -> None:
        feed, sent = Numbers(1), Sent()
        async with serving(tmp_path, feed) as served:
            page = await served.answer("server2", sent, {})
            with pytest.raises(refusal):
                await served.answer("server2", sent, payload)
            assert feed.acknowledged == []
            await served.answer("server2", sent, {"ackSyncIds": ["id1"], "cursor": page["cursor"]})
            assert feed.acknowledged == [("server2", ("mark", 1))]

    asyncio.run(story())


def test_the_feed_is_told_what_is_asked_for_within_bounds(tmp_path: Path) -> None:
    async def story() -> None:
        feed = Numbers(0)
        async with serving(tmp_path, feed, max_frame_bytes=65536) as served:
            await served.answer("server2", Sent(), {"login": "Alice", "limit": 9999, "cursor": encode_base64(b"7")})
            await served.answer("server2", Sent(), {"login": None, "limit": -3})
            await served.answer("server2", Sent(), {})
        assert [asked["login"] for asked in feed.asked] == ["alice", None, None]
        assert [asked["limit"] for asked in feed.asked] == [500, 1, 100]
        assert [asked["after"] for asked in feed.asked] == [b"7", b"", b""]
        assert {asked["max_bytes"] for asked in feed.asked} == {65536 // 2 - 4096}

    asyncio.run(story())


def test_the_feed_is_told_what_the_peers_frame_has_room_for(tmp_path: Path) -> None:
    async def story() -> None:
        feed = Numbers(0)
        async with serving(tmp_path, feed) as served:
            for most in (None, 1, ENVELOPE_BYTES, ENVELOPE_BYTES + 1, 2**53 - 1):
                await served.answer("server2", Sent(), {"maxBytes": most})
            await served.answer("server2", Sent(), {})
        assert [asked["peer_bytes"] for asked in feed.asked] == [None, 0, 0, 1, 2**53 - 1 - ENVELOPE_BYTES, None]

    asyncio.run(story())


def test_what_stands_around_the_items_is_no_larger_than_the_room_that_is_left_for_it() -> None:
    payload = {"items": [], "cursor": encode_base64(bytes(MAX_CURSOR_BYTES)), "hasMore": False, "storeMark": "m" * 64}
    assert len(encode_answer("SettingsSyncBatch", str(2**63), payload)) <= ENVELOPE_BYTES


def test_an_entry_that_the_peer_cannot_take_is_told_once_a_session_and_not_every_minute_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        feed, sent = Numbers(0), Sent()
        async with serving(tmp_path, feed) as served:
            clock = served._repeats._clock
            assert isinstance(clock, ManualClock)
            await served.answer("server2", sent, {})
            assert caplog.records == []
            feed.too_large = "7-abc"
            page = await served.answer("server2", sent, {})
            assert page == {"items": [], "cursor": "", "hasMore": False}
            await served.answer("server2", sent, {"cursor": encode_base64(b"7")})
            assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
                (
                    "WARNING",
                    "the entry 7-abc, and maybe others, is larger than server2 takes: raise limits.maxFrameBytes there",
                )
            ]
            await served.answer("server2", sent, {})
            await served.answer("server3", Sent(), {})
            await clock.advance(QUIET_SECONDS)
            await served.answer("server2", sent, {})
        assert [record.levelname for record in caplog.records] == ["WARNING", "DEBUG", "WARNING", "WARNING"]

    with caplog.at_level(logging.DEBUG, logger="shine_node.sync.serving"):
        asyncio.run(story())


def test_the_acknowledgements_of_a_request_are_one_commit(tmp_path: Path) -> None:
    async def story() -> None:
        feed, sent = Numbers(0), Sent()
        for number in range(100):
            sent.add(f"id{number}", number)
        async with serving(tmp_path, feed) as served:
            before = served._store.position
            await served.answer("server2", sent, {"ackSyncIds": [f"id{n}" for n in range(100)]})
            assert served._store.position == before + 1
        assert [mark for _, mark in feed.acknowledged] == list(range(100))

    asyncio.run(story())


def test_the_peer_may_work_on_a_page_while_its_word_on_the_one_before_is_noted(tmp_path: Path) -> None:
    """Yet nothing is asked of the feed anew, by any connection, before all of it has been noted."""

    async def story() -> None:
        feed = Numbers(9)
        async with serving(tmp_path, feed) as served:
            for number in range(20):
                feed.acknowledged.clear()
                sent = Sent()
                page = await served.answer("server2", sent, {"limit": 2})
                await served.answer("server2", sent, {"ackSyncIds": ["id1"], "cursor": page["cursor"], "limit": 1})
                if number % 2:
                    await until(lambda: not served._noting)
                await served.answer("server2", Sent(), {})
                assert [mark for _, mark in feed.acknowledged] == [("mark", 1)]
            assert served._noting == {}

    asyncio.run(story())


def test_what_could_not_be_noted_is_met_by_the_next_request(tmp_path: Path) -> None:
    async def story() -> None:
        feed, sent = Numbers(9), Sent()
        async with serving(tmp_path, feed) as served:
            page = await served.answer("server2", sent, {"limit": 2})
            feed.full = True
            await served.answer("server2", sent, {"ackSyncIds": ["id1"], "cursor": page["cursor"], "limit": 1})
            await asyncio.wait((served._noting["server2"],))
            feed.full = False
            with pytest.raises(StorageFull):
                await served.answer("server2", sent, {"cursor": page["cursor"]})
            assert numbers_of(await served.answer("server2", sent, {"limit": 1})) == [1]

    asyncio.run(story())


# --- the page that is asked for next ---


def test_the_next_page_is_read_while_the_peer_works_on_this_one(tmp_path: Path) -> None:
    async def story() -> None:
        feed, sent = Numbers(5), Sent()
        async with serving(tmp_path, feed) as served:
            page = await served.answer("server2", sent, {"limit": 2})
            await until(lambda: len(feed.asked) == 2)
            feed.greatest = 4
            for numbers in ([3, 4], [5]):  # as they were read
                page = await served.answer("server2", sent, {"cursor": page["cursor"], "limit": 2})
                feed.greatest = 5
                await asyncio.sleep(0)
                assert numbers_of(page) == numbers
            assert [asked["after"] for asked in feed.asked] == [b"", b"2", b"4"], "each once"

    asyncio.run(story())


@pytest.mark.parametrize("asked", [{"limit": 3}, {"limit": 2, "login": "bob"}, {"limit": 2, "cursor": ""}])
def test_where_another_one_is_asked_for_that_one_is_given(tmp_path: Path, asked: dict[str, Any]) -> None:
    async def story() -> None:
        feed, sent = Numbers(9), Sent()
        async with serving(tmp_path, feed) as served:
            page = await served.answer("server2", sent, {"limit": 2})
            await until(lambda: len(feed.asked) == 2)
            await served.answer("server2", sent, {"cursor": page["cursor"]} | asked)
            assert feed.asked[2]["limit"] == asked["limit"]
            assert feed.asked[2]["login"] == asked.get("login")
            assert feed.asked[2]["after"] == (b"" if "cursor" in asked else b"2")

    asyncio.run(story())


def test_what_was_read_too_long_ago_is_read_anew(tmp_path: Path) -> None:
    async def story() -> None:
        feed, sent, clock = Numbers(9), Sent(), ManualClock()
        async with serving(tmp_path, feed, clock=clock) as served:
            page = await served.answer("server2", sent, {"limit": 2})
            await until(lambda: len(feed.asked) == 2)
            await clock.advance(AHEAD_SECONDS + 1)
            await served.answer("server2", sent, {"cursor": page["cursor"], "limit": 2})
            assert [asked["after"] for asked in feed.asked[:3]] == [b"", b"2", b"2"]

    asyncio.run(story())


def test_few_pages_are_kept_and_none_for_long(tmp_path: Path) -> None:
    async def story() -> None:
        feed, clock = Numbers(9), ManualClock()
        async with serving(tmp_path, feed, clock=clock) as served:
            for _ in range(MAX_AHEAD + 2):
                await served.answer("server2", Sent(), {"limit": 2})
                await asyncio.sleep(0)
            assert len(served._ahead) == MAX_AHEAD
            await clock.advance(AHEAD_SECONDS + 1)
            await served.answer("server2", Sent(), {"limit": 2})
            await asyncio.sleep(0)
            assert len(served._ahead) == 1

    asyncio.run(story())


def test_a_node_that_stops_reads_nothing_ahead(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with serving(tmp_path, Numbers(9)) as served:
            await served.answer("server2", Sent(), {"limit": 2})
            served._readers.close()
            await asyncio.sleep(0)
            assert served._ahead == {}

    asyncio.run(story())
    assert caplog.records == []


def test_what_the_store_is_too_busy_to_note_is_met_by_the_next_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(jobs: list[Job[Any]]) -> None:
        raise ServerBusy("the store has too much to write")

    async def story() -> None:
        feed, sent = Numbers(9), Sent()
        async with serving(tmp_path, feed) as served:
            page = await served.answer("server2", sent, {"limit": 2})
            monkeypatch.setattr(served._store, "submit", busy)
            await served.answer("server2", sent, {"ackSyncIds": ["id1"], "cursor": page["cursor"], "limit": 2})
            await asyncio.wait((served._noting["server2"],))
            with pytest.raises(ServerBusy):
                await served.answer("server2", sent, {"ackSyncIds": ["id2"], "cursor": page["cursor"], "limit": 2})
            assert feed.acknowledged == []

    asyncio.run(story())


# --- where the peer's store is ---


class Told(NamedTuple):
    """What was said of a store: its mark, what was echoed before, and whether it was restored."""

    mark: str
    echoed: str | None
    restored: bool


class Stores:
    """Keeps marks as ``PeerStores`` does, and what it was told; it believes what ``believes`` says."""

    def __init__(self, store: Store) -> None:
        self.told: list[Told] = []
        self.believes = True
        self._store = store

    def kept(self, server: str) -> str:
        with self._store.read() as txn:
            return get_peer_mark(txn, server)

    async def hear(self, server: str, mark: str, *, echoed: str | None, restored: bool) -> bool:
        assert server == "server2"
        self.told.append(Told(mark, echoed, restored))
        return self.believes


def test_the_mark_of_a_store_is_kept_with_what_is_acknowledged_and_echoed(tmp_path: Path) -> None:
    async def story() -> None:
        feed, sent = Numbers(9), Sent()
        async with serving(tmp_path, feed) as served:
            stores = Stores(served._store)
            served._stores = stores  # type: ignore[assignment]
            first = await served.answer("server2", sent, {"limit": 1, "storeMark": "run-1"})
            assert first["storeMark"] == ""
            second = await served.answer(
                "server2",
                sent,
                {"ackSyncIds": ["id1"], "cursor": first["cursor"], "limit": 1, "storeMark": "run-2"},
            )
            assert second["storeMark"] == "", "what was known before"
            third = await served.answer("server2", sent, {"cursor": second["cursor"], "storeMark": "run-3"})
            assert third["storeMark"] == stores.kept("server2") == "run-2"
            stores.believes = False
            await served.answer(
                "server2",
                sent,
                {"ackSyncIds": ["id2"], "cursor": third["cursor"], "storeMark": "run-4", "restored": True},
            )
            assert feed.acknowledged[-1] == ("server2", ("mark", 2))
            assert stores.kept("server2") == "run-2"
            with served._store.read() as txn:
                assert get_doubt(txn, "server2") == 0, "it has the second entry, and no mark says so"
            assert stores.told == [
                Told("run-1", None, False),
                Told("run-2", "", False),
                Told("run-3", "run-2", False),
                Told("run-4", "run-2", True),
            ]
            assert "storeMark" not in await served.answer("server2", sent, {}), "who says nothing is told nothing"

    asyncio.run(story())


def test_a_mark_is_of_no_use_to_a_feed_without_a_place_for_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path, Numbers(1)) as served:
            assert "storeMark" not in await served.answer("server2", Sent(), {"storeMark": "run-1"})

    asyncio.run(story())


def test_what_was_sent_is_remembered_within_a_bound_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving_module, "MAX_SENT", 2)
    sent = Sent()
    for number in (1, 2, 1, 3):
        sent.add(f"id{number}", number)
    assert sent.take(["id2", "id1", "id3"]) == [1, 3]
    assert sent.take(["id1"]) == []
    sent.add("id4", 4)
    sent.clear()
    assert sent.take(["id4"]) == []
