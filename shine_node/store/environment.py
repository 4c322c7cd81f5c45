"""The LMDB file: open it, read from it, and write to it through one thread that gathers work into commits."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

import lmdb

from shine_node.protocol.errors import InternalError, Refusal, ServerBusy, ShineError, StorageFull
from shine_node.store.layout import SCHEMA_VERSION, Table, pack_number, unpack_number

__all__ = ["Job", "Store", "StoreError", "Transaction"]

T = TypeVar("T")
log = logging.getLogger(__name__)

MAX_JOBS_A_COMMIT = 256
MAX_WAITING_JOBS = 65536
MAX_READERS = 64
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class StoreError(ShineError):
    """The store cannot be opened; the text says what to do."""


class Transaction:
    """A transaction as the rooms of the store use it: bytes in named tables. Not for use by two threads."""

    __slots__ = ("_dbs", "_raw", "_store", "writes")

    def __init__(self, raw: Any, dbs: dict[Table, Any], store: Store) -> None:
        self._raw = raw
        self._dbs = dbs
        self._store = store
        self.writes = 0

    def get(self, table: Table, key: bytes) -> bytes | None:
        """Return the value of a key, or ``None``."""
        value: bytes | None = self._raw.get(key, db=self._dbs[table])
        return value

    def put(self, table: Table, key: bytes, value: bytes) -> None:
        """Write a value over whatever is there."""
        self.writes += 1
        self._raw.put(key, value, db=self._dbs[table])

    def delete(self, table: Table, key: bytes) -> bool:
        """Remove a key and say whether it was there."""
        self.writes += 1
        return bool(self._raw.delete(key, db=self._dbs[table]))

    def scan(self, table: Table, start: bytes = b"", *, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield rows in order, from ``start`` (or the prefix) on, as long as keys begin with the prefix."""
        with self._raw.cursor(db=self._dbs[table]) as cursor:
            if not cursor.set_range(max(start, prefix)):
                return
            for key, value in cursor:
                if not key.startswith(prefix):
                    return
                yield key, value

    def last_key(self, table: Table) -> bytes | None:
        """Return the greatest key of a table, or ``None`` if it is empty."""
        with self._raw.cursor(db=self._dbs[table]) as cursor:
            return bytes(cursor.key()) if cursor.last() else None

    def count(self, table: Table) -> int:
        """Return how many rows a table has."""
        return int(self._raw.stat(self._dbs[table])["entries"])

    def next_seq(self, table: Table) -> int:
        """Return the next number of a table that is keyed by ``seq``: one more than the greatest ever given."""
        return self._store.allocate(table)


class Job(Generic[T]):
    """One piece of work for the writer: a function of the transaction, and the future of its result.

    The function may run twice, so that it does nothing but read and write the transaction it is given. A ``Refusal``
    that it raises harms no other job of the batch; whatever it had written before is undone.
    """

    __slots__ = ("error", "future", "result", "work")

    def __init__(self, work: Callable[[Transaction], T], future: asyncio.Future[T]) -> None:
        self.work = work
        self.future = future
        self.result: T | None = None
        self.error: BaseException | None = None


class Store:
    """One LMDB file and its writer thread.

    Args:
        path: the file; its folder must exist. A second process on the same file is refused.
        map_size: the greatest size of the file in bytes: address space, not disk; fixed while it is open.
        on_fatal: called in the loop when the file can no longer be written until the process is started again.

    Raises:
        StoreError: in use by another process, of a newer schema, damaged, or not accessible.
    """

    def __init__(self, path: Path, *, map_size: int, on_fatal: Callable[[], None] | None = None) -> None:
        self.path = path
        self.map_size = map_size
        self._on_fatal = on_fatal
        self._waiting: deque[Job[Any]] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._seqs: dict[Table, int] = {}
        self._lock_file = _lock(path)
        try:
            self._env = _open(path, map_size)
            self._dbs = {table: self._env.open_db(table.value) for table in Table}
            self._check_schema()
        except BaseException:
            os.close(self._lock_file)
            raise

    # -- life ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the writer; results arrive on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._write_forever, name="store-writer")
        self._thread.start()

    def close(self) -> None:
        """Write what is waiting, then close the file and give up its lock. It waits for the last commit."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()
        self._env.close()
        os.close(self._lock_file)

    # -- reading ------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def read(self) -> Iterator[Transaction]:
        """Open a short read transaction: a snapshot of the last commit. For point reads, or in a thread."""
        with self._env.begin() as raw:
            yield Transaction(raw, self._dbs, self)

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
        """
        if self._thread is not None:
            raise AssertionError("the writer thread is running")
        with self._env.begin(write=True) as raw:
            return work(Transaction(raw, self._dbs, self))

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
        self._seqs[table] += 1
        return self._seqs[table]

    def _write_forever(self) -> None:
        while True:
            with self._wake:
                while not self._waiting and not self._stopping:
                    self._wake.wait()
                if not self._waiting:
                    return
                batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), MAX_JOBS_A_COMMIT))]
            if not self._try_together(batch):
                for job in batch:
                    self._run_alone(job)
            self._report(batch)

    def _try_together(self, batch: list[Job[Any]]) -> bool:
        """Run all jobs in one transaction; if anything but a clean refusal happens, undo all and say so."""
        try:
            with self._env.begin(write=True) as raw:
                txn = Transaction(raw, self._dbs, self)
                for job in batch:
                    before = txn.writes
                    job.error = None
                    try:
                        job.result = job.work(txn)
                    except Refusal as refusal:
                        if txn.writes != before:
                            raise  # it had written: only a transaction of its own can undo that
                        job.error = refusal
        except Exception:
            return False  # each runs alone next, and meets its own error there
        return True

    def _run_alone(self, job: Job[Any]) -> None:
        job.error = None
        try:
            with self._env.begin(write=True) as raw:
                job.result = job.work(Transaction(raw, self._dbs, self))
        except Refusal as refusal:
            job.error = refusal
        except (lmdb.Error, OSError) as error:
            job.error = self._storage_error(error)
        except Exception:
            log.exception("a write failed; nothing of it was stored")
            job.error = InternalError("the server could not store this")

    def _storage_error(self, error: Exception) -> Refusal:
        if isinstance(error, lmdb.MapFullError):
            log.error("the store is full: raise storage.mapSizeMiB (now %d) and restart", self.map_size // 2**20)
            return StorageFull("the server's store is full")
        if isinstance(error, lmdb.DiskError) or getattr(error, "errno", None) in _NO_ROOM:
            log.error("the disk is full: make room on the disk of %s", self.path.parent)
            return StorageFull("the server's disk is full")
        log.critical("the store cannot be written: %s; the node stops", error)
        if self._on_fatal is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(self._on_fatal)
        return InternalError("the server could not store this")

    def _report(self, batch: list[Job[Any]]) -> None:
        if self._loop is None:  # pragma: no cover - start() sets it before the thread
            return
        with contextlib.suppress(RuntimeError):  # the loop was closed before its writer: nobody waits any more
            self._loop.call_soon_threadsafe(_resolve, batch)

    # -- schema -------------------------------------------------------------------------------------------------

    def _check_schema(self) -> None:
        with self._env.begin(write=True) as raw:
            txn = Transaction(raw, self._dbs, self)
            stored = txn.get(Table.META, b"schema")
            if stored is None:
                txn.put(Table.META, b"schema", pack_number(SCHEMA_VERSION))
            elif unpack_number(stored) > SCHEMA_VERSION:
                raise StoreError(
                    f"{self.path} was written by a newer version of this program (schema {unpack_number(stored)},"
                    f" this one knows {SCHEMA_VERSION}): install that version again, or restore a backup"
                )
            for table in (Table.CONTAINERS, Table.ACCESS_RECORDS):
                last = txn.last_key(table)
                self._seqs[table] = unpack_number(last) if last else 0


def _resolve(batch: list[Job[Any]]) -> None:
    for job in batch:
        if job.future.done():
            continue  # its request was cancelled; what it wrote stays, which is what an idempotent retry expects
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.result)


def _lock(path: Path) -> int:
    """Take the lock that keeps a second process off the file; the system frees it when this process ends."""
    try:
        descriptor = os.open(path.with_name(path.name + ".pid"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreError(f"{path.parent} cannot be written ({error.strerror}): create it, or fix its owner") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        pid = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
        os.close(descriptor)
        raise StoreError(f"{path} is in use by another process (PID {pid or 'unknown'}): stop it first") from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def _open(path: Path, map_size: int) -> Any:
    try:
        env = lmdb.open(
            str(path),
            subdir=False,
            map_size=map_size,
            max_dbs=len(Table) + 8,
            max_readers=MAX_READERS,
            mode=0o600,
            meminit=False,
        )
        env.reader_check()
    except (lmdb.Error, OSError, OverflowError) as error:
        raise StoreError(f"{path} cannot be opened as a store: {error}") from None
    return env
