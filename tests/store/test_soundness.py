"""Every row is read once, and the tables have as many as they must."""

from __future__ import annotations

from pathlib import Path

import pytest

from shine_node.store.environment import Store, StoreError, Transaction
from shine_node.store.layout import Table, pack_number, time_key
from shine_node.store.soundness import count_rows, look_through
from tests.store.rich import EVERYTHING, do, found
from tests.store.rooms import NOW, opened

pytestmark = pytest.mark.core


@pytest.fixture
def store(tmp_path: Path):  # type: ignore[no-untyped-def]
    with opened(tmp_path / "shine.mdb") as opened_store:
        found(opened_store)
        for number, step in enumerate(EVERYTHING):
            do(opened_store, number, step)
        yield opened_store


def look(store: Store) -> list[str]:
    with store.read() as txn:
        return look_through(txn)


def test_a_sound_store(store: Store) -> None:
    seen: list[None] = []
    with store.read() as txn:
        counts = count_rows(txn)
        assert look_through(txn, lambda: seen.append(None)) == []
    assert all(counts[table] for table in Table if table is not Table.SETTINGS_UNSYNCED)
    assert len(seen) == sum(counts.values())


@pytest.mark.parametrize(
    ("table", "key", "value"),
    [
        (Table.HISTORY, b"x", b"y"),
        (Table.HISTORY, b"alice\0carol\0" + bytes(14), bytes(40)),
        (Table.CONTAINERS, b"short", b""),
        (Table.CONTAINERS, pack_number(1), b"x"),
        (Table.CONTAINERS, pack_number(1), b"\0\0\0\x09x"),
        (Table.USERS, b"zoe", b"{"),
        (Table.ACCESS_RECORDS, pack_number(1), b"{}"),
        (Table.ACCESS_CURRENT, b"zoe", b"one"),
        (Table.DUE_ATTEMPTS, b"x", b"y"),
        (Table.SETTINGS, b"zoe\0x", b"12345678[]"),
        (Table.SESSIONS, b"x", b"[1]"),
        (Table.RESYNC, b"zoe\0" + pack_number(1), b"former\0" + pack_number(1) + b"?"),
    ],
)
def test_a_row_that_cannot_be_read(store: Store, table: Table, key: bytes, value: bytes) -> None:
    store.write_now(lambda txn: txn.put(table, key, value))
    with pytest.raises(StoreError, match=rf"row \d+ of {table.name.lower()} cannot be read"):
        look(store)


def test_indexes_that_lack_rows_or_have_too_many(store: Store) -> None:
    def work(txn: Transaction) -> None:
        key = next(txn.scan_keys(Table.HISTORY))
        txn.put(Table.DUE_ATTEMPTS, time_key(NOW, 1), key)
        txn.put(Table.CONTAINERS, pack_number(2**40), b"")
        txn.delete(Table.SESSIONS_OF_USER, next(txn.scan_keys(Table.SESSIONS_OF_USER)))

    store.write_now(work)
    found_problems = look(store)
    assert [line.split()[0] for line in found_problems] == ["containers", "due_attempts", "sessions_of_user"]


def test_a_table_that_does_not_have_what_it_says(store: Store) -> None:
    class Lying(Transaction):
        def count(self, table: Table) -> int:
            return super().count(table) + (table is Table.USERS)

    with store._env.begin() as raw:
        txn = Lying(raw, store._dbs, store)
        with pytest.raises(StoreError, match="users has 4 rows, and says that it has 5"):
            look_through(txn)
        txn.end()
