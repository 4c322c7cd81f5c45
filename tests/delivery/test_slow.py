"""Servers that let attempts wait: how much room they have, and how much all others."""

from __future__ import annotations

import pytest

from shine_node.delivery import slow as slow_module
from shine_node.delivery.slow import FORGOTTEN_SECONDS, SLOW_SECONDS, Room, SlowRoutes
from shine_node.protocol.schedule import Decision
from shine_node.store.deliveries import Claim, Route
from shine_node.store.layout import ItemKey
from tests.store.rooms import make_pair

KEY = ItemKey.of(make_pair("alice", "bob").outgoing)
HUNG, WELL = ("hung",), ("well",)


def claim(number: int, route: Route) -> Claim:
    return Claim(KEY, number, 1, 0, Decision(1, False, None, 0), route)


def begun(routes: SlowRoutes, route: Route, *numbers: int, now: float = 0.0) -> list[Claim]:
    claims = [claim(number, route) for number in numbers]
    for one in claims:
        routes.begin(one, now)
    return claims


def test_attempts_count_until_their_servers_are_slow_and_then_apart() -> None:
    routes = SlowRoutes(4)
    assert routes.room(0.0) == Room(4, 2, frozenset())
    begun(routes, HUNG, 1, 2, 3, 4)
    assert routes.room(SLOW_SECONDS - 0.1) == Room(0, 2, frozenset())
    assert routes.room(SLOW_SECONDS) == Room(4, 0, frozenset({HUNG})), "the room of all others is free again"
    begun(routes, ("hung too",), 5, 6, 7, 8, now=SLOW_SECONDS)
    both = frozenset({HUNG, ("hung too",)})
    assert routes.room(2 * SLOW_SECONDS) == Room(0, 0, both), "twice as many are all that there may be"


def test_who_takes_messages_is_not_slow_however_many_wait_in_line() -> None:
    routes = SlowRoutes(4)
    claims = begun(routes, WELL, 1, 2, 3)
    for number, one in enumerate(claims[:2], 1):
        routes.end(one, number * 0.9 * SLOW_SECONDS, delivered=True)
    assert routes.room(2 * SLOW_SECONDS) == Room(3, 2, frozenset())
    assert routes.room(3 * SLOW_SECONDS) == Room(4, 1, frozenset({WELL})), "it has stopped to"
    routes.end(claims[2], 3 * SLOW_SECONDS, delivered=True)
    assert routes.room(3 * SLOW_SECONDS) == Room(4, 2, frozenset())


def test_who_was_slow_is_so_for_a_while_or_until_it_takes_one() -> None:
    routes = SlowRoutes(4)
    quick, long, other = (*begun(routes, WELL, 1), *begun(routes, HUNG, 2, 3))
    routes.end(quick, 0.1, delivered=False)
    assert routes.room(0.1).slow == frozenset(), "a refusal at once takes nobody's time"
    routes.end(long, SLOW_SECONDS, delivered=False)
    routes.end(other, SLOW_SECONDS, delivered=False)
    assert routes.room(SLOW_SECONDS + FORGOTTEN_SECONDS - 1) == Room(4, 2, frozenset({HUNG}))
    assert routes.room(SLOW_SECONDS + FORGOTTEN_SECONDS) == Room(4, 2, frozenset())
    late = begun(routes, HUNG, 4, 5, now=100.0)
    routes.end(late[0], 110.0, delivered=False)
    routes.end(late[1], 111.0, delivered=True)
    assert routes.room(111.0).slow == frozenset()


def test_a_long_attempt_that_is_refused_while_others_are_taken_says_nothing() -> None:
    routes = SlowRoutes(4)
    one, other = begun(routes, WELL, 1, 2)
    routes.end(one, SLOW_SECONDS, delivered=True)
    routes.end(other, SLOW_SECONDS + 0.1, delivered=False)
    assert routes.room(SLOW_SECONDS + 1).slow == frozenset()


def test_a_single_attempt_at_a_time_leaves_room_for_a_slow_one() -> None:
    assert SlowRoutes(1).room(0.0) == Room(1, 1, frozenset())


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_module, "MAX_REMEMBERED", 3)
    routes = SlowRoutes(100)
    for number in range(9):
        [one] = begun(routes, (f"hung{number}",), number)
        routes.end(one, SLOW_SECONDS, delivered=False)
    assert routes.room(SLOW_SECONDS).slow == {("hung6",), ("hung7",), ("hung8",)}
