"""What the watch is told: each container and each state that is new on disk, in the order in which they came."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shine_node.protocol.errors import BadFields
from shine_node.protocol.pair import Pair
from shine_node.protocol.schedule import DeliveryState
from shine_node.store.changes import Change, ItemChange
from shine_node.store.deliveries import claim_due, record_result
from shine_node.store.environment import Job, Store, Transaction
from shine_node.store.layout import Direction, ItemKey, Kind, OpenDelivery
from shine_node.store.messages import store_incoming, store_pair
from tests.store.rooms import MAP_SIZE, NOW, OWN, SCHEDULE, first_delivery, make_pair, register, tombstone_of

Told = list[tuple[str, Kind, Direction, str, bool, bool]]


def watched(folder: Path, story: Callable[[Store, list[Change]], Any]) -> list[Change]:
    """Run a story with a store whose writer runs, and return what the watch was told."""
    told: list[Change] = []

    async def run() -> None:
        store = Store(folder / "shine.mdb", map_size=MAP_SIZE)
        store.watch = told.extend
        store.start()
        try:
            await store.write(lambda txn: register(txn, "alice", OWN))
            await store.write(lambda txn: register(txn, "bob", "r1"))
            await store.write(lambda txn: register(txn, "carol", OWN))
            await story(store, told)
        finally:
            await asyncio.to_thread(store.close)

    asyncio.run(run())
    return told


def put(pair: Pair, *, delivery: OpenDelivery | None = None) -> Callable[[Transaction], object]:
    def work(txn: Transaction) -> object:
        return store_pair(
            txn,
            pair,
            now_ms=NOW,
            from_client=False,
            delivery=delivery or first_delivery(),
            own_login=OWN,
        )

    return work


def short(told: list[Change]) -> Told:
    """Owner, kind, direction, state, whether there is a copy, whether the state has changed."""
    assert all(isinstance(change, ItemChange) for change in told)
    return [
        (change.key.owner, change.key.kind, change.key.direction, change.row.state.wire, bool(change.blob), change[3])
        for change in told
        if isinstance(change, ItemChange)
    ]


MESSAGE, TOMBSTONE, IN, OUT = Kind.MESSAGE, Kind.TOMBSTONE, Direction.IN, Direction.OUT


def test_a_pair_tells_of_the_senders_copy_and_of_the_recipients_where_this_is_its_server(tmp_path: Path) -> None:
    local, remote = make_pair("alice", "carol", own_body=b"mine"), make_pair("alice", "bob")

    async def story(store: Store, told: list[Change]) -> None:
        await store.write(put(local))
        await store.write(put(local))  # the same again is no change
        await store.write(put(remote))

    told = watched(tmp_path, story)
    assert short(told) == [
        ("alice", MESSAGE, OUT, "delivered", True, False),
        ("carol", MESSAGE, IN, "delivered", True, False),
        ("alice", MESSAGE, OUT, "accepted", True, False),
    ]
    blobs = [change.blob for change in told if isinstance(change, ItemChange)]
    assert blobs == [local.outgoing.blob, local.incoming.blob, remote.outgoing.blob]


def test_an_older_revision_tells_nothing_and_a_newer_one_tells_of_its_new_state_too(tmp_path: Path) -> None:
    first, second = make_pair("alice", "bob"), make_pair("alice", "bob", revision_ms=NOW + 5, body=b"edited")

    async def story(store: Store, told: list[Change]) -> None:
        await store.write(put(first))
        claims, _ = await store.write(lambda txn: claim_due(txn, SCHEDULE, now_ms=NOW + 60_000, lease_ms=1000, limit=1))
        assert claims
        await store.write(
            lambda txn: record_result(txn, claims[0], delivered=True, now_ms=NOW + 60_000, schedule=SCHEDULE)
        )
        await store.write(put(second))
        await store.write(put(first))

    assert short(watched(tmp_path, story)) == [
        ("alice", MESSAGE, OUT, "accepted", True, False),
        ("alice", MESSAGE, OUT, "delivered", False, True),
        ("alice", MESSAGE, OUT, "accepted", True, True),
    ]


def test_a_schedule_that_is_over_tells_of_the_failure(tmp_path: Path) -> None:
    spent = OpenDelivery(NOW - 4_000_000, 5, NOW, 0)

    async def story(store: Store, told: list[Change]) -> None:
        await store.write(put(make_pair("alice", "bob"), delivery=spent))
        _, failed = await store.write(lambda txn: claim_due(txn, SCHEDULE, now_ms=NOW, lease_ms=1000, limit=1))
        assert failed

    assert short(watched(tmp_path, story))[1:] == [("alice", MESSAGE, OUT, DeliveryState.FAILED.wire, False, True)]


def test_the_removal_of_an_accepted_message_tells_of_its_state_after_the_tombstone(tmp_path: Path) -> None:
    pair, delivered = make_pair("alice", "bob"), make_pair("alice", "carol")

    async def story(store: Store, told: list[Change]) -> None:
        await store.write(put(pair))
        await store.write(put(tombstone_of(pair.incoming.message)))
        await store.write(put(pair))  # it stays removed
        await store.write(put(delivered))
        del told[:3]
        await store.write(put(tombstone_of(delivered.incoming.message)))
        await store.write(put(tombstone_of(make_pair("alice", "carol", nonce=99).incoming.message, nonce=98)))

    assert short(watched(tmp_path, story)) == [
        ("alice", MESSAGE, OUT, "delivered", True, False),
        ("carol", MESSAGE, IN, "delivered", True, False),
        *[
            ("alice", TOMBSTONE, OUT, "delivered", True, False),
            ("carol", TOMBSTONE, IN, "delivered", True, False),
        ]
        * 2,
    ]


def test_the_state_of_a_removed_message_follows_its_tombstone(tmp_path: Path) -> None:
    pair = make_pair("alice", "bob")

    async def story(store: Store, told: list[Change]) -> None:
        await store.write(put(pair))
        await store.write(put(tombstone_of(pair.incoming.message)))

    assert short(watched(tmp_path, story))[1:] == [
        ("alice", TOMBSTONE, OUT, "accepted", True, False),
        ("alice", MESSAGE, OUT, "delivered", False, True),
    ]


def test_a_copy_from_another_server(tmp_path: Path) -> None:
    copy = make_pair("bob", "alice").incoming

    async def story(store: Store, told: list[Change]) -> None:
        await store.write(lambda txn: store_incoming(txn, copy, now_ms=NOW, own_login=OWN))

    [change] = watched(tmp_path, story)
    assert isinstance(change, ItemChange)
    assert (change.key, change.blob, change.origin) == (ItemKey.of(copy), copy.blob, None)


def test_what_is_undone_is_told_to_nobody_and_the_origin_is_that_of_the_job(tmp_path: Path) -> None:
    async def story(store: Store, told: list[Change]) -> None:
        loop = asyncio.get_running_loop()
        good, bad = make_pair("alice", "bob", nonce=1), make_pair("alice", "bob", nonce=2)

        def fail(txn: Transaction) -> None:
            put(bad)(txn)
            raise BadFields("after it has written: all of the batch is undone, and each job runs alone")

        jobs: list[Job[Any]] = [
            Job(put(good), loop.create_future(), "phone"),
            Job(fail, loop.create_future(), "desk"),
            Job(put(make_pair("alice", "carol")), loop.create_future(), "desk"),
        ]
        store.submit(jobs)
        results = await asyncio.gather(*(job.future for job in jobs), return_exceptions=True)
        assert [isinstance(result, BadFields) for result in results] == [False, True, False]

    told = watched(tmp_path, story)
    assert [(change.key.peer, change.origin) for change in told if isinstance(change, ItemChange)] == [
        ("bob", "phone"),
        ("carol", "desk"),
        ("alice", "desk"),
    ]


@pytest.mark.parametrize("together", [True, False])
def test_the_watch_is_told_before_whoever_waits_goes_on(tmp_path: Path, together: bool) -> None:
    async def story(store: Store, told: list[Change]) -> None:
        pairs = [make_pair("alice", "bob", nonce=number) for number in range(3)]
        writes = [asyncio.ensure_future(store.write(put(pair))) for pair in pairs]
        if together:
            await asyncio.gather(*writes)
        for number, write in enumerate(writes):
            await write
            assert len(told) > number

    assert len(watched(tmp_path, story)) == 3
