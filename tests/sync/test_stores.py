"""What is known of the stores of other servers, and when everything is sent to one of them anew."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from shine_node.store.environment import Store, Transaction
from shine_node.store.layout import Flag, ItemKey, Table
from shine_node.store.lineage import get_peer_mark, put_peer_mark
from shine_node.store.messages import get_row, store_incoming
from shine_node.store.readers import Readers
from shine_node.store.resync import next_resync
from shine_node.sync import stores as stores_module
from shine_node.sync.stores import PeerStores
from tests.store.rooms import MAP_SIZE, NOW, OWN, check_indexes, make_copy, register
from tests.support.clock import ManualClock

SERVER = "server2"
COPIES = [make_copy("carol", "alice", 1, nonce=nonce) for nonce in range(4)]
KEYS = [ItemKey.of(copy) for copy in COPIES]


class Room:
    """A store with alice, who is here and at ``Server2``, and bob, who is here and elsewhere."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.store = Store(folder / "shine.mdb", map_size=MAP_SIZE)
        self.store.write_now(self._fill)
        self.store.start()
        self.readers = Readers(self.store)
        self.stores = PeerStores(store=self.store, readers=self.readers, clock=self.clock, own_login=OWN)

    def _fill(self, txn: Transaction) -> None:
        register(txn, "alice", OWN, "Server2")
        register(txn, "bob", OWN, "server3")
        register(txn, "carol", "far")
        for copy in COPIES:
            store_incoming(txn, copy, now_ms=NOW, own_login=OWN, from_server=SERVER)

    async def hear(self, mark: str, *, echoed: str | None, restored: bool = False) -> bool:
        return await self.stores.hear(SERVER, mark, echoed=echoed, restored=restored)

    async def keep(self, mark: str) -> None:
        await self.store.write(lambda txn: put_peer_mark(txn, SERVER, mark))

    def unsynced(self) -> list[int]:
        """The numbers of the entries that are to be sent."""
        with self.store.read() as txn:
            rows = [get_row(txn, key) for key in KEYS]
        return [number for number, row in enumerate(rows) if row is not None and row.flags & Flag.UNSYNCED]

    def resyncs(self) -> int:
        with self.store.read() as txn:
            return txn.count(Table.RESYNC)


@asynccontextmanager
async def room(folder: Path) -> AsyncIterator[Room]:
    made = Room(folder)
    try:
        yield made
        with made.store.read() as txn:
            check_indexes(txn)
    finally:
        made.readers.close()
        made.store.close()


def test_a_mark_is_kept_once_the_caller_has_seen_the_one_before(tmp_path: Path) -> None:
    async def story() -> None:
        async with room(tmp_path) as r:
            assert r.stores.kept(SERVER) == ""
            assert not await r.hear("run1-1", echoed=None), "the first request of a connection"
            assert await r.hear("run1-2", echoed="")
            await r.keep("run1-2")
            assert r.stores.kept(SERVER) == "run1-2"
            assert not await r.hear("run1-3", echoed=""), "another connection has brought it forward"
            assert await r.hear("run1-3", echoed="run1-2")
            assert r.stores.kept(SERVER) == "run1-2", "with nothing to acknowledge there is nothing to write"

    asyncio.run(story())


def test_what_it_has_from_elsewhere_is_kept_with_its_next_mark(tmp_path: Path) -> None:
    async def story() -> None:
        async with room(tmp_path) as r:
            await r.hear("run1-1", echoed=None)
            r.stores.has("SERVER2", KEYS[0])
            assert await r.hear("run1-2", echoed="")
            assert r.stores.kept(SERVER) == "run1-2"
            await r.hear("run2-1", echoed="run1-2")
            assert r.unsynced() == [], "nothing has been in doubt since"

    asyncio.run(story())


@pytest.mark.parametrize("heard_before", [True, False])
def test_what_a_server_had_before_it_was_started_anew_is_offered_to_it_again(
    tmp_path: Path, heard_before: bool
) -> None:
    async def story() -> None:
        async with room(tmp_path) as r:
            if heard_before:
                await r.hear("run1-1", echoed=None)
            for key in (KEYS[1], KEYS[3], KEYS[1]):
                r.stores.has(SERVER, key)
            r.stores.has(SERVER, ItemKey.of(make_copy("carol", "alice", 1, nonce=99)))  # removed, or never there
            r.stores.has(SERVER, ItemKey.of(make_copy("carol", "bob", 1)))  # bob has left that server
            assert not await r.hear("run2-1", echoed=None)
            assert r.unsynced() == [1, 3]
            assert await r.hear("run2-2", echoed="")
            assert r.stores.kept(SERVER) == "", "nothing is in doubt any more"

    asyncio.run(story())


def test_what_is_in_doubt_is_remembered_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores_module, "MAX_IN_DOUBT", 2)
    monkeypatch.setattr(stores_module, "MAX_SERVERS", 2)

    async def story() -> None:
        async with room(tmp_path) as r:
            for key in KEYS:
                r.stores.has(SERVER, key)
            r.stores.has("server3", KEYS[0])
            await r.hear("run1-1", echoed=None)
            assert r.unsynced() == [2, 3]
            r.stores.has(SERVER, KEYS[0])
            for number in range(2):
                r.stores.has(f"server{number + 4}", KEYS[0])
            await r.hear("run2-1", echoed=None)
            assert r.unsynced() == [2, 3], "the servers that were heard of last are remembered"
            for number in range(3):
                await r.stores.hear(f"server{number}", "run1-1", echoed=None, restored=False)
            assert len(r.stores._runs) == 2

    asyncio.run(story())


def test_a_server_that_was_restored_gets_everything_that_it_shares_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(stores_module, "OWNERS_A_COMMIT", 1)

    async def story() -> None:
        async with room(tmp_path) as r:
            await r.store.write(lambda txn: register(txn, "dora", OWN, SERVER))
            await r.keep("run1-9")
            assert not await r.hear("run2-1", echoed="run1-9", restored=True)
            assert r.resyncs() == 2
            with r.store.read() as txn:
                first = next_resync(txn)
                assert get_peer_mark(txn, SERVER) == "run2-1", "it has been told; it is restored no longer"
            assert first is not None
            assert (first.owner, first.former) == ("alice", "")
            assert "server2 was restored from a backup; 2 users' entries are sent" in caplog.text
            assert await r.hear("run2-2", echoed="run2-1")

    asyncio.run(story())


@pytest.mark.parametrize(("kept", "echoed"), [("", ""), ("run1-9", None), ("run1-9", "run1-8")])
def test_the_word_of_one_that_has_not_been_asked_does_nothing(tmp_path: Path, kept: str, echoed: str | None) -> None:
    async def story() -> None:
        async with room(tmp_path) as r:
            if kept:
                await r.keep(kept)
            assert not await r.hear("run2-1", echoed=echoed, restored=True)
            assert r.resyncs() == 0
            assert r.stores.kept(SERVER) == kept

    asyncio.run(story())


def test_everything_is_sent_anew_only_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores_module, "MAX_SERVERS", 1)

    async def story() -> None:
        async with room(tmp_path) as r:
            await r.keep("run1-9")
            await r.hear("run2-1", echoed="run1-9", restored=True)
            await r.store.write(lambda txn: txn.delete(Table.RESYNC, next(txn.scan(Table.RESYNC))[0]))
            await r.clock.advance(stores_module.RESTORED_PAUSE - 1)
            assert not await r.hear("run3-1", echoed="run2-1", restored=True)
            assert (r.resyncs(), r.stores.kept(SERVER)) == (0, "run2-1"), "it will say so again"
            await r.clock.advance(1)
            await r.hear("run3-1", echoed="run2-1", restored=True)
            assert r.resyncs() == 1
            await r.store.write(lambda txn: put_peer_mark(txn, "server3", "run1-1"))
            await r.stores.hear("server3", "run2-1", echoed="run1-1", restored=True)
            assert r.resyncs() == 2, "bob is there"
            assert set(r.stores._restored_at) == {"server3"}

    asyncio.run(story())
