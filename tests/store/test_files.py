"""The lock, the opening and the question whether the disk is full, on real files."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import subprocess
import sys
from pathlib import Path

import lmdb
import pytest

from shine_node.store.files import (
    MAX_READERS,
    READERS_BYTES,
    StoreDamaged,
    StoreError,
    StoreOutOfReach,
    StoreUnsuitable,
    examine_file,
    is_damage,
    is_disk_full,
    open_environment,
    opening_error,
    take_lock,
)
from shine_node.store.unreadable import UnreadableRow
from tests.store.rooms import MAP_SIZE, greatest_file_size

pytestmark = pytest.mark.core


def test_a_folder_that_is_not_there_waits_for_its_owner_and_a_full_disk_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StoreOutOfReach, match="cannot be written"):
        take_lock(tmp_path / "missing" / "shine.mdb")

    def full(*arguments: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(StoreError, match="No space left") as caught:
        take_lock(tmp_path / "shine.mdb")
    assert not isinstance(caught.value, StoreOutOfReach)


def test_a_lock_is_held_until_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "shine.mdb"
    lock = take_lock(path)
    with pytest.raises(StoreError, match=rf"shine\.mdb is in use by another process \(PID {os.getpid()}\): stop it"):
        take_lock(path)
    os.close(lock)
    os.close(take_lock(path))


def test_the_lock_file_is_private_and_not_inherited(tmp_path: Path) -> None:
    lock = take_lock(tmp_path / "shine.mdb")
    assert (tmp_path / "shine.mdb.pid").stat().st_mode & 0o777 == 0o600
    assert not os.get_inheritable(lock)
    os.close(lock)


def test_a_lock_whose_holder_left_no_number_says_so(tmp_path: Path) -> None:
    lock = take_lock(tmp_path / "shine.mdb")
    os.ftruncate(lock, 0)
    with pytest.raises(StoreError, match="PID unknown"):
        take_lock(tmp_path / "shine.mdb")
    os.close(lock)


def test_a_lock_can_be_taken_where_there_is_no_room_for_the_number(tmp_path: Path) -> None:
    with greatest_file_size(0):
        os.close(take_lock(tmp_path / "shine.mdb"))


def test_a_missing_folder_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"nowhere cannot be written \(No such file or directory\): create it"):
        take_lock(tmp_path / "nowhere" / "shine.mdb")


def test_a_disk_that_knows_no_locks_is_not_taken_for_a_second_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(95, "Operation not supported")  # what some network disks answer; there is none to test with

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(StoreError, match=r"cannot be locked \(Operation not supported\): keep it on a disk of this"):
        take_lock(tmp_path / "shine.mdb")


def test_a_store_is_private_and_its_readers_have_their_blocks(tmp_path: Path) -> None:
    path = tmp_path / "shine.mdb"
    with open_environment(path, MAP_SIZE) as env:
        assert path.stat().st_mode & 0o777 == 0o600
        readers = tmp_path / "shine.mdb-lock"
        assert readers.stat().st_mode & 0o777 == 0o600
        assert readers.stat().st_blocks * 512 >= READERS_BYTES
        snapshots = [env.begin() for _ in range(MAX_READERS)]
        assert len(snapshots) == MAX_READERS
        for snapshot in snapshots:
            snapshot.commit()


def test_what_a_killed_reader_left_is_cleared(tmp_path: Path) -> None:
    path = tmp_path / "shine.mdb"
    reader = f"""
import lmdb, os, signal
env = lmdb.open({str(path)!r}, subdir=False)
snapshot = env.begin()
os.kill(os.getpid(), signal.SIGKILL)
"""
    with open_environment(path, MAP_SIZE) as env:
        assert subprocess.run([sys.executable, "-c", reader], check=False).returncode == -9
        assert str(env.readers()).count("\n") == 2  # a head line, and the reader that is no more
    with open_environment(path, MAP_SIZE) as env:
        assert "no active readers" in str(env.readers())


@pytest.mark.parametrize("content", [b"no store" * 2000, b"\0" * 9000, b"x"], ids=["text", "zeros", "one byte"])
def test_what_is_no_store_is_told_and_kept(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "shine.mdb"
    path.write_bytes(content)
    with pytest.raises(StoreDamaged, match=r"shine\.mdb is damaged \(.*\): restore a backup, or refill it"):
        open_environment(path, MAP_SIZE)
    assert path.read_bytes() == content


def test_no_room_for_the_readers_is_told(tmp_path: Path) -> None:
    with greatest_file_size(100), pytest.raises(StoreError, match=r"cannot be opened as a store: .*File too large"):
        open_environment(tmp_path / "shine.mdb", MAP_SIZE)


def test_a_system_that_cannot_reserve_blocks_is_no_obstacle(tmp_path: Path) -> None:
    # A pipe in the place of the file of readers: it can be opened, and nothing can be reserved in it.
    os.mkfifo(tmp_path / "shine.mdb-lock")
    with pytest.raises(StoreError, match=r"Illegal seek|No such device|Invalid argument") as caught:
        open_environment(tmp_path / "shine.mdb", MAP_SIZE)
    assert "mdb" in str(caught.value)  # it is LMDB that cannot use a pipe


def test_an_impossible_size_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be opened as a store"):
        open_environment(tmp_path / "shine.mdb", 2**80)


def test_a_sound_file_may_end_before_its_last_page(tmp_path: Path) -> None:
    path = tmp_path / "shine.mdb"
    numbers = random.Random(0)
    with open_environment(path, MAP_SIZE) as env:
        table = env.open_db(b"table")
        for _ in range(100):
            with env.begin(write=True, db=table) as txn:
                txn.put(b"kept", b"here")
                written = [b"%d" % numbers.randrange(60) for _ in range(4)]
                for key in written:
                    txn.put(key, bytes(numbers.choice((10, 500, 3_000, 20_000, 200_000))))
                for key in (*written[:2], b"%d" % numbers.randrange(60)):
                    txn.delete(key)
            end = (env.info()["last_pgno"] + 1) * env.stat()["psize"]
            if path.stat().st_size < end:
                break  # the last pages were allocated and freed by one transaction, and never written
        else:
            pytest.fail("the file was never shorter: this test shows nothing")
    with open_environment(path, MAP_SIZE) as env:
        assert path.stat().st_size == end
        table = env.open_db(b"table")
        with env.begin(write=True, db=table) as txn:
            assert txn.get(b"kept") == b"here"
            txn.put(b"new", bytes(300_000))
        with env.begin(db=table) as txn:
            assert txn.get(b"new") == bytes(300_000)


@pytest.mark.parametrize("share", [0.8, 0.5, 0.2, 0.05])
def test_an_interrupted_copy_is_told_and_kept(tmp_path: Path, share: float) -> None:
    path = tmp_path / "shine.mdb"
    with open_environment(path, MAP_SIZE) as env:
        table = env.open_db(b"table")
        for number in range(200):
            with env.begin(write=True, db=table) as txn:
                txn.put(f"{number:04}".encode(), random.Random(number).randbytes(5000))
    size = int(path.stat().st_size * share)
    os.truncate(path, size)
    with pytest.raises(StoreDamaged, match=r"page [0-9]+ of [0-9]+ is cut off"):
        open_environment(path, MAP_SIZE)
    assert path.stat().st_size == size


def test_an_interrupted_copy_is_looked_through_to_the_end(tmp_path: Path) -> None:
    path = tmp_path / "shine.mdb"
    with open_environment(path, MAP_SIZE) as env:
        table = env.open_db(b"table")
        with env.begin(write=True, db=table) as txn:
            for number in range(200):
                txn.put(b"%04d" % number, bytes(500))
    size = path.stat().st_size
    os.truncate(path, size - 4096)
    with pytest.raises(StoreDamaged):
        open_environment(path, MAP_SIZE)
    assert path.stat().st_size == size - 4096


def test_a_store_of_another_machine_is_told(tmp_path: Path) -> None:
    path = tmp_path / "shine.mdb"
    data = bytearray(9000)
    data[16:20] = (0xBEEFC0DE).to_bytes(4, "big")
    path.write_bytes(data)
    with pytest.raises(StoreUnsuitable, match=r"cannot be used here: it was written on a machine of another kind"):
        examine_file(path)
    assert examine_file(tmp_path / "missing") is None


def test_what_lmdb_says_of_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def corrupted(*arguments: object, **options: object) -> None:
        raise lmdb.InvalidError("MDB_INVALID")

    path = tmp_path / "shine.mdb"
    monkeypatch.setattr(lmdb, "open", corrupted)
    with pytest.raises(StoreDamaged, match="MDB_INVALID"):
        open_environment(path, MAP_SIZE)
    path.touch()
    errors = {
        lmdb.MapFullError("full"): "has no room: raise storage.mapSizeMiB",
        lmdb.CorruptedError("corrupted"): "is damaged",
        UnreadableRow("a number", b"x"): "is damaged (a number at one of its ends",
        lmdb.Error("EIO"): "cannot be opened as a store: EIO",
    }
    for error, text in errors.items():
        assert text in str(opening_error(path, error))
    with greatest_file_size(2**20):
        assert "is full: make room" in str(opening_error(path, lmdb.Error("ENOSPC")))
    assert not is_damage(lmdb.Error("EIO"))


def test_whether_the_disk_is_full(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    assert not is_disk_full(path)
    with greatest_file_size(2**20):
        assert is_disk_full(path)
    assert path.read_bytes() == b"content"


def test_a_file_that_cannot_be_written_at_all_tells_nothing_of_the_disk(tmp_path: Path) -> None:
    assert not is_disk_full(tmp_path / "missing")
