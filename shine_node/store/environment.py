"""The LMDB file: open it, read from it, and write to it through one thread that gathers work into commits."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import lmdb

from shine_node.protocol.errors import InternalError, Refusal, ServerBusy, StorageFull
from shine_node.store.changes import Change, Watch
from shine_node.store.files import (
    StoreDamaged,
    StoreError,
    is_damage,
    is_disk_full,
    open_environment,
    opening_error,
    take_lock,
)
from shine_node.store.jobs import Job, bring_back
from shine_node.store.layout import Table
from shine_node.store.schema import check_schema, last_numbers, write_schema
from shine_node.store.transaction import Transaction

__all__ = ["Job", "Store", "StoreDamaged", "StoreError", "Transaction"]

T = TypeVar("T")
log = logging.getLogger(__name__)

MAX_JOBS_A_COMMIT = 256
MAX_WAITING_JOBS = 65536
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

    Raises:
        StoreError: in use by another process, or not accessible; StoreUnsuitable: of a newer schema; StoreDamaged.
    """

    def __init__(
        self, path: Path, *, map_size: int, now_ms: int = 0, on_fatal: Callable[[], None] | None = None
    ) -> None:
        self.path = path
        self.map_size = map_size
        self._on_fatal = on_fatal
        self._waiting: deque[Job[Any]] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self.seqs: dict[Table, int] = {}
        """By table, the greatest number that it has, or has passed over."""
        self.watch: Watch = lambda changes: None
        """Is told what each commit has changed; called in the loop."""
        self._trouble = ""
        self.damage = ""
        """What is wrong with the file, once reading or writing has met it; the node stops then."""
        self._dbs: dict[Table, Any] = {}
        with contextlib.ExitStack() as undo:
            self._lock_file = take_lock(path)
            undo.callback(os.close, self._lock_file)
            self._env = open_environment(path, map_size)
            undo.callback(self._env.close)
            self._open_tables(now_ms)
            self._open = undo.pop_all()

    @property
    def waiting(self) -> int:
        """How many jobs wait for the writer, of at most ``MAX_WAITING_JOBS``."""
        return len(self._waiting)

    @property
    def position(self) -> int:
        """The number of the last commit; it rises by one with each, and is lower in a copy that was made before."""
        return int(self._env.info()["last_txnid"])

    @property
    def trouble(self) -> str:
        """Why the last write failed and what to do: no room, or a broken disk; empty while all is well."""
        return self._trouble

    # -- life ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the writer; results arrive on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._write_forever, args=(self._loop,), name="store-writer")
        self._thread.start()

    def close(self) -> None:
        """Write what is waiting, then close the file and give up its lock; it waits for the last commit.

        Nobody may be reading. To close twice does nothing.
        """
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()
        self._open.close()

    # -- reading ------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def read(self) -> Iterator[Transaction]:
        """Open a short read transaction: a snapshot of the last commit. For point reads, or in a thread.

        Raises:
            ServerBusy: too many are open at once.
            StoreDamaged: a page that was needed is not what it must be; the node stops.
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
            except lmdb.Error as error:
                if self._look_for_damage(error):
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

    async def write(self, work: Callable[[Transaction], T]) -> T:
        """Run a function in a write transaction and return its result once the commit is on disk.

        Raises:
            Refusal: what the function raised; nothing of it was written.
            StorageFull: neither the map nor the disk has room.
            ServerBusy: the writer's queue is full.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.submit([Job(work, future)])
        return await future

    def write_now(self, work: Callable[[Transaction], T]) -> T:
        """Run a function in a write transaction of its own and return its result; only while no writer runs.

        For the command line and for what the start has to do before it listens.

        Raises:
            StorageFull: neither the map nor the disk has room.
            InternalError: the file cannot be written; the log has the cause.
        """
        if self._thread is not None:
            raise AssertionError("the writer thread is running")
        try:
            with self._env.begin(write=True) as raw:
                return work(Transaction(raw, self._dbs, self))
        except lmdb.Error as error:
            raise self._storage_error(error) from error

    def submit(self, jobs: list[Job[Any]]) -> None:
        """Hand jobs to the writer, from any thread; they share a commit where they can.

        Raises:
            ServerBusy: over ``MAX_WAITING_JOBS`` are waiting, or the store is being closed.
        """
        with self._wake:
            if self._stopping or len(self._waiting) + len(jobs) > MAX_WAITING_JOBS:
                raise ServerBusy("the store has too much to write", {"retryAfterMs": 1000})
            self._waiting.extend(jobs)
            self._wake.notify()

    def allocate(self, table: Table) -> int:
        """Give the next number of a table; called by the one writer only."""
        self.seqs[table] += 1
        return self.seqs[table]

    def _write_forever(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            with self._wake:
                while not self._waiting and not self._stopping:
                    self._wake.wait()
                if not self._waiting:
                    return
                batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), MAX_JOBS_A_COMMIT))]
            changes = self._try_together(batch)
            if changes is None:
                changes = [change for job in batch for change in self._run_alone(job)]
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
                        job.error = refusal
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
            job.error = refusal
        except lmdb.Error as error:
            job.error = self._storage_error(error)
        except BaseException:  # whatever it is, the thread must outlive it: without its writer a node is lost
            log.exception("a write failed; nothing of it was stored")
            job.error = InternalError("the server could not store this")
        else:
            self._written(txn)
            return txn.changes
        return []

    def _storage_error(self, error: lmdb.Error) -> Refusal:
        # What LMDB names otherwise than by its plain class is a defect of the job, or harms that job alone.
        of_system = type(error) is lmdb.Error
        if isinstance(error, lmdb.MapFullError):
            self._complain(f"the store is full: raise storage.mapSizeMiB (now {self.map_size // 2**20}) and restart")
            return StorageFull("the server's store is full")
        if isinstance(error, lmdb.DiskError) or (of_system and is_disk_full(self.path)):
            self._complain(f"the disk is full: make room on the disk of {self.path.parent}")
            return StorageFull("the server's disk is full")
        if of_system or isinstance(error, lmdb.PanicError):
            self._complain(f"the store cannot be written, the node stops: {error}")
            self._end_node()
        elif not self._look_for_damage(error):
            log.error("a write failed; nothing of it was stored", exc_info=error)
        return InternalError("the server could not store this")

    def _look_for_damage(self, error: lmdb.Error) -> bool:
        if not is_damage(error):
            return False
        self.damage = self.damage or str(error)
        self._complain(f"the store is damaged, the node stops: {error}")
        self._end_node()
        return True

    def _end_node(self) -> None:
        if self._on_fatal is not None and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop was closed: the node has stopped
                self._loop.call_soon_threadsafe(self._on_fatal)

    def _complain(self, trouble: str) -> None:
        """Log a trouble once, not for each write that meets it: the log may lie on the same disk."""
        if trouble != self._trouble:
            log.error(trouble)
        self._trouble = trouble

    def _written(self, txn: Transaction) -> None:
        """Take note that a commit that had something to write went well."""
        if self._trouble and txn.writes:
            log.warning("the store can be written again")
            self._trouble = ""

    # -- schema -------------------------------------------------------------------------------------------------

    def _open_tables(self, now_ms: int) -> None:
        least = min(now_ms * 1000, MAX_FIRST_SEQ)
        try:
            with self._env.begin(write=True) as raw:
                self._dbs[Table.META] = self._env.open_db(Table.META.value, txn=raw)
                txn = Transaction(raw, self._dbs, self)
                if not check_schema(txn, self.path):  # before anything else is made or looked at in it
                    write_schema(txn)
                for table in Table:
                    self._dbs[table] = self._env.open_db(table.value, txn=raw)
            with self.read() as txn:
                self.seqs = last_numbers(txn, least)
        except (lmdb.Error, struct.error) as error:
            raise opening_error(self.path, error) from None
