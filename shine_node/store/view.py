"""Looks into a store that another process may have open: snapshots, read only, without taking the store's lock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lmdb

from shine_node.store.environment import Transaction
from shine_node.store.files import StoreDamaged, StoreError, examine_file, is_damage
from shine_node.store.layout import Table
from shine_node.store.pages import DamagedPage, ForeignFile, Head
from shine_node.store.schema import check_schema
from shine_node.store.structure import check_snapshot, read_file_head
from shine_node.store.unreadable import UnreadableRow

__all__ = ["View", "open_view", "view_store"]

TRIES = 20
"""Looks at a file that is being written: each must fall between two commits."""


class View:
    """A store that is open for reading; made by ``open_view``."""

    def __init__(self, path: Path, env: Any, tables: dict[Table, Any]) -> None:
        self.path = path
        self.env = env
        """LMDB's environment, for the rooms of the store."""
        self._tables = tables

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """Open a snapshot of the last commit, to be kept as short as those of ``Store.read``.

        Raises:
            StoreDamaged: a page that was needed is not what it must be.
        """
        try:
            with self.env.begin() as raw:
                yield Transaction(raw, self._tables, None)  # type: ignore[arg-type]  # only what is written gets numbers
        except lmdb.Error as error:
            if is_damage(error):
                raise StoreDamaged(self.path, str(error)) from None
            raise

    def check_pages(self) -> None:
        """Look at every page of the last commit; what is written meanwhile makes the file grow, for once.

        Raises:
            StoreDamaged: one is not what it must be.
        """
        left = TRIES
        while True:
            left -= 1
            with self.env.begin() as raw:
                try:
                    check_snapshot(self.path, raw.id())
                    return
                except DamagedPage as error:
                    # The head of a commit stands until the second one after it; a busy node is quicker than a look.
                    if not left or read_file_head(self.path).position < raw.id() + 2:
                        raise StoreDamaged(self.path, str(error)) from None


@contextmanager
def open_view(path: Path, *, map_size: int = 0, lock: bool = True) -> Iterator[View]:
    """Open a store for reading, after a look at the pages that the opening touches; to be closed soon.

    LMDB forbids a second opening of one file within one process: not for the process whose node has it open.

    Args:
        map_size: how far the file may grow while it is open, in bytes; it is less only where the file says more.
        lock: whether others may have the file open. Without it nothing is written beside the file.

    Raises:
        StoreUnsuitable: it is another machine's, or another program's; StoreDamaged: it is damaged.
        StoreError: there is no such store, or it cannot be read.
    """
    try:
        head = _look_at(path)
        env = lmdb.open(
            str(path),
            subdir=False,
            readonly=True,
            create=False,
            lock=lock,
            max_dbs=len(Table) + 8,
            map_size=max(map_size, head.map_size if head is not None else 0),
            mode=0o600,
        )
    except (lmdb.Error, OSError, OverflowError) as error:
        raise StoreError(f"{path} cannot be opened to look into it: {error}") from None
    with env:
        try:
            meta = env.open_db(Table.META.value, create=False)
            with env.begin() as raw:
                known = check_schema(Transaction(raw, {Table.META: meta}, None), path)  # type: ignore[arg-type]
            tables = {table: env.open_db(table.value, create=False) for table in Table}
        except (lmdb.NotFoundError, UnreadableRow):
            known = False
        if not known:
            raise StoreError(f"{path} is no store of SHiNE node, or of another version of it")
        yield View(path, env, tables)


@contextmanager
def view_store(path: Path) -> Iterator[Transaction]:
    """Open a snapshot of the last commit; for one look, not to be kept.

    Raises:
        StoreError: as ``open_view``.
    """
    with open_view(path) as view, view.read() as txn:
        yield txn


def _look_at(path: Path) -> Head | None:
    """Look at what the opening touches of a file that may be written meanwhile."""
    for _ in range(TRIES):
        before = _position(path)
        try:
            return examine_file(path)
        except StoreDamaged:
            if before == _position(path):
                raise
    return read_file_head(path)


def _position(path: Path) -> int | None:
    try:
        return read_file_head(path).position
    except (DamagedPage, ForeignFile, OSError):
        return None
