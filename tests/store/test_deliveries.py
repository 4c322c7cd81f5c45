"""Open deliveries: due rows, claims and their loss, results, and clocks that jump."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from shine_node.protocol.schedule import Decision, DeliveryState, Schedule
from shine_node.store import deliveries as deliveries_module
from shine_node.store.deliveries import (
    POSTPONED_MS,
    Claim,
    claim_due,
    count_open,
    due_keys,
    end_delivery,
    held_row,
    record_result,
    renew_claims,
    reschedule,
)
from shine_node.store.environment import Store, Transaction
from shine_node.store.layout import Flag, ItemKey, OpenDelivery, Row, Table, pack_number, time_key
from shine_node.store.messages import get_row, store_pair
from tests.store.rooms import NOW, OWN, SCHEDULE, check_indexes, first_delivery, make_pair, opened, register
from tests.support.vectors import cases

pytestmark = pytest.mark.core

LEASE = 60_000
SECOND = 1000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store in which alice, who has another server, writes to people elsewhere; in the end all indexes are right."""
    with opened(tmp_path / "shine.mdb") as store:
        store.write_now(lambda txn: register(txn, "alice", OWN, "other"))
        yield store
        with store.read() as txn:
            check_indexes(txn)


def put(store: Store, delivery: OpenDelivery | None = None, *, nonce: int = 1, revision_ms: int = 0) -> ItemKey:
    """Store a pair that begins with a schedule: by default one that is accepted NOW, its first attempt not yet made."""
    pair = make_pair("alice", "carol", nonce=nonce, revision_ms=revision_ms)
    delivery = delivery or OpenDelivery(NOW, 0, NOW, 0)
    store.write_now(lambda txn: store_pair(txn, pair, now_ms=NOW, from_client=True, delivery=delivery, own_login=OWN))
    return ItemKey.of(pair.outgoing)


def row_of(store: Store, key: ItemKey) -> Row:
    with store.read() as txn:
        row = get_row(txn, key)
    assert row is not None
    return row


def delivery_of(store: Store, key: ItemKey) -> OpenDelivery:
    delivery = row_of(store, key).delivery
    assert delivery is not None
    return delivery


def claim(
    store: Store, now_ms: int, *, limit: int = 100, lease_ms: int = LEASE, schedule: Schedule = SCHEDULE
) -> list[Claim]:
    claims, failed = store.write_now(
        lambda txn: claim_due(txn, schedule, now_ms=now_ms, lease_ms=lease_ms, limit=limit)
    )
    assert failed == []
    return claims


def finish(
    store: Store, claim: Claim, now_ms: int, *, delivered: bool = False, schedule: Schedule = SCHEDULE
) -> Row | None:
    return store.write_now(lambda txn: record_result(txn, claim, delivered=delivered, now_ms=now_ms, schedule=schedule))


def put_in_time(
    store: Store,
    now_ms: int,
    *,
    held: Collection[tuple[int, int]] = (),
    limit: int = 100,
    schedule: Schedule = SCHEDULE,
) -> int:
    """Go through all open rows as the worker does, and return in how many stretches."""
    after: bytes | None = b""
    stretches = 0
    while after is not None:
        start = after
        after = store.write_now(
            lambda txn, start=start: reschedule(txn, schedule, now_ms=now_ms, held=held, after=start, limit=limit)
        )
        stretches += 1
        assert stretches < 100
    return stretches


# -- claims -------------------------------------------------------------------------------------------------------


def test_nothing_is_due_in_an_empty_store(store: Store) -> None:
    assert claim(store, NOW) == []
    with store.read() as txn:
        assert due_keys(txn, NOW, 10) == []
        assert count_open(txn) == 0


def test_a_due_row_is_claimed_by_a_lease_and_a_version(store: Store) -> None:
    key = put(store)
    claims = claim(store, NOW + 5)
    assert claims == [Claim(key, 1, 2, 0, Decision(1, False, NOW + 30 * SECOND, NOW))]
    row = row_of(store, key)
    assert row == Row(Flag.UNSYNCED, DeliveryState.ACCEPTED, 1, 0, NOW, 2, OpenDelivery(NOW, 0, NOW, NOW + 5 + LEASE))
    with store.read() as txn:
        assert held_row(txn, claims[0]) == row
        assert list(txn.scan(Table.DUE_ATTEMPTS)) == [(time_key(NOW + 5 + LEASE, 1), key.encode())]


def test_a_claim_moves_an_acceptance_that_the_clock_has_not_reached(store: Store) -> None:
    key = put(store, OpenDelivery(NOW + 500, 0, NOW, 0))
    assert claim(store, NOW)[0].decision == Decision(1, False, NOW + 30 * SECOND, NOW)
    assert delivery_of(store, key) == OpenDelivery(NOW, 0, NOW, NOW + LEASE)


def test_a_claim_carries_the_revision(store: Store) -> None:
    put(store, revision_ms=NOW + 7)
    assert [claim.revision_ms for claim in claim(store, NOW)] == [NOW + 7]


def test_a_row_is_claimed_by_one(store: Store) -> None:
    put(store)
    assert len(claim(store, NOW)) == 1
    assert claim(store, NOW) == []
    assert claim(store, NOW + LEASE - 1) == []


def test_the_first_attempt_of_a_pair_is_held_by_whoever_stored_it(store: Store) -> None:
    put(store, first_delivery(NOW, LEASE))
    assert claim(store, NOW + LEASE - 1) == []
    assert len(claim(store, NOW + LEASE)) == 1


def test_only_due_rows_are_taken_the_earliest_first_and_no_more_than_asked_for(store: Store) -> None:
    times = {5: NOW + 1, 3: NOW, 4: NOW - 1, 1: NOW, 2: NOW - 7}
    for nonce, time_ms in times.items():
        put(store, OpenDelivery(NOW - MINUTE, 0, time_ms, 0), nonce=nonce)
    with store.read() as txn:
        found = due_keys(txn, NOW, 10)
        assert [key.nonce for _, key in found] == [2, 4, 3, 1]  # of one time, the one stored first
        assert due_keys(txn, NOW, 2) == found[:2]
        assert count_open(txn) == 5
    assert [one.key.nonce for one in claim(store, NOW, limit=3)] == [2, 4, 3]
    assert [one.key.nonce for one in claim(store, NOW)] == [1]


def test_a_claim_that_outlives_its_lease_becomes_due_again(store: Store) -> None:
    key = put(store)
    first = claim(store, NOW)[0]
    second = claim(store, NOW + LEASE)[0]
    assert (second.seq, second.version) == (first.seq, first.version + 1)
    assert second.decision.attempt == 2  # the time of the second has passed
    before = row_of(store, key)
    assert finish(store, first, NOW + LEASE, delivered=True) is None
    assert row_of(store, key) == before
    row = finish(store, second, NOW + LEASE, delivered=True)
    assert row is not None
    assert row.state is DeliveryState.DELIVERED


def test_a_late_result_counts_while_nobody_else_has_the_row(store: Store) -> None:
    key = put(store)
    late = claim(store, NOW)[0]
    assert finish(store, late, NOW + 2 * LEASE, delivered=True) == row_of(store, key)


def test_a_running_attempt_renews_its_lease(store: Store) -> None:
    keys = [put(store, nonce=nonce) for nonce in (1, 2)]
    claims = claim(store, NOW)
    later = NOW + LEASE - 1
    store.write_now(lambda txn: renew_claims(txn, claims[:1], now_ms=later, lease_ms=LEASE))
    assert [delivery_of(store, key).lease_until_ms for key in keys] == [later + LEASE, NOW + LEASE]
    assert [one.key for one in claim(store, NOW + LEASE)] == keys[1:]
    assert finish(store, claims[0], NOW + LEASE, delivered=True) is not None  # renewing changes no version


def test_a_lost_claim_is_not_renewed(store: Store) -> None:
    key = put(store)
    lost = claim(store, NOW)
    taken = claim(store, NOW + LEASE)[0]
    before = row_of(store, key)
    store.write_now(lambda txn: renew_claims(txn, lost, now_ms=NOW + LEASE + 1, lease_ms=LEASE))
    assert row_of(store, key) == before
    finish(store, taken, NOW + LEASE, delivered=True)
    store.write_now(lambda txn: renew_claims(txn, [taken], now_ms=NOW + LEASE + 1, lease_ms=LEASE))
    with store.read() as txn:
        assert count_open(txn) == 0


def test_an_index_row_without_its_delivery_is_cleared(store: Store) -> None:
    key = put(store)
    wrong = {
        time_key(NOW - 1, 1): key.encode(),  # another time than the row's
        time_key(NOW - 2, 9): key._replace(nonce=99).encode(),  # no such row
    }

    def damage(txn: Transaction) -> None:
        for index_key, item_key in wrong.items():
            txn.put(Table.DUE_ATTEMPTS, index_key, item_key)

    store.write_now(damage)
    assert put_in_time(store, NOW) == 1
    assert [one.key for one in claim(store, NOW)] == [key]
    with store.read() as txn:
        assert not set(wrong) & {index_key for index_key, _ in txn.scan(Table.DUE_ATTEMPTS)}


# -- results ------------------------------------------------------------------------------------------------------


def test_delivered_is_the_end(store: Store) -> None:
    key = put(store)
    held = claim(store, NOW)[0]
    row = finish(store, held, NOW + 1, delivered=True)
    assert row == Row(Flag.UNSYNCED, DeliveryState.DELIVERED, 1, 0, NOW, 3)
    assert row_of(store, key) == row
    with store.read() as txn:
        assert count_open(txn) == 0
        assert held_row(txn, held) is None


def test_nothing_reopens_a_terminal_row(store: Store) -> None:
    keys = [put(store, nonce=nonce) for nonce in (1, 2)]
    delivered, failed = claim(store, NOW + HOUR)
    finish(store, delivered, NOW + HOUR, delivered=True)
    finish(store, failed, NOW + HOUR)
    rows = [row_of(store, key) for key in keys]
    assert [row.state for row in rows] == [DeliveryState.DELIVERED, DeliveryState.FAILED]
    for held in (delivered, failed, delivered._replace(version=3), failed._replace(version=3)):
        assert finish(store, held, NOW, delivered=True) is None
        assert finish(store, held, NOW) is None
        store.write_now(lambda txn, held=held: renew_claims(txn, [held], now_ms=NOW, lease_ms=LEASE))
    for now_ms in (NOW - DAY, NOW, NOW + DAY):
        put_in_time(store, now_ms)
        assert claim(store, now_ms) == []
    assert [row_of(store, key) for key in keys] == rows


def test_five_attempts_and_never_again(store: Store) -> None:
    key = put(store)
    made = []
    for offset in (0, 30 * SECOND, 5 * MINUTE, 25 * MINUTE, HOUR):
        if offset:
            assert claim(store, NOW + offset - 1) == []
        held = claim(store, NOW + offset)[0]
        row = finish(store, held, NOW + offset + 200)
        assert row is not None
        made.append(
            (held.decision.attempt, held.decision.ask_first, row.state, row.delivery and row.delivery.next_at_ms)
        )
    assert made == [
        (1, False, DeliveryState.ACCEPTED, NOW + 30 * SECOND),
        (2, False, DeliveryState.ACCEPTED, NOW + 5 * MINUTE),
        (3, True, DeliveryState.ACCEPTED, NOW + 25 * MINUTE),
        (4, True, DeliveryState.ACCEPTED, NOW + HOUR),
        (5, True, DeliveryState.FAILED, None),
    ]
    assert row_of(store, key).delivery is None
    assert claim(store, NOW + DAY) == []


def test_an_attempt_that_outlives_the_next_time_is_followed_at_once(store: Store) -> None:
    key = put(store)
    held = claim(store, NOW)[0]
    finish(store, held, NOW + 40 * SECOND)
    assert delivery_of(store, key) == OpenDelivery(NOW, 1, NOW + 40 * SECOND, 0)
    assert claim(store, NOW + 40 * SECOND)[0].decision.attempt == 2


def test_the_schedule_in_force_at_the_result_counts(store: Store) -> None:
    key = put(store)
    held = claim(store, NOW)[0]
    row = finish(store, held, NOW, schedule=Schedule((0,)))
    assert row is not None
    assert row.state is DeliveryState.FAILED
    assert row_of(store, key) == row


def test_a_claim_without_an_attempt_is_a_defect(store: Store) -> None:
    put(store)
    held = claim(store, NOW)[0]
    broken = held._replace(decision=held.decision._replace(attempt=None))
    with pytest.raises(AssertionError):
        finish(store, broken, NOW)


# -- slow servers -------------------------------------------------------------------------------------------------


def put_to(store: Store, login: str, *nonces: int) -> list[ItemKey]:
    pairs = [make_pair("alice", login, nonce=nonce) for nonce in nonces]
    for pair in pairs:
        store.write_now(
            lambda txn, pair=pair: store_pair(
                txn, pair, now_ms=NOW, from_client=True, delivery=OpenDelivery(NOW, 0, NOW, 0), own_login=OWN
            )
        )
    return [ItemKey.of(pair.outgoing) for pair in pairs]


def test_rows_for_slow_servers_are_passed_over_and_stay_due(store: Store) -> None:
    store.write_now(lambda txn: (register(txn, "bob", "Hung", "also"), register(txn, "dave", "well")))
    hung, well = put_to(store, "bob", 1, 2, 3), put_to(store, "dave", 4, 5, 6)
    slow = {("also", "hung")}

    def take(limit: int, slow_limit: int) -> list[Claim]:
        claims, failed = store.write_now(
            lambda txn: claim_due(
                txn, SCHEDULE, now_ms=NOW, lease_ms=LEASE, limit=limit, slow=slow, slow_limit=slow_limit
            )
        )
        assert failed == []
        return claims

    claims = take(3, 1)
    assert [one.key for one in claims] == [hung[0], *well[:2]]
    assert [one.route for one in claims] == [("also", "hung"), ("well",), ("well",)]
    assert [one.key for one in take(9, 0)] == well[2:]
    assert take(9, 0) == []
    assert delivery_of(store, hung[1]) == OpenDelivery(NOW, 0, NOW, 0)
    assert [one.key for one in take(9, 9)] == hung[1:]


def test_so_many_that_nobody_is_seen_behind_them_are_put_off(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries_module, "LOOK_AHEAD", 3)
    store.write_now(lambda txn: (register(txn, "bob", "hung"), register(txn, "dave", "well")))
    hung, well = put_to(store, "bob", 1, 2, 3, 4), put_to(store, "dave", 5)

    def take() -> list[ItemKey]:
        claims, _ = store.write_now(
            lambda txn: claim_due(txn, SCHEDULE, now_ms=NOW, lease_ms=LEASE, limit=2, slow={("hung",)})
        )
        return [one.key for one in claims]

    assert take() == []
    assert delivery_of(store, hung[2]) == OpenDelivery(NOW, 0, NOW + POSTPONED_MS, 0)
    assert delivery_of(store, hung[3]) == OpenDelivery(NOW, 0, NOW, 0)
    assert take() == well
    assert [one.key for one in claim(store, NOW + POSTPONED_MS - 1)] == hung[3:]
    assert {one.key for one in claim(store, NOW + POSTPONED_MS)} >= set(hung[:3])


# -- another schedule ---------------------------------------------------------------------------------------------


def test_a_shorter_schedule_fails_what_has_made_its_last_attempt(store: Store) -> None:
    made = put(store, OpenDelivery(NOW, 3, NOW + 25 * MINUTE, 0), nonce=1)
    fresh = put(store, OpenDelivery(NOW, 0, NOW + 25 * MINUTE, 0), nonce=2)
    short = Schedule((0, 10, 20))
    put_in_time(store, NOW + MINUTE, schedule=short)
    claims, failed = store.write_now(lambda txn: claim_due(txn, short, now_ms=NOW + MINUTE, lease_ms=LEASE, limit=10))
    assert [key for key, _ in failed] == [made]
    assert failed[0][1] == row_of(store, made)
    assert failed[0][1].state is DeliveryState.FAILED
    assert [(one.key, one.decision.attempt) for one in claims] == [(fresh, 3)]  # not failed without an attempt


def test_a_longer_schedule_moves_the_next_time(store: Store) -> None:
    key = put(store, OpenDelivery(NOW, 2, NOW + MINUTE, 0))
    assert claim(store, NOW + MINUTE) == []  # by the schedule in force it is too early
    assert delivery_of(store, key) == OpenDelivery(NOW, 2, NOW + 5 * MINUTE, 0)
    assert claim(store, NOW + 5 * MINUTE)[0].decision.attempt == 3


# -- clocks that jump ---------------------------------------------------------------------------------------------


def test_claims_of_an_earlier_process_are_void_at_the_start(store: Store) -> None:
    keys = [put(store, nonce=nonce) for nonce in (1, 2)]
    claims = claim(store, NOW)
    put_in_time(store, NOW + SECOND)
    for key, lost in zip(keys, claims, strict=True):
        assert delivery_of(store, key) == OpenDelivery(NOW, 0, NOW + SECOND, 0)
        assert finish(store, lost, NOW + SECOND, delivered=True) is None
    assert len(claim(store, NOW + SECOND)) == 2


def test_a_start_writes_nothing_for_rows_at_their_times(store: Store) -> None:
    deliveries = [OpenDelivery(NOW, 1, NOW + 30 * SECOND, 0), OpenDelivery(NOW - DAY, 1, NOW - DAY + 30 * SECOND, 0)]
    keys = [put(store, delivery, nonce=nonce) for nonce, delivery in enumerate(deliveries)]
    put_in_time(store, NOW + SECOND)
    assert [row_of(store, key).version for key in keys] == [1, 1]
    assert [delivery_of(store, key) for key in keys] == deliveries


def test_rows_that_an_attempt_is_working_on_are_left_alone(store: Store) -> None:
    keys = [put(store, nonce=nonce) for nonce in (1, 2)]
    claims = claim(store, NOW)
    put_in_time(store, NOW - DAY, held={(claims[0].seq, claims[0].version)})
    assert delivery_of(store, keys[0]) == OpenDelivery(NOW, 0, NOW, NOW + LEASE)
    assert delivery_of(store, keys[1]) == OpenDelivery(NOW - DAY, 0, NOW - DAY, 0)
    assert finish(store, claims[1], NOW - DAY, delivered=True) is None
    assert finish(store, claims[0], NOW - DAY, delivered=True) is not None


def test_a_held_claim_that_was_lost_does_not_hold_its_row(store: Store) -> None:
    key = put(store)
    lost = claim(store, NOW)[0]
    claim(store, NOW + LEASE)
    put_in_time(store, NOW - DAY, held={(lost.seq, lost.version)})
    assert delivery_of(store, key).lease_until_ms == 0


def test_a_clock_that_goes_back_does_not_stop_the_worker(store: Store) -> None:
    waiting = put(store, OpenDelivery(NOW, 2, NOW + 5 * MINUTE, 0), nonce=1)
    fresh = put(store, OpenDelivery(NOW, 0, NOW, NOW + LEASE), nonce=2)
    back = NOW - DAY
    put_in_time(store, back)
    # The latest attempt, 30 s after the acceptance, is made to be now.
    assert delivery_of(store, waiting) == OpenDelivery(back - 30 * SECOND, 2, back + 270 * SECOND, 0)
    assert delivery_of(store, fresh) == OpenDelivery(back, 0, back, 0)
    assert [one.key for one in claim(store, back)] == [fresh]
    assert claim(store, back + 270 * SECOND - 1, lease_ms=HOUR)[0].key == fresh  # its lease is over
    assert [one.key for one in claim(store, back + 270 * SECOND)] == [waiting]


def test_a_clock_that_goes_back_during_an_attempt_does_not_postpone_the_next(store: Store) -> None:
    key = put(store)
    held = claim(store, NOW)[0]
    back = NOW - DAY
    put_in_time(store, back, held={(held.seq, held.version)})
    row = finish(store, held, back + SECOND)
    assert row is not None
    assert delivery_of(store, key) == OpenDelivery(back + SECOND, 1, back + 31 * SECOND, 0)
    assert claim(store, back + 31 * SECOND)[0].decision.attempt == 2


def test_the_last_attempt_is_the_last_also_for_a_clock_that_goes_back(store: Store) -> None:
    put(store)
    held = claim(store, NOW + HOUR)[0]
    row = finish(store, held, NOW - DAY)
    assert row is not None
    assert row.state is DeliveryState.FAILED


def test_a_clock_that_starts_in_1970_stops_nothing(store: Store) -> None:
    early = 5 * SECOND
    waiting = put(store, OpenDelivery(NOW, 4, NOW + HOUR, 0), nonce=1)
    fresh = put(store, first_delivery(NOW), nonce=2)
    put_in_time(store, early)
    assert delivery_of(store, waiting) == OpenDelivery(early - 25 * MINUTE, 4, early + 35 * MINUTE, 0)
    held = claim(store, early)[0]
    assert held.key == fresh
    finish(store, held, early)
    assert delivery_of(store, fresh) == OpenDelivery(early, 1, early + 30 * SECOND, 0)


def test_a_clock_that_jumps_ahead_fails_nothing_without_an_attempt(store: Store) -> None:
    key = put(store, OpenDelivery(5 * SECOND, 0, 5 * SECOND, 0))
    put_in_time(store, NOW)
    held = claim(store, NOW)[0]
    assert (held.key, held.decision.attempt, held.decision.final) == (key, 5, True)


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_open_rows_are_put_in_time_in_stretches(store: Store, limit: int) -> None:
    keys = [put(store, OpenDelivery(NOW + nonce, 2, NOW + 5 * MINUTE, 0), nonce=nonce) for nonce in range(7)]
    back = NOW - DAY
    put_in_time(store, back, limit=limit)
    assert {delivery_of(store, key) for key in keys} == {OpenDelivery(back - 30 * SECOND, 2, back + 270 * SECOND, 0)}


def test_rows_that_move_behind_the_stretch_are_met_once_more_and_left(store: Store) -> None:
    # Each moves to a later time than all others have, so that it lies ahead of those that are still to be seen.
    accepted = NOW - 30 * SECOND
    keys = [put(store, OpenDelivery(accepted, 2, NOW + nonce, 0), nonce=nonce) for nonce in range(5)]
    assert put_in_time(store, NOW + 10, limit=2) <= 6
    for key in keys:
        assert delivery_of(store, key) == OpenDelivery(accepted, 2, accepted + 5 * MINUTE, 0)
        assert row_of(store, key).version == 2


def test_ending_a_delivery_that_is_over_does_nothing(store: Store) -> None:
    key = put(store)
    held = claim(store, NOW)[0]
    row = finish(store, held, NOW, delivered=True)
    assert row is not None
    store.write_now(lambda txn: end_delivery(txn, row))
    assert row_of(store, key) == row


def test_a_claim_of_a_row_that_is_gone_writes_nothing(store: Store) -> None:
    key = put(store)
    held = claim(store, NOW)[0]

    def remove(txn: Transaction) -> None:
        row = get_row(txn, key)
        assert row is not None
        end_delivery(txn, row)
        txn.delete(Table.HISTORY, key.encode())
        txn.delete(Table.CONTAINERS, pack_number(row.seq))
        for entry, _ in list(txn.scan(Table.OUTBOX_UNSYNCED)):
            txn.delete(Table.OUTBOX_UNSYNCED, entry)

    store.write_now(remove)
    assert finish(store, held, NOW, delivered=True) is None


# -- the vectors --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", cases("schedule", kind="decide"))
def test_a_row_that_is_looked_at(store: Store, case: dict[str, Any]) -> None:
    schedule, now_ms = Schedule(tuple(case["scheduleSeconds"])), case["nowMs"]
    key = put(store, OpenDelivery(case["acceptedAtMs"], case["lastAttempt"], now_ms, 0))
    claims, failed = store.write_now(lambda txn: claim_due(txn, schedule, now_ms=now_ms, lease_ms=LEASE, limit=10))
    if case["attempt"] is None:
        assert claims == []
        if case["nextAtMs"] is None:
            assert [row.state.wire for _, row in failed] == ["failed"]
            return
    else:
        decision = claims[0].decision
        assert (decision.attempt, decision.ask_first) == (case["attempt"], case["askFirst"])
        row = finish(store, claims[0], now_ms, schedule=schedule)
        assert row is not None
        assert row.state.wire == case["stateIfUnsuccessful"]
    assert failed == []
    open_row = row_of(store, key)
    assert (open_row.delivery.next_at_ms if open_row.delivery else None) == case["nextAtMs"]


@pytest.mark.parametrize("case", cases("schedule", kind="run"))
def test_a_row_whose_attempts_all_fail(store: Store, case: dict[str, Any]) -> None:
    schedule, accepted = Schedule(tuple(case["scheduleSeconds"])), case["acceptedAtMs"]
    key = put(store, OpenDelivery(accepted, 0, accepted, 0))
    made: list[list[int | None]] = []
    before = accepted
    for now_ms in case["wakesMs"]:
        if now_ms < before:
            put_in_time(store, now_ms, schedule=schedule)
        before = now_ms
        for held in claim(store, now_ms, schedule=schedule):
            made.append([now_ms, held.decision.attempt])
            finish(store, held, now_ms, schedule=schedule)
    assert made == case["attempts"]
    assert row_of(store, key).state.wire == case["stateAfter"]


# Damage


def test_a_row_that_cannot_be_read_holds_up_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with opened(tmp_path / "shine.mdb") as store:
        store.write_now(lambda txn: register(txn, "alice", OWN, "other"))
        bad, good = put(store, nonce=1), put(store, nonce=2)

        def damage(txn: Transaction) -> None:
            txn.put(Table.HISTORY, bad.encode(), b"\xff" * 9)
            txn.put(Table.DUE_ATTEMPTS, time_key(NOW, 99), b"\xff")

        store.write_now(damage)
        assert [claim.key for claim in claim(store, NOW)] == [good]
        store.write_now(lambda txn: reschedule(txn, SCHEDULE, now_ms=NOW, held=(), after=b"", limit=9))
    assert bad.message.base_key in caplog.text
    assert "shine-node verify" in caplog.text
