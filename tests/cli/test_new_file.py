import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shine_node.cli.new_file import NewFile, NewFileError, NewFileExists, need_room, sync_folder
from tests.cli.stores import names
from tests.store.rooms import greatest_file_size


def test_a_file_gets_its_name_when_it_is_whole(tmp_path):
    place = tmp_path / "file"
    with NewFile(place, replace=False) as new:
        new.write(b"one ")
        new.write(b"two")
        assert not place.exists()
        assert new.path.parent == tmp_path
        new.sync()
        new.put_in_place()
        assert place.read_bytes() == b"one two"
    assert names(tmp_path) == ["file"]
    assert place.stat().st_mode & 0o777 == 0o600


def test_nothing_is_left_of_one_that_was_not_put_in_place(tmp_path):
    with pytest.raises(ValueError), NewFile(tmp_path / "file", replace=False) as new:
        new.write(b"one")
        raise ValueError
    assert names(tmp_path) == []


def test_what_is_there_is_replaced_only_when_that_is_wanted(tmp_path):
    place = tmp_path / "file"
    place.write_text("old")
    with pytest.raises(NewFileError, match=r"exists: choose another name, or add --force"):
        NewFile(place, replace=False)
    with NewFile(place, replace=True) as new:
        new.write(b"new")
        assert place.read_text() == "old"
        new.put_in_place()
    assert place.read_text() == "new"
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nowhere")
    with pytest.raises(NewFileError, match="exists"):
        NewFile(link, replace=False)
    with pytest.raises(NewFileError, match="exists"):
        NewFile(tmp_path, replace=True)


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(NewFileError, match=r"nowhere cannot be written \(No such file or directory\)"):
        NewFile(tmp_path / "nowhere" / "file", replace=False)


def test_a_disk_that_is_full(tmp_path):
    with (
        NewFile(tmp_path / "file", replace=False) as new,
        greatest_file_size(1000),
        pytest.raises(NewFileError, match="file cannot be written"),
    ):
        new.write(bytes(5000))
    assert names(tmp_path) == []


def test_a_disk_that_breaks(tmp_path, monkeypatch):
    def broken(descriptor):
        raise OSError(errno.EIO, "Input/output error")

    with NewFile(tmp_path / "file", replace=True) as new:
        monkeypatch.setattr(os, "fsync", broken)
        with pytest.raises(NewFileError, match=r"file cannot be written \(Input/output error\): nothing was left"):
            new.sync()
        monkeypatch.setattr(os, "fsync", lambda descriptor: None)
        (tmp_path / "file").mkdir()
        with pytest.raises(NewFileError, match="file cannot be written"):
            new.put_in_place()
        (tmp_path / "file").rmdir()


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.EIO])
def test_a_folder_that_cannot_be_synced(tmp_path, monkeypatch, number):
    def broken(descriptor):
        raise OSError(number, "no")

    monkeypatch.setattr(os, "fsync", broken)
    if number == errno.EIO:
        with pytest.raises(OSError):
            sync_folder(tmp_path)
    else:
        sync_folder(tmp_path)


@pytest.mark.parametrize("number", [None, errno.EPERM, errno.EIO])
def test_a_name_that_was_taken_meanwhile(tmp_path, monkeypatch, number):
    """Also on a file system without second names."""

    def refuse(source, target):
        raise OSError(number, "no")

    if number is not None:
        monkeypatch.setattr(os, "link", refuse)
    place = tmp_path / "file"
    with NewFile(place, replace=False) as new:
        new.write(b"mine")
        if number == errno.EIO:
            with pytest.raises(NewFileError, match="file cannot be written"):
                new.put_in_place()
            return
        place.write_bytes(b"theirs")
        with pytest.raises(NewFileExists, match="file exists"):
            new.put_in_place()
        new.place = tmp_path / "other"
        new.put_in_place()
    assert (place.read_bytes(), new.place.read_bytes()) == (b"theirs", b"mine")
    assert len(list(tmp_path.iterdir())) == 2


def test_it_is_given_to_somebody(tmp_path, monkeypatch):
    given = []
    with NewFile(tmp_path / "file", replace=False) as new:
        assert new.give_to(os.geteuid(), os.getegid())

        def refuse(descriptor, user, group):
            given.append((user, group))
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(os, "fchown", refuse)
        assert not new.give_to(5, 6)
    assert given == [(5, 6)]


def test_room(tmp_path):
    need_room(tmp_path, 1)
    with pytest.raises(NewFileError, match=r"MiB are needed in .* MiB are free: make room"):
        need_room(tmp_path, 2**60)
    with pytest.raises(NewFileError, match="cannot be used"):
        need_room(Path("/nowhere/at/all"), 1)


def test_what_a_killed_process_has_left_is_removed_and_what_another_one_writes_is_not(tmp_path):
    program = (
        "import sys; from pathlib import Path; from shine_node.cli.new_file import NewFile\n"
        "with NewFile(Path(sys.argv[1]), replace=False) as new: print(new.path, flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "theirs")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        theirs = Path(other.stdout.readline().strip())
        (tmp_path / ".shine-node.link.part").symlink_to(theirs)
        with NewFile(tmp_path / "mine", replace=False):
            assert theirs.exists()
        other.kill()
    assert theirs.exists()
    with NewFile(tmp_path / "mine", replace=False) as new:
        assert names(tmp_path) == sorted([new.path.name, ".shine-node.link.part"])


def test_a_file_system_without_locks(tmp_path, monkeypatch):
    def refuse(descriptor, how):
        raise OSError(errno.ENOLCK, "No locks available")

    left = tmp_path / ".shine-node.x.part"
    left.touch()
    monkeypatch.setattr(fcntl, "flock", refuse)
    with NewFile(tmp_path / "mine", replace=False) as new:
        new.put_in_place()
    assert names(tmp_path) == [".shine-node.x.part", "mine"]
