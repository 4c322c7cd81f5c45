"""The newest backup, and what is to be done about it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shine_node.control.backups import DAY_MS, OLD_DAYS, NewestBackup, backup_warnings, read_newest

NOW = 1_774_700_000_000


def test_the_newest_one(tmp_path: Path) -> None:
    assert read_newest(tmp_path / "missing", "home") == NewestBackup(tmp_path / "missing")
    assert read_newest(tmp_path, "home") == NewestBackup(tmp_path)
    for second, name in enumerate(("shine-home-20260131-031700.mdb", "shine-home-20260201-031700.mdb")):
        (tmp_path / name).write_bytes(b"xy")
        os.utime(tmp_path / name, (second, second))
    (tmp_path / "shine-theirs-20260202-031700.mdb").write_bytes(b"x")
    path = tmp_path / "shine-home-20260201-031700.mdb"
    assert read_newest(tmp_path, "home") == NewestBackup(tmp_path, path, 1000, 2)
    (tmp_path / "file").touch()
    assert read_newest(tmp_path / "file", "home").problem == "Not a directory"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has files of others")
def test_one_that_cannot_be_used(tmp_path: Path) -> None:
    path = tmp_path / "shine-a.mdb"
    path.write_bytes(b"x")
    os.chown(path, 54321, 54321)
    found = read_newest(tmp_path, "home")
    assert (found.path, found.problem) == (
        path,
        "it belongs to the user 54321, and must be the node's own or root's",
    )


@pytest.mark.parametrize("wanted", [True, False])
def test_what_is_to_be_done(tmp_path: Path, wanted: bool) -> None:
    def warnings(newest: NewestBackup) -> str:
        return "\n".join(backup_warnings(newest, wanted=wanted, now_ms=NOW))

    path = tmp_path / "shine-a.mdb"
    none = warnings(NewestBackup(tmp_path))
    assert none == (f"there is no backup in {tmp_path}: have `shine-node backup --keep 14` run every night" * wanted)
    assert warnings(NewestBackup(tmp_path, path, NOW, 1)) == ""
    assert warnings(NewestBackup(tmp_path, path, NOW - OLD_DAYS * DAY_MS + 1, 1)) == ""
    old = NewestBackup(tmp_path, path, NOW - OLD_DAYS * DAY_MS, 1)
    assert ("is 3 days old: look why no newer one was made" in warnings(old)) == wanted
    assert "let the node's user read that folder" in warnings(NewestBackup(tmp_path, problem="Permission denied"))
    both = warnings(old._replace(problem="Permission denied"))
    assert "cannot be used by the node (Permission denied), so that a damaged store is not replaced by it" in both
    assert len(both.splitlines()) == 1 + wanted
