"""Rates and counts, as pure arithmetic."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shine_node.api import limits
from shine_node.api.limits import AddressBuckets, AddressCount, AddressShares, TokenBucket, decoding_cost
from shine_node.config import config_from_mapping
from tests.support.nodes import node_settings


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


def test_more_may_be_taken_than_there_is_and_is_waited_for_afterwards() -> None:
    bucket = TokenBucket(10, 0.0)
    assert bucket.wait_ms(0.0) == 0
    assert bucket.take(0.0, 65) == 0
    assert bucket.take(0.0) == bucket.wait_ms(0.0) == 5601  # 55 are owed, and one is needed
    assert bucket.take(5.5) > 0
    assert bucket.take(5.601, 2) == 0
    assert bucket.wait_ms(5.601) in (200, 201)


def test_what_costs_nothing_is_let_through_only_where_nothing_is_owed() -> None:
    bucket = TokenBucket(2, 0.0)
    assert [bucket.take(0.0, 0) for _ in range(5)] == [0] * 5
    assert bucket.is_full(0.0)
    assert bucket.take(0.0, 2) == 0
    assert bucket.take(0.0, 0) > 0
    assert not bucket.is_full(0.9)
    assert bucket.is_full(1.0)


# --- what a frame costs ---


@pytest.mark.parametrize(
    ("frame", "cost"),
    [
        ("", 0),
        ('{"op":"Ping","requestId":"r","payload":{}}', 0),
        ("x" * 16383, 0),
        ("x" * 16384, 1),
        ("ж" * 16384, 1),
        ("x" * 2**20, 64),
        (",[{" * 170, 0),
        (",[{" * 171, 1),
        ("[]," * (2**20 // 3), 63 + 1365),
        ('"a":0,' * (2**20 // 6), 63 + 341),
    ],
)
def test_what_a_frame_costs(frame: str, cost: int) -> None:
    assert decoding_cost(frame) == cost


def test_connections_of_one_address_share_a_bucket_and_what_it_owes_outlives_them() -> None:
    buckets = AddressBuckets()
    one = buckets.join("a", 10, 0.0)
    assert buckets.join("a", 99, 0.0) is one
    other = buckets.join("b", 10, 0.0)
    assert other is not one
    one.take(0.0, 30)
    buckets.leave("a", 0.0)
    assert buckets.join("a", 10, 0.0) is one  # a connection of it was still there
    for _ in range(2):
        buckets.leave("a", 0.5)
    again = buckets.join("a", 10, 1.0)
    assert again is one
    assert again.wait_ms(1.0) > 0
    buckets.leave("a", 3.1)  # nothing is owed any more
    assert buckets.join("a", 10, 3.1) is not one
    buckets.leave("b", 3.1)
    assert set(buckets._buckets) == {"a"}


def test_what_is_owed_by_those_who_have_gone_is_forgotten_when_it_is_paid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FEWEST_TO_SWEEP", 10)
    buckets = AddressBuckets()
    stays = buckets.join("stays", 1, 0.0)
    for number in range(200):
        now = number / 10
        buckets.join(str(number), 1, now).take(now, 3)
        buckets.leave(str(number), now)
        assert len(buckets._buckets) <= 80  # those of the last 3 s, twice as many, and a few
    assert buckets.join("stays", 1, 20.0) is stays


# --- rates ---


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


@given(
    rate=st.integers(1, 50),
    steps=st.lists(st.tuples(st.floats(0, 3), st.integers(0, 500)), min_size=1, max_size=100),
)
def test_never_more_than_the_rate_one_burst_and_the_last_one(rate: int, steps: list[tuple[float, int]]) -> None:
    bucket, now, passed, last = TokenBucket(rate, 0.0), 0.0, 0, 0
    for step, cost in steps:
        now += step
        if bucket.take(now, cost) == 0:
            passed += cost
            last = cost
        assert passed <= rate + now * rate + last + 1e-6


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


def test_the_connections_of_an_address_have_one_share_and_owe_together() -> None:
    shares = AddressShares()
    config = config_from_mapping(node_settings("server1", Path("/nowhere")))
    few = replace(config.limits, requests_per_second_per_address=3, peer_requests_per_second=5)
    one, other = (shares.join("192.0.2.7", few, 0.0, counted=True) for _ in range(2))
    assert one == other
    assert one.clients is not None and one.peers is not None and one.refusals is not None
    assert [one.clients.take(0.0) == 0 for _ in range(4)] == [True] * 3 + [False]
    assert [one.peers.take(0.0) == 0 for _ in range(6)] == [True] * 5 + [False]
    assert [one.refusals.take(0.0) == 0 for _ in range(4)] == [True] * 3 + [False]
    assert [one.heavy.take(0.0) == 0 for _ in range(6)] == [True] * 5 + [False]
    for _ in range(2):
        shares.leave("192.0.2.7", 0.0, counted=True)
    assert shares.join("192.0.2.7", few, 0.0, counted=True) == one, "it still owes"
    assert shares.join("192.0.2.8", few, 0.0, counted=True).clients is not one.clients
    shares.leave("192.0.2.7", 10.0, counted=True)
    assert shares.join("192.0.2.7", few, 10.0, counted=True).clients is not one.clients


def test_other_limits_hold_for_the_shares_of_those_who_are_connected() -> None:
    shares = AddressShares()
    config = config_from_mapping(node_settings("server1", Path("/nowhere")))
    shared = shares.join("192.0.2.7", config.limits, 0.0, counted=True)
    assert shared.clients is not None and shared.peers is not None and shared.refusals is not None
    shares.change_limits(replace(config.limits, requests_per_second_per_address=3, peer_requests_per_second=5))
    assert [shared.clients.take(0.0) == 0 for _ in range(4)] == [True] * 3 + [False]
    assert [shared.peers.take(0.0) == 0 for _ in range(6)] == [True] * 5 + [False]
    assert [shared.refusals.take(0.0) == 0 for _ in range(4)] == [True] * 3 + [False]
    assert [shared.heavy.take(0.0) == 0 for _ in range(6)] == [True] * 5 + [False]


def test_what_may_be_a_proxy_shares_what_is_heavy_and_nothing_else() -> None:
    shares = AddressShares()
    limits_ = config_from_mapping(node_settings("server1", Path("/nowhere"))).limits
    one = shares.join("127.0.0.1", limits_, 0.0, counted=False)
    assert one[1:] == (None, None, None)
    assert shares.join("127.0.0.1", limits_, 0.0, counted=False) == one
    shares.leave("127.0.0.1", 0.0, counted=False)
