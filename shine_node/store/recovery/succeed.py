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
from typing import NamedTuple

from shine_node.store.environment import Store
from shine_node.store.files import StoreError, examine_file
from shine_node.store.owner import check_owner, put_owner, read_owner
from shine_node.store.recovery import backups as folder_of_backups
from shine_node.store.recovery.state import read_state, write_state
from shine_node.store.refill import begin_refill
from shine_node.store.schema import StoreOutdated
from shine_node.store.structure import read_file_head
from shine_node.store.verifying.verify import Progress, repair_store, verify_file

__all__ = [
    "DAMAGED",
    "REPLACED",
    "Backup",
    "copy_backup",
    "examine_backup",
    "find_backups",
    "first_sound",
    "mend_copy",
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


class Backup(NamedTuple):
    """A backup that can be gone on with, and what is to be done to a copy of it first."""

    path: Path
    own_login: str
    threads: int | None
    """With which it was looked through; 0 left the signatures of messages out."""
    problems: int
    """So many things are mended in the copy."""
    lost: int
    """So many of them by leaving out what is no good."""

    def __str__(self) -> str:
        return str(self.path)


def examine_backup(
    path: Path, own_login: str, *, threads: int | None = None, progress: Progress = lambda done, total: None
) -> Backup:
    """Look through a backup; nothing is changed, and nothing is written beside it.

    Of one that an older version has made the pages are looked at: its rows the node brings up to date when it opens it.

    Raises:
        StoreError: it is no store, or damaged in a way that no repair mends; OSError: it cannot be read.
    """
    try:
        report = verify_file(path, own_login, threads=threads, progress=progress, lock=False)
    except StoreOutdated:
        examine_file(path, thorough=True)
        return Backup(path, own_login, threads, 0, 0)
    return Backup(path, own_login, threads, report.problems, report.lost)


def first_sound(
    backups: Sequence[Path],
    own_login: str,
    *,
    threads: int | None = None,
    progress: Progress = lambda done, total: None,
) -> Backup | None:
    """Return the first backup of which nothing is lost by mending it, else the one of which least is.

    An index or a sum that does not fit its rows is no reason to go on with an older one: it is written anew. Where
    something is lost of each, most of a history is still better than nothing. Of those that are passed over, the log
    has why.
    """
    best: Backup | None = None
    for path in backups:
        try:
            check_owner(path, read_owner(path), own_login)
            backup = examine_backup(path, own_login, threads=threads, progress=progress)
        except (StoreError, OSError) as error:
            log.warning("the backup %s is not used: %s", path, error)
            continue
        if not backup.lost:
            return backup
        text = "the backup %s is used only if there is no better one: %d rows in it are not as they must be"
        log.warning(text, path, backup.lost)
        if best is None or backup.lost < best.lost:
            best = backup
    return best


def put_backup(store: Path, backup: Backup, *, now_ms: int, called: str = DAMAGED) -> Path | None:
    """Put a copy of a backup of this user's, or of root's, mended where that is needed, in the place of a store.

    The store's lock is held.

    Args:
        called: what the file that was there is called: ``DAMAGED`` or ``REPLACED``.

    Returns:
        Where the file that was there is kept, ``None`` where there was none.

    Raises:
        StoreError, StorageFull, OSError: that cannot be done; what was there is there.
    """
    source = folder_of_backups.open_backup(backup.path, trusted=True)
    try:
        new = copy_backup(store, source)
    finally:
        os.close(source)
    mend_copy(store, new, backup, now_ms)
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


def mend_copy(store: Path, new: Path, backup: Backup, now_ms: int) -> None:
    """Mend a copy of a backup where that is needed; what goes is kept beside the store, and the log says what was done.

    Raises:
        StoreError, StorageFull, OSError: that cannot be done; nothing of the copy is left.
    """
    if not backup.problems:
        return
    quarantine = store.with_name(f"{store.name}.quarantine-{_stamp(now_ms)}.jsonl")
    try:
        report = repair_store(
            new,
            backup.own_login,
            map_size=read_file_head(new).map_size,
            now_ms=now_ms,
            quarantine=quarantine,
            copy=None,
            threads=backup.threads,
        )
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    finally:
        _remove_beside(new)
    found = ", ".join(f"{count} {problem.value}" for problem, count in report.counts.items() if not problem.note)
    log.warning("the copy of the backup %s was mended: %s", backup, found)
    if report.lost:
        text = (
            "%d times something had to be left out, which is kept in %s: it may be at the users' other servers; have"
            " `shine-node user resync` run there"
        )
        log.warning(text, report.lost, quarantine)


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
        _remove_beside(new)
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
        kept = _keep(store, f"{store.name}.{called}-{_stamp(now_ms)}")
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


def _remove_beside(new: Path) -> None:
    """Remove what the opening of a store has left beside it."""
    for left in ("-lock", ".pid"):
        new.with_name(new.name + left).unlink(missing_ok=True)


def _stamp(now_ms: int) -> str:
    return datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y%m%d-%H%M%S")
