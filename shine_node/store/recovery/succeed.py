"""Puts another store in the place of a damaged one, which is kept: a backup, or a new one that is to be refilled."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from shine_node.store.environment import Store
from shine_node.store.files import StoreError
from shine_node.store.owner import check_owner, put_owner, read_owner
from shine_node.store.recovery import backups as folder_of_backups
from shine_node.store.recovery.state import read_state, write_state
from shine_node.store.refill import begin_refill
from shine_node.store.verifying.verify import Progress, verify_file

__all__ = [
    "DAMAGED",
    "REPLACED",
    "copy_backup",
    "find_backups",
    "first_sound",
    "put_backup",
    "put_empty",
    "take_place",
]

log = logging.getLogger(__name__)

DAMAGED, REPLACED = "damaged", "replaced"
"""What a file is called that another takes the place of; the latter where it was sound."""


def find_backups(folder: Path, own_login: str) -> list[Path]:
    """Return the backups in a folder that may be this server's, the newest first; of those of other users the log says.

    None where there is no such folder, or it cannot be read.
    """
    found: list[Path] = []
    with contextlib.suppress(OSError):
        for backup in folder_of_backups.find_backups(folder, own_login):
            if backup.trusted:
                found.append(backup.path)
            else:
                text = "the backup %s is not used: it belongs to the user %d, and must be the node's own or root's"
                log.warning(text, backup.path, backup.user)
    return found


def first_sound(
    backups: Sequence[Path],
    own_login: str,
    *,
    threads: int | None = None,
    progress: Progress = lambda done, total: None,
) -> Path | None:
    """Return the first backup that verifies; of each that does not, the log has why."""
    for backup in backups:
        try:
            check_owner(backup, read_owner(backup), own_login)
            report = verify_file(backup, own_login, threads=threads, progress=progress, lock=False)
        except (StoreError, OSError) as error:
            log.warning("the backup %s is not used: %s", backup, error)
            continue
        if report.clean:
            return backup
        log.warning("the backup %s is not used: %d things in it are not as they must be", backup, report.problems)
    return None


def put_backup(store: Path, backup: Path, *, now_ms: int, called: str = DAMAGED) -> Path | None:
    """Put a copy of a backup of this user's, or of root's, in the place of a store, whose lock is held.

    Args:
        called: what the file that was there is called: ``DAMAGED`` or ``REPLACED``.

    Returns:
        Where the file that was there is kept, ``None`` where there was none.

    Raises:
        OSError: that cannot be done; what was there is there.
    """
    source = folder_of_backups.open_backup(backup, trusted=True)
    try:
        new = copy_backup(store, source)
    finally:
        os.close(source)
    return take_place(store, new, now_ms=now_ms, called=called)


def copy_backup(store: Path, source: int) -> Path:
    """Copy an open backup beside a store, whose lock is held, private and on the disk; ``take_place`` ends it.

    Raises:
        OSError: that cannot be done; nothing of it is left.
    """
    new = _new_file(store)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(source, "rb", closefd=False) as backup, open(descriptor, "wb", closefd=False) as target:
            shutil.copyfileobj(backup, target, 2**20)
        os.fsync(descriptor)
    except BaseException:
        new.unlink()
        raise
    finally:
        os.close(descriptor)
    return new


def put_empty(
    store: Path, *, map_size: int, refill_from: Sequence[str], now_ms: int, own_login: str = "", called: str = DAMAGED
) -> Path | None:
    """Put a new store in the place of a store, whose lock is held; certain servers are to fill it.

    Args:
        map_size: in bytes.
        refill_from: logins of servers that the operator has configured.
        own_login: of this server, in lower case.
        called: as for ``put_backup``.

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
            if own_login:
                made.write_now(lambda txn: put_owner(txn, own_login))
        finally:
            made.close()
    finally:
        for left in ("-lock", ".pid"):
            new.with_name(new.name + left).unlink(missing_ok=True)
    return take_place(store, new, now_ms=now_ms, called=called)


def take_place(store: Path, new: Path, *, now_ms: int, called: str = DAMAGED) -> Path | None:
    """Put a whole file, which has the name that ``copy_backup`` gives, in the place of a store, whose lock is held.

    At no moment is there none; where the file system has no second names, the state file knows what is to be done next.

    Returns:
        Where the file that was there is kept.

    Raises:
        OSError: what was there is there.
    """
    kept = None
    if store.exists():
        at = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y%m%d-%H%M%S")
        kept = _keep(store, f"{store.name}.{called}-{at}")
    try:
        new.replace(store)
    except OSError:
        if kept is not None and not store.exists():
            kept.replace(store)
        raise
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
            if kept.exists():
                number += 1
                continue
            # A file system without second names, such as that of a camera's card.
            write_state(store, read_state(store)._replace(placing=kept.name))
            store.rename(kept)
            return kept


def _new_file(store: Path) -> Path:
    """Return the name of what is to take a store's place; what an earlier try has left there goes."""
    new = store.with_name(store.name + ".new")
    new.unlink(missing_ok=True)
    return new
