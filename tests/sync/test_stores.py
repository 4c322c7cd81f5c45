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
from shine_node.store.lineage import get_peer_mark, get_peer_run, note_doubt, put_peer_mark, settle_doubt
from shine_node.store.messages import get_row, store_incoming
from shine_node.store.readers import Readers
from shine_node.store.resync import next_resync, step_resync
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
        for _ in range(2):
            settle_doubt(txn, SERVER)

    async def hear(self, mark: str, *, echoed: str | None, restored: bool = False) -> bool:
        return await self.stores.hear(SERVER, mark, echoed=echoed, restored=restored)

    async def keep(self, mark: str) -> None:
        await self.store.write(lambda txn: put_peer_mark(txn, SERVER, mark))

    async def doubts(self, since_ms: int = 0) -> None:
        """Have what has changed since a time in doubt."""
        await self.store.write(lambda txn: note_doubt(txn, SERVER, since_ms))

    async def change(self, *numbers: int) -> None:
        """Have some entries changed a moment later, by the server that they are in doubt of."""

        def work(txn: Transaction) -> None:
            for number in numbers:
                copy = make_copy("carol", "alice", 1, nonce=number, revision_ms=NOW + 1)
                store_incoming(txn, copy, now_ms=NOW + 1, own_login=OWN, from_server=SERVER)

        await self.store.write(work)

    async def finish(self) -> list[int]:
        """Do all the work that is left and return the numbers of the entries that are to be sent then."""
        while await self.store.write(lambda txn: step_resync(txn, OWN, limit=100)) is not None:
            pass
        return self.unsynced()

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


def test_a_doubt_ends_with_marks_that_came_after_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with room(tmp_path) as r:
            await r.hear("run1-1", echoed=None)
            await r.doubts()
            assert await r.hear("run1-2", echoed="")
            assert r.stores.kept(SERVER) == "run1-2"
            assert await r.hear("run1-3", echoed="run1-2")
            assert r.stores.kept(SERVER) == "run1-3"
            assert await r.hear("run1-4", echoed="run1-3")
            assert r.stores.kept(SERVER) == "run1-3", "with nothing in doubt there is nothing to write"
            await r.hear("run2-1", echoed=None)
            assert await r.finish() == []

    asyncio.run(story())


def test_what_was_in_doubt_when_a_server_was_started_anew_is_offered_to_it_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with room(tmp_path) as r:
            await r.hear("run1-1", echoed=None)
            await r.change(1, 3)
            await r.doubts(NOW + 1)
            assert not await r.hear("run2-1", echoed=None)
            assert await r.finish() == [1, 3]
            assert await r.hear("run2-2", echoed="")
            assert not await r.hear("run3-1", echoed="run2-1")
            assert await r.finish() == [1, 3]

    asyncio.run(story())


def test_the_first_run_of_a_server_puts_nothing_in_doubt(tmp_path: Path) -> None:
    async def story() -> None:
        async with room(tmp_path) as r:
            await r.doubts()
            await r.hear("run1-1", echoed=None)
            assert await r.finish() == []
            await r.hear("run2-1", echoed=None)
            assert await r.finish() == [0, 1, 2, 3]

    asyncio.run(story())


def test_nothing_is_kept_of_a_stranger(tmp_path: Path) -> None:
    async def story() -> None:
        async with room(tmp_path) as r:
            await r.hear("run1-1", echoed=None)
            await r.stores.hear("server9", "run1-1", echoed=None, restored=False)
            with r.store.read() as txn:
                assert (get_peer_run(txn, SERVER), get_peer_run(txn, "server9")) == ("run1", "")

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


def test_who_waits_to_be_sent_everything_need_not_say_so_again(tmp_path: Path) -> None:
    """Its next session on the same connection begins as if there were nothing to say."""

    async def story() -> None:
        async with room(tmp_path) as r:
            await r.keep("run1-9")
            await r.hear("run2-1", echoed="run1-9", restored=True)
            await r.finish()
            assert await r.hear("run2-2", echoed="run2-1")
            assert not await r.hear("run3-1", echoed="run2-1", restored=True)
            await r.doubts()
            assert not await r.hear("run3-2", echoed="run2-1")
            assert (r.resyncs(), r.stores.kept(SERVER)) == (0, "run2-1")
            await r.clock.advance(stores_module.RESTORED_PAUSE)
            assert not await r.hear("run3-3", echoed="run2-1")
            assert (r.resyncs(), r.stores.kept(SERVER)) == (1, "run3-3")
            assert await r.hear("run3-4", echoed="run3-3")

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
