"""How often things may happen, as pure arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shine_node.delivery.rates import Rates


def passed(rates: Rates[str], key: str, now: float, tries: int, most: int = 6, seconds: float = 60) -> int:
    """Try so often, heed what is said, and return how often it happened."""
    count = 0
    for _ in range(tries):
        if not rates.wait(key, now, most=most, seconds=seconds):
            rates.note(key, now, most=most, seconds=seconds)
            count += 1
    return count


def test_as_many_at_once_as_fit_in_the_time_then_one_after_the_other() -> None:
    rates = Rates[str](10)
    assert passed(rates, "a", 0.0, 20) == 6
    assert rates.wait("a", 0.0, most=6, seconds=60) == pytest.approx(10)
    assert rates.wait("a", 9.0, most=6, seconds=60) == pytest.approx(1)
    assert passed(rates, "a", 10.0, 20) == 1
    assert passed(rates, "a", 40.0, 20) == 3
    assert passed(rates, "a", 1000.0, 20) == 6
    assert passed(rates, "b", 0.0, 20) == 6, "each key has its own"


def test_what_should_not_have_happened_makes_nobody_wait_for_longer() -> None:
    rates = Rates[str](10)
    for _ in range(1000):
        rates.note("a", 0.0, most=6, seconds=60)
    assert rates.wait("a", 0.0, most=6, seconds=60) == pytest.approx(10)


def test_one_is_the_least() -> None:
    rates = Rates[str](10)
    assert passed(rates, "a", 0.0, 5, most=1) == 1
    assert passed(rates, "a", 59.0, 5, most=1) == 0
    assert passed(rates, "a", 60.0, 5, most=1) == 1


def test_the_key_is_forgotten_for_which_nothing_has_happened_for_longest() -> None:
    rates = Rates[str](2)
    for key in ("a", "b", "a", "c"):
        rates.note(key, 0.0, most=1, seconds=60)
    assert len(rates) == 2
    assert [bool(rates.wait(key, 0.0, most=1, seconds=60)) for key in "abc"] == [True, False, True]


@given(most=st.integers(1, 30), steps=st.lists(st.floats(0, 20), min_size=1, max_size=300))
def test_never_more_than_the_rate_and_one_burst(most: int, steps: list[float]) -> None:
    rates, now, count = Rates[str](1), 0.0, 0
    for step in steps:
        now += step
        count += passed(rates, "a", now, 3, most=most)
    assert count <= most + now * most / 60 + 1e-6
