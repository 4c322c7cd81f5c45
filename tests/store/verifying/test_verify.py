"""Planted damage of every kind is found and mended; what is well is left alone."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shine_node.store.environment import StoreError, Transaction
from shine_node.store.files import StoreDamaged
from shine_node.store.layout import Table, pack_number
from shine_node.store.schema import NUMBERED
from shine_node.store.verifying import verify as verify_module
from shine_node.store.verifying.findings import Problem
from shine_node.store.verifying.judges import JUDGES
from shine_node.store.verifying.verify import copy_store, repair_store, verify_file, verify_store
from tests.store.rooms import MAP_SIZE, NOW, OWN, check_indexes, identity, opened, servers
from tests.store.verifying.full import (
    OTHER,
    full_store,
    repaired,
)
from tests.store.verifying.plants import ITEMS, META, PEOPLE, Plant, first, found_and_mended, remove


def test_a_full_store_has_something_in_every_table_and_is_well(tmp_path: Path) -> None:
    path = full_store(tmp_path)
    with opened(path) as store, store.read() as txn:
        assert [table for table in Table if not txn.count(table)] == []
        rows = sum(txn.count(table) for table in Table)
    seen: list[tuple[int, int]] = []
    report = verify_file(path, OWN, progress=lambda done, total: seen.append((done, total)))
    assert report.clean
    assert not report.counts
    assert report.rows == rows
    assert report.signatures > 15
    assert seen[-1] == (rows, rows)
    assert seen == sorted(seen)
    unknown = verify_file(path, None, threads=0)
    assert unknown.clean
    assert unknown.signatures == 5, "those of access records, on which all else depends"


@pytest.mark.parametrize("plants", [ITEMS, PEOPLE, META])
def test_planted_damage_is_found_and_mended(tmp_path: Path, plants: dict[str, tuple[Plant, Problem]]) -> None:
    for number, (plant, problem) in enumerate(list(plants.values())[::7]):
        (tmp_path / str(number)).mkdir()
        found_and_mended(tmp_path / str(number), plant, problem)


def test_a_sound_store_is_left_as_it_is_by_a_repair(tmp_path: Path) -> None:
    path = full_store(tmp_path)
    copy = tmp_path / "copy"
    content = path.read_bytes()
    report = repair_store(path, OWN, map_size=MAP_SIZE, now_ms=NOW, quarantine=tmp_path / "q", copy=copy)
    assert report.clean
    assert report.repaired == 0
    assert copy.stat().st_mode & 0o777 == 0o600
    assert copy.stat().st_size == len(content)
    assert not (tmp_path / "q").exists()
    assert verify_file(copy, OWN, lock=False).clean


def test_a_repair_needs_a_store_that_nobody_uses(tmp_path: Path) -> None:
    path = full_store(tmp_path)
    with opened(path), pytest.raises(StoreError, match="in use by another process"):
        repaired(path)
    with pytest.raises(StoreError, match="is not there"):
        repaired(tmp_path / "missing.mdb")


def test_no_repair_mends_a_damaged_page(tmp_path: Path) -> None:
    path = full_store(tmp_path)
    content = bytearray(path.read_bytes())
    for page in range(4, len(content) // 4096):
        content[page * 4096 + 8 : page * 4096 + 12] = b"\xff" * 4
    path.write_bytes(content)
    before = path.read_bytes()
    for work in (lambda: repaired(path), lambda: verify_file(path, OWN)):
        with pytest.raises(StoreDamaged):
            work()
    assert path.read_bytes() == before


def test_what_is_found_for_ever_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = full_store(tmp_path)
    with opened(path) as store:
        store.write_now(remove(Table.DUE_ATTEMPTS))
    monkeypatch.setattr(verify_module.Repair, "mend", lambda self, finding: finding)
    with pytest.raises(StoreError, match="something is still found"):
        repaired(path)


def test_a_copy_takes_no_other_files_place_and_none_is_left_half_made(tmp_path: Path) -> None:
    path, copy = full_store(tmp_path), tmp_path / "copy"
    copy.write_bytes(b"mine")
    with pytest.raises(FileExistsError):
        copy_store(path, copy)
    assert copy.read_bytes() == b"mine"
    with pytest.raises(FileNotFoundError):
        copy_store(tmp_path / "missing", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_what_changes_meanwhile_is_no_finding(tmp_path: Path) -> None:
    """A finding of the first look that is gone at the second one does not count."""
    path = full_store(tmp_path)
    with opened(path) as store:
        with store.read() as txn:
            key, value = first(txn, Table.DUE_ATTEMPTS)
        store.write_now(remove(Table.DUE_ATTEMPTS))

        class Mending:
            """A store that is put right after the first snapshot of its history."""

            count = 0

            def read(self):  # type: ignore[no-untyped-def]
                self.count += 1
                if self.count >= list(JUDGES).index(Table.HISTORY) + 3:
                    with store.read() as now:
                        there = now.get(Table.DUE_ATTEMPTS, key)
                    if there is None:
                        store.write_now(lambda txn: txn.put(Table.DUE_ATTEMPTS, key, value))
                return store.read()

        assert verify_store(Mending(), OWN, threads=1).clean


def test_notes_are_no_findings(tmp_path: Path) -> None:
    """A key that was in force at another time, and a sender of whom nothing is known, are told and left alone."""
    path = full_store(tmp_path)
    with opened(path) as store:

        def plant(txn: Transaction) -> None:
            record = (
                identity("bob")
                .with_device(identity("newbob").device)
                .access_record(servers(OWN, OTHER), time_ms=NOW - 5)
            )
            from shine_node.store.users import add_record

            add_record(txn, record)
            for key in list(txn.scan_keys(Table.ACCESS_HISTORY, prefix=b"carol\0")):
                txn.delete(Table.ACCESS_RECORDS, key[-8:])
                txn.delete(Table.ACCESS_HISTORY, key)
            for table in (Table.USERS, Table.ACCESS_CURRENT):
                txn.delete(table, b"carol")

        store.write_now(plant)
        report = verify_store(store, OWN)
    assert report.clean, report.first
    assert report.counts[Problem.UNKNOWN_KEY] == 1
    mended = repaired(path)
    assert mended.repaired == 0
    assert not (tmp_path / "quarantine").exists()


changes = st.lists(
    st.tuples(
        st.sampled_from([table for table in Table if table is not Table.META]),
        st.sampled_from(["value", "key", "add", "remove", "long"]),
        st.integers(0, 10**6),
        st.binary(min_size=1, max_size=40),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=40, deadline=None)
@given(changes=changes)
def test_whatever_the_rows_hold_it_is_found_or_mended_and_nothing_fails(
    changes: list[tuple[Table, str, int, bytes]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = full_store(Path(folder))
        with opened(path) as store:

            def work(txn: Transaction) -> None:
                for table, what, number, data in changes:
                    rows = list(txn.scan(table))
                    if not rows:
                        continue
                    key, value = rows[number % len(rows)]
                    at = number % max(len(value), 1)
                    if what == "value":
                        txn.put(table, key, value[:at] + data + value[at + len(data) :])
                    elif what == "remove":
                        txn.delete(table, key)
                    elif table in NUMBERED:
                        continue  # a key that is no number is damage at the opening already
                    elif what == "key":
                        place = number % len(key)
                        txn.put(table, (key[:place] + data + key[place + len(data) :])[:511], value)
                    else:
                        txn.put(table, data * (12 if what == "long" else 1), value if number % 2 else data * 30)

            store.write_now(work)
            found = verify_store(store, OWN, threads=1)
        mended = repaired(path)
        assert found.clean == mended.clean
        with opened(path) as store:
            assert verify_store(store, OWN, threads=1).clean
            with store.read() as txn:
                check_indexes(txn)


def test_empty_contents_of_nothing(tmp_path: Path) -> None:
    with opened(full_store(tmp_path)) as store:
        store.write_now(lambda txn: txn.put(Table.CONTAINERS, pack_number(10**6), b""))
        assert verify_store(store, OWN, threads=1).counts == {Problem.DANGLING: 1}
