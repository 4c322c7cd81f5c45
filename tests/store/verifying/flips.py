"""A store of which rows are damaged and mended many times over, and what must have come of it each time."""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from shine_node.store.environment import Store, Transaction
from shine_node.store.exporting import export_store
from shine_node.store.layout import Table
from shine_node.store.soundness import look_through
from shine_node.store.verifying.findings import Problem, Report
from shine_node.store.verifying.repair import Quarantine
from shine_node.store.verifying.verify import mend_store, verify_store
from tests.store.rich import MEMORY
from tests.store.rooms import NOW, OWN, check_indexes, opened
from tests.store.verifying.full import full_store

__all__ = ["KEPT", "Bench", "Mended", "Rows", "bench", "flip_bit", "moved"]

Row = tuple[Table, bytes]
Rows = Mapping[Row, bytes | None]
"""Rows by table and key; ``None`` for one that is taken away."""

KEPT = {Table.USERS, Table.ACCESS_RECORDS, Table.SETTINGS, Table.SESSIONS, Table.HISTORY, Table.CONTAINERS}
"""Tables whose rows follow from no other ones."""


class Mended(NamedTuple):
    """What a repair has made of a damage."""

    rows: dict[Row, bytes]
    quarantined: list[tuple[Row, bytes]]
    report: Report


class Bench:
    """A full store that is put back as it was after each damage."""

    def __init__(self, store: Store, folder: Path) -> None:
        self._store = store
        self._kept = folder / "quarantine"
        self._times = 0
        self.rows = self._read()

    def of(self, *tables: Table) -> dict[Row, bytes]:
        """Return the rows of some tables as they were before any damage."""
        return {row: value for row, value in self.rows.items() if row[0] in tables}

    def mend(self, damage: Rows) -> Mended:
        """Write damage, repair it, and demand what every repair must have come to.

        It ends, nothing is found afterwards, a second one does nothing, and what is not there any more is written down.
        """
        try:
            self._write(damage)
            self._kept.unlink(missing_ok=True)
            with Quarantine(self._kept, now_ms=NOW) as quarantine:
                report = mend_store(self._store, OWN, quarantine, threads=1)
                rows, kept = self._read(), quarantine.rows
                self._times += 1
                thorough = self._times % 4 == 0  # the last pass of the repair was one that found nothing
                found = verify_store(self._store, OWN, threads=int(thorough))
                assert found.clean, found.first
                if thorough:
                    assert mend_store(self._store, OWN, quarantine, threads=1).repaired == 0
                    assert (self._read(), quarantine.rows) == (rows, kept)
            with self._store.read() as txn:
                check_indexes(txn)
                assert look_through(txn) == [] or report.counts[Problem.LOST_RECORD], "a backup of it is good"
                list(export_store(txn, own_login=OWN, at_ms=NOW, program="test"))
            quarantined = self._quarantined()
            before: dict[Row, bytes] = {
                row: value for row, value in {**self.rows, **damage}.items() if value is not None
            }
            assert before.keys() - rows.keys() <= {row for row, _ in quarantined}, "nothing is thrown away"
            return Mended(rows, quarantined, report)
        finally:
            now = self._read()
            back: dict[Row, bytes | None] = dict.fromkeys(now.keys() - self.rows.keys())
            self._write({**back, **{row: value for row, value in self.rows.items() if now.get(row) != value}})

    def lost(self, mended: Mended, damage: Rows) -> set[Row]:
        """Return the rows, of those that follow from no others, that were not damaged and were not left alone."""
        untouched = {row: value for row, value in self.of(*KEPT).items() if row not in damage}
        gone = {row for row, value in untouched.items() if mended.rows.get(row) != value}
        return gone | {row for row, value in mended.quarantined if untouched.get(row) == value}

    def _quarantined(self) -> list[tuple[Row, bytes]]:
        if not self._kept.exists():
            return []
        lines = [json.loads(line) for line in self._kept.read_text().splitlines()]
        decode = base64.b64decode
        return [((Table(line["table"].encode()), decode(line["keyB64"])), decode(line["valueB64"])) for line in lines]

    def _read(self) -> dict[Row, bytes]:
        with self._store.read() as txn:
            return {(table, key): value for table in Table for key, value in txn.scan(table)}

    def _write(self, rows: Rows) -> None:
        def work(txn: Transaction) -> None:
            for (table, key), value in rows.items():
                if value is None:
                    txn.delete(table, key)
                else:
                    txn.put(table, key, value)

        if rows:
            self._store.write_now(work)


@contextmanager
def bench(filled: Callable[[Transaction], object]) -> Iterator[Bench]:
    """Fill a store, and open it for damage."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder, opened(full_store(Path(folder), filled)) as store:
        yield Bench(store, Path(folder))


def flip_bit(data: bytes, at: int, bit: int) -> bytes:
    """Return bytes of which one bit is another."""
    return data[:at] + bytes((data[at] ^ 1 << bit % 8,)) + data[at + 1 :]


def moved(row: Row, value: bytes, key: bytes) -> Rows:
    """Return the damage of a row whose key is another one."""
    return {row: None, (row[0], key): value}
