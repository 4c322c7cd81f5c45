"""Every table has a judge; a signature is checked with each key of its owner; a second look finds the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from shine_node.store.environment import Transaction
from shine_node.store.layout import Table
from shine_node.store.verifying.findings import Check, Finding, Problem, Verdict
from shine_node.store.verifying.judges import JUDGES, check_signature, judge_again
from tests.store.rooms import OWN, identity, opened
from tests.store.verifying.full import OPEN_KEY, full_store, row_of
from tests.store.verifying.plants import META, found_and_mended


def test_every_table_has_a_judge_and_contents_come_before_the_history() -> None:
    tables = list(JUDGES)
    assert set(tables) == set(Table)
    assert tables.index(Table.CONTAINERS) < tables.index(Table.HISTORY)


@pytest.mark.parametrize("name", META)
def test_planted_damage_is_found_and_mended(tmp_path: Path, name: str) -> None:
    found_and_mended(tmp_path, *META[name])


def test_the_keys_of_a_check() -> None:
    finding = Finding(Problem.FORGED, Table.CONTAINERS, b"k", "x")
    alice, bob, carol = (identity(name).device for name in ("alice", "bob", "carol"))
    keys = (alice.public, bob.public)
    for signer, verdict in ((alice, Verdict.GOOD), (bob, Verdict.OTHER_KEY), (carol, Verdict.FORGED)):
        assert check_signature(Check(keys, b"text", signer.sign(b"text"), finding, finding)) is verdict


def test_a_second_look(tmp_path: Path) -> None:
    with opened(full_store(tmp_path)) as store:
        with store.read() as txn:
            key = next(txn.scan_keys(Table.DUE_ATTEMPTS))
        due = Finding(Problem.DANGLING, Table.DUE_ATTEMPTS, key, "x")
        lost = Finding(Problem.NO_INDEX, Table.HISTORY, OPEN_KEY.encode(), "x")
        with store.read() as txn:
            seq = row_of(txn, OPEN_KEY).seq.to_bytes(8, "big")
            assert judge_again(txn, OWN, due) == judge_again(txn, OWN, lost) == []

        def plant(txn: Transaction) -> None:
            txn.put(Table.DUE_ATTEMPTS, key, b"nothing")
            value = txn.get(Table.CONTAINERS, seq)
            assert value is not None
            txn.put(Table.CONTAINERS, seq, value[:-1] + bytes((value[-1] ^ 1,)))

        store.write_now(plant)
        forged = Finding(Problem.FORGED, Table.CONTAINERS, seq, "x")
        with store.read() as txn:
            assert [found.problem for found in judge_again(txn, OWN, due)] == [Problem.DANGLING]
            assert judge_again(txn, OWN, lost._replace(problem=Problem.LOST)) == []
            [found] = judge_again(txn, OWN, forged)
            assert (Table.HISTORY, OPEN_KEY.encode()) in found.drop
        store.write_now(lambda txn: txn.delete(Table.DUE_ATTEMPTS, key))
        with store.read() as txn:
            assert judge_again(txn, OWN, due) == []
