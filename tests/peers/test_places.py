from typing import Any

import pytest

from shine_node.peers.places import Holder, most_kept, most_of_one_place, who_gives_way
from shine_node.peers.snapshot import LinkState

pytestmark = pytest.mark.core

NOW = 1000.0


def holder(key: str, state: LinkState, **changes: Any) -> Holder[str]:
    return Holder(key, state, **{"busy": True, "used_at": NOW, "waits_since": None, **changes})


def connecting(key: str, seconds: float) -> Holder[str]:
    return holder(key, LinkState.CONNECTING, waits_since=NOW - seconds)


def asked(key: str, seconds: float) -> Holder[str]:
    return holder(key, LinkState.CONNECTED, waits_since=NOW - seconds)


def idle(key: str, state: LinkState, *, seconds: float) -> Holder[str]:
    return holder(key, state, busy=False, used_at=NOW - seconds)


def test_an_idle_link_goes_first_and_of_those_what_is_not_connected_then_what_was_used_longest_ago() -> None:
    holders = [
        connecting("tarpit", 100),
        idle("new", LinkState.CONNECTED, seconds=1),
        idle("old", LinkState.CONNECTED, seconds=50),
        idle("dead", LinkState.PAUSE, seconds=0),
        idle("rest", LinkState.IDLE, seconds=1),
    ]
    gone = []
    while (key := who_gives_way(holders, NOW)) is not None:
        gone.append(key)
        holders = [one for one in holders if one.key != key]
    assert gone == ["rest", "dead", "old", "new", "tarpit"]


def test_then_the_one_that_has_been_connecting_longest_if_it_is_over_a_second() -> None:
    fresh = [connecting("a", 0.2), connecting("b", 0.9), holder("closing", LinkState.IDLE)]
    assert who_gives_way(fresh, NOW) is None
    assert who_gives_way([*fresh, connecting("c", 1), connecting("d", 7), connecting("e", 3)], NOW) == "d"


def test_then_the_one_that_has_let_a_request_wait_longest_if_it_is_over_five_seconds() -> None:
    slow = [asked("a", 4.9), asked("b", 2), connecting("c", 0.5), holder("waits for nothing", LinkState.CONNECTED)]
    assert who_gives_way(slow, NOW) is None
    assert who_gives_way([*slow, asked("d", 5), asked("e", 6)], NOW) == "e"
    assert who_gives_way([*slow, asked("d", 5), connecting("f", 1)], NOW) == "f", "routes into nothing before those"


def test_nobody_gives_way_where_nobody_is() -> None:
    assert who_gives_way([], NOW) is None


@pytest.mark.parametrize(
    ("connections", "of_one_place", "kept"),
    [(1, 2, 1), (7, 2, 7), (8, 2, 7), (24, 3, 21), (256, 32, 224), (100_000, 12_500, 87_500)],
)
def test_the_shares(connections: int, of_one_place: int, kept: int) -> None:
    assert most_of_one_place(connections) == of_one_place
    assert most_kept(connections) == kept
