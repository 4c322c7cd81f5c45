"""Which files in a folder are backups, whose, and which of them are used by themselves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shine_node.store.recovery.backups import Backup, backup_name, find_backups, name_login, old_backups, open_backup
from tests.store.rooms import NOW

OTHER = 54321
LOGINS = ["home", "a", "own.server", "home-2", "home-20260101-000000", "x" * 30, "9_-."]


@pytest.mark.parametrize("login", LOGINS)
def test_a_name_says_whose_it_is(tmp_path: Path, login: str) -> None:
    names = [backup_name(login, NOW, number) for number in (1, 2, 10)] + [backup_name(login, NOW + 1000)]
    assert names[0] == f"shine-{login}-20260328-121320.mdb"
    for name in names:
        assert name_login(name) == login
        (tmp_path / name).touch()
        for other in LOGINS:
            (tmp_path / backup_name(other, NOW - 10**9)).touch()
    left = [path.name for path in old_backups(tmp_path, login, 1, names[-1])]
    assert left == [backup_name(login, NOW - 10**9), *names[:-1]], "by time, then by number"
    assert old_backups(tmp_path, login, 5, names[-1]) == []
    assert old_backups(tmp_path, "nobody", 1, names[-1]) == []


def test_names_of_times_to_come_push_out_no_new_backup(tmp_path: Path) -> None:
    names = [backup_name("home", NOW + hours * 3_600_000) for hours in range(-2, 1)]
    for name in (*names, *(backup_name("home", NOW + years * 10**11) for years in range(1, 4))):
        (tmp_path / name).touch()
    for keep, removed in ((1, names[:2]), (2, names[:1]), (3, [])):
        assert [path.name for path in old_backups(tmp_path, "home", keep, names[-1])] == removed


@pytest.mark.parametrize("name", ["shine-20260131-031700.mdb", "shine-x.mdb", "shine-Home-20260131-031700.mdb", "x"])
def test_other_names_say_nothing(name: str) -> None:
    assert name_login(name) == ""


def test_what_is_no_backup_of_this_server_is_not_found(tmp_path: Path) -> None:
    for number, name in enumerate(("shine-b.mdb", "shine-home-20260131-031700.mdb", "shine-20260131-031700.mdb")):
        (tmp_path / name).write_bytes(b"x" * (number + 1))
        os.utime(tmp_path / name, ns=(number * 10**9, number * 10**9))
    (tmp_path / "shine-theirs-20260131-031700.mdb").write_bytes(b"x")
    (tmp_path / "shine-empty.mdb").touch()
    (tmp_path / "shine-link.mdb").symlink_to("shine-b.mdb")
    (tmp_path / "shine-folder.mdb").mkdir()
    os.mkfifo(tmp_path / "shine-pipe.mdb")
    (tmp_path / "other.mdb").write_bytes(b"x")
    found = find_backups(tmp_path, "home")
    assert [(backup.path.name, backup.made_at_ms, backup.size) for backup in found] == [
        ("shine-20260131-031700.mdb", 2000, 3),
        ("shine-home-20260131-031700.mdb", 1000, 2),
        ("shine-b.mdb", 0, 1),
    ]
    assert all(backup.trusted for backup in found)
    assert not Backup(tmp_path, 0, 1, OTHER).trusted
    assert Backup(tmp_path, 0, 1, 0).trusted
    with pytest.raises(FileNotFoundError):
        find_backups(tmp_path / "missing", "home")


def test_one_that_is_gone_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        name = "shine-a.mdb"

        def stat(self, *, follow_symlinks: bool) -> os.stat_result:
            raise FileNotFoundError

    class Entries(list[Gone]):
        def __enter__(self) -> Entries:
            return self

        def __exit__(self, *error: object) -> None: ...

    monkeypatch.setattr(os, "scandir", lambda folder: Entries([Gone()]))
    assert find_backups(tmp_path, "home") == []


def test_only_a_file_is_opened(tmp_path: Path) -> None:
    file, link, pipe = tmp_path / "file", tmp_path / "link", tmp_path / "pipe"
    file.write_bytes(b"x")
    link.symlink_to("file")
    os.mkfifo(pipe)
    os.close(open_backup(link))
    os.close(open_backup(file, trusted=True))
    os.close(open_backup(file, link=False))
    for options in ({"trusted": True}, {"link": False}):
        with pytest.raises(OSError, match="symbolic links"):
            open_backup(link, **options)
    for path in (pipe, tmp_path):
        with pytest.raises(OSError, match="it is no file"):
            open_backup(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has files of others")
def test_one_of_another_user_is_opened_where_it_was_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    os.chown(tmp_path / "file", OTHER, OTHER)
    os.close(open_backup(tmp_path / "file"))
    with pytest.raises(OSError, match=f"it belongs to the user {OTHER}"):
        open_backup(tmp_path / "file", trusted=True)
