"""Another store in the place of a damaged one."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from shine_node.store.environment import StoreError, Transaction
from shine_node.store.layout import SCHEMA_VERSION, Table
from shine_node.store.owner import get_owner, put_owner
from shine_node.store.recovery.state import read_state
from shine_node.store.recovery.succeed import (
    REPLACED,
    Backup,
    examine_backup,
    find_backups,
    first_sound,
    put_backup,
    put_empty,
    take_place,
)
from shine_node.store.recovery.unfinished import finish_placing
from shine_node.store.refill import list_refilling
from shine_node.store.schema import write_schema
from shine_node.store.verifying import verify as verify_module
from shine_node.store.verifying.verify import verify_file
from tests.store.rooms import MAP_SIZE, NOW, OWN, opened
from tests.store.verifying.full import full_store
from tests.store.verifying.plants import Plant


def test_backups_are_found_newest_first(tmp_path: Path) -> None:
    assert find_backups(tmp_path / "missing", OWN) == []
    for number, name in enumerate(("shine-b.mdb", "shine-a.mdb", "other.mdb", "shine-empty.mdb")):
        (tmp_path / name).write_bytes(b"" if "empty" in name else b"x")
        os.utime(tmp_path / name, ns=(number, number))
    assert [path.name for path in find_backups(tmp_path, OWN)] == ["shine-a.mdb", "shine-b.mdb"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has files of others")
def test_one_of_another_user_is_not_trusted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "shine-a.mdb").write_bytes(b"x")
    os.chown(tmp_path / "shine-a.mdb", 54321, 54321)
    assert find_backups(tmp_path, OWN) == []
    assert "shine-a.mdb is not used: it belongs to the user 54321" in caplog.text
    with pytest.raises(OSError, match="it belongs to the user 54321"):
        put_backup(tmp_path / "shine.mdb", Backup(tmp_path / "shine-a.mdb", OWN, None, 0, 0), now_ms=NOW)


def test_an_old_backup_that_was_touched_is_not_the_newest(tmp_path: Path) -> None:
    names = ["shine-20260131-031700.mdb", "shine-20260201-031700.mdb"]
    for number, name in enumerate(reversed(names)):
        (tmp_path / name).write_bytes(b"x")
        os.utime(tmp_path / name, ns=(number, number))
    assert [path.name for path in find_backups(tmp_path, OWN)] == list(reversed(names))


def test_one_of_another_server_is_not_sound_here(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    theirs = full_store(tmp_path)
    with opened(theirs) as store:
        store.write_now(lambda txn: put_owner(txn, "theirs"))
    assert first_sound([theirs], OWN) is None
    assert f"is a backup of the server theirs, and this one is {OWN}" in caplog.text
    with opened(theirs) as store:
        store.write_now(lambda txn: put_owner(txn, OWN))
    assert first_sound([theirs], OWN) == Backup(theirs, OWN, None, 0, 0)


def backup_of(folder: Path, name: str, *plants: Plant) -> Path:
    """Make a backup with damage in it."""
    (folder / name).mkdir()
    path = full_store(folder / name)
    with opened(path) as store:
        for plant in plants:
            store.write_now(plant)
    return path


def no_index(txn: Transaction) -> None:
    """Take indexes and sums away; the rows that they follow from are there."""
    for table in (Table.DUE_ATTEMPTS, Table.USAGE, Table.ACCESS_CURRENT, Table.READ_MARKS, Table.SESSIONS_OF_USER):
        for key in list(txn.scan_keys(table)):
            txn.delete(table, key)


def no_content(txn: Transaction) -> None:
    """Take the contents of one more message away."""
    txn.delete(Table.CONTAINERS, next(key for key, value in txn.scan(Table.CONTAINERS) if value))


def files_in(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


def test_the_first_of_which_nothing_is_lost_is_taken(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sound, unwell = backup_of(tmp_path, "sound"), backup_of(tmp_path, "unwell", no_index)
    lossy = backup_of(tmp_path, "lossy", no_content)
    cut = tmp_path / "cut.mdb"
    cut.write_bytes(sound.read_bytes()[:9000])
    before = files_in(tmp_path)
    for threads in (None, 0):
        found = first_sound([cut, tmp_path / "missing", lossy, sound, unwell], OWN, threads=threads)
        assert found == Backup(sound, OWN, threads, 0, 0)
        found = first_sound([lossy, unwell, sound], OWN, threads=threads)
        assert found is not None
        assert (found.path, found.lost) == (unwell, 0)
        assert found.problems > 3
    assert first_sound([cut], OWN) is None
    assert f"the backup {cut} is not used" in caplog.text
    assert f"the backup {lossy} is used only if there is no better one: 1 rows in it" in caplog.text
    assert files_in(tmp_path) == before, "nothing is left beside a backup"


def test_where_each_would_lose_something_the_one_is_taken_that_loses_least(tmp_path: Path) -> None:
    worse = backup_of(tmp_path, "worse", no_content, no_content)
    newer, older = (backup_of(tmp_path, name, no_content, no_index) for name in ("newer", "older"))
    found = first_sound([worse, newer, older], OWN)
    assert found is not None
    assert (found.path, found.lost) == (newer, 1)


@pytest.mark.parametrize("threads", [None, 0])
def test_a_copy_of_a_backup_is_mended(tmp_path: Path, caplog: pytest.LogCaptureFixture, threads: int | None) -> None:
    unwell = backup_of(tmp_path, "unwell", no_index)
    content = unwell.read_bytes()
    place = tmp_path / "store" / "shine.mdb"
    place.parent.mkdir()
    found = first_sound([unwell], OWN, threads=threads)
    assert found is not None
    assert put_backup(place, found, now_ms=NOW) is None
    assert files_in(place.parent) == {place}
    assert verify_file(place, OWN, lock=False).clean
    assert unwell.read_bytes() == content
    sound = backup_of(tmp_path, "sound")
    with opened(place) as store, opened(sound) as other, store.read() as txn, other.read() as others:
        for table in (Table.HISTORY, Table.CONTAINERS, Table.DUE_ATTEMPTS, Table.USERS, Table.ACCESS_CURRENT):
            assert list(txn.scan(table)) == list(others.scan(table))
    assert f"the copy of the backup {unwell} was mended: " in caplog.text
    assert "rows that their index does not know" in caplog.text
    assert "left out" not in caplog.text


def test_what_is_left_out_of_a_copy_is_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lossy = backup_of(tmp_path, "lossy", no_content)
    place = tmp_path / "shine.mdb"
    place.write_bytes(b"damaged")
    kept = put_backup(place, examine_backup(lossy, OWN), now_ms=NOW)
    assert kept is not None
    [quarantine] = tmp_path.glob("shine.mdb.quarantine-*.jsonl")
    assert quarantine.read_text().count("its contents are gone") >= 1
    assert f"1 times something had to be left out, which is kept in {quarantine}" in caplog.text
    assert verify_file(place, OWN, lock=False).clean


def test_a_copy_that_cannot_be_mended_takes_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unwell = backup_of(tmp_path, "unwell", no_index)
    place = tmp_path / "store" / "shine.mdb"
    place.parent.mkdir()
    place.write_bytes(b"damaged")
    found = examine_backup(unwell, OWN)
    monkeypatch.setattr(verify_module, "MOST_PASSES", 1)
    with pytest.raises(StoreError, match="something is still found"):
        put_backup(place, found, now_ms=NOW)
    assert place.read_bytes() == b"damaged"
    assert files_in(place.parent) == {place}


def test_of_one_of_an_older_version_the_pages_are_looked_at(tmp_path: Path) -> None:
    older = full_store(tmp_path)
    with opened(older) as store:
        store.write_now(lambda txn: write_schema(txn, SCHEMA_VERSION - 1))
    assert first_sound([older], OWN) == Backup(older, OWN, None, 0, 0)
    whole = older.read_bytes()
    older.write_bytes(whole[: len(whole) // 2])
    assert first_sound([older], OWN) is None


def test_a_backup_takes_the_place_and_what_was_there_is_kept(tmp_path: Path) -> None:
    path = full_store(tmp_path)
    backup = examine_backup(path, OWN)
    place = tmp_path / "store" / "shine.mdb"
    place.parent.mkdir()
    assert put_backup(place, backup, now_ms=NOW) is None
    place.write_bytes(b"damaged")
    kept = [put_backup(place, backup, now_ms=NOW) for _ in range(3)]
    assert [path.name for path in kept if path] == [
        f"shine.mdb.damaged-20260328-12132{end}" for end in ("0", "0-2", "0-3")
    ]
    assert kept[0] is not None
    assert kept[0].read_bytes() == b"damaged"
    assert place.read_bytes() == path.read_bytes()
    assert place.stat().st_mode & 0o777 == 0o600


def test_an_empty_store_is_to_be_refilled(tmp_path: Path) -> None:
    place = tmp_path / "shine.mdb"
    place.write_bytes(b"damaged")
    (tmp_path / "shine.mdb.new").write_bytes(b"left from an earlier try")
    kept = put_empty(place, map_size=MAP_SIZE, refill_from=("A1", "a2"), now_ms=NOW)
    assert kept is not None
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([kept.name, "shine.mdb"])
    with opened(place) as store, store.read() as txn:
        assert list_refilling(txn) == ["a1", "a2"]
        assert get_owner(txn) == ""
    put_empty(place, map_size=MAP_SIZE, refill_from=("A1",), now_ms=NOW, own_login=OWN, called=REPLACED)
    with opened(place) as store, store.read() as txn:
        assert get_owner(txn) == OWN
    assert [path.name for path in tmp_path.glob("*.replaced-*")] == ["shine.mdb.replaced-20260328-121320"]


def test_a_copy_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "no room")

    backup = full_store(tmp_path)
    monkeypatch.setattr(os, "fsync", refuse)
    (tmp_path / "x").mkdir()
    with pytest.raises(OSError, match="no room"):
        put_backup(tmp_path / "x" / "shine.mdb", Backup(backup, OWN, None, 0, 0), now_ms=NOW)
    assert list((tmp_path / "x").iterdir()) == []


@pytest.mark.parametrize("number", [errno.EPERM, errno.EIO])
def test_a_file_system_without_second_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(source: object, target: object) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr(os, "link", refuse)
    place, new = tmp_path / "shine.mdb", tmp_path / "shine.mdb.new"
    place.write_bytes(b"old")
    new.write_bytes(b"new")
    (tmp_path / "shine.mdb.damaged-20260328-121320").write_bytes(b"of before")
    if number == errno.EIO:
        with pytest.raises(OSError, match="no"):
            take_place(place, new, now_ms=NOW)
        assert place.read_bytes() == b"old"
        return
    kept = take_place(place, new, now_ms=NOW)
    assert kept is not None
    assert kept.name == "shine.mdb.damaged-20260328-121320-2"
    assert (kept.read_bytes(), place.read_bytes()) == (b"old", b"new")
    assert read_state(place).placing == kept.name
    with pytest.raises(FileNotFoundError):
        take_place(place, new, now_ms=NOW)
    assert place.read_bytes() == b"new", "what was there has its name again"


@pytest.mark.parametrize("lost", ["nothing", "new", "both"])
def test_a_loss_of_power_between_the_two_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    class PowerLost(BaseException):
        pass

    def refuse(source: object, target: object) -> None:
        raise OSError(errno.EPERM, "no")

    def rename(path: Path, target: Path) -> None:
        path.replace(target)
        raise PowerLost

    place, new = tmp_path / "shine.mdb", tmp_path / "shine.mdb.new"
    place.write_bytes(b"old")
    new.write_bytes(b"new")
    with monkeypatch.context() as patched:
        patched.setattr(os, "link", refuse)
        patched.setattr(Path, "rename", rename)
        with pytest.raises(PowerLost):
            take_place(place, new, now_ms=NOW)
    assert not place.exists()
    if lost != "nothing":
        new.unlink()
    if lost == "both":
        place.with_name(read_state(place).placing).unlink()
    finish_placing(place)
    assert (place.read_bytes() if place.exists() else b"") == {"nothing": b"new", "new": b"old", "both": b""}[lost]
    assert read_state(place).placing == ""


def test_a_new_file_that_is_gone_leaves_the_old_one(tmp_path: Path) -> None:
    place = tmp_path / "shine.mdb"
    place.write_bytes(b"old")
    with pytest.raises(FileNotFoundError):
        take_place(place, tmp_path / "shine.mdb.new", now_ms=NOW)
    assert place.read_bytes() == b"old"
