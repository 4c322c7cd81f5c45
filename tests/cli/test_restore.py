import contextlib
import os

import pytest

from shine_node.store.layout import SCHEMA_VERSION, Table, pack_number
from shine_node.store.lineage import begin_run
from shine_node.store.schema import SCHEMA_KEY, STEPS
from tests.cli.stores import Commands, names, tables


@pytest.fixture
def home(tmp_path, capsys):
    return Commands(tmp_path / "home", capsys)


def aside(home):
    return [name for name in names(home.data) if name.startswith("shine.mdb.before-")]


def test_a_backup_takes_the_place_of_the_store_which_is_kept(home, tmp_path):
    with contextlib.closing(home.open()) as store:
        store.write_now(lambda txn: begin_run(txn, b"12345678", 1))
        position = store.position
    backup = tmp_path / "copy.mdb"
    assert home("backup", backup) == 0
    then = tables(home.store)
    home.write((Table.READ_MARKS, b"later", bytes(8)))
    assert home("restore", backup) == 0
    assert tables(home.store) == then
    [kept] = aside(home)
    assert (
        home.shown.splitlines()[0]
        == f"{home.store} is now {backup}; what was there is {home.data / kept}, to be removed when all is well"
    )
    assert tables(home.data / kept)[Table.READ_MARKS][-1][0] == b"later"
    assert home.store.stat().st_mode & 0o777 == 0o600
    with contextlib.closing(home.open()) as store:
        ended = store.write_now(lambda txn: begin_run(txn, b"87654321", store.position))
    assert ended[b"12345678".hex()] == position, "it knows that it was restored, and to where"


def test_where_there_was_none(home, tmp_path, capsys):
    backup = tmp_path / "copy.mdb"
    assert home("backup", backup) == 0
    other = Commands(tmp_path / "other", capsys, filled=False)
    assert other("restore", backup) == 0
    assert "what was there" not in other.shown
    assert tables(other.store) == tables(home.store)


def test_a_node_that_runs_is_left_alone(home, tmp_path):
    backup = tmp_path / "copy.mdb"
    assert home("backup", backup) == 0
    before = home.store.stat()
    with contextlib.closing(home.open()):
        assert home("restore", backup) == 1
    assert "is in use by another process" in home.said and "stop it first" in home.said
    assert home.store.stat().st_ino == before.st_ino
    assert aside(home) == []


@pytest.mark.parametrize("damage", ["cut", "other", "row", "gone", "itself"])
def test_what_is_no_sound_backup_changes_nothing(home, tmp_path, damage):
    backup = tmp_path / "copy.mdb"
    if damage == "row":
        home.write((Table.HISTORY, b"x", b"y"))
        backup.write_bytes(home.store.read_bytes())
        (home.store).unlink()
        home.data.joinpath("shine.mdb-lock").unlink()
        home.data.joinpath("shine.mdb.pid").unlink()
        home.data.rmdir()
        home.fill()
    elif damage != "gone":
        assert home("backup", backup) == 0
    if damage == "cut":
        backup.write_bytes(backup.read_bytes()[:50_000])
    if damage == "other":
        backup.write_text("a picture of a cat" * 1000)
    before, there = home.store.read_bytes(), names(home.data)
    assert home("restore", home.store if damage == "itself" else backup) == 1
    said = {
        "cut": "copy.mdb",  # LMDB has its own words for what it meets first
        "other": "copy.mdb",
        "row": "history cannot be read",
        "gone": "copy.mdb cannot be read: No such file",
        "itself": "is the store itself",
    }
    assert said[damage] in home.said and ".part" not in home.said
    assert home.store.read_bytes() == before
    assert names(home.data) == there


def test_one_with_a_wrong_index_is_told_of(home, tmp_path):
    home.write((Table.CONTAINERS, pack_number(2**40), b""))
    backup = tmp_path / "copy.mdb"
    assert home("backup", backup) == 1
    assert home("restore", backup) == 0
    assert "run `shine-node verify`" in home.said
    assert len(aside(home)) == 1


def test_a_store_that_cannot_be_kept_beside_it_stays(home, tmp_path, monkeypatch):
    backup = tmp_path / "copy.mdb"
    assert home("backup", backup) == 0

    def refuse(source, target):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    assert home("restore", backup) == 1
    assert "cannot be kept beside the backup (Operation not permitted)" in home.said
    assert names(home.data) == ["shine.mdb", "shine.mdb-lock", "shine.mdb.pid"]


def test_one_of_an_older_version_is_brought_up_to_date(home, tmp_path, monkeypatch):
    backup = tmp_path / "copy.mdb"
    assert home("backup", backup) == 0
    then = tables(home.store)
    home.write((Table.META, SCHEMA_KEY, pack_number(SCHEMA_VERSION - 1)))
    old = home.store.rename(tmp_path / "old.mdb")
    assert home("restore", old) == 1
    assert "cannot be brought from schema" in home.said and "nothing was changed" in home.said
    assert not home.store.exists()
    monkeypatch.setitem(STEPS, SCHEMA_VERSION, lambda txn: txn.put(Table.READ_MARKS, b"step", bytes(8)))
    before = old.read_bytes()
    assert home("restore", old) == 0, home.said
    assert old.read_bytes() == before
    assert tables(home.store) == then | {Table.READ_MARKS: [*then[Table.READ_MARKS], (b"step", bytes(8))]}
