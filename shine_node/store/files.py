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
from shine_node.store.pages import DamagedPage, ForeignFile, Head
from shine_node.store.structure import examine
from shine_node.store.unreadable import UnreadableRow

__all__ = [
    "StoreDamaged",
    "StoreError",
    "StoreGone",
    "StoreOutOfReach",
    "StoreSuspect",
    "StoreUnsuitable",
    "examine_file",
    "is_damage",
    "is_disk_full",
    "needs_owner",
    "open_environment",
    "opening_error",
    "take_lock",
]

MAX_READERS: Final = 64
READERS_BYTES: Final = 8192
"""The size of LMDB's file of readers for ``MAX_READERS``, in whole blocks of a disk."""
ROOM_BYTES: Final = 64 * 2**20
"""More than the greatest transaction writes: a pair of the greatest bodies, stored for its recipient too."""
_DAMAGE = (
    lmdb.CorruptedError,
    lmdb.PageNotFoundError,
    lmdb.CursorFullError,
    lmdb.InvalidError,
    lmdb.BadTxnError,
)
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_LASTING = frozenset(
    {errno.EACCES, errno.EEXIST, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOENT, errno.ENOTDIR, errno.EPERM, errno.EROFS}
)


class StoreError(ShineError):
    """The store cannot be opened; the text says what to do."""


class StoreOutOfReach(StoreError):
    """The folder of the store is not there, or not this user's to write: to start again does not help."""


class StoreUnsuitable(StoreError):
    """The store is another machine's, or another program's, and is left as it is: to start again does not help."""


class StoreDamaged(StoreError):
    """The store's file is damaged, and is left as it is.

    Args:
        path: the file.
        reason: what is wrong with it, as a part of a sentence.
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"{path} is damaged ({reason}): restore a backup, or refill it from the users' other server,"
            " with `shine-node recover`"
        )
        self.path = path
        self.reason = reason

    def because(self, why: str) -> StoreDamaged:
        """Return the same, with why it was not gone on with something else."""
        return StoreDamaged(self.path, f"{self.reason}; {why}")


class StoreSuspect(StoreError):
    """The store ends each start of the node, although nothing is found to be wrong with it: its owner has to look."""


class StoreGone(StoreDamaged):
    """There is no file where a store was, or an empty one: it is not replaced by a new one without a word.

    Args:
        path: the file.
        reason: what is wrong, as a part of a sentence.
        remembered: the file that says that there was a store.
    """

    def __init__(self, path: Path, reason: str, *, remembered: Path) -> None:
        super().__init__(path, reason)
        self._remembered = remembered
        self.args = (
            f"there was a store {path}, and now {reason}: put it back (is its disk mounted?), or restore a backup, or"
            f" refill it from the users' other server, with `shine-node recover`. To begin with nothing, remove"
            f" {remembered} too",
        )

    def because(self, why: str) -> StoreDamaged:
        """Return the same, with why it was not gone on with something else."""
        return StoreGone(self.path, f"{self.reason}; {why}", remembered=self._remembered)


def needs_owner(error: OSError) -> bool:
    """Say whether something fails until somebody has mended it, unlike a disk that is full or does not answer. Pure."""
    return error.errno in _LASTING


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
        text = f"{path.parent} cannot be written ({error.strerror}): create it, or fix its owner"
        raise (StoreOutOfReach if needs_owner(error) else StoreError)(text) from None
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
        StoreUnsuitable: made by a machine of another kind.
        StoreDamaged: no LMDB file, cut short, or damaged where the opening can see it.
        StoreError: no room, or not accessible.
    """
    with contextlib.ExitStack() as undo:
        try:
            _let_reach_to_its_last_page(path, examine_file(path), undo)
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
        except (lmdb.Error, OSError, OverflowError) as error:
            if is_damage(error):
                raise StoreDamaged(path, str(error)) from None
            raise StoreError(f"{path} cannot be opened as a store: {error}") from None
        undo.pop_all()
    return env


def examine_file(path: Path, *, thorough: bool = False) -> Head | None:
    """Look, before LMDB trusts it, whether a store's file can be opened; nobody may be writing it.

    A sound file can end before its last page, where the last ones are free; so does one whose copying was interrupted.
    Such a file is looked through to the end: to read behind it would kill the process.

    Args:
        thorough: look at every page, and not only at those that the opening touches.

    Returns:
        Its head; ``None`` where there is no file, or an empty one.

    Raises:
        StoreUnsuitable: made by a machine of another kind.
        StoreDamaged: it is damaged.
        OSError: it cannot be read.
    """
    try:
        head = examine(path, thorough=thorough)
        if head is not None and not thorough and path.stat().st_size < head.pages * head.page_size:
            head = examine(path, thorough=True)
    except ForeignFile as error:
        raise StoreUnsuitable(
            f"{path} cannot be used here: {error}. Export it there, and import it here, or use another server.dataDir"
        ) from None
    except DamagedPage as error:
        raise StoreDamaged(path, str(error)) from None
    return head


def opening_error(path: Path, error: Exception) -> StoreError:
    """Return what an error means that came while the tables of a store were opened."""
    if isinstance(error, lmdb.MapFullError):
        return StoreError(f"{path} has no room: raise storage.mapSizeMiB")
    if isinstance(error, UnreadableRow):
        return StoreDamaged(path, f"{error.what} at one of its ends, or the version of its schema, cannot be read")
    if is_damage(error):
        return StoreDamaged(path, str(error))
    if is_disk_full(path):
        return StoreError(f"the disk of {path.parent} is full: make room")
    return StoreError(f"{path} cannot be opened as a store: {error}")


def is_damage(error: BaseException) -> bool:
    """Say whether an error means that pages of the file are not what they must be.

    A transaction that is bad before anything else has gone wrong in it met such a page while it looked for its table.
    """
    return isinstance(error, _DAMAGE)


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


def _let_reach_to_its_last_page(path: Path, head: Head | None, undo: contextlib.ExitStack) -> None:
    """Make a file as long as its head says, where its end was never written: LMDB may use those pages again."""
    if head is None:
        return
    size, wanted = path.stat().st_size, head.pages * head.page_size
    if size < wanted:
        os.truncate(path, wanted)
        undo.callback(os.truncate, path, size)
