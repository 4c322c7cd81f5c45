"""A process that is killed while it writes: all that it has acknowledged is there, whole, and nothing by halves."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shine_node.protocol.pair import Pair
from shine_node.store.deliveries import claim_due, record_result
from shine_node.store.environment import Store, Transaction
from shine_node.store.layout import Direction, ItemKey, Row
from shine_node.store.messages import get_blobs, store_pair
from tests.store.rooms import (
    MAP_SIZE,
    NOW,
    OWN,
    SCHEDULE,
    check_indexes,
    first_delivery,
    make_pair,
    opened,
    register,
    tombstone_of,
)

pytestmark = pytest.mark.core

ROOT = Path(__file__).resolve().parents[2]
SEED = 20_261_130
ROUNDS = 8
WAIT = 60
TOGETHER = 12
"""Writers at once, so that most commits hold several jobs."""


def test_what_was_acknowledged_outlives_a_kill(tmp_path: Path) -> None:
    path, acknowledged = tmp_path / "shine.mdb", tmp_path / "acknowledged"
    chance = random.Random(SEED)
    with opened(path) as store:
        store.write_now(register_all)
    lines = 0
    for number in range(ROUNDS):
        lines = write_and_be_killed(path, acknowledged, number, after=lines + chance.randrange(1, 300), chance=chance)
        check_store(path, acknowledged)


def write_and_be_killed(path: Path, acknowledged: Path, number: int, *, after: int, chance: random.Random) -> int:
    """Let a process write until it has acknowledged this much, kill it, and return how many lines there are now."""
    command = [sys.executable, "-m", "tests.faults.test_store_kill", str(path), str(acknowledged), str(number)]
    with subprocess.Popen(command, cwd=ROOT) as process:
        end = time.monotonic() + WAIT
        while count_lines(acknowledged) < after:
            assert process.poll() is None, "the writer has ended by itself"
            assert time.monotonic() < end
            time.sleep(0.002)
        time.sleep(chance.random() * 0.02)
        process.send_signal(signal.SIGKILL)
        assert process.wait(WAIT) == -signal.SIGKILL
    return count_lines(acknowledged)


def count_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def check_store(path: Path, acknowledged: Path) -> None:
    stored: dict[str, str] = {}
    finished: dict[str, int] = {}
    to_remove: set[str] = set()
    removed: set[str] = set()
    for line in acknowledged.read_text("ascii").splitlines():
        what, key, *rest = line.split(" ")
        if what == "stored":
            stored[key] = rest[0]
        elif what == "finished":
            finished[key] = int(rest[0])
        else:
            (to_remove if what == "removing" else removed).add(key)
    assert stored
    with opened(path) as store, store.read() as txn:
        rows = check_indexes(txn)  # and that no pair lacks one of its copies
        by_name = {key.encode().hex(): (key, row) for key, row in rows.items()}
        for name, digest in stored.items():
            _, row = by_name[name]
            if row.removed:
                assert name in to_remove
            else:
                assert hashlib.sha256(b"".join(get_blobs(txn, row))).hexdigest() == digest
        for name, state in finished.items():
            assert by_name[name][1].state == state
        assert all(by_name[name][1].removed for name in removed)
        for key, row in rows.items():
            if key.direction is Direction.OUT and key.peer == "dave":
                assert_recipient_has(txn, rows, key, row)


def assert_recipient_has(txn: Transaction, rows: dict[ItemKey, Row], key: ItemKey, row: Row) -> None:
    """What is stored for its recipient too is stored, and removed, together."""
    copy = rows[ItemKey(key.peer, key.owner, key.kind, key.time_ms, key.nonce, Direction.IN)]
    assert copy.removed == row.removed
    assert get_blobs(txn, copy) == (get_blobs(txn, row)[0], b"")


def register_all(txn: Transaction) -> None:
    register(txn, "alice", OWN, "alices.other")
    register(txn, "bob", OWN)
    register(txn, "carol", "far")
    register(txn, "dave", OWN, "daves.other")


# -- the process that is killed -----------------------------------------------------------------------------------


class Writer:
    """Stores, delivers and removes until it is killed; tells what it has done once the store has said so."""

    def __init__(self, path: Path, acknowledged: Path, number: int) -> None:
        self._store = Store(path, map_size=MAP_SIZE)
        self._acknowledged = os.open(acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._chance = random.Random(SEED + 1 + number)
        self._nonce = number * 1_000_000
        self._now = NOW + number * 100_000_000

    async def run(self) -> None:
        self._store.start()
        await asyncio.gather(self._deliver(), *(self._write() for _ in range(TOGETHER)))

    async def _write(self) -> None:
        while True:
            self._nonce += 1
            nonce = self._nonce
            sender, recipient = self._chance.choice([("alice", "carol"), ("alice", "dave"), ("bob", "carol")])
            body = self._chance.randbytes(self._chance.choice([10, 300, 5_000]))
            pair = make_pair(sender, recipient, nonce=nonce, body=body.hex().encode())
            await self._put(pair)
            digest = hashlib.sha256(pair.incoming.blob + pair.outgoing.blob).hexdigest()
            self._tell("stored", ItemKey.of(pair.outgoing), digest)
            if self._chance.random() < 0.2:
                self._tell("removing", ItemKey.of(pair.outgoing))
                await self._put(tombstone_of(pair.incoming.message, nonce=nonce))
                self._tell("removed", ItemKey.of(pair.outgoing))

    async def _put(self, pair: Pair) -> None:
        delivery = first_delivery(self._now)
        await self._store.write(
            lambda txn: store_pair(txn, pair, now_ms=self._now, from_client=True, delivery=delivery, own_login=OWN)
        )

    async def _deliver(self) -> None:
        """Claim what is due, and let some of it be delivered, some of it fail for good, and some have no result."""
        while True:
            self._now += 30_000
            claims, _ = await self._store.write(
                lambda txn: claim_due(txn, SCHEDULE, now_ms=self._now, lease_ms=60_000, limit=20)
            )
            for claim in claims:
                delivered = self._chance.random() < 0.5
                if self._chance.random() < 0.2:
                    continue
                row = await self._store.write(
                    lambda txn, claim=claim, delivered=delivered: record_result(
                        txn, claim, delivered=delivered, now_ms=self._now, schedule=SCHEDULE
                    )
                )
                if row is not None and row.delivery is None:
                    self._tell("finished", claim.key, str(int(row.state)))

    def _tell(self, what: str, key: ItemKey, *rest: str) -> None:
        line = " ".join((what, key.encode().hex(), *rest)) + "\n"
        assert os.write(self._acknowledged, line.encode()) == len(line)


if __name__ == "__main__":
    asyncio.run(Writer(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])).run())
