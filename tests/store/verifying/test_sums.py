"""What the judge of sums finds, and what mends it."""

from __future__ import annotations

from pathlib import Path

import pytest

from shine_node.store.layout import Table
from shine_node.store.verifying.sums import find_wrong_sums
from tests.store.rooms import opened
from tests.store.verifying.full import full_store
from tests.store.verifying.plants import SUMS, found_and_mended


@pytest.mark.parametrize("name", SUMS)
def test_planted_damage_is_found_and_mended(tmp_path: Path, name: str) -> None:
    found_and_mended(tmp_path, *SUMS[name])


def test_rows_that_cannot_be_read_are_left_to_their_judges(tmp_path: Path) -> None:
    with opened(full_store(tmp_path)) as store:
        with store.read() as txn:
            assert find_wrong_sums(txn) == []
        store.write_now(lambda txn: [txn.put(Table.META, b"usage", b"x"), txn.put(Table.HISTORY, b"x", b"x")])
        with store.read() as txn:
            assert find_wrong_sums(txn) == []
        store.write_now(lambda txn: txn.put(Table.CONTAINERS, b"z", b""))
        with store.read() as txn:
            assert find_wrong_sums(txn) == []


def test_an_empty_store_has_no_sums(tmp_path: Path) -> None:
    with opened(tmp_path / "shine.mdb") as store, store.read() as txn:
        assert find_wrong_sums(txn) == []
