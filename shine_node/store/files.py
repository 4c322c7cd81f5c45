"""The files of a store: the lock that keeps other processes away, the opening, and whether the disk has room."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from pathlib import Path
from typing import Any, Final

import lmdb

from shine_node.protocol.errors import ShineError
from shine_node.store.layout import Table

__all__ = ["StoreError", "check_length", "is_disk_full", "open_environment", "take_lock"]

MAX_READERS: Final = 64
READERS_BYTES: Final = 8192
"""The size of LMDB's file of readers for ``MAX_READERS``, in whole blocks of a disk."""
META_PAGES: Final = 2
ROOM_BYTES: Final = 64 * 2**20
"""More than the greatest transaction writes: a pair of the greatest bodies, stored for its recipient too."""
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class StoreError(ShineError):
    """The store cannot be opened; the text says what to do."""


def take_lock(path: Path) -> int:
    """Take the lock that keeps a second process off a store; the system frees it when this process ends.

    Returns:
        The descriptor that holds the lock until it is closed.

    Raises:
        StoreError: another process holds it, or it cannot be had here.
    """
    try:
        descriptor = os.open(path.with_name(path.name + ".pid"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreError(f"{path.parent} cannot be written ({error.strerror}): create it, or fix its owner") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        pid = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
        os.close(descriptor)
        if not isinstance(error, BlockingIOError):
            raise StoreError(f"{path} cannot be locked ({error.strerror}): keep it on a disk of this machine") from None
        raise StoreError(f"{path} is in use by another process (PID {pid or 'unknown'}): stop it first") from None
    with contextlib.suppress(OSError):  # it is for the message above only, and a full disk must not stop the start
        os.pwrite(descriptor, f"{os.getpid():<20}\n".encode(), 0)  # always as long: its block is never given back
    return descriptor


def open_environment(path: Path, map_size: int) -> Any:
    """Open the LMDB file, or make it; the caller holds its lock.

    Raises:
        StoreError: no LMDB file, made by a machine of another kind, cut short, no room, or not accessible.
    """
    with contextlib.ExitStack() as undo:
        try:
            _reserve(path.with_name(path.name + "-lock"), READERS_BYTES)
            env = lmdb.open(
                str(path),
                subdir=False,
                map_size=map_size,
                max_dbs=len(Table) + 8,
                max_readers=MAX_READERS,
                mode=0o600,
                meminit=False,
            )
            undo.callback(env.close)
            env.reader_check()
            check_length(path, env)
        except (lmdb.Error, OSError, OverflowError) as error:
            raise StoreError(f"{path} cannot be opened as a store: {error}") from None
        undo.pop_all()
    return env


def is_disk_full(path: Path) -> bool:
    """Say whether the disk refuses to let a file grow by ``ROOM_BYTES``; a quota and the greatest size of a file count.

    Needed because LMDB tells of a write that the room ended in the middle of as an input/output error, which is also
    what a broken disk gives. Only for the one writer of the file, between its transactions.
    """
    try:
        with path.open("r+b") as file:
            size = os.fstat(file.fileno()).st_size
            try:
                os.posix_fallocate(file.fileno(), size, ROOM_BYTES)
            finally:
                os.ftruncate(file.fileno(), size)
    except OSError as error:
        return error.errno in _NO_ROOM
    return False


def _reserve(path: Path, size: int) -> None:
    """Give a file that is written through the memory map its blocks: on a full disk a hole in it kills the process."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise
    finally:
        os.close(descriptor)


def check_length(path: Path, env: Any) -> None:
    """Let the file reach to its last page, and refuse one that lacks pages which are in use.

    A sound file can end before its last page, where the last ones are free; so does one whose copying was interrupted.
    To read behind the end of a file would kill the process, and so would some uses of the zeros that stand there then.
    """
    page_size, pages = env.stat()["psize"], env.info()["last_pgno"] + 1
    size = path.stat().st_size
    missing = pages - size // page_size
    if missing <= 0:
        return
    os.truncate(path, pages * page_size)
    try:
        with env.begin() as txn:
            tables = [None, *txn.cursor().iternext(values=False)]
            stats = [txn.stat(env.open_db(table, txn=txn, create=False)) for table in tables]
        used = META_PAGES + sum(stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"] for stat in stats)
        if missing > pages - used:
            raise StoreError(f"{path} lacks {missing} of its {pages} pages: copy it again, or restore a backup")
    except BaseException:
        os.truncate(path, size)
        raise
