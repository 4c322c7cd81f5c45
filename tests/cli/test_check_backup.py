"""What ``check`` says of the backups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shine_node.cli import check_backup
from shine_node.cli.check_backup import PRODUCERS, find_backup
from shine_node.cli.findings import Level, Situation
from shine_node.cli.owner import NotAllowed
from shine_node.config import load_config
from tests.cli.program import write_config


def situation(folder: Path, text: str = "") -> Situation:
    path = write_config(folder, text)
    return Situation(load_config(path), path)


def test_with_and_without_a_backup(tmp_path: Path) -> None:
    assert find_backup in PRODUCERS
    assert find_backup(situation(tmp_path)) == [], "there is no data folder yet"
    folder = tmp_path / "data" / "backups"
    folder.mkdir(parents=True)
    [finding] = find_backup(situation(tmp_path))
    assert (finding.level, finding.text) == (Level.OK, f"there is none in {folder}: `shine-node backup` makes one")
    (folder / "shine-home-20260131-031700.mdb").write_bytes(bytes(3 * 2**20))
    [finding] = find_backup(situation(tmp_path))
    assert (finding.level, finding.text) == (Level.OK, f"{folder}/shine-home-20260131-031700.mdb, 3 MiB")
    os.utime(folder / "shine-home-20260131-031700.mdb", (0, 0))
    assert find_backup(situation(tmp_path))[0].level is Level.OK, "nobody has promised newer ones"
    [finding] = find_backup(situation(tmp_path, f'storage.backupDir = "{folder}"\n'))
    assert finding.level is Level.WARNING
    assert "days old" in finding.text
    [finding] = find_backup(situation(tmp_path, f'storage.backupDir = "{tmp_path}"\n'))
    assert "there is no backup in" in finding.text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_one_that_the_nodes_user_cannot_use(open_folder: Path) -> None:
    """As root used to make them in a folder of its own."""
    config = situation(open_folder, 'storage.backupDir = "backups"\n')
    (open_folder / "data").mkdir(mode=0o700)
    os.chown(open_folder / "data", 54321, 54321)
    folder = open_folder / "backups"
    folder.mkdir(mode=0o755)
    backup = folder / "shine-home-20260131-031700.mdb"
    backup.write_bytes(b"x")
    backup.chmod(0o600)
    [finding] = find_backup(config)
    assert finding.level is Level.WARNING
    assert f"{backup} cannot be used by the node (Permission denied)" in finding.text
    assert "give the file to the node's user with chown" in finding.text
    os.chown(backup, 54321, 54321)
    assert [finding.level for finding in find_backup(config)] == [Level.OK]
    folder.chmod(0o700)
    [finding] = find_backup(config)
    assert "let the node's user read that folder" in finding.text


def test_whoever_may_not_look_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()

    def refuse(folder: Path) -> None:
        raise NotAllowed("no")

    with monkeypatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: 54321)
        assert find_backup(situation(tmp_path)) == []
    monkeypatch.setattr(check_backup, "as_owner", refuse)
    assert find_backup(situation(tmp_path)) == []
