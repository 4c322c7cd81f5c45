"""The worker: due rows only, at their times, whatever the clock and the store do meanwhile (PROTOCOL.md §5.3)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from shine_node.delivery import worker as worker_module
from shine_node.protocol.pair import Pair
from shine_node.protocol.schedule import DeliveryState
from shine_node.store.deliveries import Claim, due_keys
from shine_node.store.environment import Transaction
from shine_node.store.layout import OpenDelivery, Table
from tests.delivery.rooms import RECEIVE_INCOMING, STATUS, Held, Rooms, answers, breaks, down, run, until
from tests.store.rooms import NOW, OWN, make_pair
from tests.support.clock import ManualClock, settle
from tests.support.vectors import cases

ACCEPTED, DELIVERED, FAILED = DeliveryState
DAY = 86_400_000
YEAR = 365 * DAY
LEASE = 60_000
INTERVAL = 5.0


def pair_number(nonce: int) -> Pair:
    return make_pair("alice", "bob", time_ms=0, nonce=nonce)


async def accept(rooms: Rooms, *nonces: int) -> None:
    """Store pairs whose first attempts nobody makes, as where the node ends right after the commit."""
    await rooms.know("alice", OWN, "a2", time_ms=0)
    await rooms.know("bob", "r1", time_ms=0)
    for nonce in nonces:
        await rooms.accept(pair_number(nonce))


async def try_once(rooms: Rooms, *nonces: int) -> None:
    """Store pairs and make their first attempts, in vain."""
    await accept(rooms)
    rooms.peers.on("r1", RECEIVE_INCOMING, down)
    for nonce in nonces:
        assert await rooms.deliverer.send(await rooms.accept(pair_number(nonce))) is ACCEPTED
    await until(lambda: not rooms.deliverer._background)
    rooms.peers.calls.clear()


@contextlib.asynccontextmanager
async def working(rooms: Rooms) -> AsyncIterator[None]:
    """Run the worker; at the beginning it has made its first look."""
    task = asyncio.create_task(rooms.worker.run())
    try:
        await rested(rooms, task)
        yield
    finally:
        assert not task.done(), task
        task.cancel()
        await asyncio.wait((task,))


async def rested(rooms: Rooms, task: asyncio.Task[None] | None = None) -> None:
    """Wait until the worker sleeps and nothing that it began is under way."""

    def still() -> bool:
        if task is not None and task.done():
            task.result()
        under_way = rooms.worker._attempts, rooms.worker._settling, rooms.deliverer._background
        return rooms.clock.sleeping >= 1 and not any(under_way)

    await until(still)
    await settle()


async def wake(rooms: Rooms, *, at_ms: int | None = None) -> None:
    """Let an interval pass and the worker look; where ``at_ms`` is given, the clock jumps to be there then."""
    if at_ms is not None:
        rooms.clock.jump(at_ms - rooms.clock.now_ms() - round(INTERVAL * 1000))
    await rooms.clock.advance(INTERVAL)
    await rested(rooms)


def count_looks(rooms: Rooms) -> list[int]:
    """Note when the worker looks, from now on."""
    looks: list[int] = []
    look = rooms.worker.look

    async def counting() -> None:
        looks.append(rooms.clock.now_ms())
        await look()

    rooms.worker.look = counting  # type: ignore[method-assign]
    return looks


def delivery(rooms: Rooms, nonce: int = 1) -> OpenDelivery | None:
    row = rooms.row(pair_number(nonce))
    assert row is not None
    return row.delivery


def state(rooms: Rooms, nonce: int = 1) -> DeliveryState:
    row = rooms.row(pair_number(nonce))
    assert row is not None
    return row.state


def tries(rooms: Rooms) -> list[int]:
    """When the recipient was called, in seconds since ``NOW``."""
    return [(call.at_ms - NOW) // 1000 for call in rooms.peers.calls if call.op == RECEIVE_INCOMING]


# The schedule


def test_every_attempt_at_its_time_asking_from_the_third_on_and_never_after_the_last(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await try_once(rooms, 1)
            async with working(rooms):
                for _ in range(2 * 3600 // 5):
                    await wake(rooms)
            assert tries(rooms) == [30, 300, 1500, 3600]
            asked = [(call.at_ms - NOW) // 1000 for call in rooms.peers.calls if call.op == STATUS]
            assert asked == [300, 1500, 3600]
            assert state(rooms) is FAILED
            assert rooms.count(Table.DUE_ATTEMPTS) == 0

    run(story())


@pytest.mark.parametrize("case", cases("schedule", kind="run"))
def test_a_run_of_the_vectors(tmp_path: Path, case: dict[str, Any]) -> None:
    async def story() -> None:
        clock = ManualClock(case["acceptedAtMs"])
        async with Rooms(tmp_path, clock=clock, schedule=tuple(case["scheduleSeconds"])) as rooms:
            await accept(rooms, 1)
            rooms.peers.on("r1", RECEIVE_INCOMING, down)
            made: list[list[int | None]] = []
            retry = rooms.deliverer.retry

            async def recording(claim: Claim) -> DeliveryState | None:
                made.append([clock.now_ms(), claim.decision.attempt])
                return await retry(claim)

            rooms.deliverer.retry = recording  # type: ignore[method-assign]
            first, *others = case["wakesMs"]
            clock.jump(first - clock.now_ms())
            async with working(rooms):
                for at_ms in others:
                    await wake(rooms, at_ms=at_ms)
            assert made == case["attempts"]
            assert state(rooms).wire == case["stateAfter"]

    run(story())


def test_a_success_ends_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await try_once(rooms, 1)
            rooms.peers.on("r1", RECEIVE_INCOMING, answers())
            async with working(rooms):
                for _ in range(800):
                    await wake(rooms)
            assert tries(rooms) == [30]
            assert state(rooms) is DELIVERED

    run(story())


def test_a_shorter_schedule_than_the_last_attempt_fails_the_row_without_a_call(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await try_once(rooms, 1)
            async with working(rooms):
                for _ in range(6):
                    await wake(rooms)
            assert tries(rooms) == [30]
        caplog.set_level("INFO")
        async with Rooms(tmp_path, schedule=(0, 10)) as rooms:
            async with working(rooms):
                assert state(rooms) is FAILED
            assert rooms.peers.calls == []
            assert "1 deliveries failed" in caplog.text

    run(story())


# Only what is due, and no more than may be under way


def test_what_is_not_due_is_left_alone(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await try_once(rooms, 1)
            before = rooms.row(pair_number(1))
            await rooms.clock.advance(29.999)
            await rooms.worker.look()
            assert rooms.row(pair_number(1)) == before
            assert not rooms.worker._attempts
            await rooms.clock.advance(0.001)
            await rooms.worker.look()
            await until(lambda: not rooms.worker._attempts)
            assert tries(rooms) == [30]

    run(story())


def test_so_many_at_once_and_the_others_as_soon_as_one_has_ended(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path, max_concurrent=3) as rooms:
            await accept(rooms, *range(8))
            slow = Held()
            rooms.peers.on("r1", RECEIVE_INCOMING, slow)
            task = asyncio.create_task(rooms.worker.run())
            await until(lambda: rooms.clock.sleeping and slow.waiting)
            assert slow.waiting == 3, "the bound"
            for _ in range(3):
                await rooms.clock.advance(INTERVAL)
                await until(lambda: rooms.clock.sleeping)
            assert slow.waiting == 3
            with rooms.store.read() as txn:
                assert len(due_keys(txn, rooms.clock.now_ms(), 9)) == 5, "earliest first; the others are due still"
            at = rooms.clock.now_ms()
            slow.release()
            await until(lambda: rooms.count(Table.DUE_ATTEMPTS) == 0)
            assert rooms.clock.now_ms() == at, "nobody waited for the interval"
            assert sorted(call.payload["incomingBlobB64"] for call in rooms.peers.calls) == sorted(
                {call.payload["incomingBlobB64"] for call in rooms.peers.calls}
            )
            assert len(rooms.peers.calls) == 8
            task.cancel()
            await asyncio.wait((task,))

    run(story())


def test_servers_that_take_nothing_hold_up_no_others(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path, max_concurrent=3) as rooms:
            await accept(rooms, *range(20))
            await rooms.know("carol", "r2", time_ms=0)
            quiet = [make_pair("alice", "carol", time_ms=0, nonce=nonce) for nonce in range(50, 60)]
            for pair in quiet:
                await rooms.accept(pair)
            hung = Held()
            rooms.peers.on("r1", RECEIVE_INCOMING, hung)
            task = asyncio.create_task(rooms.worker.run())
            await until(lambda: rooms.clock.sleeping and hung.waiting == 3)
            await rooms.clock.advance(INTERVAL)
            for pair in quiet:
                await rooms.until_delivered(pair)
            assert hung.waiting == 3, "and no more of the others were begun"
            hung.release()
            await until(lambda: rooms.count(Table.DUE_ATTEMPTS) == 0)
            task.cancel()
            await asyncio.wait((task,))

    run(story())


def test_while_none_is_free_it_sleeps(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path, max_concurrent=2) as rooms:
            await accept(rooms, *range(4))
            quick, slow = Held(), Held()
            rooms.peers.on("r1", RECEIVE_INCOMING, quick)
            looks = count_looks(rooms)
            task = asyncio.create_task(rooms.worker.run())
            await until(lambda: quick.waiting == 2)
            rooms.peers.on("r1", RECEIVE_INCOMING, slow)
            quick.release()
            await until(lambda: rooms.clock.sleeping and slow.waiting == 2)
            before = len(looks)
            for _ in range(100):
                await settle()
            assert len(looks) == before, "nothing has ended, so there is nothing to look for"
            await rooms.clock.advance(INTERVAL)
            await until(lambda: rooms.clock.sleeping)
            assert len(looks) == before + 1
            task.cancel()
            await asyncio.wait((task,))

    run(story())


def test_an_attempt_that_breaks_does_not_end_the_worker(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with Rooms(tmp_path, max_concurrent=1) as rooms:
            await accept(rooms, 1)
            rooms.peers.on("r1", RECEIVE_INCOMING, breaks)
            async with working(rooms):
                assert "a defect" in caplog.text
                assert delivery(rooms) == OpenDelivery(NOW, 0, NOW, NOW + LEASE)
                rooms.peers.on("r1", RECEIVE_INCOMING, answers())
                for _ in range(12):
                    await wake(rooms)
                assert state(rooms) is DELIVERED, "its lease was over"

    run(story())


def test_closing_ends_what_is_under_way_and_the_row_stays_open(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await accept(rooms, 1)
            slow = Held()
            rooms.peers.on("r1", RECEIVE_INCOMING, slow)
            await rooms.clock.advance(LEASE / 1000)
            await rooms.worker.look()
            await until(lambda: slow.waiting)
            await rooms.worker.close()
            assert not rooms.worker._attempts
            await rooms.deliverer.close()
            assert slow.waiting == 0
            assert state(rooms) is ACCEPTED
            assert rooms.deliverer.claims.held == frozenset()

    run(story())


def test_it_looks_at_once_when_it_is_told_that_something_is_due(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await accept(rooms)
            async with working(rooms):
                await sync(rooms, make_pair("alice", "bob", time_ms=NOW))
                await settle()
                assert tries(rooms) == []
                rooms.worker.arrived()
                await until(lambda: rooms.peers.calls)
                await rested(rooms)
                assert rooms.clock.now_ms() == NOW, "the interval is not waited for"

    run(story())


# What is only asked about


async def sync(rooms: Rooms, *pairs: Pair) -> None:
    """Take pairs of ``DmSyncBatch``."""
    for incoming, outgoing in pairs:
        await rooms.sync(incoming.blob, outgoing.blob, owner="alice", from_server="a2")


async def sync_old(rooms: Rooms, *nonces: int) -> None:
    """Take pairs of ``DmSyncBatch`` that are too old to be sent."""
    await sync(rooms, *map(pair_number, nonces))


def test_an_old_pair_is_asked_about_at_the_offsets_from_its_arrival_and_never_sent(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await accept(rooms)
            await sync_old(rooms, 1)
            rooms.peers.on("a2", STATUS, answers(known=True, delivered=False))
            async with working(rooms):
                for _ in range(2 * 3600 // 5):
                    await wake(rooms)
            assert [(call.op, (call.at_ms - NOW) // 1000) for call in rooms.peers.calls] == [
                (STATUS, at) for at in (0, 30, 300, 1500, 3600)
            ]
            assert state(rooms) is FAILED
            assert rooms.count(Table.DUE_SETTLING) == 0

    run(story())


def test_very_many_are_asked_about_a_few_at_a_time_and_do_not_hold_up_what_is_sent(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await accept(rooms)
            await sync_old(rooms, *range(1, 41))
            asked = Held(answers(known=True, delivered=True))
            rooms.peers.on("a2", STATUS, asked)
            task = asyncio.create_task(rooms.worker.run())
            await until(lambda: rooms.clock.sleeping and asked.waiting)
            assert len(rooms.deliverer.claims) == worker_module.SETTLING_AT_ONCE
            assert asked.waiting == 1, "one after the other"
            await sync(rooms, make_pair("alice", "bob", time_ms=NOW))
            await rooms.clock.advance(INTERVAL)
            await until(lambda: rooms.peers.count("r1", RECEIVE_INCOMING) == 1)
            await until(lambda: rooms.clock.sleeping and not rooms.worker._attempts)
            assert asked.waiting == 1
            assert len(rooms.deliverer.claims) == worker_module.SETTLING_AT_ONCE, "the bound"
            asked.release()
            await until(lambda: rooms.count(Table.DUE_SETTLING) == 0)
            assert {state(rooms, nonce) for nonce in range(1, 41)} == {DELIVERED}
            assert rooms.peers.count("a2", STATUS) == 40
            task.cancel()
            await asyncio.wait((task,))

    run(story())


def test_nothing_is_asked_while_more_is_arriving(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await accept(rooms)
            async with working(rooms):
                await sync_old(rooms, 1, 2)
                rooms.worker.arrived()
                await sync(rooms, make_pair("alice", "bob", time_ms=NOW))
                await rooms.clock.advance(worker_module.SETTLING_PAUSE / 2)
                rooms.worker.arrived()
                await until(lambda: rooms.peers.calls)
                await rested(rooms)
                await rooms.clock.advance(worker_module.SETTLING_PAUSE / 2)
                await rested(rooms)
                assert [call.op for call in rooms.peers.calls] == [RECEIVE_INCOMING]
                await wake(rooms)
                await until(lambda: rooms.peers.count("a2", STATUS) == 2)

    run(story())


def test_closing_ends_the_asking_too(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await accept(rooms)
            await sync_old(rooms, 1)
            asked = Held()
            rooms.peers.on("a2", STATUS, asked)
            await rooms.worker.look()
            await until(lambda: asked.waiting)
            await rooms.worker.close()
            assert not rooms.worker._settling
            assert asked.waiting == 0
            assert state(rooms) is ACCEPTED

    run(story())


# Claims of an earlier process


def test_claims_of_an_earlier_process_are_void_and_its_first_attempt_is_made_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await accept(rooms, 1)
            assert delivery(rooms) == OpenDelivery(NOW, 0, NOW, NOW + LEASE)
        async with Rooms(tmp_path) as rooms:
            async with working(rooms):
                assert tries(rooms) == [0]
            assert state(rooms) is DELIVERED

    run(story())


def test_a_claim_that_outlives_its_lease_is_due_again_and_only_the_later_ones_result_counts(tmp_path: Path) -> None:
    """Here nobody renews leases, as where the store refuses it all the time."""

    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await accept(rooms)
            first, second = Held(), Held(down)
            rooms.peers.on("r1", RECEIVE_INCOMING, first)
            async with working(rooms):
                sending = asyncio.create_task(rooms.deliverer.send(await rooms.accept(pair_number(1))))
                await until(lambda: first.waiting)
                rooms.peers.on("r1", RECEIVE_INCOMING, second)
                for _ in range(LEASE // 5000):
                    assert second.waiting == 0
                    await rooms.clock.advance(INTERVAL)
                    await until(lambda: rooms.clock.sleeping)
                assert await sending is ACCEPTED
                await until(lambda: second.waiting)
                claimed = delivery(rooms)
                first.release()
                await until(lambda: first.waiting == 0 and len(rooms.deliverer.claims.held) == 1)
                assert (state(rooms), delivery(rooms)) == (ACCEPTED, claimed), "its claim was lost"
                second.release()
                await rested(rooms)
                assert delivery(rooms) == OpenDelivery(NOW, 2, NOW + 300_000, 0)

    run(story())


def test_open_rows_are_put_in_time_in_bounded_stretches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "STRETCH", 2)

    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await accept(rooms, *range(5))
            sizes: list[int] = []
            write = rooms.store.write

            async def counting(work: Any) -> Any:
                def counted(txn: Transaction) -> Any:
                    before = txn.writes
                    result = work(txn)
                    sizes.append(txn.writes - before)
                    return result

                return await write(counted)

            rooms.store.write = counting  # type: ignore[method-assign]
            async with working(rooms):
                assert sorted(tries(rooms)) == [0] * 5
                written = len(sizes)
                for _ in range(3):
                    await wake(rooms)
                assert len(sizes) == written, "once is enough"
            assert sizes[:3] == [6, 6, 3], "two rows a transaction, then the last one"

    run(story())


# A store that refuses


def test_a_store_that_refuses_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await accept(rooms, 1)
            rooms.store.busy = True
            async with working(rooms):
                assert "were not put in time" in caplog.text
                assert tries(rooms) == []
                await wake(rooms)
                assert tries(rooms) == []
                rooms.store.busy = False
                await wake(rooms)
                assert tries(rooms) == [10], "its claim of an earlier process is void from then on"
            assert state(rooms) is DELIVERED

    run(story())


def test_due_rows_that_cannot_be_claimed_are_taken_later(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await try_once(rooms, 1)
            async with working(rooms):
                rooms.store.busy = True
                for _ in range(7):
                    await wake(rooms)
                assert "due deliveries were not taken" in caplog.text
                assert tries(rooms) == []
                rooms.store.busy = False
                await wake(rooms)
                assert tries(rooms) == [40]

    run(story())


# A clock that jumps


def test_a_jump_back_puts_open_rows_at_their_new_times(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await try_once(rooms, 1)
            async with working(rooms):
                await wake(rooms)
                await wake(rooms, at_ms=NOW - DAY)
                assert delivery(rooms) == OpenDelivery(NOW - DAY, 1, NOW - DAY + 30_000, 0)
                for _ in range(6):
                    await wake(rooms)
                assert tries(rooms) == [-86400 + 30]

    run(story())


def test_a_lease_that_lies_too_far_ahead_after_a_jump_back_is_over(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await accept(rooms)
            rooms.peers.on("r1", RECEIVE_INCOMING, breaks)
            async with working(rooms):
                await rooms.deliverer.send(await rooms.accept(pair_number(1)))
                assert delivery(rooms) == OpenDelivery(NOW, 0, NOW, NOW + LEASE), "nobody holds it, and it is not due"
                rooms.peers.on("r1", RECEIVE_INCOMING, answers())
                await wake(rooms, at_ms=NOW - DAY)
                assert state(rooms) is DELIVERED

    run(story())


def test_a_jump_back_while_the_store_refuses_is_not_forgotten(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await try_once(rooms, 1)
            async with working(rooms):
                rooms.store.busy = True
                await wake(rooms, at_ms=NOW - DAY)
                await wake(rooms)
                assert delivery(rooms) == OpenDelivery(NOW, 1, NOW + 30_000, 0)
                rooms.store.busy = False
                await wake(rooms)
                now_ms = rooms.clock.now_ms()
                assert delivery(rooms) == OpenDelivery(now_ms, 1, now_ms + 30_000, 0)

    run(story())


def test_a_step_of_more_than_a_second_is_a_jump(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await try_once(rooms, 1)
            async with working(rooms):
                for step in (-1000, 1000, 0):
                    rooms.clock.jump(step)
                    await wake(rooms)
                assert "the clock went" not in caplog.text
                for step, text in ((1001, "the clock went forward"), (-1001, "the clock went back")):
                    rooms.clock.jump(step)
                    await wake(rooms)
                    assert text in caplog.text

    run(story())


def test_a_jump_forward_makes_one_last_attempt_before_it_fails(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await try_once(rooms, 1)
            async with working(rooms):
                await wake(rooms, at_ms=NOW + 50 * YEAR)
                assert tries(rooms) == [50 * YEAR // 1000]
                assert rooms.peers.count("a2", STATUS) == 1
                assert state(rooms) is FAILED

    run(story())


@pytest.mark.parametrize("jump_ms", [50 * YEAR, -DAY])
def test_an_attempt_under_way_keeps_its_claim_through_a_jump(tmp_path: Path, jump_ms: int) -> None:
    """A late success counts: nobody takes the row from an attempt that is still being made."""

    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await accept(rooms)
            slow = Held()
            rooms.peers.on("r1", RECEIVE_INCOMING, slow)
            async with working(rooms):
                sending = asyncio.create_task(rooms.deliverer.send(await rooms.accept(pair_number(1))))
                await until(lambda: slow.waiting)
                rooms.clock.jump(jump_ms)
                await rooms.clock.advance(INTERVAL)
                await until(lambda: rooms.clock.sleeping >= 2)
                await settle()
                assert slow.waiting == 1, "no second attempt beside the first"
                slow.release()
                assert await sending is DELIVERED
            assert len(rooms.peers.calls) - rooms.peers.count("a2", "ReceiveOutcomingMessage") == 1

    run(story())


def test_a_first_attempt_that_fails_after_a_jump_forward_is_followed_by_a_last_one(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await accept(rooms)
            slow = Held(down)
            rooms.peers.on("r1", RECEIVE_INCOMING, slow)
            async with working(rooms):
                sending = asyncio.create_task(rooms.deliverer.send(await rooms.accept(pair_number(1))))
                await until(lambda: slow.waiting)
                rooms.clock.jump(50 * YEAR)
                await rooms.clock.advance(INTERVAL)
                rooms.peers.on("r1", RECEIVE_INCOMING, answers())
                slow.release()
                assert await sending is ACCEPTED, "there was an attempt, and it is not over"
                await rested(rooms)
                await wake(rooms)
                assert state(rooms) is DELIVERED

    run(story())
