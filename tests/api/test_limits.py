"""Rates and counts, as pure arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shine_node.api.limits import AddressCount, TokenBucket


def test_a_burst_of_one_seconds_worth_then_the_rate() -> None:
    bucket = TokenBucket(4, 100.0)
    assert [bucket.take(100.0) for _ in range(4)] == [0, 0, 0, 0]
    assert bucket.take(100.0) == 251  # a quarter of a second, rounded up
    assert bucket.take(100.2) > 0
    assert bucket.take(100.25) == 0
    assert bucket.take(100.25) > 0


def test_a_refused_request_costs_nothing() -> None:
    bucket = TokenBucket(1, 0.0)
    assert bucket.take(0.0) == 0
    for _ in range(100):
        assert bucket.take(0.5) > 0
    assert bucket.take(1.0) == 0


def test_idleness_saves_no_more_than_one_second() -> None:
    bucket = TokenBucket(3, 0.0)
    assert sum(bucket.take(3600.0) == 0 for _ in range(10)) == 3


def test_another_rate_holds_from_now_on() -> None:
    bucket = TokenBucket(2, 0.0)
    bucket.change_rate(100)
    assert sum(bucket.take(0.0) == 0 for _ in range(200)) == 2  # what was saved stays as it was
    assert sum(bucket.take(1.0) == 0 for _ in range(200)) == 100
    bucket.change_rate(1)
    assert sum(bucket.take(2.0) == 0 for _ in range(200)) == 1


@given(
    rate=st.integers(1, 1_000_000),
    waits=st.lists(st.floats(0, 0.1), max_size=60),
)
def test_who_waits_as_long_as_told_is_let_through(rate: int, waits: list[float]) -> None:
    bucket, now = TokenBucket(rate, 5.0), 5.0
    for wait in waits:
        now += wait
        told = bucket.take(now)
        assert 0 <= told <= 1000 / rate + 1
        if told:
            now += told / 1000
            assert bucket.take(now) == 0


@given(rate=st.integers(1, 50), steps=st.lists(st.floats(0, 0.3), min_size=1, max_size=300))
def test_never_more_than_the_rate_and_one_burst(rate: int, steps: list[float]) -> None:
    bucket, now, passed = TokenBucket(rate, 0.0), 0.0, 0
    for step in steps:
        now += step
        passed += bucket.take(now) == 0
    assert passed <= rate + now * rate + 1e-6


def test_connections_in_all_are_bounded() -> None:
    count = AddressCount(greatest=2, greatest_per_address=2)
    assert count.refusal("a") is None
    count.add("a")
    count.add("b")
    assert count.total == 2
    assert "too many connections" in (count.refusal("c") or "")
    count.remove("a")
    assert count.total == 1
    assert count.refusal("c") is None


def test_connections_of_one_address_are_bounded() -> None:
    count = AddressCount(greatest=10, greatest_per_address=2)
    count.add("a")
    assert count.refusal("a") is None
    count.add("a")
    assert "from this address" in (count.refusal("a") or "")
    assert count.refusal("b") is None
    count.remove("a")
    assert count.refusal("a") is None


def test_other_bounds_hold_from_now_on() -> None:
    count = AddressCount(greatest=2, greatest_per_address=2)
    count.add("a")
    count.add("a")
    count.change(greatest=3, greatest_per_address=1)
    assert "from this address" in (count.refusal("a") or "")
    assert count.refusal("b") is None
    count.change(greatest=1, greatest_per_address=9)
    assert "too many connections" in (count.refusal("b") or "")
    assert count.total == 2


@pytest.mark.parametrize("addresses", [1, 1000])
def test_addresses_that_have_gone_take_no_room(addresses: int) -> None:
    count = AddressCount(greatest=10_000, greatest_per_address=3)
    for number in range(addresses):
        assert count.refusal(f"192.0.2.{number}") is None
        count.add(f"192.0.2.{number}")
    for number in range(addresses):
        count.remove(f"192.0.2.{number}")
    assert count.total == 0
    assert not count._by_address
