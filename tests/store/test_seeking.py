"""Keys are found from both sides, at the ends of a table and between."""

from __future__ import annotations

from pathlib import Path

import pytest

from shine_node.store.environment import Transaction
from shine_node.store.layout import Table
from tests.store.rooms import opened


@pytest.mark.parametrize(
    ("asked", "after", "before"),
    [
        (b"a", b"b", None),
        (b"b", b"b", None),
        (b"bb", b"d", b"b"),
        (b"d", b"d", b"b"),
        (b"e", None, b"d"),
    ],
)
def test_a_key_and_its_neighbours(tmp_path: Path, asked: bytes, after: bytes | None, before: bytes | None) -> None:
    def fill(txn: Transaction) -> None:
        for key in (b"b", b"d"):
            txn.put(Table.HISTORY, key, b"value of " + key)

    with opened(tmp_path / "shine.mdb") as store:
        store.write_now(fill)
        with store.read() as txn, txn.seek(Table.HISTORY) as seek:
            assert seek.at_or_after(asked) == after
            assert after is None or seek.value() == b"value of " + after
            assert seek.before(asked) == before
            assert before is None or seek.value() == b"value of " + before
            assert seek.at_or_after(asked) == after


def test_an_empty_table(tmp_path: Path) -> None:
    with opened(tmp_path / "shine.mdb") as store, store.read() as txn, txn.seek(Table.HISTORY) as seek:
        assert seek.at_or_after(b"a") is None
        assert seek.before(b"a") is None
