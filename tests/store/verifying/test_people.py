"""What the judges of users beside their history find, and what mends it."""

from __future__ import annotations

from pathlib import Path

import pytest

from shine_node.store.environment import Transaction
from shine_node.store.layout import Table
from shine_node.store.verifying.findings import Problem
from shine_node.store.verifying.verify import verify_store
from tests.store.rooms import OWN, opened
from tests.store.verifying.full import full_store, repaired
from tests.store.verifying.plants import PEOPLE, found_and_mended


@pytest.mark.parametrize("name", PEOPLE)
def test_planted_damage_is_found_and_mended(tmp_path: Path, name: str) -> None:
    found_and_mended(tmp_path, *PEOPLE[name])


def test_a_setting_of_somebody_of_whom_nothing_is_known_is_noted(tmp_path: Path) -> None:
    with opened(full_store(tmp_path)) as store:

        def forget(txn: Transaction) -> None:
            for key in list(txn.scan_keys(Table.ACCESS_HISTORY, prefix=b"alice\0")):
                txn.delete(Table.ACCESS_RECORDS, key[-8:])
                txn.delete(Table.ACCESS_HISTORY, key)
            txn.delete(Table.USERS, b"alice")
            txn.delete(Table.ACCESS_CURRENT, b"alice")

        store.write_now(forget)
        assert verify_store(store, OWN).counts[Problem.UNKNOWN_KEY] > 2


@pytest.mark.parametrize("records", ["some", "none"])
def test_a_user_without_an_entry_among_the_keys(tmp_path: Path, records: str) -> None:
    """The record is there, and only not found; or it is nowhere, and the table of records is empty."""
    path = full_store(tmp_path)
    with opened(path) as store:

        def plant(txn: Transaction) -> None:
            for key in list(txn.scan_keys(Table.ACCESS_HISTORY, prefix=b"carol\0" if records == "some" else b"")):
                txn.delete(Table.ACCESS_HISTORY, key)
                if records == "none":
                    txn.delete(Table.ACCESS_RECORDS, key[-8:])

        store.write_now(plant)
        assert not verify_store(store, OWN).clean
    repaired(path)
    with opened(path) as store:
        assert verify_store(store, OWN).clean
        with store.read() as txn:
            assert txn.count(Table.ACCESS_RECORDS) == (5 if records == "some" else 4)
