import logging

import pytest

from shine_node.peers.outage import STEADY_SECONDS, Outage

pytestmark = pytest.mark.core

START = 1000.0


def test_an_outage_is_told_once_however_often_it_is_tried() -> None:
    outage = Outage()
    assert outage.down(START) == logging.WARNING
    assert [outage.down(START + second) for second in range(1, 5000)] == [logging.DEBUG] * 4999


def test_that_it_is_over_is_told_once_and_the_next_outage_is_told_again() -> None:
    outage = Outage()
    now = START
    for _ in range(3):
        assert outage.up(now) == logging.INFO
        now += STEADY_SECONDS
        assert outage.down(now) == logging.WARNING
        assert outage.down(now + 1) == logging.DEBUG
        now += 2


def test_one_that_comes_and_goes_is_told_of_once() -> None:
    outage = Outage()
    assert (outage.down(START), outage.up(START)) == (logging.WARNING, logging.INFO)
    for second in range(100):
        assert outage.down(START + second + 1) == logging.DEBUG
        assert outage.up(START + second + 1) == logging.DEBUG
    assert outage.down(START + 100 + STEADY_SECONDS - 0.1) == logging.DEBUG
    assert outage.down(START + 300) == logging.DEBUG, "the time in which it is down does not make it steady"


def test_one_that_was_steady_before_anything_was_told() -> None:
    outage = Outage()
    assert outage.up(START) == logging.INFO
    assert outage.down(START + 1) == logging.WARNING, "the first loss is told however short it was up"
    assert outage.up(START + 2) == logging.INFO
    assert outage.up(START + 700) == logging.DEBUG, "closed when idle and opened again: that was no outage"
