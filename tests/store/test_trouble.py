"""Why writes fail: what is said of each error, and how often the log is told."""

from __future__ import annotations

import logging
from pathlib import Path

import lmdb
import pytest

from shine_node.protocol.errors import InternalError, StorageFull
from shine_node.store.trouble import QUIET_SECONDS, Trouble
from tests.store.rooms import MIB, greatest_file_size

pytestmark = pytest.mark.core


class House:
    def __init__(self, path: Path) -> None:
        self.now = 0.0
        self.fatal = 0
        path.write_bytes(bytes(1000))
        self.trouble = Trouble(path, 8 * MIB, monotonic=lambda: self.now, fatal=self.stop)

    def stop(self) -> None:
        self.fatal += 1


def test_a_full_map(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    house = House(tmp_path / "shine.mdb")
    for _ in range(3):
        assert isinstance(house.trouble.refusal(lmdb.MapFullError("full")), StorageFull)
    assert house.trouble.text == "the store is full: raise storage.mapSizeMiB (now 8) and restart"
    assert [record.getMessage() for record in caplog.records] == [house.trouble.text]
    assert house.fatal == 0


def test_a_full_disk_by_either_of_its_errors(tmp_path: Path) -> None:
    house = House(tmp_path / "shine.mdb")
    assert isinstance(house.trouble.refusal(lmdb.DiskError("no space")), StorageFull)
    with greatest_file_size(2000):
        assert isinstance(house.trouble.refusal(lmdb.Error("input/output error")), StorageFull)
    assert house.trouble.text == f"the disk is full: make room on the disk of {tmp_path}"
    assert house.fatal == 0


@pytest.mark.parametrize("error", [lmdb.Error("input/output error"), lmdb.PanicError("panic")])
def test_a_broken_disk_ends_the_node(tmp_path: Path, error: lmdb.Error) -> None:
    house = House(tmp_path / "shine.mdb")
    assert isinstance(house.trouble.refusal(error), InternalError)
    assert "the node stops" in house.trouble.text
    assert house.fatal == 1


def test_a_defect_of_a_job_is_no_trouble_of_the_store(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    house = House(tmp_path / "shine.mdb")
    assert isinstance(house.trouble.refusal(lmdb.BadValsizeError("too long")), InternalError)
    assert house.trouble.text == ""
    assert "nothing of it was stored" in caplog.text
    assert house.fatal == 0


def test_writes_that_go_now_well_and_now_not_are_told_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    house = House(tmp_path / "shine.mdb")
    with caplog.at_level(logging.WARNING, logger="shine_node"):
        house.trouble.went_well()
        for _ in range(50):
            house.trouble.refusal(lmdb.DiskError("no space"))
            house.now += 10
            house.trouble.went_well()
        assert len(caplog.records) == 1
        assert house.trouble.text
        house.now += QUIET_SECONDS
        for _ in range(3):
            house.trouble.went_well()
        assert house.trouble.text == ""
        assert [record.getMessage() for record in caplog.records[1:]] == ["the store can be written again"]
