"""Looks into a store that another process may have open: a snapshot, read only, without taking the store's lock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lmdb

from shine_node.store.environment import StoreError, Transaction
from shine_node.store.layout import SCHEMA_VERSION, Table, unpack_number

__all__ = ["View", "open_view", "view_store"]

LEAST_MAP_BYTES = 10 * 2**20


class View:
    """A store that is open for reading only."""

    def __init__(self, env: Any, tables: dict[Table, Any]) -> None:
        self.env = env
        """LMDB's environment, for the rooms of the store."""
        self._tables = tables

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """Open a snapshot of the last commit.

        The writer of the store cannot use again what it frees meanwhile: its file may grow.
        """
        with self.env.begin() as raw:
            yield Transaction(raw, self._tables, None)  # type: ignore[arg-type]  # only what is written gets numbers


@contextmanager
def open_view(path: Path, *, map_size: int = LEAST_MAP_BYTES, lock: bool = True) -> Iterator[View]:
    """Open a store to look into it; to be closed soon.

    LMDB forbids a second opening of one file within one process: not for the process whose node has it open.

    Args:
        map_size: how far the file may grow while it is open, in bytes; it is less only where the file is longer.
        lock: whether others may have the file open. Without it nothing is written beside the file.

    Raises:
        StoreError: there is no such store, it cannot be read, or another version of this program has made it.
    """
    try:
        env = lmdb.open(
            str(path),
            subdir=False,
            readonly=True,
            create=False,
            lock=lock,
            max_dbs=len(Table),
            map_size=map_size,
            mode=0o600,
        )
    except (lmdb.Error, OSError) as error:
        raise StoreError(f"{path} cannot be opened to look into it: {error}") from None
    with env:
        try:
            tables = {table: env.open_db(table.value, create=False) for table in Table}
        except lmdb.NotFoundError:
            raise StoreError(f"{path} was not written by this version of the program") from None
        view = View(env, tables)
        with view.read() as txn:
            schema = unpack_number(txn.get(Table.META, b"schema") or bytes(8))
        if schema != SCHEMA_VERSION:
            raise StoreError(
                f"{path} has schema {schema}, this program knows {SCHEMA_VERSION}: use the version that wrote it"
            )
        yield view


@contextmanager
def view_store(path: Path) -> Iterator[Transaction]:
    """Open a snapshot of the last commit; for one look, not to be kept.

    Raises:
        StoreError: as ``open_view``.
    """
    with open_view(path) as view, view.read() as txn:
        yield txn
