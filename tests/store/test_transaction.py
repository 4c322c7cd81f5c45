"""A transaction as the rooms of the store use it."""

from __future__ import annotations

from pathlib import Path

from shine_node.store.environment import Transaction
from shine_node.store.layout import Table, pack_number
from shine_node.store.transaction import Transaction as Same
from tests.store.rooms import opened

T = Table.SETTINGS


def test_rows(tmp_path: Path) -> None:
    assert Transaction is Same
    with opened(tmp_path / "shine.mdb") as store:

        def work(txn: Transaction) -> None:
            assert txn.last_key(T) is None
            assert list(txn.scan(T)) == list(txn.scan_keys(T)) == list(txn.scan_back(T, b"x", prefix=b"")) == []
            for key in (b"a1", b"a2", b"b1", b"b2"):
                txn.put(T, key, key * 2)
            assert txn.delete(T, b"b2")
            assert not txn.delete(T, b"b2")
            assert txn.writes == 6
            seq = txn.next_seq(Table.CONTAINERS)
            assert txn.last_seq(Table.CONTAINERS) == seq
            txn.put(Table.CONTAINERS, pack_number(seq), b"")

        store.write_now(work)
        with store.read() as txn:
            assert txn.get(T, b"a1") == b"a1a1"
            assert txn.get(T, b"x") is None
            assert list(txn.scan(T, b"a2")) == [(b"a2", b"a2a2"), (b"b1", b"b1b1")]
            assert list(txn.scan(T, prefix=b"a")) == [(b"a1", b"a1a1"), (b"a2", b"a2a2")]
            assert list(txn.scan_keys(T)) == [b"a1", b"a2", b"b1"]
            assert list(txn.scan_keys(T, prefix=b"a")) == [b"a1", b"a2"]
            assert [key for key, _ in txn.scan_back(T, b"b1", prefix=b"a")] == [b"a2", b"a1"]
            assert [key for key, _ in txn.scan_back(T, b"z", prefix=b"")] == [b"b1", b"a2", b"a1"]
            assert list(txn.scan_back(T, b"b1", prefix=b"x")) == []
            assert txn.last_key(T) == b"b1"
            assert txn.count(T) == 3
            assert txn.used_bytes() > 0
            assert txn.snapshot() == store.position
            with txn.seek(T) as seek:
                assert seek.at_or_after(b"a11") == b"a2"
