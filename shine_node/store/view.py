"""Looks into a store that another process may have open: a snapshot, read only, without taking the store's lock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb

from shine_node.store.environment import StoreError, Transaction
from shine_node.store.layout import Table

__all__ = ["view_store"]


@contextmanager
def view_store(path: Path) -> Iterator[Transaction]:
    """Open a snapshot of the last commit; for one look, not to be kept.

    LMDB forbids a second opening of one file within one process: not for the process whose node has it open.

    Raises:
        StoreError: there is no such store, or it cannot be read.
    """
    try:
        env = lmdb.open(str(path), subdir=False, readonly=True, create=False, max_dbs=len(Table))
    except (lmdb.Error, OSError) as error:
        raise StoreError(f"{path} cannot be opened to look into it: {error}") from None
    with env:
        try:
            tables = {table: env.open_db(table.value, create=False) for table in Table}
        except lmdb.NotFoundError:
            raise StoreError(f"{path} was not written by this version of the program") from None
        with env.begin() as raw:
            yield Transaction(raw, tables, None)  # type: ignore[arg-type]  # only what is written gets numbers
