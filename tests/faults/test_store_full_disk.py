"""A disk that is really full: writes get 507, reads go on, and it heals in the same process when there is room.

The story is told by a process of its own, so that one that dies of the full disk is seen as dying. The disk is a small
one in memory where the tests may mount it; besides, and where they may not, the system's limit on the size of a file.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shine_node.protocol.errors import StorageFull
from shine_node.protocol.pair import Pair
from shine_node.store.environment import Store, Transaction
from shine_node.store.files import MAX_READERS
from shine_node.store.layout import ItemKey
from shine_node.store.messages import Stored, get_blobs, get_row, store_pair
from tests.store.rooms import MIB, NOW, OWN, check_indexes, first_delivery, make_pair, register

pytestmark = pytest.mark.core

ROOT = Path(__file__).resolve().parents[2]
DISK_BYTES = 3 * MIB
BODY_BYTES = 6_000
WAIT = 60


@contextmanager
def mounted_in_memory(folder: Path, size: int) -> Iterator[bool]:
    """Mount a disk of so many bytes, if the tests may, and say whether they might."""
    folder.mkdir()
    mounted = False
    if os.geteuid() == 0:
        command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "none", str(folder)]
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def run_story(folder: Path, kind: str) -> None:
    command = [sys.executable, "-m", "tests.faults.test_store_full_disk", kind, str(folder)]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WAIT, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
    assert told.stdout.splitlines()[-1] == "the story is over"


def test_a_disk_in_memory_that_is_full(tmp_path: Path) -> None:
    with mounted_in_memory(tmp_path / "disk", DISK_BYTES) as mounted:
        run_story(tmp_path / "disk", "disk" if mounted else "limit")


def test_a_file_that_may_not_grow(tmp_path: Path) -> None:
    run_story(tmp_path, "limit")


# -- the story, in its own process --------------------------------------------------------------------------------


class Disk:
    """A disk that is as good as full, and on which room can be made twice."""

    def __init__(self, folder: Path, kind: str) -> None:
        self._ballast = [folder / f"ballast-{number}" for number in range(2)]
        self._limit = kind == "limit"
        if self._limit:
            self._allow(DISK_BYTES // 3)
        else:
            for ballast in self._ballast:
                ballast.write_bytes(bytes(DISK_BYTES // 3))

    def make_room(self) -> None:
        """Let a third of the disk become free."""
        if self._limit:
            self._allow(resource.getrlimit(resource.RLIMIT_FSIZE)[0] + DISK_BYTES // 3)
        else:
            self._ballast.pop().unlink()

    @staticmethod
    def _allow(size: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


class Story:
    """Pairs that a store took, and pairs that it refused."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.path = folder / "shine.mdb"
        self.disk = Disk(folder, kind)
        self.taken: list[Pair] = []
        self.fatal = 0

    def open(self) -> Store:
        store = Store(self.path, map_size=64 * MIB, on_fatal=self.note_fatal)
        store.start()
        return store

    def note_fatal(self) -> None:
        self.fatal += 1

    async def write(self, store: Store, pair: Pair) -> bool:
        """Write a pair, and say whether it was taken."""
        try:
            await store.write(storing(pair))
        except StorageFull as full:
            assert (full.status, full.code) == (507, "STORAGE_FULL")
            return False
        self.taken.append(pair)
        return True

    async def fill(self, store: Store, first: int) -> list[Pair]:
        """Write pairs, some at a time, until none is taken any more; return those that were refused."""
        refused: list[Pair] = []
        for start in range(first, first + 2000, 16):
            pairs = [
                make_pair("alice", "dave", nonce=nonce, body=bytes(BODY_BYTES)) for nonce in range(start, start + 16)
            ]
            results = await asyncio.gather(*(self.write(store, pair) for pair in pairs))
            refused += [pair for pair, taken in zip(pairs, results, strict=True) if not taken]
            if not any(results):
                return refused
        raise AssertionError("the disk was never full")

    def check(self, store: Store, refused: list[Pair]) -> None:
        """All that was taken can be read, whole; of what was refused there is nothing."""
        with store.read() as txn:
            rows = check_indexes(txn)
            assert set(rows) == {ItemKey.of(copy) for pair in self.taken for copy in pair}
            for pair in self.taken:
                row = get_row(txn, ItemKey.of(pair.outgoing))
                assert row is not None
                assert get_blobs(txn, row) == (pair.incoming.blob, pair.outgoing.blob)
            assert not any(ItemKey.of(copy) in rows for pair in refused for copy in pair)
        assert self.fatal == 0

    async def tell(self) -> None:
        store = self.open()
        await store.write(register_all)
        refused = await self.fill(store, 1)
        assert len(self.taken) > 10
        say(f"full after {len(self.taken)} pairs")

        for pair in refused:  # again and again, alone
            assert not await self.write(store, pair)
        self.check(store, refused)
        use_all_readers(store)
        say("reads go on")

        self.disk.make_room()
        for pair in refused:
            assert await self.write(store, pair)
        self.check(store, [])
        say("healed in the same process")

        refused = await self.fill(store, 10_000)
        store.close()
        store = self.open()  # a start on a full disk
        assert not await self.write(store, refused[0])
        self.check(store, refused)
        use_all_readers(store)
        self.disk.make_room()
        assert await self.write(store, refused[0])
        self.check(store, refused[1:])
        store.close()
        say("the story is over")


def storing(pair: Pair) -> Callable[[Transaction], Stored]:
    def work(txn: Transaction) -> Stored:
        return store_pair(txn, pair, now_ms=NOW, from_client=True, delivery=first_delivery(), own_login=OWN)

    return work


def register_all(txn: Transaction) -> None:
    register(txn, "alice", OWN, "alices.other")
    register(txn, "dave", OWN, "daves.other")


def use_all_readers(store: Store) -> None:
    """Read with as many snapshots at once as there may be: each has its place in a file that is written by memory."""
    snapshots = [store.read() for _ in range(MAX_READERS)]
    for snapshot in snapshots:
        snapshot.__enter__()
    for snapshot in snapshots:
        snapshot.__exit__(None, None, None)


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(Story(Path(sys.argv[2]), sys.argv[1]).tell())
