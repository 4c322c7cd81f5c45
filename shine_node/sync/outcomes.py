"""How the sessions with each peer have ended, for the operator (PROTOCOL.md §6)."""

from __future__ import annotations

from typing import NamedTuple

from shine_node.clock import Clock
from shine_node.peers.snapshot import printable

__all__ = ["NONE_YET", "Outcome", "Outcomes"]

MAX_REMEMBERED = 1000


class Outcome(NamedTuple):
    """Times are Unix milliseconds, ``None`` for never; ``problem`` is empty where the last session ended well."""

    well_at_ms: int | None
    """When a session ended last of which each part had come to its end."""
    not_since_ms: int | None
    """When the first session ended that did not, after that one."""
    problem: str
    """Why the last one did not."""


NONE_YET = Outcome(None, None, "")


class _Ended(NamedTuple):
    """As ``Outcome``, in monotonic seconds."""

    well_at: float | None
    not_since: float | None
    problem: str


class Outcomes:
    """What is remembered of the peers that had a session last, at most ``MAX_REMEMBERED``."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ended: dict[str, _Ended] = {}

    def note(self, server_login: str, problem: str) -> None:
        """Take note that a session has just ended; ``problem`` is empty if it ended well."""
        login, now = server_login.lower(), self._clock.monotonic()
        before = self._ended.pop(login, _Ended(None, None, ""))  # so that the oldest stands first
        if len(self._ended) >= MAX_REMEMBERED:
            del self._ended[next(iter(self._ended))]
        if not problem:
            self._ended[login] = _Ended(now, None, "")
        else:
            since = now if before.not_since is None else before.not_since
            self._ended[login] = _Ended(before.well_at, since, printable(problem))

    def of(self, server_login: str) -> Outcome:
        """Return how it stands with a peer, ``NONE_YET`` if there was no session with it."""
        ended = self._ended.get(server_login.lower())
        if ended is None:
            return NONE_YET
        return Outcome(self._wall(ended.well_at), self._wall(ended.not_since), ended.problem)

    def _wall(self, at: float | None) -> int | None:
        """Return the time of the wall clock that lies as far back as a monotonic one: the wall clock may jump."""
        if at is None:
            return None
        return round(self._clock.now_ms() - (self._clock.monotonic() - at) * 1000)
