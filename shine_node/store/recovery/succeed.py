"""Puts another store in the place of a damaged one, which is kept: a backup, or a new one that is to be refilled."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from shine_node.store.environment import Store
from shine_node.store.files import StoreError, examine_file
from shine_node.store.refill import begin_refill
from shine_node.store.schema import StoreOutdated
from shine_node.store.verifying.verify import Progress, copy_store, verify_file

__all__ = ["find_backups", "first_sound", "put_backup", "put_empty", "take_place"]

log = logging.getLogger(__name__)

PATTERN = "shine-*.mdb"
"""The names of backups in their folder."""


def find_backups(folder: Path) -> list[Path]:
    """Return the backups in a folder, the newest first; none where there is no such folder, or it cannot be read."""
    found: list[tuple[int, str, Path]] = []
    with contextlib.suppress(OSError):
        for path in folder.glob(PATTERN):
            with contextlib.suppress(OSError):
                status = path.stat()
                if status.st_size:
                    found.append((status.st_mtime_ns, path.name, path))
    return [path for _, _, path in sorted(found, reverse=True)]


def first_sound(
    backups: Sequence[Path],
    own_login: str,
    *,
    threads: int | None = None,
    progress: Progress = lambda done, total: None,
) -> Path | None:
    """Return the first backup that verifies; of each that does not, the log has why.

    Of one that an older version has made the pages are looked at: its rows the node brings up to date when it opens it.
    """
    for backup in backups:
        try:
            try:
                report = verify_file(backup, own_login, threads=threads, progress=progress, lock=False)
            except StoreOutdated:
                examine_file(backup, thorough=True)
                return backup
        except (StoreError, OSError) as error:
            log.warning("the backup %s is not used: %s", backup, error)
            continue
        if report.clean:
            return backup
        log.warning("the backup %s is not used: %d things in it are not as they must be", backup, report.problems)
    return None


def put_backup(store: Path, backup: Path, *, now_ms: int) -> Path | None:
    """Put a copy of a backup in the place of a store, whose lock is held.

    Returns:
        Where the file that was there is kept, ``None`` where there was none.

    Raises:
        OSError: that cannot be done; what was there is there.
    """
    new = _new_file(store)
    copy_store(backup, new)
    return take_place(store, new, now_ms=now_ms)


def put_empty(store: Path, *, map_size: int, refill_from: Sequence[str], now_ms: int) -> Path | None:
    """Put a new store in the place of a store, whose lock is held; certain servers are to fill it.

    Args:
        map_size: in bytes.
        refill_from: logins of servers that the operator has configured.

    Returns:
        Where the file that was there is kept, ``None`` where there was none.

    Raises:
        StoreError, StorageFull, OSError: that cannot be done; what was there is there.
    """
    new = _new_file(store)
    try:
        made = Store(new, map_size=map_size, now_ms=now_ms)
        try:
            made.write_now(lambda txn: begin_refill(txn, refill_from))
        finally:
            made.close()
    finally:
        for left in ("-lock", ".pid"):
            new.with_name(new.name + left).unlink(missing_ok=True)
    return take_place(store, new, now_ms=now_ms)


def take_place(store: Path, new: Path, *, now_ms: int) -> Path | None:
    """Put a file in the place of a store; at no moment is there none.

    Returns:
        Where the file that was there is kept.

    Raises:
        OSError: what was there is there.
    """
    kept = None
    if store.exists():
        at = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y%m%d-%H%M%S")
        kept = _keep(store, f"{store.name}.damaged-{at}")
    new.replace(store)
    folder = os.open(store.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return kept


def _keep(store: Path, name: str) -> Path:
    number = 1
    while True:
        kept = store.with_name(name if number == 1 else f"{name}-{number}")
        try:
            os.link(store, kept)
            return kept
        except FileExistsError:
            number += 1
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
                raise
            store.rename(kept)  # a file system without second names, such as that of a camera's card
            return kept


def _new_file(store: Path) -> Path:
    """Return the name of what is to take a store's place; what an earlier try has left there goes."""
    new = store.with_name(store.name + ".new")
    new.unlink(missing_ok=True)
    return new
