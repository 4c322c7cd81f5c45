import contextlib
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from shine_node.cli.check_disk import find_disk
from shine_node.cli.check_machine import (
    PRODUCERS,
    find_backup_dir,
    find_ca_file,
    find_data_dir,
    find_protected,
    judge_folder,
)
from shine_node.cli.findings import Level, Situation
from shine_node.cli.node_user import NodeUser
from shine_node.cli.unit import Unit
from shine_node.config import config_from_mapping
from tests.cli.certificates import write_certificate

NOBODY = 65534
UNIT = Unit("shine-node", "shine-node", False, "strict", "yes", (Path("/var/lib/shine-node"),), ())


def situation(folder, server=None, **sections):
    own = {"login": "home", "url": "wss://home.example/ws", "dataDir": "data", **(server or {})}
    return Situation(config_from_mapping({"server": own, **sections}, base_dir=folder), folder / "node.toml")


def only(findings):
    (finding,) = findings
    return finding


@pytest.fixture
def open_folder():
    """A folder that every user can reach, which those of pytest are not."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@contextlib.contextmanager
def without_rights():
    """Not root for a while; whoever is not root already is left alone."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_data_folder_that_is_there(tmp_path):
    (tmp_path / "data").mkdir(mode=0o700)
    finding = only(find_data_dir(situation(tmp_path)))
    assert (finding.level, finding.text) == (Level.OK, f"{tmp_path / 'data'}")


def test_a_data_folder_that_will_be_made(tmp_path):
    finding = only(find_data_dir(situation(tmp_path, {"dataDir": "a/b/c"})))
    assert finding.level is Level.OK and "will be made" in finding.text
    assert list(tmp_path.iterdir()) == []


def test_a_data_folder_that_is_none(tmp_path):
    (tmp_path / "data").write_text("")
    assert "is no folder" in only(find_data_dir(situation(tmp_path))).text
    finding = only(find_data_dir(situation(tmp_path, {"dataDir": "data/inside"})))
    assert finding.level is Level.ERROR and "cannot be reached (Not a directory)" in finding.text


def test_a_data_folder_that_this_user_may_not_use(open_folder):
    closed = open_folder / "data"
    closed.mkdir()
    closed.chmod(0o555)
    with without_rights():
        finding = only(find_data_dir(situation(open_folder)))
        assert finding.level is Level.ERROR and "cannot be written by this user" in finding.text
        finding = only(find_data_dir(situation(open_folder, {"dataDir": "data/inside"})))
        assert finding.level is Level.ERROR and f"cannot make it in {closed}" in finding.text
    closed.chmod(0o000)
    with without_rights():
        inside = situation(open_folder, {"dataDir": "data/inside"})
        finding = only(find_data_dir(inside))
        assert finding.level is Level.ERROR and "cannot be reached (Permission denied)" in finding.text
        assert find_disk(inside)[0].level is not None
    closed.chmod(0o755)


def test_who_may_use_the_data_folder():
    folder = Path("/data")
    assert judge_folder(folder, mode=0o40700) == []
    assert only(judge_folder(folder, mode=0o40750)).text.endswith("chmod 700 /data")
    assert only(judge_folder(folder, mode=0o40701)).level is Level.WARNING


def test_authorities(tmp_path):
    certificate, key = write_certificate(tmp_path)
    for path, level in ((certificate, Level.OK), (key, Level.ERROR), (tmp_path / "none", Level.ERROR)):
        finding = only(find_ca_file(situation(tmp_path, {"pool": {"caFile": str(path)}})))
        assert finding.level is level and str(path) in finding.text
    assert find_ca_file(situation(tmp_path)) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root looks for somebody else")
def test_what_root_finds_for_the_nodes_user(open_folder):
    data = open_folder / "data"
    data.mkdir(mode=0o700)
    of_nobody = situation(open_folder)._replace(user=NodeUser(NOBODY, NOBODY))
    finding = only(find_data_dir(of_nobody))
    assert finding.level is Level.ERROR
    assert finding.text.endswith(f"whom the node runs as: chown {of_nobody.node.name}:{of_nobody.node.group} {data}")
    os.chown(data, NOBODY, NOBODY)
    assert only(find_data_dir(of_nobody)).text == f"{data}"
    certificate, _ = write_certificate(open_folder)
    authorities = situation(open_folder, {"pool": {"caFile": str(certificate)}})
    assert only(find_ca_file(authorities)).level is Level.OK
    finding = only(find_ca_file(authorities._replace(user=NodeUser(NOBODY, NOBODY))))
    assert finding.level is Level.ERROR
    assert finding.text.endswith(f": chgrp {of_nobody.node.group} {certificate} && chmod 640 {certificate}")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root looks for somebody else")
def test_a_folder_that_systemd_makes_need_not_be_made_by_the_nodes_user(open_folder):
    missing = situation(open_folder)._replace(user=NodeUser(NOBODY, NOBODY))
    assert only(find_data_dir(missing)).level is Level.ERROR
    finding = only(find_data_dir(missing._replace(unit=UNIT._replace(made=(open_folder / "data",)))))
    assert finding.level is Level.OK and "will be made" in finding.text


def test_folders_that_the_unit_closes(tmp_path):
    folder = tmp_path / "data"
    assert find_protected(situation(tmp_path)) == []
    assert find_protected(situation(tmp_path)._replace(unit=UNIT._replace(system="no"))) == []
    assert find_protected(situation(tmp_path)._replace(unit=UNIT._replace(writable=(tmp_path,)))) == []
    finding = only(find_protected(situation(tmp_path)._replace(unit=UNIT)))
    assert (finding.level, finding.subject) == (Level.ERROR, "dataDir")
    assert "ProtectSystem=" in finding.text and finding.text.endswith(f"with ReadWritePaths={folder}")
    disk, link = tmp_path / "disk", tmp_path / "link"
    disk.mkdir()
    link.symlink_to(disk)
    linked = situation(tmp_path, {"dataDir": str(link / "data")})
    assert find_protected(linked._replace(unit=UNIT._replace(writable=(disk,)))) == []
    direct = situation(tmp_path, {"dataDir": str(disk / "data")})
    assert find_protected(direct._replace(unit=UNIT._replace(made=(link,)))) == []
    home = situation(tmp_path, {"dataDir": "/run/user/shine"}, storage={"backupDir": "/run/user/backups"})
    data, backups = find_protected(home._replace(unit=UNIT))
    assert data.text.endswith("with ReadWritePaths=/run/user/shine and ProtectHome=no")
    assert (backups.level, backups.subject) == (Level.WARNING, "backupDir") and "ProtectHome=" in backups.text


def test_the_folder_of_backups(open_folder):
    folder = open_folder / "backups"
    named = situation(open_folder, storage={"backupDir": "backups"})
    assert find_backup_dir(situation(open_folder)) == []
    assert only(find_backup_dir(named)).level is Level.OK, "it is made by the first backup"
    folder.write_text("")
    assert "is no folder" in only(find_backup_dir(named)).text
    folder.unlink()
    folder.mkdir(mode=0o755)
    assert only(find_backup_dir(named)).text == f"{folder}"
    folder.chmod(0o555)
    with without_rights():
        finding = only(find_backup_dir(named))
        assert finding.level is Level.WARNING and "cannot be written by this user" in finding.text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root looks for somebody else")
def test_the_folder_of_backups_of_the_nodes_user(open_folder):
    folder = open_folder / "backups"
    named = situation(open_folder, storage={"backupDir": "backups"})._replace(user=NodeUser(NOBODY, NOBODY))
    finding = only(find_backup_dir(named))
    assert finding.level is Level.WARNING and f"chown {named.node.name}:{named.node.group} {folder}" in finding.text
    folder.mkdir(mode=0o755)
    finding = only(find_backup_dir(named))
    assert finding.level is Level.OK and "root alone" in finding.text
    os.chown(folder, NOBODY, NOBODY)
    assert only(find_backup_dir(named)).text == f"{folder}"


def test_nothing_is_changed(tmp_path):
    for producer in PRODUCERS:
        producer(situation(tmp_path))
    assert list(tmp_path.iterdir()) == []
