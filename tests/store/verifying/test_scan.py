"""A pass over all tables: page by page, with bounded work under way."""

from __future__ import annotations

from pathlib import Path

import pytest

from shine_node.store.environment import Transaction
from shine_node.store.layout import Table
from shine_node.store.verifying import scan as scan_module
from shine_node.store.verifying.findings import Finding, Problem
from shine_node.store.verifying.scan import Scan
from tests.store.rooms import OWN, opened
from tests.store.verifying.full import REMOVED_KEY, full_store, row_of


@pytest.mark.parametrize("threads", [None, 0, 1, 3])
@pytest.mark.parametrize(("rows", "size", "checks"), [(256, 2**21, 32), (1, 2**21, 1), (7, 10, 4)])
def test_the_size_of_pages_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int | None, rows: int, size: int, checks: int
) -> None:
    for name, value in (("ROWS_A_PAGE", rows), ("BYTES_A_PAGE", size), ("CHECKS_AT_ONCE", checks)):
        monkeypatch.setattr(scan_module, name, value)
    monkeypatch.setattr(scan_module, "BATCHES_A_THREAD", 1)
    with opened(full_store(tmp_path)) as store:

        def plant(txn: Transaction) -> None:
            key = list(txn.scan_keys(Table.CONTAINERS))[2]
            value = txn.get(Table.CONTAINERS, key)
            assert value is not None
            txn.put(Table.CONTAINERS, key, value[:-1] + bytes((value[-1] ^ 1,)))
            txn.put(Table.CONTAINERS, (10**6).to_bytes(8, "big"), b"")
            txn.put(Table.DUE_SETTLING, bytes(16), b"nothing")
            removed = row_of(txn, REMOVED_KEY).encode()
            txn.put(Table.HISTORY, REMOVED_KEY._replace(nonce=44).encode(), removed)
            txn.put(Table.HISTORY, REMOVED_KEY._replace(nonce=45).encode(), removed[:12])
            txn.put(Table.HISTORY, REMOVED_KEY._replace(nonce=46).encode(), b"\1")

        store.write_now(plant)
        with store.read() as txn:
            total = sum(txn.count(table) for table in Table)
        found: list[Finding] = []
        seen: list[tuple[int, int]] = []
        scan = Scan(store, OWN, found=found.append, threads=threads, progress=lambda *place: seen.append(place))
        scan.run()
        Scan(store, OWN, found=lambda finding: None, threads=threads).run()
    assert scan.rows == total
    assert (scan.signatures > 5) is (threads != 0), "those of the five access records are always checked"
    problems = {finding.problem for finding in found}
    always = {Problem.DANGLING, Problem.CONTRADICTION, Problem.UNREADABLE}
    assert problems == (always if threads == 0 else always | {Problem.FORGED})
    assert seen == sorted(seen)
    assert seen[-1] == (total, total)


def test_a_snapshot_is_kept_for_one_page_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a pass goes on, others can write, and no snapshot is older than a page."""
    monkeypatch.setattr(scan_module, "ROWS_A_PAGE", 2)
    with opened(full_store(tmp_path)) as store:
        readers: set[int] = set()

        def look(done: int, total: int) -> None:
            store.write_now(lambda txn: txn.put(Table.META, b"peer_mark x", b"%d" % done))
            readers.add(str(store._env.readers()).count("\n"))

        found: list[Finding] = []
        Scan(store, OWN, found=found.append, progress=look, threads=1).run()
        assert found == []
        assert len(readers) == 1


def test_sums_are_looked_at_where_all_else_is_well(tmp_path: Path) -> None:
    with opened(full_store(tmp_path)) as store:
        store.write_now(lambda txn: txn.put(Table.USAGE, b"nobody", (5).to_bytes(8, "big") + bytes(24)))
        found: list[Finding] = []
        Scan(store, OWN, found=found.append, threads=1).run()
    assert [(finding.table, finding.key) for finding in found] == [(Table.USAGE, b"nobody")]
