"""A transaction as the rooms of the store use it: bytes in named tables."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Protocol

from shine_node.store.changes import Change
from shine_node.store.layout import Table
from shine_node.store.seeking import Seeker
from shine_node.store.unreadable import Unreadable, UnreadableRow
from shine_node.store.usage import Tail, Usage

__all__ = ["Numbers", "Transaction"]


class Numbers(Protocol):
    """Who gives the numbers of the tables that have some, and knows what is counted."""

    seqs: dict[Table, int]
    usage: Usage
    unreadable: Unreadable

    def allocate(self, table: Table) -> int:
        """Give the next number of a table."""


class Transaction:
    """A transaction as the rooms of the store use it: bytes in named tables. Not for use by two threads."""

    __slots__ = ("_dbs", "_raw", "_store", "changes", "origin", "unreadable", "usage", "writes")

    def __init__(self, raw: Any, dbs: dict[Table, Any], store: Numbers) -> None:
        self._raw = raw
        self._dbs = dbs
        self._store = store
        self.unreadable = Unreadable() if store is None else store.unreadable  # a look into a file has none
        self.writes = 0
        self.origin: object = None
        """That of the job that is being done."""
        self.changes: list[Change] = []
        """What those who watch the store are told, if the transaction is committed."""
        self.usage = Tail()
        """What it changes of what is counted (``usage.py``)."""

    def end(self) -> None:
        """Let go of LMDB's transaction; nothing can be read with this one any more."""
        self._raw = None

    def get(self, table: Table, key: bytes) -> bytes | None:
        """Return the value of a key, or ``None``."""
        value: bytes | None = self._raw.get(key, db=self._dbs[table])
        return value

    def put(self, table: Table, key: bytes, value: bytes) -> None:
        """Write a value over whatever is there."""
        self.writes += 1
        self._raw.put(key, value, db=self._dbs[table])

    def delete(self, table: Table, key: bytes) -> bool:
        """Remove a key and say whether it was there."""
        self.writes += 1
        return bool(self._raw.delete(key, db=self._dbs[table]))

    def scan(self, table: Table, start: bytes = b"", *, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield rows in order, from ``start`` (or the prefix) on, as long as keys begin with the prefix."""
        with self._raw.cursor(db=self._dbs[table]) as cursor:
            if not cursor.set_range(max(start, prefix)):
                return
            for key, value in cursor:
                if not key.startswith(prefix):
                    return
                yield key, value

    def scan_keys(self, table: Table, start: bytes = b"", *, prefix: bytes = b"") -> Iterator[bytes]:
        """Yield what ``scan`` does without the values, which may be long and are not read."""
        with self._raw.cursor(db=self._dbs[table]) as cursor:
            if not cursor.set_range(max(start, prefix)):
                return
            for key in cursor.iternext(values=False):
                if not key.startswith(prefix):
                    return
                yield key

    def scan_back(self, table: Table, before: bytes, *, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield rows in reverse order, from the last one before a key on, as long as keys begin with the prefix."""
        with self._raw.cursor(db=self._dbs[table]) as cursor:
            if not (cursor.prev() if cursor.set_range(before) else cursor.last()):
                return
            for key, value in cursor.iterprev():
                if not key.startswith(prefix):
                    return
                yield key, value

    @contextlib.contextmanager
    def seek(self, table: Table) -> Iterator[Seeker]:
        """Have single keys of a table found, for the length of a block."""
        with self._raw.cursor(db=self._dbs[table]) as cursor:
            yield Seeker(cursor)

    def last_key(self, table: Table) -> bytes | None:
        """Return the greatest key of a table, or ``None`` if it is empty."""
        with self._raw.cursor(db=self._dbs[table]) as cursor:
            return bytes(cursor.key()) if cursor.last() else None

    def count(self, table: Table) -> int:
        """Return how many rows a table has."""
        return int(self._raw.stat(self._dbs[table])["entries"])

    def snapshot(self) -> int:
        """Return the number of the last commit that a read transaction sees."""
        return int(self._raw.id())

    def used_bytes(self) -> int:
        """Return how much of the map the rows of all tables take, in whole pages; pages that are free again are not."""
        stats = [self._raw.stat(db) for db in self._dbs.values()]
        return sum(
            (stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]) * stat["psize"] for stat in stats
        )

    def pass_over(self, error: UnreadableRow) -> None:
        """Take note of a row that cannot be read, and is passed over."""
        self.unreadable.note(error)

    def next_seq(self, table: Table) -> int:
        """Return the next number of a table that is keyed by ``seq``: one more than the greatest ever given."""
        return self._store.allocate(table)

    def committed_usage(self) -> Tail:
        """Return what is counted of the commits before this one; for the writer only."""
        return self._store.usage.committed(self)

    def last_seq(self, table: Table) -> int:
        """Return the greatest number that a table has, or has passed over."""
        return self._store.seqs[table]
