"""At which level the log tells that a link is down or up, so that one that comes and goes does not fill it; no I/O."""

from __future__ import annotations

import logging

__all__ = ["STEADY_SECONDS", "Outage"]

STEADY_SECONDS = 60.0
"""How long a link must have been up for its next loss to be an outage of its own."""


class Outage:
    """What the log was told of one link: each outage once, and once that it is over. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._up_since: float | None = None
        self._told_down = False
        self._told_up = False

    def down(self, now: float) -> int:
        """Note that the link was lost or could not be opened, and return the level at which to say so.

        The reason does not matter: whoever wants to fill the log finds two that take turns.
        """
        if self._up_since is not None and now - self._up_since >= STEADY_SECONDS:
            self._told_down = False
        self._up_since = None
        if self._told_down:
            return logging.DEBUG
        self._told_down, self._told_up = True, False
        return logging.WARNING

    def up(self, now: float) -> int:
        """Note that its hello was answered, and return the level at which to say so."""
        self._up_since = now
        if self._told_up:
            return logging.DEBUG
        self._told_up = True
        return logging.INFO
