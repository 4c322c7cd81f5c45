"""A file that is there whole or not at all: written beside its place under another name, synced, then renamed."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from shine_node.protocol.errors import ShineError

__all__ = ["NewFile", "NewFileError", "NewFileExists", "need_room", "sync_folder"]

PREFIX, SUFFIX = ".shine-node.", ".part"


class NewFileError(ShineError):
    """The file cannot be written there; the text says what to do."""


class NewFileExists(NewFileError):
    """There is a file of that name."""


class NewFile:
    """A file that only its owner can read; gone at the end of its block, unless it was put in its place before.

    Args:
        place: where it is to be; its folder must exist.
        replace: whether a file may be there already.

    Raises:
        NewFileError: there is one, or none can be made; and from all that writes: no room, or a broken disk.
    """

    def __init__(self, place: Path, *, replace: bool) -> None:
        self.place = place
        if place.is_dir() or (not replace and os.path.lexists(place)):
            raise _exists(place)
        self._replace = replace
        try:
            _remove_left_over(place.parent)
            self._descriptor, name = tempfile.mkstemp(prefix=PREFIX, suffix=SUFFIX, dir=place.parent)
        except OSError as error:
            raise NewFileError(f"{place.parent} cannot be written ({error.strerror}): choose another folder") from None
        _is_in_use(self._descriptor)
        self.path = Path(name)
        """Where it is now."""

    def write(self, data: bytes) -> None:
        """Append bytes."""
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError as error:
            raise self._failed(error) from None

    def sync(self) -> None:
        """Have all that was written on the disk, so that it is read from there."""
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise self._failed(error) from None
        os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def put_in_place(self) -> None:
        """Sync it and give it its name, over whatever has it where that may be replaced.

        Raises:
            NewFileExists: something has got the name meanwhile; it can be given another one.
        """
        self.sync()
        try:
            if self._replace:
                self.path.replace(self.place)
            else:
                self._give_name()
            sync_folder(self.place.parent)
        except OSError as error:
            raise self._failed(error) from None

    def give_to(self, user: int, group: int) -> bool:
        """Let it belong to another user, and say whether this user and this disk allow it."""
        try:
            os.fchown(self._descriptor, user, group)
        except OSError:
            return False
        return True

    def _give_name(self) -> None:
        try:
            os.link(self.path, self.place)
        except FileExistsError:
            raise _exists(self.place) from None
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
                raise
            if os.path.lexists(self.place):  # a file system without second names: the look and the naming are two steps
                raise _exists(self.place) from None
            self.path.replace(self.place)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)
        self.path.unlink(missing_ok=True)

    def _failed(self, error: OSError) -> NewFileError:
        return NewFileError(f"{self.place} cannot be written ({error.strerror}): nothing was left there")


def _exists(place: Path) -> NewFileExists:
    return NewFileExists(f"{place} exists: choose another name, or add --force to replace it")


def _remove_left_over(folder: Path) -> None:
    """Remove what was being written when its process was killed: nobody holds it any more."""
    for path in folder.glob(f"{PREFIX}*{SUFFIX}"):
        with contextlib.suppress(OSError):  # it is gone meanwhile, or somebody else's
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if not _is_in_use(descriptor):
                    path.unlink()
            finally:
                os.close(descriptor)


def _is_in_use(descriptor: int) -> bool:
    """Say whether another process writes a file; if none does, this one does from now on, until it is closed."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # also a file system that has no locks: then nothing is removed
        return True
    return False


def need_room(folder: Path, size: int) -> None:
    """Refuse to begin what would not fit on a folder's disk.

    Args:
        size: in bytes.

    Raises:
        NewFileError: it is not there, or has less room for this user.
    """
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise NewFileError(f"{folder} cannot be used ({error.strerror}): choose another folder, or make it") from None
    if free < size:
        needed, there = -(-size // 2**20), free // 2**20
        raise NewFileError(
            f"{needed} MiB are needed in {folder} and {there} MiB are free: make room, or choose another"
        )


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk; some file systems cannot."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
