"""Which servers let attempts wait, so that those to all others need not wait behind them (PROTOCOL.md §5.3)."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from shine_node.store.deliveries import Claim, Route

__all__ = ["FORGOTTEN_SECONDS", "MAX_REMEMBERED", "SLOW_SECONDS", "Room", "SlowRoutes"]

SLOW_SECONDS = 2.0
"""Servers for which attempts are under way, and which take none for so long, are slow. Requests wait in one line for
each server: what counts is whether it goes on, and not how long one waits in it."""
FORGOTTEN_SECONDS = 60.0
"""So long after such an attempt has ended servers are like any others again, or when they take a message."""
MAX_REMEMBERED = 10_000


class Room(NamedTuple):
    """How many attempts may be begun, and how many of them for the routes that are slow."""

    attempts: int
    slow_attempts: int
    slow: frozenset[Route]


class SlowRoutes:
    """Counts the attempts under way. Those that wait for slow servers have room of their own, and half of it there.

    So ``most`` others can always be under way, however many servers let theirs wait; a server of which it is not known
    yet that it is slow holds them up for ``SLOW_SECONDS``, once.

    Args:
        most: ``delivery.maxConcurrent``; in all there are at most twice as many.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._under_way: dict[tuple[int, int], tuple[Route, float]] = {}
        self._took_at: OrderedDict[Route, float] = OrderedDict()
        self._slow_until: OrderedDict[Route, float] = OrderedDict()

    def begin(self, claim: Claim, now: float) -> None:
        """Take note that an attempt begins; ``now`` is the monotonic clock, seconds."""
        self._under_way[claim.seq, claim.version] = claim.route, now

    def end(self, claim: Claim, now: float, *, delivered: bool) -> None:
        """Take note that it has ended."""
        route, since = self._under_way.pop((claim.seq, claim.version))
        if delivered:
            _remember(self._took_at, route, now)
            self._slow_until.pop(route, None)
        elif now - since >= SLOW_SECONDS and not self._goes_on(route, now):
            _remember(self._slow_until, route, now + FORGOTTEN_SECONDS)

    def room(self, now: float) -> Room:
        """Return what may be begun."""
        while self._slow_until and next(iter(self._slow_until.values())) <= now:
            self._slow_until.popitem(last=False)
        waiting = {route for route, since in self._under_way.values() if now - since >= SLOW_SECONDS}
        slow = {route for route in waiting if not self._goes_on(route, now)} | self._slow_until.keys()
        slow_count = sum(route in slow for route, _ in self._under_way.values())
        others = len(self._under_way) - slow_count
        attempts = min(self._most - others, 2 * self._most - len(self._under_way))
        return Room(max(0, attempts), max(0, max(1, self._most // 2) - slow_count), frozenset(slow))

    def _goes_on(self, route: Route, now: float) -> bool:
        return now - self._took_at.get(route, float("-inf")) < SLOW_SECONDS


def _remember(times: OrderedDict[Route, float], route: Route, at: float) -> None:
    times.pop(route, None)
    times[route] = at
    if len(times) > MAX_REMEMBERED:
        times.popitem(last=False)
