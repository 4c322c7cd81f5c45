"""What goes is written down first; what is not found any more is left alone."""

from __future__ import annotations

import json
from pathlib import Path

from shine_node.store.environment import Store
from shine_node.store.layout import Table, pack_number
from shine_node.store.verifying.findings import Finding, Problem
from shine_node.store.verifying.repair import Quarantine, Repair
from tests.store.rooms import NOW, OWN, opened
from tests.store.verifying.full import OPEN_KEY, full_store, row_of


def test_a_quarantine_is_made_when_there_is_something_to_keep(tmp_path: Path) -> None:
    path = tmp_path / "quarantine"
    with Quarantine(path, now_ms=NOW) as kept:
        assert not path.exists()
    with Quarantine(path, now_ms=NOW) as kept:
        kept.keep([(Table.USERS, b"alice", b"\xff")], "a reason")
        kept.keep([(Table.USERS, b"bob", b""), (Table.META, b"\xff", b"x")], "another")
        assert kept.rows == 3
    assert path.stat().st_mode & 0o777 == 0o600
    first, *others = [json.loads(line) for line in path.read_text().splitlines()]
    assert first == {
        "row": "users: alice",
        "why": "a reason",
        "takenOutAtMs": NOW,
        "table": "users",
        "keyB64": "YWxpY2U=",
        "valueB64": "/w==",
    }
    assert [line["row"] for line in others] == ["users: bob", "meta: 0xff"]


def test_mending(tmp_path: Path) -> None:
    path = full_store(tmp_path)
    kept = tmp_path / "quarantine"
    with opened(path) as store, Quarantine(kept, now_ms=NOW) as quarantine:
        repair = Repair(store, OWN, quarantine)
        with store.read() as txn:
            key, value = next(txn.scan(Table.DUE_ATTEMPTS))
        dangling = Finding(Problem.DANGLING, Table.DUE_ATTEMPTS, key, "x", drop=((Table.DUE_ATTEMPTS, key),))
        assert repair.mend(dangling) is None
        store.write_now(lambda txn: txn.delete(Table.DUE_ATTEMPTS, key))
        missing = Finding(Problem.NO_INDEX, Table.HISTORY, value, "x")
        found = repair.mend(missing)
        assert found is not None
        assert found.put == ((Table.DUE_ATTEMPTS, key, value),)
        with store.read() as txn:
            assert txn.get(Table.DUE_ATTEMPTS, key) == value
        assert not kept.exists()
        empty = pack_number(10**6)
        store.write_now(lambda txn: txn.put(Table.CONTAINERS, empty, b""))
        stray = Finding(Problem.DANGLING, Table.CONTAINERS, empty, "x", drop=((Table.CONTAINERS, empty),), whole=True)
        assert repair.mend(stray) == stray
        assert repair.mend(stray) is None
        assert quarantine.rows == 1
        seq = pack_number(row_of_open(store))
        store.write_now(lambda txn: txn.delete(Table.CONTAINERS, seq))
        lost = repair.mend(Finding(Problem.LOST, Table.HISTORY, OPEN_KEY.encode(), "x"))
        assert lost is not None
        assert len(lost.drop) > 3
        assert quarantine.rows == 4, "its row, its due attempt and its entry of the outbox; the rest was not there"


def row_of_open(store: Store) -> int:
    with store.read() as txn:
        return row_of(txn, OPEN_KEY).seq
