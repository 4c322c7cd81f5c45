import os
import pwd
import shutil
import subprocess
import sys

import pytest

from shine_node.cli.owner import NotAllowed, as_owner, as_writer, groups_of
from shine_node.store.layout import Table
from tests.cli.program import LAUNCHER
from tests.cli.stores import Commands
from tests.support.tree import PACKAGE, ROOT

SOMEBODY = 54321


class Ids:
    """Stands for what the system knows of the process, where a test may not change it."""

    def __init__(self, monkeypatch, *, user):
        self.did = []
        self.now = {"uid": user, "gid": 7, "groups": [7, 8]}
        monkeypatch.setattr(os, "geteuid", lambda: self.now["uid"])
        monkeypatch.setattr(os, "getegid", lambda: self.now["gid"])
        monkeypatch.setattr(os, "getgroups", lambda: self.now["groups"])
        for call, name in (("seteuid", "uid"), ("setegid", "gid"), ("setgroups", "groups")):
            monkeypatch.setattr(os, call, lambda value, name=name: self.set(name, value))

    def set(self, name, value):
        assert self.now["uid"] == 0 or name == "uid", "nobody but root may change groups"
        self.now[name] = value


class Folder:
    def __init__(self, owner, group):
        self.status = os.stat_result((0o700, 1, 1, 1, owner, group, 0, 0, 0, 0))

    def stat(self):
        return self.status


def test_root_has_the_rights_of_the_owner_for_a_while(monkeypatch):
    ids = Ids(monkeypatch, user=0)
    with pytest.raises(ValueError), as_owner(Folder(SOMEBODY, 99)):
        assert ids.now == {"uid": SOMEBODY, "gid": 99, "groups": [99]}
        raise ValueError
    assert ids.now == {"uid": 0, "gid": 7, "groups": [7, 8]}


def test_groups_that_the_system_lists_count(monkeypatch):
    monkeypatch.setattr(os, "getgrouplist", lambda login, group: [group, 777] if login == "nobody" else [])
    nobody = pwd.getpwnam("nobody").pw_uid
    assert groups_of(nobody, 99) == [99, 777]
    assert groups_of(SOMEBODY, 99) == [99]
    ids = Ids(monkeypatch, user=0)
    with as_owner(Folder(nobody, 99)):
        assert ids.now == {"uid": nobody, "gid": 99, "groups": [99, 777]}


@pytest.mark.parametrize(("user", "owner"), [(0, 0), (5, 5), (5, 6)])
def test_whoever_else_stays_who_they_are(monkeypatch, user, owner):
    ids = Ids(monkeypatch, user=user)
    before = dict(ids.now)
    with as_owner(Folder(owner, 99)):
        assert ids.now == before
    assert ids.now == before


@pytest.mark.parametrize(("owner", "theirs"), [(SOMEBODY, True), (SOMEBODY + 1, False), (0, False), (None, False)])
def test_a_copy_in_a_folder_of_the_nodes_user_is_that_users(monkeypatch, tmp_path, owner, theirs):
    ids = Ids(monkeypatch, user=0)
    folder = tmp_path / "nowhere" if owner is None else Folder(owner, 5)
    with as_writer(folder, Folder(SOMEBODY, 99)):
        assert ids.now["uid"] == (SOMEBODY if theirs else 0)
        with as_owner(Folder(SOMEBODY, 99)):
            assert ids.now["uid"] == SOMEBODY
    assert ids.now["uid"] == 0


def test_root_of_a_container_that_may_not(monkeypatch):
    Ids(monkeypatch, user=0)

    def refuse(groups):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "setgroups", refuse)
    with (
        pytest.raises(NotAllowed, match="belongs to the user 54321: run this as that user"),
        as_owner(Folder(SOMEBODY, 99)),
    ):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_what_is_made_there_belongs_to_the_owner(open_folder):
    folder = open_folder / "data"
    folder.mkdir(mode=0o700)
    os.chown(folder, SOMEBODY, SOMEBODY)
    secret = open_folder / "secret"
    secret.write_text("of root")
    secret.chmod(0o600)
    with as_owner(folder):
        (folder / "file").write_text("made")
        with pytest.raises(PermissionError):
            secret.read_text()
    assert ((folder / "file").stat().st_uid, (folder / "file").stat().st_gid) == (SOMEBODY, SOMEBODY)
    assert secret.read_text() == "of root"
    assert subprocess.run(["id", "-u"], capture_output=True, text=True, check=True).stdout == "0\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_program_that_the_owner_cannot_read(open_folder, capsys):
    """As from a checkout in root's home: all that is needed is loaded before root becomes somebody else."""
    program = open_folder / "home-of-root"
    program.mkdir(mode=0o700)
    shutil.copytree(ROOT / PACKAGE, program / PACKAGE, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    shutil.copy(LAUNCHER, program)
    home = Commands(open_folder / "node", capsys)
    for path in (home.folder, home.data, *home.data.iterdir()):
        os.chown(path, SOMEBODY, SOMEBODY)

    def run(command, *words, status=0):
        done = subprocess.run(
            [sys.executable, "-E", program / LAUNCHER.name, command, "--config", home.config, *words],
            cwd="/",
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode, "Traceback" in done.stderr) == (status, False), done.stderr + done.stdout

    run("backup", "--verify")
    [backup] = (home.data / "backups").iterdir()
    run("export", open_folder / "lines.jsonl")
    run("verify")
    run("recover")
    home.store.write_bytes(home.store.read_bytes()[:9000])
    run("recover", status=1)
    run("recover", "--from-backup")
    run("import", open_folder / "lines.jsonl")
    home.write((Table.DUE_ATTEMPTS, bytes(16), b"none"))
    run("verify", "--repair", status=1)
    run("restore", backup)
    assert {path.stat().st_uid for path in home.data.rglob("*")} == {SOMEBODY}
