import math

import pytest

from shine_node.peers.tries import Tries

pytestmark = pytest.mark.core


def test_a_place_is_left_alone_for_the_first_step_of_the_pauses() -> None:
    tries: Tries[str] = Tries()
    assert tries.not_before("a") == -math.inf
    tries.note("a", 100.0, 100.2)
    assert tries.not_before("a") == 101.0
    tries.note("a", 100.9, 100.95)
    assert tries.not_before("a") == 101.9
    assert tries.not_before("b") == -math.inf


def test_what_was_never_opened_or_long_ago_is_not_remembered() -> None:
    tries: Tries[str] = Tries()
    tries.note("a", None, 100.0)
    tries.note("b", 99.0, 100.0)
    assert len(tries) == 0


def test_it_does_not_grow() -> None:
    tries: Tries[object] = Tries()
    for number in range(10_000):
        now = 100.0 + number / 100
        tries.note(number, now - 0.01, now)
        tries.note("again and again", now - 0.01, now)
        assert len(tries) <= 110
    tries.note("the last", None, 1e6)
    assert len(tries) == 0
