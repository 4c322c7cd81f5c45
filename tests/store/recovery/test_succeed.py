"""Another store in the place of a damaged one."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from shine_node.store.layout import SCHEMA_VERSION
from shine_node.store.recovery.succeed import find_backups, first_sound, put_backup, put_empty, take_place
from shine_node.store.refill import list_refilling
from shine_node.store.schema import write_schema
from tests.store.rooms import MAP_SIZE, NOW, OWN, opened
from tests.store.verifying.full import full_store


def test_backups_are_found_newest_first(tmp_path: Path) -> None:
    assert find_backups(tmp_path / "missing") == []
    for number, name in enumerate(("shine-b.mdb", "shine-a.mdb", "other.mdb", "shine-empty.mdb")):
        (tmp_path / name).write_bytes(b"" if "empty" in name else b"x")
        os.utime(tmp_path / name, ns=(number, number))
    assert [path.name for path in find_backups(tmp_path)] == ["shine-a.mdb", "shine-b.mdb"]


def test_a_backup_that_is_gone_meanwhile_is_none(tmp_path: Path) -> None:
    (tmp_path / "shine-a.mdb").symlink_to(tmp_path / "gone")
    assert find_backups(tmp_path) == []


def test_the_first_sound_one_is_taken(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sound = full_store(tmp_path)
    (tmp_path / "x").mkdir()
    unwell = full_store(tmp_path / "x")
    with opened(unwell) as store:
        from shine_node.store.layout import Table

        store.write_now(
            lambda txn: [txn.delete(Table.DUE_ATTEMPTS, key) for key in list(txn.scan_keys(Table.DUE_ATTEMPTS))]
        )
    cut = tmp_path / "cut.mdb"
    cut.write_bytes(sound.read_bytes()[:9000])
    before = {file.name for file in tmp_path.iterdir()}
    assert first_sound([cut, tmp_path / "missing", unwell, sound], OWN) == sound
    assert first_sound([cut, unwell], OWN, threads=0) is None
    assert "things in it are not as they must be" in caplog.text
    assert {file.name for file in tmp_path.iterdir()} == before, "nothing is left beside a backup"


def test_of_one_of_an_older_version_the_pages_are_looked_at(tmp_path: Path) -> None:
    older = full_store(tmp_path)
    with opened(older) as store:
        store.write_now(lambda txn: write_schema(txn, SCHEMA_VERSION - 1))
    assert first_sound([older], OWN) == older
    whole = older.read_bytes()
    older.write_bytes(whole[: len(whole) // 2])
    assert first_sound([older], OWN) is None


def test_a_backup_takes_the_place_and_what_was_there_is_kept(tmp_path: Path) -> None:
    backup = full_store(tmp_path)
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
    assert place.read_bytes() == backup.read_bytes()
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


@pytest.mark.parametrize("number", [errno.EPERM, errno.EIO])
def test_a_file_system_without_second_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(source: object, target: object) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr(os, "link", refuse)
    place, new = tmp_path / "shine.mdb", tmp_path / "new"
    place.write_bytes(b"old")
    new.write_bytes(b"new")
    if number == errno.EIO:
        with pytest.raises(OSError, match="no"):
            take_place(place, new, now_ms=NOW)
        assert place.read_bytes() == b"old"
        return
    kept = take_place(place, new, now_ms=NOW)
    assert kept is not None
    assert (kept.read_bytes(), place.read_bytes()) == (b"old", b"new")
