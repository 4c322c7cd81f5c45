"""Copies a store that may be in use, compact, and looks at every row of the copy afterwards."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import lmdb

from shine_node.store.environment import StoreError, Transaction
from shine_node.store.files import examine_file
from shine_node.store.layout import SCHEMA_VERSION, Table, pack_number
from shine_node.store.lineage import end_run
from shine_node.store.owner import get_owner, put_owner
from shine_node.store.schema import SCHEMA_KEY, migrate
from shine_node.store.soundness import count_rows, look_through
from shine_node.store.unreadable import UnreadableRow
from shine_node.store.view import open_view

__all__ = ["Copied", "check_copy", "copy_store", "estimate_copy", "finish_copy", "migrate_copy"]

CHUNK_BYTES: Final = 2**20
SPARE_BYTES: Final = 16 * 2**20
"""Room in the map of a copy for the one row that it says of itself."""
SLACK_BYTES: Final = 2**20
_GROWING = (Table.USERS, Table.ACCESS_RECORDS, Table.HISTORY, Table.CONTAINERS, Table.SETTINGS, Table.READ_MARKS)
"""Tables that never lose a row."""


class Copied(NamedTuple):
    """What is known of a copy beside its bytes.

    ``position`` is a commit that it holds. ``before`` and ``after`` are how many rows the store had by then, and when
    the copy was complete; ``quiet`` says that nothing was written between the two.
    """

    position: int
    before: dict[Table, int]
    after: dict[Table, int]
    quiet: bool


def estimate_copy(source: Path, *, map_size: int) -> int:
    """Return how many bytes a copy takes, about.

    Raises:
        StoreError: as ``open_view``.
    """
    with open_view(source, map_size=map_size) as view, view.read() as txn:
        return txn.used_bytes() + SLACK_BYTES


def copy_store(source: Path, take: Callable[[bytes], object], *, map_size: int) -> Copied:
    """Copy the last commit of a store, whether or not a node has it open; free pages are left out.

    The copy is made by a thread and comes through a pipe: whatever ends the taking ends the copying. The store's
    writer goes on; it cannot use again what it frees meanwhile.

    Args:
        take: gets the bytes of the copy, piece by piece.
        map_size: ``storage.mapSizeMiB`` in bytes, beyond which the store does not grow meanwhile.

    Raises:
        StoreError: it cannot be opened or copied; and whatever ``take`` raises.
    """
    with open_view(source, map_size=map_size) as view:
        with view.read() as txn:
            position, before = txn.snapshot(), count_rows(txn)
        _pump(view.env, source, take)
        with view.read() as txn:
            return Copied(position, before, count_rows(txn), txn.snapshot() == position)


def finish_copy(path: Path, position: int, own_login: str = "") -> str:
    """Let a compact copy say how far the store had come, which its own commits are numbered without, and whose it is.

    Args:
        own_login: of this server, in lower case; for a store that does not say whose it is.

    Returns:
        Whose store the copy says that it is.

    Raises:
        StoreError: it cannot be written.
    """
    try:
        map_size = path.stat().st_size + SPARE_BYTES
        with lmdb.open(
            str(path), subdir=False, create=False, lock=False, max_dbs=len(Table), map_size=map_size, meminit=False
        ) as env:
            tables = {Table.META: env.open_db(Table.META.value, create=False)}
            with env.begin(write=True) as raw:
                txn = Transaction(raw, tables, None)  # type: ignore[arg-type]  # it gets no numbers
                end_run(txn, position)
                if own_login and not get_owner(txn):
                    put_owner(txn, own_login)
                return get_owner(txn)
    except (lmdb.Error, OSError) as error:
        raise StoreError(f"the copy {path} cannot be finished: {error}") from None


def migrate_copy(path: Path, *, map_size: int) -> None:
    """Bring a copy that nobody else has open to the schema of this program, where it is of an older one.

    What is no store at all is left to ``check_copy``, which says so.

    Args:
        map_size: ``storage.mapSizeMiB`` in bytes.

    Raises:
        StoreError: it is damaged, cannot be brought there, or has no room.
    """
    try:
        if examine_file(path, thorough=True) is None:
            return
        map_size = max(map_size, path.stat().st_size + SPARE_BYTES)
        with lmdb.open(
            str(path), subdir=False, create=False, lock=False, max_dbs=len(Table) + 8, map_size=map_size, meminit=False
        ) as env:
            meta = env.open_db(Table.META.value, create=False)
            with env.begin(db=meta) as raw:
                found = raw.get(SCHEMA_KEY)
            if found is None or found == pack_number(SCHEMA_VERSION):
                return
            with env.begin(write=True) as raw:
                tables = {table: env.open_db(table.value, txn=raw) for table in Table}
                migrate(Transaction(raw, tables, None), path)  # type: ignore[arg-type]  # it gets no numbers
    except lmdb.NotFoundError:
        return
    except (lmdb.Error, OSError, UnreadableRow) as error:
        raise StoreError(f"{path} cannot be brought up to date: {error}") from None


def check_copy(path: Path, copied: Copied | None = None, seen: Callable[[], object] = lambda: None) -> list[str]:
    """Look at every row of a copy that nobody else has open, and compare with what is known of it.

    Args:
        copied: what ``copy_store`` has returned; without it only what the copy says of itself counts.
        seen: called for each row.

    Returns:
        Where its tables do not have as many rows as others have it: these are of the store that was copied, and
        ``verify`` says more.

    Raises:
        StoreError: it is no store of this version, it is cut short, a row cannot be read, or rows are missing.
    """
    try:
        examine_file(path, thorough=True)
    except OSError as error:
        raise StoreError(f"{path} is no store: {error}") from None
    with open_view(path, lock=False) as view, view.read() as txn:
        if copied is not None:
            _compare(path, count_rows(txn), copied)
        return look_through(txn, seen)


def _compare(path: Path, found: dict[Table, int], copied: Copied) -> None:
    for table in Table if copied.quiet else _GROWING:
        # ``finish_copy`` has added whose it is, where the store does not say so.
        most = copied.after[table] + (table is Table.META)
        if not copied.before[table] <= found[table] <= most:
            raise StoreError(
                f"{path} has {found[table]} rows in {table.name.lower()}, the store had {copied.before[table]} to"
                f" {copied.after[table]}: the disk may be failing, try another one"
            )


def _pump(env: Any, source: Path, take: Callable[[bytes], object]) -> None:
    receiving, sending = os.pipe()
    failures: list[Exception] = []

    def send() -> None:
        try:
            env.copyfd(sending, compact=True)
        except Exception as error:
            failures.append(error)
        finally:
            os.close(sending)

    thread = threading.Thread(target=send, name="store-copy")
    with os.fdopen(receiving, "rb", buffering=0) as pipe:
        thread.start()
        try:
            while data := pipe.read(CHUNK_BYTES):
                take(data)
        finally:
            pipe.close()  # the copying ends with it
            thread.join()
    if failures:
        raise StoreError(f"{source} cannot be copied ({failures[0]}): use `export`, which needs no sound free pages")
