"""Which servers have yet to tell who the users of an empty store were."""

from __future__ import annotations

from pathlib import Path

from shine_node.store.refill import begin_refill, end_reading, is_refilling, list_refilling
from tests.store.rooms import opened


def test_each_server_is_read_twice(tmp_path: Path) -> None:
    with opened(tmp_path / "shine.mdb") as store:
        store.write_now(lambda txn: begin_refill(txn, ["A1", "b1"]))
        with store.read() as txn:
            assert list_refilling(txn) == ["a1", "b1"]
            assert is_refilling(txn, "a1")
            assert not is_refilling(txn, "c1")
        assert store.write_now(lambda txn: end_reading(txn, "a1")) is True
        assert store.write_now(lambda txn: end_reading(txn, "A1")) is False
        assert store.write_now(lambda txn: end_reading(txn, "a1")) is False
        with store.read() as txn:
            assert list_refilling(txn) == ["b1"]
            assert not is_refilling(txn, "A1")
