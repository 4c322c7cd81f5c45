"""At which level the log tells what a peer can make happen again and again, so that it does not fill it; no I/O."""

from __future__ import annotations

import logging

from shine_node.clock import Clock

__all__ = ["QUIET_SECONDS", "Repeats"]

QUIET_SECONDS = 60.0
"""How long a line is not told again after it was told."""
MAX_REMEMBERED = 1000
"""Lines of which it is remembered when they were told; of the oldest it is forgotten."""


class Repeats:
    """When which line was told last."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told_at: dict[tuple[int, str, tuple[str, ...]], float] = {}

    def level(self, level: int, server_login: str, *about: str) -> int:
        """Return the level for the first such line within ``QUIET_SECONDS``, and ``DEBUG`` for the others.

        Args:
            server_login: the peer.
            about: what has happened, without the peer's own words: who wants to fill the log has many.
        """
        line, now = (level, server_login.lower(), about), self._clock.monotonic()
        told_at = self._told_at.get(line)
        if told_at is not None and now - told_at < QUIET_SECONDS:
            return logging.DEBUG
        self._told_at.pop(line, None)  # so that the oldest stands first
        if len(self._told_at) >= MAX_REMEMBERED:
            del self._told_at[next(iter(self._told_at))]
        self._told_at[line] = now
        return level
