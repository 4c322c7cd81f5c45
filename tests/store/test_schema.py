"""What is looked at in a store that is opened."""

from __future__ import annotations

from pathlib import Path

import pytest

from shine_node.store.files import StoreUnsuitable
from shine_node.store.layout import SCHEMA_VERSION, Table, pack_number
from shine_node.store.schema import SCHEMA_KEY, check_schema, last_numbers, write_schema
from shine_node.store.unreadable import UnreadableRow
from tests.store.rooms import opened


def test_the_version(tmp_path: Path) -> None:
    path = tmp_path / "shine.mdb"
    with opened(path) as store:
        with store.read() as txn:
            assert check_schema(txn, path)
        store.write_now(lambda txn: txn.delete(Table.META, SCHEMA_KEY))
        with store.read() as txn:
            assert not check_schema(txn, path)
        store.write_now(write_schema)
        with store.read() as txn:
            assert txn.get(Table.META, SCHEMA_KEY) == pack_number(SCHEMA_VERSION)
        store.write_now(lambda txn: txn.put(Table.META, SCHEMA_KEY, pack_number(SCHEMA_VERSION + 1)))
        with store.read() as txn, pytest.raises(StoreUnsuitable, match="newer version"):
            check_schema(txn, path)


def test_numbers_go_on_from_the_greatest(tmp_path: Path) -> None:
    with opened(tmp_path / "shine.mdb") as store:
        store.write_now(lambda txn: txn.put(Table.CONTAINERS, pack_number(70), b""))
        with store.read() as txn:
            assert last_numbers(txn, 50) == {Table.CONTAINERS: 70, Table.ACCESS_RECORDS: 50}
            assert last_numbers(txn, 90)[Table.CONTAINERS] == 90
        store.write_now(lambda txn: txn.put(Table.ACCESS_RECORDS, b"x", b""))
        with store.read() as txn, pytest.raises(UnreadableRow):
            last_numbers(txn, 0)
