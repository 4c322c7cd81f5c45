"""What the judges of the history find, and what mends it."""

from __future__ import annotations

from pathlib import Path

import pytest

from shine_node.store.environment import Transaction
from shine_node.store.layout import Table
from shine_node.store.verifying.findings import Problem
from shine_node.store.verifying.verify import verify_store
from tests.store.rooms import OWN, opened
from tests.store.verifying.full import full_store
from tests.store.verifying.plants import ITEMS, found_and_mended


@pytest.mark.parametrize("name", ITEMS)
def test_planted_damage_is_found_and_mended(tmp_path: Path, name: str) -> None:
    found_and_mended(tmp_path, *ITEMS[name])


def test_a_sender_of_whom_nothing_is_known_is_noted(tmp_path: Path) -> None:
    with opened(full_store(tmp_path)) as store:
        for table, key in (
            (Table.USERS, b"carol"),
            (Table.ACCESS_CURRENT, b"carol"),
        ):
            store.write_now(lambda txn, table=table, key=key: txn.delete(table, key))  # type: ignore[misc]

        def forget(txn: Transaction) -> None:
            for key in list(txn.scan_keys(Table.ACCESS_HISTORY, prefix=b"carol\0")):
                txn.delete(Table.ACCESS_RECORDS, key[-8:])
                txn.delete(Table.ACCESS_HISTORY, key)

        store.write_now(forget)
        assert verify_store(store, OWN).counts == {Problem.UNKNOWN_KEY: 1}
