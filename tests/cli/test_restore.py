import contextlib
import os

import lmdb
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


@pytest.mark.parametrize("command", [("restore",), ("recover", "--force", "--from-backup")])
def test_what_is_no_store_is_called_so(home, tmp_path, command):
    picture = tmp_path / "picture.jpg"
    before = names(home.data)
    for content in (b"", b"a cat", b"a picture of a cat" * 10_000):
        picture.write_bytes(content)
        assert home(*command, picture) == (1 if command == ("restore",) else 2)
        assert home.said == (
            f"shine-node: {picture} is no store of SHiNE node: name a file that `backup` has written\n"
        )
    with lmdb.open(str(tmp_path / "other.mdb"), subdir=False) as env, env.begin(write=True) as txn:
        txn.put(b"a", b"b")
    assert home(*command, tmp_path / "other.mdb") == (1 if command == ("restore",) else 2)
    assert f"{tmp_path / 'other.mdb'} is no store of SHiNE node, or of another version of it" in home.said
    assert home(*command, tmp_path) in (1, 2)
    assert "it is no file" in home.said
    assert names(home.data) == before


@pytest.mark.parametrize("command", [("restore",), ("recover", "--force", "--from-backup")])
def test_one_that_does_not_say_whose_it_is_is_taken_with_a_note(home, tmp_path, command):
    with contextlib.closing(home.open()) as store:
        store.write_now(lambda txn: txn.delete(Table.META, b"server_login"))
    (tmp_path / "old.mdb").write_bytes(home.store.read_bytes())
    assert home(*command, tmp_path / "old.mdb") == 0
    assert f"{tmp_path / 'old.mdb'} does not say whose it is" in home.said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has files of others")
@pytest.mark.parametrize("command", [("restore",), ("recover", "--force", "--from-backup")])
def test_root_names_one_that_the_nodes_user_cannot_read(open_folder, capsys, command):
    home = Commands(open_folder / "home", capsys)
    for path in (home.folder, home.data, *home.data.iterdir()):
        os.chown(path, 54321, 54321)
    vault = open_folder / "vault"
    vault.mkdir(mode=0o700)
    assert home("backup", vault / "copy.mdb") == 0, home.said
    assert home(*command, vault / "copy.mdb") == 0, home.said
    assert home.store.stat().st_uid == 54321
    (home.data / "link.mdb").symlink_to(vault / "copy.mdb")
    assert home(*command, home.data / "link.mdb") in (1, 2), "the node's user may have made it"
    assert "symbolic links" in home.said


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


def test_one_of_another_server_is_for_a_server_that_was_renamed(home, tmp_path):
    assert home("backup", tmp_path / "copy.mdb") == 0
    home.config.write_text(home.config.read_text().replace('"own.server"', '"renamed"'))
    before = home.store.read_bytes()
    assert home("restore", tmp_path / "copy.mdb") == 1
    assert "is a backup of the server own.server, and this one is renamed" in home.said
    assert home.store.read_bytes() == before
    assert home("restore", "--force", tmp_path / "copy.mdb") == 0


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
