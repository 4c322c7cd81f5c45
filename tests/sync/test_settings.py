"""The feed of settings: what travels, to whom, and what acknowledges it; and what becomes of what a peer gives."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shine_node.client.settings import make_setting
from shine_node.protocol.errors import BadFields, ServerBusy, StorageFull
from shine_node.protocol.settings import Setting, parse_setting, setting_payload
from shine_node.store.environment import Store, Transaction
from shine_node.store.layout import Table
from shine_node.store.resync import begin_resync, step_resync
from shine_node.store.settings import list_settings, put_setting
from shine_node.sync.serving import FeedPage
from shine_node.sync.settings import SettingsApply, SettingsFeed
from tests.delivery.rooms import run
from tests.store.rooms import NOW, OWN, check_indexes, identity, opened, register
from tests.support.clock import ManualClock

OTHER = "other.server"
FEED = SettingsFeed(OWN)
REFUSALS = {"bad": BadFields("no"), "busy": ServerBusy("later"), "defect": ZeroDivisionError("a defect")}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with opened(tmp_path / "shine.mdb") as store:
        store.write_now(lambda txn: register(txn, "Alice", OWN, OTHER))
        store.write_now(lambda txn: register(txn, "bob", OWN, OTHER))
        store.write_now(lambda txn: register(txn, "carol", OWN, "third.server"))
        yield store


def put(store: Store, login: str, param: str, *, time_ms: int = NOW) -> Setting:
    setting = make_setting(identity(login), param, "x", time_ms=time_ms)
    store.write_now(lambda txn: put_setting(txn, setting, now_ms=time_ms, own_login=OWN, most=100))
    return setting


def page(
    store: Store,
    *,
    login: str | None = None,
    after: bytes = b"",
    limit: int = 100,
    max_bytes: int = 2**20,
    peer_bytes: int | None = None,
) -> FeedPage:
    with store.read() as txn:
        return FEED.page(txn, OTHER, login=login, after=after, limit=limit, max_bytes=max_bytes, peer_bytes=peer_bytes)


def test_settings_travel_as_they_were_signed_oldest_change_first(store: Store) -> None:
    changes = [put(store, "bob", "b"), put(store, "Alice", "a", time_ms=NOW + 1)]
    put(store, "carol", "c")
    found = page(store)
    assert [item for _, _, item in found.entries] == [setting_payload(setting) for setting in changes]
    assert len({sync_id for sync_id, _, _ in found.entries}) == 2
    assert not found.more


def test_pages(store: Store) -> None:
    for number in range(3):
        put(store, "Alice", f"p{number}x", time_ms=NOW + number)
    first = page(store, limit=2)
    assert (len(first.entries), first.more) == (2, True)
    rest = page(store, after=first.cursor)
    assert [item["param"] for _, _, item in rest.entries] == ["p2x"]
    assert len(page(store, max_bytes=1).entries) == 1
    assert [item["login"] for _, _, item in page(store, login="alice").entries] == ["Alice"] * 3
    assert page(store, login="bob").entries == []
    none = page(store, peer_bytes=1)
    assert (none.entries, none.more, none.too_large) == ([], False, first.entries[0][0])


def test_an_acknowledgement_is_of_one_revision(store: Store) -> None:
    put(store, "Alice", "a")
    [(_, mark, _)] = page(store).entries
    put(store, "Alice", "a", time_ms=NOW + 1)
    store.write_now(lambda txn: FEED.acknowledge(txn, OTHER, mark))
    [(_, mark, item)] = page(store).entries
    assert item["time_ms"] == NOW + 1
    store.write_now(lambda txn: FEED.acknowledge(txn, OTHER, mark))
    assert page(store).entries == []
    with store.read() as txn:
        assert txn.count(Table.SETTINGS_UNSYNCED) == 0
        assert txn.count(Table.SETTINGS) == 1


def test_a_mark_of_another_feed_is_a_defect(store: Store) -> None:
    with pytest.raises(AssertionError, match="mark"), store.read() as txn:
        FEED.acknowledge(txn, OTHER, ("key", b"signature"))


# What a peer gives


def test_each_item_is_stored_or_refused_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    learned: list[tuple[str, str]] = []

    async def learn(server_login: str, item: Mapping[str, Any]) -> None:
        if item["param"] in REFUSALS:
            raise REFUSALS[item["param"]]
        learned.append((server_login, item["param"]))

    async def story() -> None:
        items = [{"param": param} for param in ("a", "bad", "b", "busy", "defect", "c")]
        found = await SettingsApply(learn, ManualClock())(OTHER, items)
        assert [refusal.code if refusal else None for refusal in found] == [
            None,
            "BAD_FIELDS",
            None,
            "SERVER_BUSY",
            "INTERNAL_ERROR",
            None,
        ]
        assert learned == [(OTHER, "a"), (OTHER, "b"), (OTHER, "c")]
        assert await SettingsApply(learn, ManualClock())(OTHER, []) == []

    run(story())
    assert "ZeroDivisionError" in caplog.text


def test_a_full_store_ends_it() -> None:
    async def learn(server_login: str, item: Mapping[str, Any]) -> None:
        if item["param"] == "b":
            raise StorageFull("no room")

    async def story() -> None:
        with pytest.raises(StorageFull):
            await SettingsApply(learn, ManualClock())(OTHER, [{"param": "a"}, {"param": "b"}, {"param": "c"}])

    run(story())


# Two servers


class Server:
    """One of the two servers of alice: its store, and the feed that the other one reads."""

    def __init__(self, folder: Path, login: str, other: str) -> None:
        self.login, self.other = login, other
        self.path = folder / f"{login}.mdb"
        self.feed = SettingsFeed(login)
        self.clock = NOW
        self.store = Store(self.path, map_size=2**22)
        self.store.write_now(lambda txn: register(txn, "alice", login, other))

    def put(self, setting: Setting, from_server: str | None = None) -> None:
        self.clock += 1
        now_ms = self.clock
        self.store.write_now(
            lambda txn: put_setting(
                txn, setting, now_ms=now_ms, own_login=self.login, most=100, from_server=from_server
            )
        )

    def page(self, after: bytes, limit: int) -> FeedPage:
        with self.store.read() as txn:
            return self.feed.page(txn, self.other, login=None, after=after, limit=limit, max_bytes=2**20)

    def acknowledge(self, marks: list[object]) -> None:
        self.store.write_now(lambda txn: [self.feed.acknowledge(txn, self.other, mark) for mark in marks])

    def mark_all(self) -> None:
        def work(txn: Transaction) -> None:
            begin_resync(txn, "alice")
            while step_resync(txn, self.login, limit=2) is not None:
                pass

        self.store.write_now(work)

    def goes_back_to(self, backup: bytes) -> None:
        """Have the file of an earlier time."""
        self.store.close()
        self.path.write_bytes(backup)
        self.store = Store(self.path, map_size=2**22)

    @property
    def held(self) -> list[Setting]:
        with self.store.read() as txn:
            check_indexes(txn, self.login)
            return list(list_settings(txn, "alice"))

    @property
    def unsynced(self) -> int:
        with self.store.read() as txn:
            return txn.count(Table.SETTINGS_UNSYNCED)


def fetch(to: Server, source: Server, *, limit: int = 2, ends_after: int = 10**6) -> None:
    """Run a session, page after page, that may end at any item: what was stored last is not acknowledged then."""
    after, stored = b"", 0
    while True:
        page = source.page(after, limit)
        marks = []
        for _, mark, item in page.entries:
            if stored == ends_after:
                return
            to.put(parse_setting(item, max_value_bytes=99), from_server=source.login)
            stored += 1
            marks.append(mark)
        source.acknowledge(marks)
        after = page.cursor
        if not page.more:
            return


sides = st.sampled_from([0, 1])
changes = st.tuples(st.just("put"), sides, st.sampled_from("abc"), st.integers(NOW, NOW + 3), st.sampled_from("xyz"))
cuts = st.tuples(st.just("fetch"), sides, st.integers(0, 4))
others = st.tuples(st.sampled_from(["mark", "back up", "restore"]), sides)


@settings(max_examples=60, deadline=None)
@given(st.lists(changes | changes | cuts | others, max_size=25))
def test_two_servers_become_equal_whatever_happened(events: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        pair = [Server(Path(folder), "one", "two"), Server(Path(folder), "two", "one")]
        backups: list[bytes | None] = [None, None]
        newest: dict[str, Setting] = {}
        try:
            for kind, side, *arguments in events:
                here, there = pair[side], pair[1 - side]
                backup = backups[side]
                if kind == "put":
                    param, time_ms, value = arguments
                    setting = make_setting(identity("alice"), param, value, time_ms=time_ms)
                    here.put(setting)
                    newest[param] = max(setting, newest.get(param, setting), key=lambda one: one.order)
                elif kind == "fetch":
                    fetch(here, there, ends_after=arguments[0])
                elif kind == "mark":
                    here.mark_all()
                elif kind == "back up":
                    backups[side] = here.path.read_bytes()
                elif backup is not None:
                    fetch(there, here)  # else what only this server has is lost with its disk
                    here.goes_back_to(backup)
                    there.mark_all()
            for to, source in (pair, pair[::-1], pair):
                fetch(to, source)
            assert pair[0].held == pair[1].held == [newest[param] for param in sorted(newest)]
            assert [server.unsynced for server in pair] == [0, 0]
        finally:
            for server in pair:
                server.store.close()
