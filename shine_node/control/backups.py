"""The newest backup of this server that a damaged store would be replaced by: what it is, and what is wrong with it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

from shine_node.store.recovery.backups import find_backups, open_backup

__all__ = ["OLD_DAYS", "NewestBackup", "backup_warnings", "in_own_thread", "read_newest"]

T = TypeVar("T")

OLD_DAYS = 3
"""A nightly backup that has failed twice in a row is older than that."""
DAY_MS = 86_400_000


class NewestBackup(NamedTuple):
    """What a folder has; ``problem`` is why the folder or the newest backup cannot be used, empty where all is well.

    ``made_at_ms`` is in Unix milliseconds, ``size`` in bytes; ``path`` is ``None`` where there is no backup.
    """

    folder: Path
    path: Path | None = None
    made_at_ms: int = 0
    size: int = 0
    problem: str = ""


def read_newest(folder: Path, own_login: str) -> NewestBackup:
    """Look for the newest backup, with the rights of this process, which is the node or acts as its user.

    Args:
        own_login: of this server, in lower case.
    """
    try:
        newest = next(iter(find_backups(folder, own_login)), None)
    except FileNotFoundError:
        return NewestBackup(folder)
    except OSError as error:
        return NewestBackup(folder, problem=str(error.strerror))
    if newest is None:
        return NewestBackup(folder)
    problem = ""
    try:
        os.close(open_backup(newest.path, trusted=True))
    except OSError as error:
        problem = str(error.strerror)
    return NewestBackup(folder, newest.path, newest.made_at_ms, newest.size, problem)


def in_own_thread(work: Callable[[], T], name: str) -> asyncio.Future[T]:
    """Do what may never end in a thread of its own, which the end of the process does not wait for.

    Args:
        work: does not raise.
        name: of the thread.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        result = work()
        with contextlib.suppress(RuntimeError):  # the loop has closed meanwhile
            loop.call_soon_threadsafe(lambda: None if future.done() else future.set_result(result))

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


def backup_warnings(newest: NewestBackup, *, wanted: bool, now_ms: int) -> list[str]:
    """Return what is to be done about backups; pure.

    Args:
        wanted: whether the configuration names a folder for them. Where it does not, nobody has promised any.
        now_ms: Unix milliseconds.
    """
    if newest.problem and newest.path is None:
        return [
            f"the backups in {newest.folder} cannot be used ({newest.problem}): let the node's user read that folder"
        ]
    warnings: list[str] = []
    if newest.problem:
        warnings.append(
            f"the newest backup {newest.path} cannot be used by the node ({newest.problem}), so that a damaged store is"
            " not replaced by it: give the file to the node's user with chown, or run `backup` as root, which does that"
        )
    if not wanted:
        return warnings
    if newest.path is None:
        return [f"there is no backup in {newest.folder}: have `shine-node backup --keep 14` run every night"]
    days = (now_ms - newest.made_at_ms) // DAY_MS
    if days >= OLD_DAYS:
        text = f"the newest backup {newest.path} is {days} days old: look why no newer one was made, or run `backup`"
        warnings.append(text)
    return warnings
