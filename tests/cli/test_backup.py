import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shine_node.cli import backup
from shine_node.cli.new_file import NewFile, need_room
from shine_node.store.layout import Table, pack_number
from shine_node.store.owner import read_owner
from tests.cli.program import LAUNCHER
from tests.cli.stores import Commands, names, tables


@pytest.fixture
def home(tmp_path, capsys):
    return Commands(tmp_path / "home", capsys)


def test_a_backup_is_the_store_and_private(home, tmp_path):
    target = tmp_path / "copy.mdb"
    before = names(home.data)
    assert home("backup", target) == 0
    assert (home.shown, home.said) == (f"{target}\n", "")
    assert target.stat().st_mode & 0o777 == 0o600
    assert tables(target) == tables(home.store)
    assert names(home.data) == before
    assert not [name for name in names(tmp_path) if name.endswith(".part")]


def test_beside_a_process_that_has_the_store(home, tmp_path):
    program = (
        "import sys; from pathlib import Path; from shine_node.store.environment import Store;"
        "Store(Path(sys.argv[1]), map_size=2**26); print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(home.store)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as node:
        assert node.stdout.readline() == "\n"
        assert home("backup", tmp_path / "copy.mdb") == 0
        node.stdin.close()
        assert node.wait(60) == 0


def test_what_is_there_is_not_replaced_by_mistake(home, tmp_path):
    target = tmp_path / "copy.mdb"
    target.write_text("mine")
    assert home("backup", target) == 1
    assert "exists" in home.said
    assert target.read_text() == "mine"
    assert home("backup", "--force", target) == 0
    assert tables(target) == tables(home.store)


@pytest.mark.parametrize("name", ["shine.mdb", "shine.mdb-lock", "copy.mdb"])
def test_not_into_the_data_folder(home, name):
    assert home("backup", "--force", home.data / name) == 1
    assert "is in the data folder" in home.said
    assert home("backup", home.data) == 1
    assert home("backup", "--config") == 2


def test_a_folder_gets_dated_names_and_keeps_the_newest(home, tmp_path):
    folder = tmp_path / "backups"
    folder.mkdir()
    old = [f"shine-own.server-200{year}0101-000000.mdb" for year in (1, 2, 3)]
    others = ["shine-2001.mdb", "shine-own.server-20010101-000000.mdb.gz", "photo.jpg", "shine-20010101-000000.mdb"]
    others += ["xshine-own.server-20010101-000000.mdb", "shine-theirs-20010101-000000.mdb"]
    for name in old + others:
        (folder / name).touch()
    (folder / "shine-own.server-20000101-000000.mdb").mkdir()
    (folder / "shine-own.server-19990101-000000.mdb").symlink_to("photo.jpg")
    kept = {*others, "shine-own.server-20000101-000000.mdb", "shine-own.server-19990101-000000.mdb"}
    assert home("backup", "--keep", "2", folder) == 0
    made = home.shown.splitlines()[0]
    assert re.fullmatch(r".*/backups/shine-own\.server-20[0-9]{6}-[0-9]{6}\.mdb", made)
    assert home.shown.splitlines()[1:] == [f"removed {folder / name}" for name in old[:2]]
    assert set(names(folder)) == {*kept, old[2], made.rpartition("/")[2]}


def test_a_number_of_backups_is_for_a_folder(home, tmp_path):
    assert home("backup", "--keep", "2", tmp_path / "copy.mdb") == 1
    assert "--keep is for a folder" in home.said
    assert home("backup", "--keep", "0", tmp_path) == 2


def test_no_room_is_told_before_anything_is_written(home, tmp_path, monkeypatch):
    monkeypatch.setattr("shine_node.cli.new_file.need_room", lambda folder, size: need_room(folder, 2**60))
    assert home("backup", tmp_path / "copy.mdb") == 1
    assert "MiB are needed" in home.said
    assert home("backup", tmp_path / "nowhere" / "copy.mdb") == 1
    assert not (tmp_path / "copy.mdb").exists()


def test_the_disk_of_the_store_keeps_what_is_to_stay_free(home, tmp_path, monkeypatch):
    free = shutil.disk_usage(home.data).free // 2**20
    home.config.write_text(home.config.read_text() + f"storage.minFreeMiB = {free * 2}\n")
    assert home("backup") == 1
    assert "no backup was made" in home.said and f"where {free * 2} are to stay free (storage.minFreeMiB)" in home.said
    assert names(home.data / "backups") == []
    elsewhere = os.stat_result((0o600, 1, -1, 1, 0, 0, 0, 0, 0, 0))
    real = Path.stat
    monkeypatch.setattr(Path, "stat", lambda path, **how: elsewhere if path == home.store else real(path, **how))
    backup._leave_room(home.store, tmp_path, 1, free * 2)


def test_no_store_yet(tmp_path, capsys):
    home = Commands(tmp_path / "home", capsys, filled=False)
    assert home("backup", tmp_path / "copy.mdb") == 1
    assert "is not there yet" in home.said


def test_a_store_whose_index_is_wrong_is_kept_and_older_backups_with_it(home, tmp_path):
    home.write((Table.CONTAINERS, pack_number(2**40), b""))
    folder = tmp_path / "backups"
    folder.mkdir()
    (folder / "shine-own.server-20010101-000000.mdb").touch()
    assert home("backup", "--keep", "1", folder) == 1
    assert "containers has" in home.said and "run `shine-node verify`" in home.said
    assert len(names(folder)) == 2


def test_a_store_with_a_row_that_cannot_be_read_leaves_nothing(home, tmp_path):
    home.write((Table.HISTORY, b"x", b"y"))
    assert home("backup", tmp_path / "copy.mdb") == 1
    assert "history cannot be read" in home.said and "no backup was made" in home.said
    assert names(tmp_path) == ["home"]


def test_one_that_is_interrupted_leaves_nothing(home, tmp_path, monkeypatch):
    def interrupt(path, copied):
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(backup, "_check", interrupt)
    of_before = signal.signal(signal.SIGINT, signal.default_int_handler)  # one that was begun with & ignores it
    try:
        assert home("backup", tmp_path / "copy.mdb") == 130
    finally:
        signal.signal(signal.SIGINT, of_before)
    assert names(tmp_path) == ["home"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has files of others")
def test_root_makes_one_without_touching_what_is_the_nodes(open_folder, capsys):
    """Also where the lock file of LMDB has to be made anew, which the node must be able to open."""
    home = Commands(open_folder / "home", capsys)
    (home.data / "shine.mdb-lock").unlink()
    for path in (home.folder, home.data, *home.data.iterdir()):
        os.chown(path, 54321, 54321)
    home.data.chmod(0o700)
    own = home.data / "backups"
    own.mkdir()
    os.chown(own, 54321, 54321)
    assert home("backup", own) == 0, home.said
    assert {path.stat().st_uid for path in own.iterdir()} == {54321}, "the node can go on with it"
    vault = open_folder / "vault"
    vault.mkdir(mode=0o700)
    assert home("backup", vault / "copy.mdb") == 0, home.said
    assert {path.stat().st_uid for path in home.data.iterdir()} == {54321}
    assert (vault / "copy.mdb").stat().st_uid == 0
    assert home("export", vault / "lines.jsonl") == 0, home.said
    assert home("restore", vault / "copy.mdb") == 0, home.said
    assert home("import", vault / "lines.jsonl") == 0, home.said
    assert {path.stat().st_uid for path in home.data.iterdir()} == {54321}
    assert {path.stat().st_mode & 0o077 for path in home.data.iterdir() if path.is_file()} == {0}


def test_as_a_program(home, tmp_path):
    done = subprocess.run(
        [sys.executable, str(LAUNCHER), "backup", "--config", str(home.config), str(tmp_path / "copy.mdb")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_without_a_target_it_goes_where_a_damaged_store_is_replaced_from(home, tmp_path):
    assert home("backup", "--keep", "3") == 0
    [made] = names(home.data / "backups")
    assert home.shown == f"{home.data / 'backups' / made}\n"
    assert (home.data / "backups").stat().st_mode & 0o777 == 0o700
    home.config.write_text(home.config.read_text() + f'storage.backupDir = "{tmp_path / "vault"}"\n')
    assert home("backup") == 0
    assert len(names(tmp_path / "vault")) == 1
    (tmp_path / "no").write_text("a file")
    home.config.write_text(home.config.read_text().replace("vault", "no/vault"))
    assert home("backup") == 1
    assert "cannot be made (Not a directory): correct storage.backupDir" in home.said


def test_a_damaged_store_goes_on_from_it(home):
    assert home("backup") == 0
    before = tables(home.store)
    home.store.write_bytes(home.store.read_bytes()[:9000])
    assert home("recover", "--from-backup") == 0, home.said
    assert tables(home.store) == before


def test_two_servers_with_one_folder(tmp_path, capsys):
    folder = tmp_path / "vault"
    folder.mkdir()
    ours, theirs = (Commands(tmp_path / login, capsys, login=login) for login in ("ours", "theirs"))
    for commands in (ours, theirs):
        commands.config.write_text(commands.config.read_text() + f'storage.backupDir = "{folder}"\n')
        commands.write((Table.META, b"server_login", commands.folder.name.encode()))
    assert ours("backup", "--keep", "1") == 0
    [first] = names(folder)
    assert theirs("backup", "--keep", "1") == 0
    assert len(names(folder)) == 2, "those of the other server are not counted"
    assert ours("backup", "--keep", "1") == 0, "also in the same second"
    [mine] = [name for name in names(folder) if "ours" in name]
    assert mine != first
    [other] = [folder / name for name in names(folder) if "theirs" in name]
    ours.store.write_bytes(ours.store.read_bytes()[:9000])
    assert ours("recover", "--from-backup", other) == 2
    assert f"{other} is a backup of the server theirs, and this one is ours" in ours.said
    assert ours("restore", other) == 1
    assert f"{other} is a backup of the server theirs, and this one is ours" in ours.said
    (folder / mine).unlink()
    other.rename(folder / "shine-named-anew.mdb")
    assert ours("recover", "--from-backup") == 2
    assert "there is no sound backup" in ours.said
    assert [name for name in names(ours.data) if "new" in name or "part" in name] == []
    assert ours("restore", "--force", folder / "shine-named-anew.mdb") == 0


def test_a_backup_of_one_second_takes_no_others_place(home, tmp_path, monkeypatch):
    monkeypatch.setattr("shine_node.clock.SystemClock.now_ms", lambda clock: 1_774_700_000_000)
    stem = "shine-own.server-20260328-121320"
    put_in_place = NewFile.put_in_place

    def meet_another(new):
        if new.place.name == f"{stem}-2.mdb" and not new.place.exists():
            new.place.write_text("of another backup, made meanwhile")
        put_in_place(new)

    monkeypatch.setattr(NewFile, "put_in_place", meet_another)
    for number in ("", "-3", "-4"):
        assert home("backup", tmp_path) == 0
        assert home.shown == f"{tmp_path}/{stem}{number}.mdb\n"
    assert (tmp_path / f"{stem}-2.mdb").read_text() == "of another backup, made meanwhile"


def test_a_store_that_does_not_say_whose_it_is_or_another(home, tmp_path):
    home.write((Table.META, b"server_login", b""))
    assert home("backup", tmp_path / "copy.mdb") == 0, home.said
    assert read_owner(tmp_path / "copy.mdb") == "own.server"
    home.write((Table.META, b"server_login", b"before"))
    assert home("backup", tmp_path / "theirs.mdb") == 0
    assert "the store is of the server before, and so is this backup" in home.said
    assert read_owner(tmp_path / "theirs.mdb") == "before"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has files of others")
def test_root_leaves_the_nodes_backups_to_the_node(open_folder, capsys, monkeypatch):
    home = Commands(open_folder / "home", capsys)
    for path in (home.folder, home.data, *home.data.iterdir()):
        os.chown(path, 54321, 54321)
    vault = open_folder / "vault"
    vault.mkdir(mode=0o755)
    home.config.write_text(home.config.read_text() + f'storage.backupDir = "{vault}"\n')
    assert home("backup") == 0, home.said
    [made] = vault.iterdir()
    assert (made.stat().st_uid, made.stat().st_gid, made.stat().st_mode & 0o777) == (54321, 54321, 0o600)
    home.store.write_bytes(home.store.read_bytes()[:9000])
    assert home("recover", "--from-backup") == 0, home.said
    monkeypatch.setattr(NewFile, "give_to", lambda new, user, group: False)
    assert home("backup") == 0
    assert "could not be given to the node's user" in home.said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has files of others")
def test_a_link_of_the_nodes_user_gives_it_no_file_in_roots_folders(open_folder, capsys, monkeypatch):
    home = Commands(open_folder / "home", capsys)
    for path in (home.folder, home.data, *home.data.iterdir()):
        os.chown(path, 54321, 54321)
    roots = open_folder / "of-root"
    roots.mkdir()
    (home.data / "backups").symlink_to(roots)
    assert home("backup") == 0
    assert "could not be given to the node's user" in home.said
    assert [path.stat().st_uid for path in roots.iterdir()] == [0]
    (home.data / "backups").unlink()
    (home.data / "backups").mkdir()
    monkeypatch.setattr(os.path, "ismount", lambda path: True)
    assert home("backup") == 0, home.said
    assert [path.stat().st_uid for path in (home.data / "backups").iterdir()] == [54321], "no other disk is mounted so"


def test_every_signature_of_the_copy_on_demand(home, tmp_path):
    assert home("backup", "--verify", tmp_path / "copy.mdb") == 0, home.said
    home.write((Table.READ_MARKS, b"alice\0carol\0\2", bytes(8)))
    assert home("backup", tmp_path / "quick.mdb") == 0
    assert home("backup", "--verify", tmp_path / "full.mdb") == 1
    assert "things are not as they must be" in home.said and "run `shine-node verify`" in home.said
    assert (tmp_path / "full.mdb").exists()
