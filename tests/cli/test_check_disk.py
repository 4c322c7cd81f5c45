from pathlib import Path

import pytest

from shine_node.cli import check_disk
from shine_node.cli.check_disk import (
    MIB,
    Mount,
    find_disk,
    judge_free_space,
    judge_mount,
    mount_of,
    nearest_existing,
    read_mounts,
)
from shine_node.cli.findings import Level, Situation
from shine_node.config import config_from_mapping

FOLDER = Path("/srv/data")
MOUNTINFO = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
40 22 0:35 / /srv rw,nosuid - tmpfs tmpfs rw,size=1k
41 22 0:36 / /mnt/a\\040b ro,relatime shared:2 master:3 - vfat /dev/sda1 rw
42 22 0:37 / /mnt/c rw - nfs4 host:/x ro,vers=4
too short
"""


def test_the_mounts_of_a_machine(tmp_path):
    path = tmp_path / "mountinfo"
    path.write_text(MOUNTINFO)
    assert read_mounts(path) == [
        Mount("/", "ext4", False),
        Mount("/srv", "tmpfs", False),
        Mount("/mnt/a b", "vfat", True),
        Mount("/mnt/c", "nfs4", True),
    ]
    assert read_mounts(tmp_path / "none") == []
    assert any(mount.point == "/" for mount in read_mounts())


def test_on_which_mount_a_folder_lies():
    root, srv, later = Mount("/", "ext4", False), Mount("/srv", "tmpfs", False), Mount("/srv", "xfs", False)
    assert mount_of("/srv/data", [root, srv]) == srv
    assert mount_of("/srv", [srv, root]) == srv
    assert mount_of("/srvdata", [root, srv]) == root
    assert mount_of("/srv/data", [root, srv, later]) == later
    assert mount_of("/srv", []) is None


@pytest.mark.parametrize(
    ("kind", "read_only", "level", "words"),
    [
        ("ext4", True, Level.ERROR, "can only be read"),
        ("nfs4", False, Level.WARNING, "on another machine (nfs4)"),
        ("fuse.sshfs", False, Level.WARNING, "on another machine"),
        ("cifs", False, Level.WARNING, "on another machine"),
        ("vfat", False, Level.WARNING, "keeps no rights"),
        ("exfat", False, Level.WARNING, "keeps no rights"),
        ("tmpfs", False, Level.WARNING, "lies in memory"),
        ("overlay", False, Level.WARNING, "is a layer over another one"),
    ],
)
def test_file_systems_that_cannot_hold_a_store(kind, read_only, level, words):
    [finding] = judge_mount(FOLDER, Mount("/srv", kind, read_only))
    assert (finding.level, finding.subject) == (level, "disk")
    assert words in finding.text and "/srv" in finding.text


@pytest.mark.parametrize("kind", ["ext4", "btrfs", "xfs", "f2fs", "zfs"])
def test_file_systems_that_can(kind):
    assert judge_mount(FOLDER, Mount("/", kind, False)) == []


def test_free_space():
    assert judge_free_space(FOLDER, 300 * MIB, 0) == (Level.OK, "disk", f"300 MiB free on the disk of {FOLDER}")
    assert judge_free_space(FOLDER, 200 * MIB, 0).level is Level.WARNING
    assert judge_free_space(FOLDER, 10 * MIB, 0).level is Level.ERROR


def test_the_room_that_must_stay_free():
    assert judge_free_space(FOLDER, 2000 * MIB, 1000).level is Level.OK
    level, _, text = judge_free_space(FOLDER, 1999 * MIB, 1000)
    assert level is Level.WARNING and text.endswith("with 1000 (storage.minFreeMiB) new messages are refused")
    level, _, text = judge_free_space(FOLDER, 1000 * MIB, 1000)
    assert level is Level.ERROR and "storage.minFreeMiB is 1000: new messages are refused" in text
    assert judge_free_space(FOLDER, 40 * MIB, 16).level is Level.OK, "a small disk"


def test_the_disk_of_a_folder(tmp_path, monkeypatch):
    server = {"login": "home", "url": "wss://home.example/ws", "dataDir": str(tmp_path / "a" / "b")}
    situation = Situation(config_from_mapping({"server": server}), tmp_path / "node.toml")
    assert nearest_existing(tmp_path / "a" / "b") == tmp_path
    monkeypatch.setattr(check_disk, "read_mounts", lambda: [Mount("/", "nfs", False)])
    free, mount = find_disk(situation)
    assert "MiB free" in free.text and "another machine" in mount.text
    monkeypatch.setattr(check_disk, "read_mounts", list)
    assert len(find_disk(situation)) == 1
    full = config_from_mapping({"server": server, "storage": {"minFreeMiB": 2**24}})
    assert find_disk(situation._replace(config=full))[0].level is Level.ERROR
