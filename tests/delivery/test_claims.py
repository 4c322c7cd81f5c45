"""Claims stay alive while their attempts run (PROTOCOL.md §5.3)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shine_node.delivery.claims import SOON_SECONDS
from shine_node.protocol.schedule import DeliveryState
from shine_node.store.deliveries import Claim, claim_due, due_keys, record_result
from shine_node.store.layout import OpenDelivery
from tests.delivery.rooms import Rooms, run, until
from tests.store.rooms import NOW, OWN, make_pair

LEASE_MS = 6000
THIRD = LEASE_MS / 3000


@contextlib.asynccontextmanager
async def one_claim(folder: Path) -> AsyncIterator[tuple[Rooms, Claim]]:
    """A row that is claimed at ``NOW`` until ``NOW + LEASE_MS``, and the task that renews."""
    async with Rooms(folder, lease_ms=LEASE_MS) as rooms:
        await rooms.know("alice", OWN)
        await rooms.know("bob", "r1")
        await rooms.accept(make_pair("alice", "bob"))
        [claim], _ = await rooms.store.write(
            lambda txn: claim_due(txn, rooms.schedule, now_ms=NOW + LEASE_MS, lease_ms=0, limit=5)
        )
        renewing = asyncio.create_task(rooms.deliverer.claims.renew_forever())
        try:
            yield rooms, claim
        finally:
            renewing.cancel()
            await asyncio.wait((renewing,))


def lease(rooms: Rooms) -> int:
    row = rooms.row(make_pair("alice", "bob"))
    assert row is not None
    assert row.delivery is not None
    return row.delivery.lease_until_ms


def test_what_is_held(tmp_path: Path) -> None:
    async def story() -> None:
        async with one_claim(tmp_path) as (rooms, claim):
            claims = rooms.deliverer.claims
            assert len(claims) == 0
            claims.hold(claim)
            assert len(claims) == 1
            assert claims.held == {(claim.seq, claim.version)}
            claims.release(claim._replace(version=claim.version - 1))
            assert len(claims) == 1, "a claim that was lost before is another one"
            claims.release(claim)
            claims.release(claim)
            assert claims.held == frozenset()

    run(story())


def test_whether_others_are_about_to_come_to_their_results(tmp_path: Path) -> None:
    async def story() -> None:
        async with one_claim(tmp_path) as (rooms, claim):
            claims = rooms.deliverer.claims
            others = [claim._replace(seq=claim.seq + number) for number in (1, 2, 3)]
            claims.hold(claim)
            assert not claims.decide(claim), "there is no other"
            for other in others:
                claims.hold(other)
            assert claims.decide(others[0]), "they have just begun"
            await rooms.clock.advance(SOON_SECONDS * 0.6)
            assert claims.decide(others[1])
            await rooms.clock.advance(SOON_SECONDS * 0.6)
            claims.hold(claim)
            assert claims.decide(claim), "one has just come"
            await rooms.clock.advance(2 * SOON_SECONDS)
            claims.hold(claim)
            assert not claims.decide(claim), "the one that is left hangs"
            claims.release(others[2])
            claims.hold(claim)
            assert not claims.decide(claim), "what was given up comes to no result"

    run(story())


def test_a_claim_is_renewed_from_a_third_of_its_lease_on_as_long_as_it_is_held(tmp_path: Path) -> None:
    async def story() -> None:
        async with one_claim(tmp_path) as (rooms, claim):
            first = lease(rooms)
            await rooms.clock.advance(THIRD / 2)
            rooms.deliverer.claims.hold(claim)
            await rooms.clock.advance(THIRD / 2)
            assert lease(rooms) == first, "held for less than a third"
            for _ in range(10):  # far longer than one lease
                await rooms.clock.advance(THIRD)
                await until(lambda: rooms.clock.sleeping and lease(rooms) == rooms.clock.now_ms() + LEASE_MS)
                with rooms.store.read() as txn:
                    assert due_keys(txn, rooms.clock.now_ms(), 1) == [], "nobody else may take it"
            row = rooms.row(make_pair("alice", "bob"))
            assert row is not None
            assert row.version == claim.version, "renewing takes nothing from whoever holds it"
            renewed = lease(rooms)
            rooms.deliverer.claims.release(claim)
            await rooms.clock.advance(3 * THIRD)
            assert lease(rooms) == renewed, "nobody holds it any more"
            with rooms.store.read() as txn:
                assert len(due_keys(txn, rooms.clock.now_ms(), 5)) == 1, "so it is due again"

    run(story())


def test_a_claim_that_was_lost_is_left_alone(tmp_path: Path) -> None:
    async def story() -> None:
        async with one_claim(tmp_path) as (rooms, claim):
            rooms.deliverer.claims.hold(claim)
            await rooms.store.write(
                lambda txn: record_result(txn, claim, delivered=True, now_ms=NOW, schedule=rooms.schedule)
            )
            before = rooms.row(make_pair("alice", "bob"))
            await rooms.clock.advance(2 * THIRD)
            await rooms.deliverer.claims.renew_now()
            after = rooms.row(make_pair("alice", "bob"))
            assert after == before
            assert after is not None
            assert after.state is DeliveryState.DELIVERED

    run(story())


def test_leases_that_a_jump_of_the_clock_ends_are_renewed_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with one_claim(tmp_path) as (rooms, claim):
            await rooms.deliverer.claims.renew_now()  # nothing is held: nothing is written
            rooms.deliverer.claims.hold(claim)
            rooms.clock.jump(365 * 86_400_000)
            await rooms.deliverer.claims.renew_now()
            assert lease(rooms) == rooms.clock.now_ms() + LEASE_MS
            row = rooms.row(make_pair("alice", "bob"))
            assert row is not None
            assert row.delivery == OpenDelivery(NOW, 0, NOW, rooms.clock.now_ms() + LEASE_MS)

    run(story())


def test_a_store_that_refuses_does_not_end_the_renewing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with one_claim(tmp_path) as (rooms, claim):
            first = lease(rooms)
            rooms.deliverer.claims.hold(claim)
            rooms.store.busy = True
            await rooms.clock.advance(2 * THIRD)
            await until(lambda: rooms.clock.sleeping)
            assert lease(rooms) == first
            assert "leases were not renewed" in caplog.text
            rooms.store.busy = False
            await rooms.clock.advance(THIRD)
            await until(lambda: lease(rooms) == rooms.clock.now_ms() + LEASE_MS)

    run(story())
