"""The LMDB file: open it, read from it, and write to it through one thread that gathers work into commits."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import lmdb

from shine_node.clock import SystemClock
from shine_node.protocol.errors import InternalError, Refusal, ServerBusy, StorageFull
from shine_node.store.changes import Change, Watch
from shine_node.store.files import StoreDamaged, StoreError, open_environment, opening_error, take_lock
from shine_node.store.job_queue import JobQueue
from shine_node.store.jobs import Job, bring_back
from shine_node.store.layout import Table
from shine_node.store.schema import check_schema, last_numbers, migrate, write_schema
from shine_node.store.transaction import Transaction
from shine_node.store.trouble import Trouble
from shine_node.store.unreadable import Unreadable, UnreadableRow
from shine_node.store.usage import Usage

__all__ = ["Job", "Store", "StoreDamaged", "StoreError", "Transaction"]

T = TypeVar("T")
log = logging.getLogger(__name__)

MAX_FIRST_SEQ = 2**52
"""A clock that is far ahead must not make numbers that a reader of JSON cannot hold exactly."""


class Store:
    """One LMDB file and its writer thread.

    Args:
        path: the file; its folder must exist. A second process on the same file is refused.
        map_size: the greatest size of the file in bytes: address space, not disk; fixed while it is open.
        now_ms: Unix milliseconds. Sequence numbers go on from its microseconds, unless they are further: so they never
            go back, not even in a store that was restored from a backup.
        on_fatal: called in the loop when the file can no longer be written until the process is started again.
        monotonic: the monotonic clock, seconds; the machine's where left out.
        migrates: whether a store of an older schema is brought to this program's, as the node does, or refused.

    Raises:
        StoreError: in use by another process, or not accessible; StoreUnsuitable: of another schema; StoreDamaged.
    """

    def __init__(
        self,
        path: Path,
        *,
        map_size: int,
        now_ms: int = 0,
        on_fatal: Callable[[], None] | None = None,
        monotonic: Callable[[], float] | None = None,
        migrates: bool = False,
    ) -> None:
        self.path = path
        self.map_size = map_size
        self._on_fatal = on_fatal
        self._queue = JobQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self.seqs: dict[Table, int] = {}
        """By table, the greatest number that it has, or has passed over."""
        self.watch: Watch = lambda changes: None
        """Is told what each commit has changed; called in the loop."""
        self.no_room = ""
        """Why what makes the store grow is refused, although it could be written; empty where it is not."""
        monotonic = monotonic or SystemClock().monotonic
        self._trouble = Trouble(path, map_size, monotonic=monotonic, fatal=self._give_up)
        self.usage = Usage()
        """What is counted of owners; for the writer."""
        self.unreadable = Unreadable()
        """What of it could not be read since it was opened."""
        self._dbs: dict[Table, Any] = {}
        with contextlib.ExitStack() as undo:
            self._lock_file = take_lock(path)
            undo.callback(os.close, self._lock_file)
            self._env = open_environment(path, map_size)
            undo.callback(self._env.close)
            self._open_tables(now_ms, migrates=migrates)
            self._open = undo.pop_all()

    @property
    def waiting(self) -> int:
        """How many jobs wait for the writer, of at most ``MAX_WAITING_JOBS``."""
        return len(self._queue)

    @property
    def position(self) -> int:
        """The number of the last commit; it rises by one with each, and is lower in a copy that was made before."""
        return int(self._env.info()["last_txnid"])

    @property
    def trouble(self) -> str:
        """Why the last write failed and what to do: no room, or a broken disk; empty while all is well."""
        return self._trouble.text

    @property
    def damage(self) -> str:
        """What is wrong with the file, once reading or writing has met it; the node stops then."""
        return self._trouble.damage

    # -- life ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the writer; results arrive on the running loop."""
        with self.read() as txn:
            self.usage.committed(txn)  # now, and not when the first message comes
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._write_forever, args=(self._loop,), name="store-writer")
        self._thread.start()

    def close(self, seconds: float | None = None) -> None:
        """Write what is waiting, then close the file and give up its lock; it waits for the last commit.

        Nobody may be reading. To close twice does nothing.

        Args:
            seconds: how long the writing may take; then what still waits is given up, and nobody has been told that it
                was stored. A commit that does not end for as long again leaves the file open: the process has to end.
        """
        self._queue.close()
        if self._thread is not None:
            self._thread.join(seconds)
            if self._thread.is_alive():
                log.warning("%d writes are given up: the disk is too slow for them", self._queue.clear())
                self._thread.join(seconds)
                if self._thread.is_alive():
                    log.error("the disk does not answer: the store stays open until the process ends")
                    return
        self._open.close()

    # -- reading ------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def read(self) -> Iterator[Transaction]:
        """Open a short read transaction: a snapshot of the last commit. For point reads, or in a thread.

        Raises:
            ServerBusy: too many are open at once.
            StoreDamaged: a page that was needed is not what it must be; the node stops.
            UnreadableRow: a row that was needed is not what was written.
        """
        try:
            raw = self._env.begin()
        except lmdb.ReadersFullError:
            raise ServerBusy("the store is read by too many at once", {"retryAfterMs": 1000}) from None
        with raw:
            txn = Transaction(raw, self._dbs, self)
            del raw
            try:
                yield txn
            except UnreadableRow as error:
                self.unreadable.note(error)
                raise
            except lmdb.Error as error:
                if self._trouble.is_damage(error):
                    raise StoreDamaged(self.path, str(error)) from error
                raise
            finally:
                # LMDB's place for a reader is free once nothing refers to it. A traceback may keep this frame's
                # caller, and with it the transaction, alive until the collector comes by.
                txn.end()

    def free_dead_readers(self) -> None:
        """Let go of snapshots of processes that were killed, such as a backup: else their pages stay taken."""
        self._env.reader_check()

    # -- writing ------------------------------------------------------------------------------------------------

    def check_room(self) -> None:
        """Raise ``StorageFull`` while ``no_room`` says why the store may not grow."""
        if self.no_room:
            raise StorageFull(self.no_room)

    async def write(self, work: Callable[[Transaction], T], *, size: int = 0, later: bool = False) -> T:
        """Run a function in a write transaction and return its result once the commit is on disk.

        Args:
            size: about how many bytes the work keeps in memory until it is done.
            later: as for ``submit``.

        Raises:
            Refusal: what the function raised; nothing of it was written.
            StorageFull: neither the map nor the disk has room.
            ServerBusy: the writer's queue is full.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.submit([Job(work, future, size=size)], later=later)
        return await future

    def write_now(self, work: Callable[[Transaction], T]) -> T:
        """Run a function in a write transaction of its own and return its result; only while no writer runs.

        For the command line and for what the start has to do before it listens.

        Raises:
            StorageFull: neither the map nor the disk has room.
            InternalError: the file cannot be written; the log has the cause. UnreadableRow: as ``read``.
        """
        if self._thread is not None:
            raise AssertionError("the writer thread is running")
        try:
            with self._env.begin(write=True) as raw:
                txn = Transaction(raw, self._dbs, self)
                result = work(txn)
        except lmdb.Error as error:
            raise self._trouble.refusal(error) from error
        self._written(txn)
        return result

    def submit(self, jobs: list[Job[Any]], *, later: bool = False) -> None:
        """Hand jobs to the writer, from any thread; they share a commit where they can.

        Args:
            later: they can wait for a moment, for others to share a commit with.

        Raises:
            ServerBusy: too many are waiting, or too large ones, or the store is being closed.
        """
        self._queue.put(jobs, later=later)

    def allocate(self, table: Table) -> int:
        """Give the next number of a table; called by the one writer only."""
        self.seqs[table] += 1
        return self.seqs[table]

    def _write_forever(self, loop: asyncio.AbstractEventLoop) -> None:
        while batch := self._queue.next_batch():
            changes = self._try_together(batch)
            if changes is None:
                changes = [change for job in batch for change in self._run_alone(job)]
            self._queue.done(batch)
            with contextlib.suppress(RuntimeError):  # the loop was closed before its writer: nobody waits any more
                loop.call_soon_threadsafe(bring_back, batch, changes, self.watch)

    def _try_together(self, batch: list[Job[Any]]) -> list[Change] | None:
        """Run all jobs in one transaction and return what they changed; if it does not go well, undo all: ``None``.

        A clean refusal of one of them is no trouble.
        """
        try:
            with self._env.begin(write=True) as raw:
                txn = Transaction(raw, self._dbs, self)
                for job in batch:
                    before = txn.writes
                    txn.origin = job.origin
                    job.error = None
                    try:
                        job.result = job.work(txn)
                    except Refusal as refusal:
                        if txn.writes != before:
                            raise  # it had written: only a transaction of its own can undo that
                        job.error = self._noted(refusal)
                self.usage.keep_short(txn)
        except BaseException:
            return None  # each runs alone next, and meets its own error there
        self._written(txn)
        return txn.changes

    def _run_alone(self, job: Job[Any]) -> list[Change]:
        job.error = None
        try:
            with self._env.begin(write=True) as raw:
                txn = Transaction(raw, self._dbs, self)
                txn.origin = job.origin
                job.result = job.work(txn)
        except Refusal as refusal:
            job.error = self._noted(refusal)
        except lmdb.Error as error:
            job.error = self._trouble.refusal(error)
        except BaseException:  # whatever it is, the thread must outlive it: without its writer a node is lost
            log.exception("a write failed; nothing of it was stored")
            job.error = InternalError("the server could not store this")
        else:
            self._written(txn)
            return txn.changes
        return []

    def _noted(self, refusal: Refusal) -> Refusal:
        """Take note of a row that could not be read, if it is that."""
        if isinstance(refusal, UnreadableRow):
            self.unreadable.note(refusal)
        return refusal

    def _give_up(self) -> None:
        if self._on_fatal is not None and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop was closed: the node has stopped
                self._loop.call_soon_threadsafe(self._on_fatal)

    def _written(self, txn: Transaction) -> None:
        """Take note that a commit went well."""
        if txn.writes:
            self._trouble.went_well()
        self.usage.written(txn)

    # -- schema -------------------------------------------------------------------------------------------------

    def _open_tables(self, now_ms: int, *, migrates: bool) -> None:
        least = min(now_ms * 1000, MAX_FIRST_SEQ)
        try:
            with self._env.begin(write=True) as raw:
                self._dbs[Table.META] = self._env.open_db(Table.META.value, txn=raw)
                txn = Transaction(raw, self._dbs, self)
                if not migrates and not check_schema(txn, self.path):  # before all else is made or looked at in it
                    write_schema(txn)
                for table in Table:
                    self._dbs[table] = self._env.open_db(table.value, txn=raw)
                if migrates:  # whatever ends it undoes the tables too
                    migrate(txn, self.path)
            with self.read() as txn:
                self.seqs = last_numbers(txn, least)
        except (lmdb.Error, UnreadableRow) as error:
            raise opening_error(self.path, error) from None
