"""The LMDB file and its writer: what shares a commit, what a refusal undoes, and what stops the start."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import lmdb
import pytest

from shine_node.protocol.errors import InternalError, KeyConflict, ServerBusy, StaleRevision, StorageFull
from shine_node.store import environment as environment_module
from shine_node.store.environment import Job, Store, StoreDamaged, StoreError, Transaction
from shine_node.store.files import MAX_READERS
from shine_node.store.job_queue import LATER_SECONDS, MAX_JOBS_A_COMMIT, MAX_WAITING_BYTES, MAX_WAITING_JOBS
from shine_node.store.layout import SCHEMA_VERSION, Table, pack_number
from shine_node.store.trouble import QUIET_SECONDS
from shine_node.store.usage import Used, add_item
from tests.store.rooms import MAP_SIZE, MIB, NOW, greatest_file_size, opened

pytestmark = pytest.mark.core

WAIT = 30
"""Seconds that a test waits for what has to come; far more than it takes."""


@asynccontextmanager
async def running(path: Path, *, on_fatal: Callable[[], None] | None = None, **options: Any) -> AsyncIterator[Store]:
    store = Store(path, map_size=MAP_SIZE, on_fatal=on_fatal, **options)
    store.start()
    try:
        yield store
    finally:
        store.close()


def run(story: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(story, WAIT)

    asyncio.run(bounded())


def put(key: bytes, value: bytes = b"value") -> Callable[[Transaction], bytes]:
    def work(txn: Transaction) -> bytes:
        txn.put(Table.META, key, value)
        return key

    return work


def job(work: Callable[[Transaction], Any]) -> Job[Any]:
    return Job(work, asyncio.get_running_loop().create_future())


def stored(store: Store, *keys: bytes) -> list[bool]:
    with store.read() as txn:
        return [txn.get(Table.META, key) is not None for key in keys]


def commits(store: Store) -> int:
    return int(store._env.info()["last_txnid"])


async def store_later(store: Store, key: bytes) -> None:
    store.submit([job(put(key))], later=True)


async def outcomes(jobs: list[Job[Any]]) -> list[Any]:
    return await asyncio.gather(*(job.future for job in jobs), return_exceptions=True)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


class Gate:
    """A job that holds the writer until it is let go, so that what follows is gathered into one batch."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()

    def __call__(self, txn: Transaction) -> None:
        self.reached.set()
        assert self.open.wait(WAIT)


# -- reading ------------------------------------------------------------------------------------------------------


def test_rows_are_read_in_order_by_start_and_prefix(tmp_path: Path) -> None:
    with opened(tmp_path / "shine.mdb") as store:
        keys = [b"a1", b"b1", b"b2", b"b3", b"c1"]

        def work(txn: Transaction) -> None:
            for key in reversed(keys):
                txn.put(Table.USERS, key, key.upper())

        store.write_now(work)
        with store.read() as txn:
            assert list(txn.scan(Table.USERS)) == [(key, key.upper()) for key in keys]
            assert [key for key, _ in txn.scan(Table.USERS, b"b2")] == [b"b2", b"b3", b"c1"]
            assert [key for key, _ in txn.scan(Table.USERS, prefix=b"b")] == [b"b1", b"b2", b"b3"]
            assert [key for key, _ in txn.scan(Table.USERS, b"b2", prefix=b"b")] == [b"b2", b"b3"]
            assert list(txn.scan(Table.USERS, b"a", prefix=b"b")) == list(txn.scan(Table.USERS, prefix=b"b"))
            assert list(txn.scan(Table.USERS, b"c", prefix=b"b")) == []
            assert list(txn.scan(Table.USERS, b"d")) == []
            assert list(txn.scan(Table.USERS, b"x" * 2000)) == []
            assert list(txn.scan(Table.OUTBOX_UNSYNCED)) == []
            for start, prefix in ((b"", b""), (b"", b"b"), (b"b2", b"b"), (b"a", b"b"), (b"c", b"b"), (b"d", b"")):
                found = txn.scan(Table.USERS, start, prefix=prefix)
                assert list(txn.scan_keys(Table.USERS, start, prefix=prefix)) == [key for key, _ in found]
            assert list(txn.scan_keys(Table.USERS, prefix=b"b")) == [b"b1", b"b2", b"b3"]
            assert txn.last_key(Table.USERS) == b"c1"
            assert txn.last_key(Table.HISTORY) is None
            assert txn.count(Table.USERS) == 5
            assert txn.get(Table.USERS, b"b2") == b"B2"
            assert txn.get(Table.USERS, b"b") is None


def test_a_scan_back_begins_before_a_key_and_ends_where_the_prefix_does(tmp_path: Path) -> None:
    keys = [b"a1", b"b1", b"b2", b"b3", b"c1"]
    with opened(tmp_path / "shine.mdb") as store:
        store.write_now(lambda txn: [txn.put(Table.USERS, key, key.upper()) for key in keys])
        with store.read() as txn:

            def back(before: bytes, prefix: bytes) -> list[bytes]:
                return [key for key, _ in txn.scan_back(Table.USERS, before, prefix=prefix)]

            assert list(txn.scan_back(Table.USERS, b"b2", prefix=b"b")) == [(b"b1", b"B1")]
            assert back(b"b\xff", b"b") == back(b"c1", b"b") == [b"b3", b"b2", b"b1"]
            assert back(b"b25", b"b") == [b"b2", b"b1"]
            assert back(b"d", b"c") == [b"c1"]
            assert back(b"c2", b"b") == back(b"a1", b"a") == back(b"a", b"") == []
            assert back(b"b1", b"") == [b"a1"]
            assert list(txn.scan_back(Table.OUTBOX_UNSYNCED, b"x", prefix=b"")) == []


def test_single_keys_are_found_from_both_sides(tmp_path: Path) -> None:
    with opened(tmp_path / "shine.mdb") as store:
        store.write_now(lambda txn: txn.put(Table.HISTORY, b"k", b"v"))
        with store.read() as txn, txn.seek(Table.HISTORY) as seek:
            assert (seek.at_or_after(b"a"), seek.before(b"z")) == (b"k", b"k")


def test_what_is_in_use_grows_with_the_rows_and_shrinks_when_they_go(tmp_path: Path) -> None:
    with opened(tmp_path / "shine.mdb") as store:

        def used() -> int:
            with store.read() as txn:
                return txn.used_bytes()

        empty = used()
        store.write_now(put(b"large", bytes(MIB)))
        assert empty + MIB <= used() <= empty + MIB + 64 * 1024
        store.write_now(lambda txn: txn.delete(Table.META, b"large"))
        assert used() == empty < store.path.stat().st_size - MIB


def test_a_row_is_deleted_once(tmp_path: Path) -> None:
    with opened(tmp_path / "shine.mdb") as store:
        store.write_now(put(b"key"))
        assert store.write_now(lambda txn: txn.delete(Table.META, b"key")) is True
        assert store.write_now(lambda txn: txn.delete(Table.META, b"key")) is False
        assert stored(store, b"key") == [False]


def test_what_is_read_cannot_be_written(tmp_path: Path) -> None:
    with opened(tmp_path / "shine.mdb") as store, store.read() as txn, pytest.raises(lmdb.ReadonlyError):
        txn.put(Table.META, b"key", b"value")


def test_a_snapshot_stays_as_it_was(tmp_path: Path) -> None:
    with opened(tmp_path / "shine.mdb") as store, store.read() as txn:
        writer = threading.Thread(target=lambda: store.write_now(put(b"key")))
        writer.start()
        writer.join(WAIT)
        assert txn.get(Table.META, b"key") is None
        assert stored(store, b"key") == [True]


# -- group commit -------------------------------------------------------------------------------------------------


def test_a_result_is_given_once_the_commit_can_be_read(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path / "shine.mdb") as store:
            assert await store.write(put(b"key")) == b"key"
            assert stored(store, b"key") == [True]

    run(story())


def test_no_result_before_the_commit(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path / "shine.mdb") as store:
            gate = Gate()
            jobs = [job(put(b"key")), job(gate)]
            store.submit(jobs)  # one batch: the first has run when the second is reached
            await asyncio.to_thread(gate.reached.wait, WAIT)
            await asyncio.sleep(0)
            assert not jobs[0].future.done()
            assert stored(store, b"key") == [False]
            seen: list[list[bool]] = []
            jobs[0].future.add_done_callback(lambda _: seen.append(stored(store, b"key")))
            gate.open.set()
            assert await outcomes(jobs) == [b"key", None]
            assert seen == [[True]]

    run(story())


def test_jobs_of_the_moment_share_a_commit(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path / "shine.mdb") as store:
            gate = Gate()
            store.submit([job(gate)])
            await asyncio.to_thread(gate.reached.wait, WAIT)
            keys = [b"%d" % number for number in range(MAX_JOBS_A_COMMIT + 1)]
            jobs = [job(put(key)) for key in keys]
            store.submit(jobs)
            before = commits(store)
            gate.open.set()
            assert await outcomes(jobs) == keys
            assert commits(store) - before == 2  # and not one more: the gate wrote nothing
            assert all(stored(store, *keys))

    run(story())


def test_what_can_wait_goes_with_the_next_commit(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path / "shine.mdb") as store:
            gate = Gate()
            store.submit([job(gate)])
            await asyncio.to_thread(gate.reached.wait, WAIT)
            later = [job(put(b"later")), job(put(b"later too"))]
            for each in later:
                store.submit([each], later=True)
            now = job(put(b"now"))
            store.submit([now])
            assert store.waiting == 3
            before = commits(store)
            gate.open.set()
            assert await outcomes([*later, now]) == [b"later", b"later too", b"now"]
            assert commits(store) - before == 1

    run(story())


def test_what_can_wait_does_not_hold_up_what_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shine_node.store.job_queue.LATER_SECONDS", 10 * WAIT)

    async def story() -> None:
        async with running(tmp_path / "shine.mdb") as store:
            for number in range(3):
                later = asyncio.ensure_future(store.write(put(b"later %d" % number), later=True))
                await asyncio.sleep(0.05)  # the writer waits for more by now
                assert not later.done()
                assert await store.write(put(b"now")) == b"now"
                assert await later == b"later %d" % number

    run(story())


def test_what_can_wait_does_so_for_a_moment_only(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path / "shine.mdb") as store:
            before = commits(store)
            begin = time.monotonic()
            first = asyncio.ensure_future(store.write(put(b"first"), later=True))
            while not first.done():  # those that come after it do not put it off
                await store_later(store, b"%d" % int((time.monotonic() - begin) * 1e6))
                await asyncio.sleep(LATER_SECONDS / 10)
            assert time.monotonic() - begin >= LATER_SECONDS * 0.9
            assert stored(store, b"first") == [True]
            assert commits(store) - before == 1

    run(story())


def test_closing_does_not_wait_for_what_can_wait_and_writes_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path / "shine.mdb") as store:
            gate = Gate()
            store.submit([job(gate)])
            await asyncio.to_thread(gate.reached.wait, WAIT)
            last = job(put(b"last"))
            store.submit([last], later=True)
            closing = asyncio.create_task(asyncio.to_thread(store.close))
            await asyncio.to_thread(until, lambda: store._queue.closed)
            gate.open.set()
            await closing
            assert await outcomes([last]) == [b"last"]

    run(story())


def test_a_refused_job_harms_no_other_of_its_commit(tmp_path: Path) -> None:
    async def story() -> None:
        def refuse(txn: Transaction) -> None:
            assert txn.get(Table.META, b"before") is not None
            raise StaleRevision("no")

        async with running(tmp_path / "shine.mdb") as store:
            before = commits(store)
            jobs = [job(put(b"before")), job(refuse), job(put(b"after"))]
            store.submit(jobs)
            first, refusal, last = await outcomes(jobs)
            assert (first, last) == (b"before", b"after")
            assert isinstance(refusal, StaleRevision)
            assert stored(store, b"before", b"after") == [True, True]
            assert commits(store) - before == 1

    run(story())


def test_a_job_that_wrote_before_it_refused_leaves_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        def refuse(txn: Transaction) -> None:
            txn.put(Table.META, b"mine", b"value")
            txn.delete(Table.META, b"before")
            raise KeyConflict("no")

        async with running(tmp_path / "shine.mdb") as store:
            jobs = [job(put(b"before")), job(refuse), job(put(b"after"))]
            store.submit(jobs)
            first, refusal, last = await outcomes(jobs)
            assert (first, last) == (b"before", b"after")
            assert isinstance(refusal, KeyConflict)
            assert stored(store, b"before", b"mine", b"after") == [True, False, True]

    run(story())


def test_a_job_that_deleted_before_it_refused_leaves_the_row(tmp_path: Path) -> None:
    async def story() -> None:
        def refuse(txn: Transaction) -> None:
            txn.delete(Table.META, b"row")
            raise KeyConflict("no")

        async with running(tmp_path / "shine.mdb") as store:
            await store.write(put(b"row"))
            with pytest.raises(KeyConflict):
                await store.write(refuse)
            assert stored(store, b"row") == [True]

    run(story())


@pytest.mark.parametrize("error", [ValueError("a defect"), SystemExit(3), asyncio.CancelledError()], ids=repr)
def test_a_job_that_breaks_is_answered_and_the_writer_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    def fail(txn: Transaction) -> None:
        txn.put(Table.META, b"broken", b"value")
        raise error

    async def story() -> None:
        async with running(tmp_path / "shine.mdb") as store:
            jobs = [job(put(b"before")), job(fail), job(put(b"after"))]
            store.submit(jobs)
            first, broken, last = await outcomes(jobs)
            assert (first, last) == (b"before", b"after")
            assert isinstance(broken, InternalError)
            assert "defect" not in str(broken)
            assert stored(store, b"before", b"broken", b"after") == [True, False, True]
            assert await store.write(put(b"next")) == b"next"

    run(story())
    assert [record.exc_info is not None for record in caplog.records] == [True]
    assert "nothing of it was stored" in caplog.text


def test_a_job_that_lmdb_refuses_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fatal: list[str] = []

    async def story() -> None:
        async with running(tmp_path / "shine.mdb", on_fatal=lambda: fatal.append("fatal")) as store:
            with pytest.raises(InternalError):
                await store.write(put(b"k" * 1000))  # over the greatest key
            assert await store.write(put(b"next")) == b"next"

    run(story())
    assert fatal == []
    assert "BadValsizeError" in caplog.text


def test_a_cancelled_request_is_written_all_the_same_and_harms_nobody(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path / "shine.mdb") as store:
            gate = Gate()
            store.submit([job(gate)])
            await asyncio.to_thread(gate.reached.wait, WAIT)
            gone = asyncio.ensure_future(store.write(put(b"gone")))
            stays = asyncio.ensure_future(store.write(put(b"stays")))
            await asyncio.sleep(0)
            gone.cancel()
            await asyncio.sleep(0)
            gate.open.set()
            assert await stays == b"stays"
            assert gone.cancelled()
            assert stored(store, b"gone", b"stays") == [True, True]

    run(story())


def test_a_job_may_come_from_any_thread(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path / "shine.mdb") as store:
            jobs = [job(put(b"%d" % number)) for number in range(20)]
            await asyncio.gather(*(asyncio.to_thread(store.submit, [one]) for one in jobs))
            assert await outcomes(jobs) == [b"%d" % number for number in range(20)]

    run(story())


def test_over_the_bound_a_job_is_refused_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        store = Store(tmp_path / "shine.mdb", map_size=MAP_SIZE)
        waiting = job(lambda txn: None)
        store.submit([waiting] * (MAX_WAITING_JOBS - 1))
        with pytest.raises(ServerBusy) as caught:
            store.submit([job(put(b"one")), job(put(b"two"))])
        assert caught.value.payload == {"retryAfterMs": 1000}
        last = job(put(b"last"))
        assert store.waiting == MAX_WAITING_JOBS - 1
        store.submit([last])
        assert store.waiting == MAX_WAITING_JOBS
        with pytest.raises(ServerBusy):
            await store.write(put(b"three"))
        store.start()
        assert await last.future == b"last"
        assert await store.write(put(b"four")) == b"four"  # there is room again
        assert stored(store, b"one", b"two", b"three") == [False, False, False]
        store.close()

    run(story())


def test_jobs_that_are_large_are_bounded_by_what_they_keep(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path / "shine.mdb") as store:
            gate = Gate()
            store.submit([job(gate)])
            await asyncio.to_thread(gate.reached.wait, WAIT)
            first = asyncio.ensure_future(store.write(put(b"first"), size=MAX_WAITING_BYTES))
            await asyncio.sleep(0)
            with pytest.raises(ServerBusy):
                await store.write(put(b"lost"), size=1)
            small = asyncio.ensure_future(store.write(put(b"small")))
            gate.open.set()
            assert await asyncio.gather(first, small) == [b"first", b"small"]
            assert await store.write(put(b"later"), size=MAX_WAITING_BYTES) == b"later"
            assert stored(store, b"lost") == [False]

    run(story())


def test_what_is_counted_is_that_of_the_commits_before(tmp_path: Path) -> None:
    def count(txn: Transaction) -> dict[str, Used]:
        before = dict(txn.committed_usage().added)
        add_item(txn, "alice", size=5, now_ms=0, sent=False)
        return before

    with opened(tmp_path / "shine.mdb") as store:
        assert store.write_now(count) == {}
        assert store.write_now(count) == {"alice": Used(5, 0, 0)}


def test_a_store_that_may_not_grow_says_why(tmp_path: Path) -> None:
    with opened(tmp_path / "shine.mdb") as store:
        store.check_room()
        store.no_room = "there is none"
        with pytest.raises(StorageFull, match="there is none"):
            store.check_room()
        store.write_now(put(b"small"))


# -- closing ------------------------------------------------------------------------------------------------------


def test_closing_writes_what_is_waiting(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path / "shine.mdb") as store:
            gate = Gate()
            store.submit([job(gate)])
            await asyncio.to_thread(gate.reached.wait, WAIT)
            jobs = [job(put(b"%d" % number)) for number in range(MAX_JOBS_A_COMMIT * 2)]
            store.submit(jobs)
            closing = asyncio.create_task(asyncio.to_thread(store.close))
            await asyncio.to_thread(until, lambda: store._queue.closed)
            with pytest.raises(ServerBusy):
                store.submit([job(put(b"late"))])
            gate.open.set()
            await closing
            assert await outcomes(jobs) == [b"%d" % number for number in range(MAX_JOBS_A_COMMIT * 2)]
            store.close()  # once more does nothing

        with opened(tmp_path / "shine.mdb") as again:
            assert all(stored(again, *(b"%d" % number for number in range(MAX_JOBS_A_COMMIT * 2))))
            assert stored(again, b"late") == [False]

    run(story())


def test_closing_in_a_hurry_gives_up_what_has_not_been_begun(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        store = Store(tmp_path / "shine.mdb", map_size=MAP_SIZE)
        store.start()
        gate = Gate()
        store.submit([job(gate), job(put(b"of the commit"))])
        await asyncio.to_thread(gate.reached.wait, WAIT)
        late = [job(put(b"late")), job(put(b"later"))]
        store.submit(late[:1])
        store.submit(late[1:], later=True)
        await asyncio.to_thread(store.close, 0.05)
        assert "2 writes are given up" in caplog.text
        assert "the disk does not answer" in caplog.text, "its commit is held up yet"
        gate.open.set()
        await asyncio.to_thread(store.close, WAIT)
        assert not any(each.future.done() for each in late)

        with opened(tmp_path / "shine.mdb") as again:
            assert stored(again, b"of the commit", b"late", b"later") == [True, False, False]

    run(story())


def test_a_commit_that_ends_after_all_lets_the_file_be_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        store = Store(tmp_path / "shine.mdb", map_size=MAP_SIZE)
        store.start()
        gate = Gate()
        store.submit([job(gate)])
        await asyncio.to_thread(gate.reached.wait, WAIT)
        monkeypatch.setattr(environment_module.log, "warning", lambda *arguments: gate.open.set())
        await asyncio.to_thread(store.close, 2.0)
        with opened(tmp_path / "shine.mdb"):
            pass

    run(story())


def test_closing_in_a_hurry_waits_for_the_commit_that_has_been_begun(tmp_path: Path) -> None:
    async def story() -> None:
        store = Store(tmp_path / "shine.mdb", map_size=MAP_SIZE)
        store.start()
        gate = Gate()
        store.submit([job(gate)])
        await asyncio.to_thread(gate.reached.wait, WAIT)
        late = job(put(b"late"))
        store.submit([late])
        closing = asyncio.create_task(asyncio.to_thread(store.close, WAIT / 10))
        await asyncio.to_thread(until, lambda: store._queue.closed)
        await asyncio.sleep(0.05)
        gate.open.set()
        await closing
        assert await outcomes([late]) == [b"late"]

    run(story())


def test_the_writer_outlives_its_loop(tmp_path: Path) -> None:
    gate = Gate()
    stores: list[Store] = []

    async def story() -> None:
        store = Store(tmp_path / "shine.mdb", map_size=MAP_SIZE)
        stores.append(store)
        store.start()
        store.submit([job(gate)])
        await asyncio.to_thread(gate.reached.wait, WAIT)
        store.submit([job(put(b"key"))])

    run(story())
    gate.open.set()
    stores[0].close()
    with opened(tmp_path / "shine.mdb") as store:
        assert stored(store, b"key") == [True]


def test_writing_now_is_for_a_store_without_a_writer(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path / "shine.mdb") as store:
            with pytest.raises(AssertionError):
                store.write_now(put(b"key"))

    run(story())


def test_writing_now_undoes_what_refuses(tmp_path: Path) -> None:
    def refuse(txn: Transaction) -> None:
        txn.put(Table.META, b"key", b"value")
        raise KeyConflict("no")

    with opened(tmp_path / "shine.mdb") as store:
        with pytest.raises(KeyConflict):
            store.write_now(refuse)
        assert stored(store, b"key") == [False]


# -- numbers ------------------------------------------------------------------------------------------------------


def test_numbers_rise_over_a_refusal_and_a_restart(tmp_path: Path) -> None:
    def take(txn: Transaction) -> int:
        seq = txn.next_seq(Table.CONTAINERS)
        txn.put(Table.CONTAINERS, pack_number(seq), b"")
        return seq

    def take_and_refuse(txn: Transaction) -> None:
        take(txn)
        raise KeyConflict("no")

    path = tmp_path / "shine.mdb"
    with opened(path) as store:
        assert [store.write_now(take) for _ in range(3)] == [1, 2, 3]
        with pytest.raises(KeyConflict):
            store.write_now(take_and_refuse)
        last = store.write_now(take)
        assert last > 3
        assert store.write_now(lambda txn: txn.next_seq(Table.ACCESS_RECORDS)) == 1
    with opened(path) as store:
        assert store.write_now(take) > last
        assert store.write_now(lambda txn: txn.next_seq(Table.ACCESS_RECORDS)) == 1  # that one was never used


def test_numbers_go_on_from_the_time_unless_they_are_further(tmp_path: Path) -> None:
    """A copy that was made before is behind what others were told; its clock is not."""
    path = tmp_path / "shine.mdb"

    def take(now_ms: int) -> int:
        store = Store(path, map_size=MAP_SIZE, now_ms=now_ms)
        try:
            seq = store.write_now(lambda txn: txn.next_seq(Table.CONTAINERS))
            store.write_now(lambda txn: txn.put(Table.CONTAINERS, pack_number(seq), b""))
            with store.read() as txn:
                assert txn.last_seq(Table.CONTAINERS) == seq
                assert txn.last_seq(Table.ACCESS_RECORDS) == min(now_ms * 1000, 2**52)
            return seq
        finally:
            store.close()

    assert take(0) == 1
    assert take(NOW) == NOW * 1000 + 1
    assert take(NOW - 1) == NOW * 1000 + 2
    assert take(10**15) == 2**52 + 1


# -- what stops the start -----------------------------------------------------------------------------------------

HOLDER = """
import sys
from pathlib import Path
from shine_node.store.environment import Store, StoreError

try:
    store = Store(Path(sys.argv[1]), map_size=64 * 2**20)
except StoreError as error:
    sys.exit(f"refused: {error}")
print("open", flush=True)
sys.stdin.read()
"""


@contextmanager
def holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        yield process
        process.kill()


def test_a_second_process_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "shine.mdb"
    with holder(path) as process:
        expected = rf"shine\.mdb is in use by another process \(PID {process.pid}\): stop it first"
        with pytest.raises(StoreError, match=expected):
            Store(path, map_size=MAP_SIZE)
        process.send_signal(signal.SIGKILL)
        process.wait(WAIT)
        with opened(path) as store:
            assert store.write_now(put(b"key")) == b"key"


def test_the_process_that_comes_second_says_so(tmp_path: Path) -> None:
    path = tmp_path / "shine.mdb"
    with opened(path) as store:
        command = [sys.executable, "-c", HOLDER, str(path)]
        second = subprocess.run(command, input="", capture_output=True, text=True, timeout=WAIT, check=False)
        assert second.returncode == 1
        assert f"refused: {path} is in use by another process (PID {os.getpid()})" in second.stderr
        with pytest.raises(StoreError, match="in use"):
            Store(path, map_size=MAP_SIZE)
        assert store.write_now(put(b"key")) == b"key"  # neither has harmed the first


def test_a_newer_schema_is_refused_and_kept_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "shine.mdb"
    with lmdb.open(str(path), subdir=False, map_size=MAP_SIZE, max_dbs=4) as env:
        meta = env.open_db(b"meta")
        with env.begin(write=True, db=meta) as txn:
            txn.put(b"schema", pack_number(SCHEMA_VERSION + 1))
    before = path.read_bytes()
    expected = (
        rf"shine\.mdb was written by a newer version of this program \(schema {SCHEMA_VERSION + 1}, this one knows"
        rf" {SCHEMA_VERSION}\): install that version again, or restore a backup"
    )
    for _ in range(2):  # a refusal closes the file and gives up the lock
        with pytest.raises(StoreError, match=expected):
            Store(path, map_size=MAP_SIZE)
    assert path.read_bytes() == before


def test_a_file_that_is_no_store_is_refused_and_kept_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "shine.mdb"
    path.write_bytes(b"this is no store" * 1000)
    for _ in range(2):
        with pytest.raises(StoreDamaged, match="or it is no store at all"):
            Store(path, map_size=MAP_SIZE)
    assert path.read_bytes() == b"this is no store" * 1000


def test_a_damaged_page_is_told_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "shine.mdb"

    def fill(txn: Transaction) -> None:
        for number in range(1, 2000):
            txn.put(Table.CONTAINERS, pack_number(number), bytes(100))

    with opened(path) as store:
        store.write_now(fill)
    content = bytearray(path.read_bytes())
    content[2 * 4096 :] = bytes(len(content) - 2 * 4096)  # all but the two pages that say where the others are
    path.write_bytes(content)
    for _ in range(2):
        with pytest.raises(StoreDamaged, match=r"shine\.mdb is damaged \(.*\): restore a backup"):
            Store(path, map_size=MAP_SIZE)


def test_a_schema_that_is_no_number_is_told(tmp_path: Path) -> None:
    path = tmp_path / "shine.mdb"
    with opened(path) as store:
        store.write_now(put(b"schema", b"one"))
    with pytest.raises(StoreDamaged, match=r"shine\.mdb is damaged"):
        Store(path, map_size=MAP_SIZE)


def test_a_map_that_holds_not_even_the_tables_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"shine\.mdb has no room: raise storage\.mapSizeMiB"):
        Store(tmp_path / "shine.mdb", map_size=4 * 4096)


def test_a_disk_without_room_for_a_new_store_is_told(tmp_path: Path) -> None:
    with greatest_file_size(8192), pytest.raises(StoreError, match=r"the disk of .* is full: make room"):
        Store(tmp_path / "shine.mdb", map_size=MAP_SIZE)  # two head pages, and no page after them
    with opened(tmp_path / "shine.mdb") as store:
        assert store.write_now(put(b"key")) == b"key"


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be written"):
        Store(tmp_path / "nowhere" / "shine.mdb", map_size=MAP_SIZE)


# -- no room, and worse -------------------------------------------------------------------------------------------


def test_a_full_map_refuses_writes_and_not_reads(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "shine.mdb"
    keys: list[bytes] = []

    async def fill() -> None:
        store = Store(path, map_size=MIB)
        store.start()
        for number in range(1000):
            try:
                keys.append(await store.write(put(b"%04d" % number, bytes(20_000))))
            except StorageFull as full:
                assert full.status == 507
                break
        assert 10 < len(keys) < 60
        for _ in range(3):
            with pytest.raises(StorageFull):
                await store.write(put(b"another", bytes(20_000)))
        jobs = [job(put(b"large", bytes(20_000))), job(lambda txn: txn.get(Table.META, keys[0]))]
        store.submit(jobs)  # one that does not fit takes no other with it
        full, read = await outcomes(jobs)
        assert isinstance(full, StorageFull)
        assert read == bytes(20_000)
        assert all(stored(store, *keys))
        store.close()

    run(fill())
    complaints = [record.message for record in caplog.records if record.levelno == logging.ERROR]
    assert complaints == ["the store is full: raise storage.mapSizeMiB (now 1) and restart"]
    # Nor was it told that the store can be written: the job that went well wrote nothing.
    assert len(caplog.records) == 1

    with opened(path, map_size=MIB) as store:
        with pytest.raises(StorageFull):
            store.write_now(put(b"another", bytes(20_000)))
        assert all(stored(store, *keys))
    with opened(path, map_size=2 * MIB) as store:
        store.write_now(put(b"another", bytes(20_000)))
        assert all(stored(store, *keys, b"another"))


def test_a_disk_without_room_refuses_writes_until_there_is_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "shine.mdb"

    async def story() -> None:
        stop = asyncio.Event()
        now = [0.0]
        async with running(path, on_fatal=stop.set, monotonic=lambda: now[0]) as store:
            await store.write(put(b"before", bytes(200_000)))
            with greatest_file_size(path.stat().st_size + 40_000):
                for _ in range(5):
                    with pytest.raises(StorageFull) as caught:
                        await store.write(put(b"lost", bytes(200_000)))
                    assert caught.value.status == 507
                assert stored(store, b"before", b"lost") == [True, False]
                assert store.trouble == f"the disk is full: make room on the disk of {tmp_path}"
            now[0] = QUIET_SECONDS
            await store.write(put(b"after", bytes(200_000)))
            assert store.trouble == ""
            assert stored(store, b"before", b"lost", b"after") == [True, False, True]
            assert not stop.is_set()

    run(story())
    texts = [record.message for record in caplog.records]
    assert texts == [f"the disk is full: make room on the disk of {tmp_path}", "the store can be written again"]


def break_disk(store: Store, *, head: bool) -> None:
    """Put a descriptor that refuses to write in the place of one that LMDB writes with: a disk that fails.

    LMDB writes its pages with one descriptor, and at the end of a commit the head page with another, which is O_DSYNC.
    """
    read_only = os.open(store.path, os.O_RDONLY)
    replaced = 0
    for link in list(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(FileNotFoundError):  # the descriptor that listed them is closed again
            if link.readlink() != store.path or link.name == str(read_only):
                continue
            flags = (Path("/proc/self/fdinfo") / link.name).read_text("ascii").split("flags:")[1].split()[0]
            if bool(int(flags, 8) & os.O_DSYNC) == head:
                os.dup2(read_only, int(link.name))
                replaced += 1
    os.close(read_only)
    assert replaced == 1


def test_a_disk_that_fails_stops_the_node_and_not_the_reads(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "shine.mdb"

    async def story() -> None:
        stop = asyncio.Event()
        async with running(path, on_fatal=stop.set) as store:
            await store.write(put(b"key"))
            break_disk(store, head=False)
            with pytest.raises(InternalError):
                await store.write(put(b"lost"))
            await stop.wait()
            assert stored(store, b"key", b"lost") == [True, False]

    run(story())
    assert "the store cannot be written, the node stops: " in caplog.text
    with opened(path) as store:
        assert stored(store, b"key", b"lost") == [True, False]


def test_a_failed_head_page_stops_the_node(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "shine.mdb"

    async def story() -> None:
        stop = asyncio.Event()
        async with running(path, on_fatal=stop.set) as store:
            await store.write(put(b"key"))
            break_disk(store, head=True)
            for _ in range(2):  # LMDB takes no write after this
                with pytest.raises(InternalError):
                    await store.write(put(b"lost"))
                await stop.wait()
                stop.clear()

    run(story())
    assert "MDB_PANIC" in caplog.text
    with opened(path) as store:
        assert stored(store, b"key", b"lost") == [True, False]


def test_a_disk_that_fails_with_nobody_to_tell(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with opened(tmp_path / "shine.mdb") as store:
        break_disk(store, head=False)
        for _ in range(3):
            with pytest.raises(InternalError):
                store.write_now(put(b"lost"))
    assert len(caplog.records) == 1


def test_a_disk_that_fails_after_the_loop_has_gone(tmp_path: Path) -> None:
    gate = Gate()
    stores: list[Store] = []

    async def story() -> None:
        store = Store(tmp_path / "shine.mdb", map_size=MAP_SIZE, on_fatal=lambda: None)
        stores.append(store)
        store.start()
        store.submit([job(gate)])
        await asyncio.to_thread(gate.reached.wait, WAIT)
        store.submit([job(put(b"lost"))])
        break_disk(store, head=False)

    run(story())
    gate.open.set()
    stores[0].close()  # the writer has come to its end
    with opened(tmp_path / "shine.mdb") as store:
        assert stored(store, b"lost") == [False]


def test_a_transaction_that_somebody_keeps_takes_no_place_of_a_reader(tmp_path: Path) -> None:
    """130 wrongly signed pairs once stopped a node: each traceback kept a reader's place, of which there are few."""
    kept: list[object] = []
    with opened(tmp_path / "shine.mdb") as store:
        for number in range(3 * MAX_READERS):
            try:
                with store.read() as txn:
                    kept.append(txn)
                    if number % 2:
                        raise KeyError(number)
            except KeyError as error:
                kept.append(error)  # with its traceback, and all frames in it
        with store.read() as txn:
            assert txn.get(Table.META, b"schema") is not None


def test_more_readers_at_once_than_there_are_places_are_refused_for_now(tmp_path: Path) -> None:
    with opened(tmp_path / "shine.mdb") as store, ExitStack() as readers:
        with pytest.raises(ServerBusy, match="read by too many"):
            for _ in range(3 * MAX_READERS):
                readers.enter_context(store.read())
        readers.close()
        with store.read() as txn:
            assert txn.get(Table.META, b"schema") is not None


def test_the_position_rises_with_each_commit_and_goes_back_in_a_copy(tmp_path: Path) -> None:
    file, copy = tmp_path / "shine.mdb", tmp_path / "copy.mdb"
    with opened(file) as store:
        positions = [store.position]
        for number in range(2):
            store.write_now(lambda txn, n=number: txn.put(Table.META, b"x", bytes([n])))  # type: ignore[misc]
            positions.append(store.position)
        assert positions == list(range(positions[0], positions[0] + 3))
        copy.write_bytes(file.read_bytes())
        store.write_now(lambda txn: txn.put(Table.META, b"x", b"later"))
    with opened(file) as store:
        assert store.position > positions[-1]
    with opened(copy) as store:
        assert store.position == positions[-1]


def test_a_snapshot_of_a_process_that_was_killed_is_let_go_of(tmp_path: Path) -> None:
    """Else nothing that is written over after it would ever be used again, and the file would grow without end."""
    program = (
        "import sys; from pathlib import Path; from shine_node.store.view import view_store\n"
        "with view_store(Path(sys.argv[1])) as txn: print(flush=True); sys.stdin.read()"
    )
    path = tmp_path / "shine.mdb"
    with opened(path) as store:
        store.write_now(lambda txn: txn.put(Table.META, b"x", bytes(2**20)))
        with subprocess.Popen(
            [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as reader:
            assert reader.stdout is not None
            assert reader.stdout.readline() == "\n"
            reader.kill()

        def growth() -> int:
            before = path.stat().st_size
            for number in range(8):
                store.write_now(lambda txn, n=number: txn.put(Table.META, b"x", bytes([n]) * 2**20))  # type: ignore[misc]
            return path.stat().st_size - before

        assert growth() >= 7 * 2**20
        store.free_dead_readers()
        growth()
        assert growth() <= 2**20


def test_a_snapshot_has_the_number_of_the_last_commit_that_it_sees(tmp_path: Path) -> None:
    with opened(tmp_path / "shine.mdb") as store:
        for number in range(3):
            store.write_now(lambda txn, n=number: txn.put(Table.META, b"x", bytes([n])))  # type: ignore[misc]
            with store.read() as txn:
                assert txn.snapshot() == store.position


def damage_leaves(path: Path) -> None:
    """Let every leaf of a store be none, also for the process that has it open."""
    content = path.read_bytes()
    with path.open("r+b") as file:
        for page in range(2, len(content) // 4096):
            if content[page * 4096 + 10] == 2:
                file.seek(page * 4096 + 10)
                file.write(b"\0\0")


@pytest.mark.parametrize("how", ["reading", "writing"])
def test_damage_that_is_met_while_it_is_open_ends_the_node(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    path = tmp_path / "shine.mdb"

    async def story() -> None:
        stop = asyncio.Event()
        async with running(path, on_fatal=stop.set) as store:
            await store.write(lambda txn: [txn.put(Table.META, b"%d" % number, bytes(500)) for number in range(99)])
            assert store.damage == ""
            damage_leaves(path)
            for _ in range(2):
                if how == "reading":
                    with pytest.raises(StoreDamaged, match="is damaged"), store.read() as txn:
                        txn.get(Table.META, b"5")
                else:
                    with pytest.raises(InternalError):
                        await store.write(put(b"5"))
            await asyncio.wait_for(stop.wait(), 30)
            assert store.damage
            with pytest.raises(lmdb.BadValsizeError), store.read() as txn:
                txn.get(Table.META, b"")

    run(story())
    assert [record.message.partition(":")[0] for record in caplog.records] == ["the store is damaged, the node stops"]
