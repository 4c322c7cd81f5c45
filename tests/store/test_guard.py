"""The room on the disk: when the store ceases to grow, when it grows again, and what is told."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import pytest

from shine_node.protocol.errors import StorageFull
from shine_node.store.environment import Store
from shine_node.store.guard import LOOK_SECONDS, MIB, NEAR, SOON_SECONDS, DiskGuard, free_bytes
from tests.store.rooms import opened
from tests.support.clock import ManualClock, settle
from tests.support.nodes import eventually


class Disk:
    """A disk of which the test says how much is free."""

    def __init__(self) -> None:
        self.free = 1000 * MIB
        self.looks = 0
        self.gone = False

    def __call__(self, folder: Path) -> int:
        self.looks += 1
        if self.gone:
            raise OSError("the disk is gone")
        return self.free


def is_closed(store: Store) -> bool:
    try:
        store.check_room()
    except StorageFull:
        return True
    return False


def test_it_closes_below_the_least_and_opens_with_some_more_and_tells_each_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk()

    async def story(store: Store) -> None:
        guard = DiskGuard(store, min_free_mib=100, clock=ManualClock(), free=disk)
        found = []
        for free in (1000, 100, 99, 100, 124, 99, 120, 125, 100, 1000, 50):
            disk.free = free * MIB
            await guard.look()
            found.append(is_closed(store))
            assert bool(guard.problem) is found[-1]
        assert found == [False, False, True, True, True, True, True, False, False, False, True]
        assert guard.problem.startswith(
            f"less than 100 MiB are free on the disk of {tmp_path}: new messages are refused"
        )

    with opened(tmp_path / "shine.mdb") as store, caplog.at_level(logging.WARNING, logger="shine_node"):
        asyncio.run(story(store))
    texts = [record.getMessage().split(" ")[0] for record in caplog.records]
    assert texts == ["less", "there", "less"]


def test_another_least_holds_at_once_and_none_is_no_rule(tmp_path: Path) -> None:
    async def story(store: Store) -> None:
        disk = Disk()
        guard = DiskGuard(store, min_free_mib=0, clock=ManualClock(), free=disk)
        guard.change(5000)
        assert not is_closed(store), "nobody has looked yet"
        await guard.look()
        assert is_closed(store)
        guard.change(100)
        assert not is_closed(store)
        disk.free = 0
        guard.change(0)
        await guard.look()
        assert not is_closed(store)

    with opened(tmp_path / "shine.mdb") as store:
        asyncio.run(story(store))


def test_a_disk_that_cannot_be_looked_at_changes_nothing(tmp_path: Path) -> None:
    async def story(store: Store) -> None:
        disk = Disk()
        guard = DiskGuard(store, min_free_mib=2000, clock=ManualClock(), free=disk)
        disk.gone = True
        await guard.look()
        assert not is_closed(store)
        disk.gone = False
        await guard.look()
        disk.gone = True
        await guard.look()
        assert is_closed(store)

    with opened(tmp_path / "shine.mdb") as store:
        asyncio.run(story(store))


def test_it_looks_again_and_again_and_more_often_where_there_is_not_much_left(tmp_path: Path) -> None:
    async def story(store: Store) -> None:
        disk, clock = Disk(), ManualClock()
        watching = asyncio.create_task(DiskGuard(store, min_free_mib=100, clock=clock, free=disk).watch())
        await settle()
        disk.free = NEAR * 100 * MIB
        for looks, seconds in enumerate((LOOK_SECONDS, LOOK_SECONDS, SOON_SECONDS, SOON_SECONDS, SOON_SECONDS), 1):
            await clock.advance(seconds)

            async def so(looks: int = looks) -> bool:
                return disk.looks == looks

            await eventually(so)
            await settle()
            disk.free = {1: NEAR * 100 * MIB - 1}.get(looks, MIB)

        async def closed() -> bool:
            return is_closed(store)

        await eventually(closed)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    with opened(tmp_path / "shine.mdb") as store:
        asyncio.run(story(store))


def test_what_is_free_is_what_the_system_says(tmp_path: Path) -> None:
    found = os.statvfs(tmp_path)
    assert abs(free_bytes(tmp_path) - found.f_bavail * found.f_frsize) < 2**30

    async def story(store: Store) -> None:
        guard = DiskGuard(store, min_free_mib=2**24, clock=ManualClock())
        await guard.look()
        assert is_closed(store)

    with opened(tmp_path / "shine.mdb") as store:
        asyncio.run(story(store))
