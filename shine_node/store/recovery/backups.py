"""The backups in a folder: their names, which say whose they are, and which of them may be used without asking."""

from __future__ import annotations

import os
import re
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from shine_node.store.recovery.newness import newness

__all__ = ["Backup", "backup_name", "find_backups", "name_login", "old_backups", "open_backup"]

LIKE: Final = "shine-"
ENDING: Final = ".mdb"
_DATED = re.compile(r"shine-(?:([a-z0-9][a-z0-9_.\-]{0,29})-)?([0-9]{8}-[0-9]{6})(?:-([0-9]{1,4}))?\.mdb")


class Backup(NamedTuple):
    """A file that is named like a backup.

    ``made_at_ms`` is when it was written last, Unix milliseconds; ``user`` the number of the user whose it is.
    """

    path: Path
    made_at_ms: int
    size: int
    user: int

    @property
    def trusted(self) -> bool:
        """Whether it is this user's or root's: anybody else could have put anything there, and change it any time."""
        return self.user in (os.geteuid(), 0)


def backup_name(own_login: str, at_ms: int, number: int = 1) -> str:
    """Return a name that says whose it is and sorts by time; of UTC, which never goes back.

    Args:
        own_login: in lower case.
        at_ms: Unix milliseconds.
        number: which one it is of those of the same second.
    """
    at = datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y%m%d-%H%M%S")
    return f"{LIKE}{own_login}-{at}{'' if number == 1 else f'-{number}'}{ENDING}"


def name_login(name: str) -> str:
    """Return the login that the name of a backup says, empty where it says none."""
    found = _DATED.fullmatch(name)
    return found[1] or "" if found is not None else ""


def find_backups(folder: Path, own_login: str) -> list[Backup]:
    """Return the backups in a folder but those that are named after other servers, the newest first.

    Links are none: what they lead to can be another thing at any time. Nor are empty files.

    Raises:
        OSError: the folder cannot be read.
    """
    found: list[tuple[tuple[str, int, int, str], Backup]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if not (entry.name.startswith(LIKE) and entry.name.endswith(ENDING)):
                continue
            if name_login(entry.name) not in ("", own_login):
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:  # it is gone meanwhile
                continue
            if stat.S_ISREG(status.st_mode) and status.st_size:
                backup = Backup(folder / entry.name, status.st_mtime_ns // 10**6, status.st_size, status.st_uid)
                found.append((newness(entry.name, status.st_mtime_ns), backup))
    return [backup for _, backup in sorted(found, reverse=True)]


def old_backups(folder: Path, own_login: str, keep: int, newest: str) -> list[Path]:
    """Return this server's dated backups in a folder but the newest ones, the oldest first.

    By their names alone: what does not say that it is this server's may be another's that shares the folder. Those of
    times to come, of a clock that was wrong, are neither counted nor returned: they would push out each new one.

    Args:
        newest: the name of the one that was made now.

    Raises:
        OSError: the folder cannot be read.
    """
    dated: list[tuple[str, int, str]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            found = _DATED.fullmatch(entry.name)
            if found is not None and found[1] == own_login and entry.is_file(follow_symlinks=False):
                dated.append((found[2], int(found[3] or 1), entry.name))
    made = next((one for one in dated if one[2] == newest), None)
    return [folder / name for _, _, name in sorted(one for one in dated if made is not None and one <= made)[:-keep]]


def open_backup(path: Path, *, trusted: bool = False, link: bool = True) -> int:
    """Open a backup to read it, and never wait for it; the descriptor stays that of one file, whatever gets its name.

    Args:
        trusted: it must be no link, and this user's or root's.
        link: whether it may be a link.

    Raises:
        OSError: it cannot be read; it is no file, or not to be trusted.
    """
    descriptor = os.open(
        path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (os.O_NOFOLLOW if trusted or not link else 0)
    )
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise OSError(0, "it is no file", str(path))
    if trusted and status.st_uid not in (os.geteuid(), 0):
        os.close(descriptor)
        raise OSError(0, f"it belongs to the user {status.st_uid}, and must be the node's own or root's", str(path))
    return descriptor
