"""Runs and marks: what a store says of how far it has come, and whether a copy of it lacks some of that."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from shine_node.protocol.errors import ServerBusy
from shine_node.store import lineage as lineage_module
from shine_node.store.environment import Job, Store
from shine_node.store.layout import Table
from shine_node.store.lineage import (
    MAX_MARK_CHARACTERS,
    Lineage,
    add_runs,
    begin_lineage,
    begin_run,
    end_run,
    get_doubt,
    get_peer_mark,
    get_peer_run,
    list_runs,
    note_doubt,
    put_peer_mark,
    put_peer_run,
    settle_doubt,
)
from tests.store.rooms import MAP_SIZE, opened

pytestmark = pytest.mark.core

RUNS = [bytes([number]) * 8 for number in range(1, 9)]


class Shelf:
    """A folder with a store and copies of it; each use of the store is a run with some commits."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "shine.mdb"
        self._copies: dict[str, Path] = {}

    def use(self, commits: int) -> tuple[str, str, Lineage]:
        """Open the store, make commits, and return its mark before and after them, and its lineage as it was then."""
        marks: list[str] = []

        async def run() -> Lineage:
            store = Store(self.file, map_size=MAP_SIZE)
            store.start()
            try:
                lineage = await begin_lineage(store)
                assert lineage is not None
                marks.append(lineage.mark())
                for number in range(commits):
                    await store.write(lambda txn, n=number: txn.put(Table.META, b"x", bytes([n])))  # type: ignore[misc]
                marks.append(lineage.mark())
                position = store.position
                return Lineage(lineage._ended, lineage._run, lambda: position)
            finally:
                store.close()

        lineage = asyncio.run(run())
        return marks[0], marks[1], lineage

    def copy(self, name: str) -> None:
        self._copies[name] = self.file.with_suffix(f".{name}")
        shutil.copyfile(self.file, self._copies[name])

    def restore(self, name: str) -> None:
        shutil.copyfile(self._copies[name], self.file)


def test_a_store_that_goes_on_lacks_nothing(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    marks: list[str] = []
    for commits in (3, 0, 2):
        begun, ended, lineage = shelf.use(commits)
        marks += [begun, ended]
        assert not any(lineage.lost(mark) for mark in marks)
    assert not lineage.lost("")
    assert len(set(marks)) == 5, "a run without commits begins and ends in one place"
    assert max(map(len, marks)) <= MAX_MARK_CHARACTERS


def test_one_that_is_restored_lacks_what_came_after_the_copy(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    _, before, _ = shelf.use(3)
    shelf.copy("yesterday")
    begun, ended, _ = shelf.use(5)
    shelf.restore("yesterday")
    _, _, lineage = shelf.use(100)
    assert not lineage.lost(before)
    assert lineage.lost(begun), "however many commits it has made since"
    assert lineage.lost(ended)


def test_a_copy_of_a_run_that_goes_on_has_its_beginning_only(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    with opened(shelf.file) as store:
        store.write_now(lambda txn: begin_run(txn, RUNS[0], 1))
        early = f"{RUNS[0].hex()}-{store.position:x}"
        shelf.copy("hot")
        store.write_now(lambda txn: txn.put(Table.META, b"x", b"later"))
        late = f"{RUNS[0].hex()}-{store.position:x}"
    shelf.restore("hot")
    _, _, lineage = shelf.use(7)
    assert not lineage.lost(early)
    assert lineage.lost(late)


def test_a_copy_whose_commits_are_numbered_anew_says_where_its_run_ended(tmp_path: Path) -> None:
    """Also one that has more commits of its own than the run had: a mark that came after the copy counts as lost."""
    shelf = Shelf(tmp_path)
    with opened(shelf.file) as store:
        store.write_now(lambda txn: begin_run(txn, RUNS[0], 1))
        store.write_now(lambda txn: end_run(txn, 2))
        for number in range(9):
            store.write_now(lambda txn, n=number: txn.put(Table.META, b"x", bytes([n])))  # type: ignore[misc]
        with store.read() as txn:
            assert list_runs(txn, store.position) == [(RUNS[0], 2)]
    _, _, lineage = shelf.use(1)
    assert not lineage.lost(f"{RUNS[0].hex()}-2")
    assert lineage.lost(f"{RUNS[0].hex()}-3")


def test_a_store_without_runs_has_none_to_end(tmp_path: Path) -> None:
    with opened(tmp_path / "shine.mdb") as store:
        store.write_now(lambda txn: end_run(txn, 2))
        with store.read() as txn:
            assert list_runs(txn, 5) == []
            assert txn.get(Table.META, b"lineage") is None


def test_runs_of_elsewhere_are_older_than_those_that_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage_module, "MAX_RUNS", 3)
    with opened(tmp_path / "shine.mdb") as store:
        assert store.write_now(lambda txn: add_runs(txn, [(RUNS[0], 4)]))
        store.write_now(lambda txn: begin_run(txn, RUNS[1], 7))
        assert not store.write_now(lambda txn: add_runs(txn, [(RUNS[0], 5), (RUNS[1], 6)]))
        with store.read() as txn:
            assert list_runs(txn, 9) == [(RUNS[0], 4), (RUNS[1], 9)]
        assert store.write_now(lambda txn: add_runs(txn, [(RUNS[2], 8), (RUNS[3], 8)]))
        ended = store.write_now(lambda txn: begin_run(txn, RUNS[4], 10))
        assert ended == {RUNS[0].hex(): 4, RUNS[1].hex(): 10}


def test_a_mark_that_no_store_gave_counts_as_lost(tmp_path: Path) -> None:
    _, ended, lineage = Shelf(tmp_path).use(1)
    run, _, number = ended.partition("-")
    assert not lineage.lost(ended)
    for strange in (run, f"{run}-", f"{run}-xyz", f"{number}-{run}", "-1", "é", f"{run}-{int(number, 16) + 1:x}"):
        assert lineage.lost(strange), strange


def test_runs_are_remembered_within_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage_module, "MAX_RUNS", 3)
    with opened(tmp_path / "shine.mdb") as store:
        for number, run in enumerate(RUNS, start=1):
            ended = store.write_now(lambda txn, r=run, n=number: begin_run(txn, r, 10 * n))  # type: ignore[misc]
        assert ended == {RUNS[5].hex(): 70, RUNS[6].hex(): 80}


def test_without_room_for_it_nothing_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class BusyStore(Store):
        def submit(self, jobs: list[Job[object]]) -> None:
            raise ServerBusy("the store has too much to write")

    async def story() -> None:
        store = BusyStore(tmp_path / "shine.mdb", map_size=MAP_SIZE)
        store.start()
        assert await begin_lineage(store) is None
        store.close()

    asyncio.run(story())
    assert "other servers are not told" in caplog.text


def test_the_mark_of_each_peer_is_kept(tmp_path: Path) -> None:
    with opened(tmp_path / "shine.mdb") as store:
        store.write_now(lambda txn: put_peer_mark(txn, "server2", "ab-1"))
        store.write_now(lambda txn: put_peer_mark(txn, "server2", "ab-2"))
        store.write_now(lambda txn: put_peer_mark(txn, "server", "cd-3"))
        with store.read() as txn:
            assert get_peer_mark(txn, "server2") == "ab-2"
            assert get_peer_mark(txn, "server") == "cd-3"
            assert get_peer_mark(txn, "server3") == ""


def test_the_run_of_each_peer_is_kept(tmp_path: Path) -> None:
    with opened(tmp_path / "shine.mdb") as store:
        store.write_now(lambda txn: put_peer_run(txn, "server2", "ab"))
        store.write_now(lambda txn: put_peer_mark(txn, "server2", "cd-1"))
        with store.read() as txn:
            assert get_peer_run(txn, "server2") == "ab"
            assert get_peer_run(txn, "server") == ""


def test_a_doubt_begins_with_the_earliest_change_and_ends_with_the_second_mark(tmp_path: Path) -> None:
    with opened(tmp_path / "shine.mdb") as store:

        def doubt() -> int | None:
            with store.read() as txn:
                return get_doubt(txn, "server2")

        def note(changed_at_ms: int) -> None:
            store.write_now(lambda txn: note_doubt(txn, "server2", changed_at_ms))

        def settle() -> None:
            store.write_now(lambda txn: settle_doubt(txn, "server2"))

        settle()
        assert doubt() is None
        for changed_at_ms in (7, 9, 5, 6):
            note(changed_at_ms)
        assert doubt() == 5
        settle()
        assert doubt() == 5, "the mark may have been made before"
        note(8)
        assert doubt() == 5
        settle()
        assert doubt() == 8
        settle()
        assert doubt() is None
        store.write_now(lambda txn: note_doubt(txn, "server", 1))
        assert doubt() is None
