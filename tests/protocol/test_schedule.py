"""The schedule: every vector, and what holds for any schedule, any clock and any worker."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shine_node.protocol.schedule import ASK_FIRST_FROM, Decision, DeliveryState, Schedule, lease_is_over
from tests.support.vectors import cases

NOW_MS = 1_774_700_600_000
HOUR_MS = 3_600_000
DEFAULT = Schedule((0, 30, 300, 1500, 3600))


class Row:
    """A delivery whose every attempt fails at once, as the worker keeps it."""

    def __init__(self, schedule: Schedule, accepted_at_ms: int) -> None:
        self.schedule = schedule
        self.accepted_at_ms = accepted_at_ms
        self.attempts: list[tuple[int, int]] = []
        self.state = DeliveryState.ACCEPTED
        self.next_at_ms: int | None = accepted_at_ms

    @property
    def last_attempt(self) -> int:
        return self.attempts[-1][1] if self.attempts else 0

    def look(self, now_ms: int) -> Decision:
        decision = self.schedule.decide(
            accepted_at_ms=self.accepted_at_ms, last_attempt=self.last_attempt, now_ms=now_ms
        )
        self.accepted_at_ms = decision.accepted_at_ms
        if decision.attempt is not None:
            self.attempts.append((now_ms, decision.attempt))
        self.state, self.next_at_ms = decision.state_if_unsuccessful, decision.next_at_ms
        return decision


# The vectors


@pytest.mark.parametrize("case", cases("schedule", kind="decide"))
def test_a_decision_of_the_vectors(case: dict[str, Any]) -> None:
    decision = Schedule(tuple(case["scheduleSeconds"])).decide(
        accepted_at_ms=case["acceptedAtMs"], last_attempt=case["lastAttempt"], now_ms=case["nowMs"]
    )
    assert (decision.attempt, decision.ask_first) == (case["attempt"], case["askFirst"])
    assert decision.next_at_ms == case["nextAtMs"]
    assert decision.state_if_unsuccessful.wire == case["stateIfUnsuccessful"]
    assert decision.final is case["final"]


@pytest.mark.parametrize("case", cases("schedule", kind="run"))
def test_a_run_of_the_vectors(case: dict[str, Any]) -> None:
    row = Row(Schedule(tuple(case["scheduleSeconds"])), case["acceptedAtMs"])
    for now_ms in case["wakesMs"]:
        row.look(now_ms)
    assert [list(attempt) for attempt in row.attempts] == case["attempts"]
    assert row.state.wire == case["stateAfter"]


@pytest.mark.parametrize("case", cases("schedule", kind="synced"))
def test_a_pair_by_sync_of_the_vectors(case: dict[str, Any]) -> None:
    decision = Schedule(tuple(case["scheduleSeconds"])).adopt(
        effective_ms=max(case["timeMs"], case["revisionMs"]), now_ms=case["nowMs"]
    )
    assert (decision is not None) is case["send"]
    if decision is None:
        assert (case["attempt"], case["askFirst"], case["nextAtMs"]) == (None, False, None)
    else:
        assert (decision.attempt, decision.ask_first, decision.next_at_ms) == (
            case["attempt"],
            case["askFirst"],
            case["nextAtMs"],
        )


# The table of §5.3 by hand


def test_the_five_attempts_on_time() -> None:
    row = Row(DEFAULT, NOW_MS)
    asked = [row.look(NOW_MS + offset * 1000).ask_first for offset in (0, 30, 300, 1500, 3600)]
    assert [attempt for _, attempt in row.attempts] == [1, 2, 3, 4, 5]
    assert asked == [False, False, True, True, True]
    assert ASK_FIRST_FROM == 3
    assert row.state is DeliveryState.FAILED
    assert row.next_at_ms is None
    assert DEFAULT.last_offset_ms == HOUR_MS


def test_between_two_times_there_is_nothing_to_do() -> None:
    decision = DEFAULT.decide(accepted_at_ms=NOW_MS, last_attempt=1, now_ms=NOW_MS + 29_999)
    assert decision == Decision(None, False, NOW_MS + 30_000, NOW_MS)
    assert not decision.final
    assert decision.state_if_unsuccessful is DeliveryState.ACCEPTED


def test_missed_times_collapse_and_after_the_hour_there_is_one_attempt() -> None:
    assert DEFAULT.decide(accepted_at_ms=NOW_MS, last_attempt=1, now_ms=NOW_MS + 400_000).attempt == 3
    late = DEFAULT.decide(accepted_at_ms=NOW_MS, last_attempt=0, now_ms=NOW_MS + 10 * HOUR_MS)
    assert late == Decision(5, True, None, NOW_MS)
    assert late.final


def test_after_the_last_attempt_nothing_is_sent_whatever_the_clock_says() -> None:
    for now_ms in (0, NOW_MS, NOW_MS + HOUR_MS, NOW_MS + 1000 * HOUR_MS):
        for last_attempt in (5, 6):  # six: the operator has shortened the schedule
            decision = DEFAULT.decide(accepted_at_ms=NOW_MS, last_attempt=last_attempt, now_ms=now_ms)
            assert decision == Decision(None, False, None, NOW_MS)


def test_a_clock_that_went_back_moves_the_acceptance() -> None:
    decision = DEFAULT.decide(accepted_at_ms=NOW_MS, last_attempt=3, now_ms=NOW_MS - HOUR_MS)
    assert decision == Decision(None, False, NOW_MS - HOUR_MS + 1_200_000, NOW_MS - HOUR_MS - 300_000)
    first = DEFAULT.decide(accepted_at_ms=NOW_MS, last_attempt=0, now_ms=NOW_MS - 1)
    assert first == Decision(1, False, NOW_MS - 1 + 30_000, NOW_MS - 1)


def test_a_pair_by_sync_joins_by_its_age() -> None:
    assert DEFAULT.adopt(effective_ms=NOW_MS - 400_000, now_ms=NOW_MS) == Decision(
        3, True, NOW_MS + 1_100_000, NOW_MS - 400_000
    )
    assert DEFAULT.adopt(effective_ms=NOW_MS + 5000, now_ms=NOW_MS) == Decision(1, False, NOW_MS + 30_000, NOW_MS)
    assert DEFAULT.adopt(effective_ms=NOW_MS - HOUR_MS, now_ms=NOW_MS) is None
    assert Schedule((0,)).adopt(effective_ms=NOW_MS, now_ms=NOW_MS) is None  # the last offset stands for the hour


def test_the_states_as_they_travel() -> None:
    assert [(int(state), state.wire) for state in DeliveryState] == [(0, "accepted"), (1, "delivered"), (2, "failed")]


@pytest.mark.parametrize(
    ("lease_until_ms", "over"),
    [
        (0, True),
        (NOW_MS - 1, True),
        (NOW_MS, True),
        (NOW_MS + 1, False),
        (NOW_MS + 60_000, False),
        (NOW_MS + 60_001, True),
    ],
)
def test_a_lease(lease_until_ms: int, over: bool) -> None:
    assert lease_is_over(lease_until_ms=lease_until_ms, now_ms=NOW_MS, lease_ms=60_000) is over


# What holds always

schedules = st.lists(st.integers(1, 604_800), max_size=15, unique=True).map(
    lambda offsets: Schedule((0, *sorted(offsets)))
)
steps = st.integers(-HOUR_MS, HOUR_MS) | st.integers(-1, 40_000) | st.integers(-(10**11), 10**11)
walks = st.lists(steps, max_size=40)


@given(schedules, walks)
def test_numbers_rise_and_nothing_fails_without_an_attempt(schedule: Schedule, walk: list[int]) -> None:
    row, now_ms = Row(schedule, NOW_MS), NOW_MS
    for step in walk:
        now_ms = max(0, now_ms + step)
        before = row.state
        decision = row.look(now_ms)
        if decision.attempt is not None:
            assert before is DeliveryState.ACCEPTED
            assert decision.ask_first is (decision.attempt >= 3)
        if decision.final:
            # The attempt that was the last of the schedule has been made, now or before.
            assert row.last_attempt == len(schedule.offsets_ms)
        assert row.accepted_at_ms <= now_ms or row.state is DeliveryState.FAILED  # ages are never negative
    numbers = [number for _, number in row.attempts]
    assert numbers == sorted(set(numbers))
    assert all(1 <= number <= len(schedule.offsets_ms) for number in numbers)


@given(schedules, walks)
def test_the_next_look_is_ahead_and_never_further_than_the_schedules_own_gap(
    schedule: Schedule, walk: list[int]
) -> None:
    row, now_ms = Row(schedule, NOW_MS), NOW_MS
    for step in walk:
        now_ms = max(0, now_ms + step)
        row.look(now_ms)
        if row.next_at_ms is not None:
            made = row.last_attempt
            assert 0 < row.next_at_ms - now_ms <= schedule.offsets_ms[made] - schedule.offsets_ms[made - 1]


@given(schedules, walks)
def test_a_worker_that_keeps_the_times_comes_to_the_end_whatever_the_clock_did(
    schedule: Schedule, walk: list[int]
) -> None:
    row, now_ms = Row(schedule, NOW_MS), NOW_MS
    for step in walk:
        now_ms = max(0, now_ms + step)
        row.look(now_ms)
    looks = 0
    while row.next_at_ms is not None:
        now_ms = max(now_ms, row.next_at_ms)
        row.look(now_ms)
        looks += 1
        assert looks <= len(schedule.offsets_ms)
    assert row.state is DeliveryState.FAILED
    assert row.last_attempt == len(schedule.offsets_ms)


@given(schedules, st.integers(0, 2 * 604_800_000), st.integers(0, 16))
def test_a_decision_is_one_rule_said_twice(schedule: Schedule, age_ms: int, made: int) -> None:
    """The attempt that is due is the latest whose time has passed, and the next one is the first whose time has not."""
    offsets = schedule.offsets_ms
    made = min(made, sum(offset <= age_ms for offset in offsets))
    decision = schedule.decide(accepted_at_ms=NOW_MS, last_attempt=made, now_ms=NOW_MS + age_ms)
    passed = [number for number, offset in enumerate(offsets, 1) if offset <= age_ms]
    ahead = [NOW_MS + offset for offset in offsets if offset > age_ms]
    assert decision.attempt == (passed[-1] if passed[-1] > made else None)
    assert decision.next_at_ms == (ahead[0] if ahead else None)
    assert decision.accepted_at_ms == NOW_MS


@given(schedules, st.integers(-(10**9), 10**9))
def test_adopted_pairs_are_younger_than_the_last_offset(schedule: Schedule, age_ms: int) -> None:
    decision = schedule.adopt(effective_ms=NOW_MS - age_ms, now_ms=NOW_MS)
    assert (decision is None) is (max(0, age_ms) >= schedule.last_offset_ms)
    if decision is not None:
        assert decision.attempt is not None  # what is due at that age is made at once
        assert not decision.final
