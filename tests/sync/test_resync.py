"""The task that makes entries unsynced: it begins at once, goes on in steps, and outlives trouble and restarts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

import pytest

from shine_node.client.settings import make_setting
from shine_node.store.environment import Transaction
from shine_node.store.layout import Table
from shine_node.store.messages import store_pair
from shine_node.store.readers import Readers
from shine_node.store.resync import Counts, begin_resync, next_resync
from shine_node.store.settings import put_setting
from shine_node.sync import resync as resync_module
from shine_node.sync.resync import LOOK_SECONDS, PAUSE_SECONDS, Resync
from tests.delivery.rooms import MoodyStore, run, until
from tests.store.rooms import MAP_SIZE, NOW, OWN, check_indexes, identity, make_pair, register
from tests.support.clock import ManualClock
from tests.sync import history

OTHER = "other.server"
T = TypeVar("T")


class Room:
    """A store with a resync whose task runs while ``working`` lasts."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock(NOW)
        self.store = MoodyStore(folder / "shine.mdb", map_size=MAP_SIZE)
        self.store.start()
        self.readers = Readers(self.store)
        self.resync = Resync(store=self.store, readers=self.readers, clock=self.clock, own_login=OWN)

    @property
    def unsynced(self) -> tuple[int, int]:
        """Settings and messages that have not been acknowledged."""
        with self.store.read() as txn:
            check_indexes(txn)
            return txn.count(Table.SETTINGS_UNSYNCED), txn.count(Table.OUTBOX_UNSYNCED)

    @property
    def is_done(self) -> bool:
        with self.store.read() as txn:
            return next_resync(txn) is None

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.resync.run())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def until_done(self) -> None:
        """Let the pauses between steps pass until all work is done."""
        while not self.is_done:
            await until(lambda: self.is_done or self.clock.sleeping)
            await self.clock.advance(0.05)


@asynccontextmanager
async def room(folder: Path) -> AsyncIterator[Room]:
    made = Room(folder)
    try:
        yield made
    finally:
        made.readers.close()
        made.store.close()


def unsynced_of(r: Room, owner: str) -> int:
    """How many messages of one owner have not been acknowledged."""
    with r.store.read() as txn:
        return len(history.unsynced_of(txn, owner))


def fill(txn: Transaction, *logins: str, settings: int = 3, messages: int = 3) -> None:
    """Have owners with this server and another one, and entries that the other one has."""
    register(txn, "zoe", OWN)
    register(txn, "far", "far.away")
    for login in logins:
        register(txn, login, OWN, OTHER)
        for number in range(settings):
            setting = make_setting(identity(login), f"p{number}x", "v", time_ms=NOW)
            put_setting(txn, setting, now_ms=NOW, own_login=OWN, most=100, from_server=OTHER)
        for nonce in range(messages):
            pair = make_pair(login, "far", nonce=nonce)
            store_pair(txn, pair, now_ms=NOW, from_client=False, delivery=None, own_login=OWN, from_server=OTHER)


def test_all_of_an_owner_become_unsynced_in_steps_with_pauses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resync_module, "STEP_ROWS", 2)

    async def story() -> None:
        async with room(tmp_path) as r:
            await r.store.write(lambda txn: fill(txn, "alice", "bob"))
            async with r.working():
                await until(lambda: r.clock.sleeping)
                assert await r.resync.begin("alice") == Counts(settings=3, messages=3)
                await until(lambda: r.unsynced == (2, 0))
                assert not r.is_done
                await r.until_done()
            assert r.unsynced == (3, 3)

    run(story())


def test_all_owners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resync_module, "OWNERS_AT_ONCE", 2)

    async def story() -> None:
        async with room(tmp_path) as r:
            await r.store.write(lambda txn: fill(txn, "alice", "bob", "carol", settings=1, messages=2))
            assert await r.resync.begin_all() == Counts(3, 6)
            async with r.working():
                await r.until_done()
            assert r.unsynced == (3, 6)


def test_a_count_is_made_in_steps_between_which_others_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resync_module, "COUNT_ROWS", 4)

    async def story() -> None:
        async with room(tmp_path) as r:
            await r.store.write(lambda txn: fill(txn, "alice", messages=30))
            await r.store.write(lambda txn: fill(txn, "bob", messages=2))
            read = r.readers.run
            counted: list[str] = []

            async def noted(work: Callable[[Transaction], T]) -> T:
                result = await read(work)
                [owner] = work.args[0]  # type: ignore[attr-defined]
                counted.append(owner)
                return result

            r.readers.run = noted  # type: ignore[method-assign, assignment]
            calls = [asyncio.ensure_future(r.resync.begin(owner)) for owner in ("alice", "alice", "bob", "alice")]
            assert await asyncio.gather(*calls) == [Counts(3, 30), Counts(3, 30), Counts(3, 2), Counts(3, 30)]
            assert counted.count("alice") >= 3 * 30 / 4
            assert counted.index("bob") <= 2, "more calls of one owner do not put another off"

    run(story())


def test_who_calls_for_ever_does_not_keep_others_from_being_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resync_module, "STEP_ROWS", 2)

    async def story() -> None:
        async with room(tmp_path) as r:
            await r.store.write(lambda txn: fill(txn, "alice"))
            await r.store.write(lambda txn: fill(txn, "bob"))
            async with r.working():
                await r.resync.begin("bob")
                for _ in range(12):
                    await r.resync.begin("alice")
                    await until(lambda: r.clock.sleeping)
                    await r.clock.advance(PAUSE_SECONDS)
                assert unsynced_of(r, "bob") == 3
                assert not r.is_done
                await r.until_done()

    run(story())

    run(story())


def test_there_is_nothing_to_do_for_who_has_no_entries_or_no_other_server(tmp_path: Path) -> None:
    async def story() -> None:
        async with room(tmp_path) as r:
            await r.store.write(lambda txn: fill(txn, "alice", settings=0, messages=0))
            for login in ("alice", "zoe", "far", "nobody"):
                assert await r.resync.begin(login) == Counts(0, 0)
            assert await r.resync.begin_all() == Counts(0, 0)
            assert r.is_done

    run(story())


def test_what_an_earlier_process_left_is_finished(tmp_path: Path) -> None:
    async def story() -> None:
        async with room(tmp_path) as r:
            await r.store.write(lambda txn: fill(txn, "alice"))
            await r.resync.begin("alice")
        async with room(tmp_path) as r:
            assert not r.is_done
            async with r.working():
                await r.until_done()
            assert r.unsynced == (3, 3)

    run(story())


def test_work_that_a_changed_record_leaves_is_found_in_time(tmp_path: Path) -> None:
    async def story() -> None:
        async with room(tmp_path) as r:
            await r.store.write(lambda txn: fill(txn, "alice"))
            async with r.working():
                await until(lambda: r.clock.sleeping)
                await r.store.write(lambda txn: begin_resync(txn, "alice"))
                await r.clock.advance(LOOK_SECONDS)
                await r.until_done()
            assert r.unsynced == (3, 3)

    run(story())


def test_a_store_that_has_no_time_is_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with room(tmp_path) as r:
            await r.store.write(lambda txn: fill(txn, "alice"))
            await r.resync.begin("alice")
            r.store.busy = True
            async with r.working():
                await until(lambda: r.clock.sleeping)
                assert not r.is_done
                assert "it is tried again" in caplog.text
                r.store.busy = False
                await r.clock.advance(LOOK_SECONDS)
                await r.until_done()
            assert r.unsynced == (3, 3)

    caplog.set_level(logging.WARNING)
    run(story())
