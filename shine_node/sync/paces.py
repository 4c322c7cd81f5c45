"""How much of a feed is asked for at once, and which peers are left alone with it for a while (PROTOCOL.md §6); no I/O.

A page that does not come may be larger than a frame of this server, or more than the link brings in time: less is asked
for, down to one entry. Where that does not come again and again, asking on would only cut the link for all else.
"""

from __future__ import annotations

from typing import NamedTuple

from shine_node.clock import Clock

__all__ = ["FIRST_REST", "LONGEST_REST", "Paces"]

FIRST_REST = 60.0
"""Seconds in which as much is not asked for as did not come. After one entry alone they are twice as many each time."""
LONGEST_REST = 3600.0
MAX_REMEMBERED = 1000


class _Pace(NamedTuple):
    limit: int
    below: int
    """Fewer than so many are asked for; than one, nothing is."""
    until: float
    """For how long, monotonic."""
    rest: float
    """How long the last rest after one entry alone was, 0 if something was of use since."""
    barren: bool = True
    """Nothing was of use since a page did not come."""


class Paces:
    """The paces of the peers from which a page did not come, at most ``MAX_REMEMBERED``; the others have none.

    Args:
        clock: measures the rests.
        page_limit: how many entries are asked for of a peer without a pace.
    """

    def __init__(self, clock: Clock, page_limit: int) -> None:
        self._clock = clock
        self._page_limit = page_limit
        self._paces: dict[str, _Pace] = {}

    def limit(self, server_login: str) -> int:
        """Return how many entries are to be asked for."""
        pace = self._paces.get(server_login.lower())
        return pace.limit if pace is not None else self._page_limit

    def rest(self, server_login: str) -> float:
        """Return for how many seconds nothing is to be asked for, 0 for none."""
        pace = self._paces.get(server_login.lower())
        if pace is None or pace.below > 1:
            return 0.0
        return max(0.0, pace.until - self._clock.monotonic())

    def failed(self, server_login: str) -> None:
        """Take note that a page of ``limit`` entries did not come: the link was lost over it, or the time was over."""
        login, limit = server_login.lower(), self.limit(server_login)
        before = self._paces.pop(login, None)  # so that the oldest stands first
        below, seconds, rest = max(2, limit), FIRST_REST, before.rest if before is not None else 0.0
        if limit == 1 and before is not None and before.barren:  # once may be chance
            below, seconds = 1, min(2 * rest, LONGEST_REST) or FIRST_REST
            rest = seconds
        if len(self._paces) >= MAX_REMEMBERED:
            del self._paces[next(iter(self._paces))]
        self._paces[login] = _Pace(max(1, limit // 4), below, self._clock.monotonic() + seconds, rest)

    def came(self, server_login: str, *, useful: bool) -> None:
        """Take note that a page came, and ask for more at once if that has not failed just now.

        Args:
            useful: something of it was stored, or it was the last one.
        """
        login = server_login.lower()
        pace = self._paces.get(login)
        if pace is None:
            return
        wider = min(2 * pace.limit, self._page_limit)
        if wider >= pace.below and self._clock.monotonic() < pace.until:
            wider = pace.limit
        if not useful:
            self._paces[login] = pace._replace(limit=wider)
        elif wider < self._page_limit:
            self._paces[login] = pace._replace(limit=wider, rest=0.0, barren=False)
        else:
            del self._paces[login]
