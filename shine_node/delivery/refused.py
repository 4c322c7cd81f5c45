"""What the bounds of users have refused: counted for `status`, and told in the log once in a while."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["BOUNDS", "Refused"]

BOUNDS: Final = ("maxStoredMiBPerUser", "maxMessagesPerDay", "messagesPerMinutePerSender")
"""Those of ``[limits]`` by which something is refused when it would be stored."""


class Refused:
    """Counts since the start, by the name of the bound. It is counted in one thread, and read in another one."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(BOUNDS, 0)
        self._last = dict.fromkeys(BOUNDS, "")
        self._told: Mapping[str, int] = self.counts

    @property
    def counts(self) -> dict[str, int]:
        """How much each bound has refused."""
        return dict(self._counts)

    def count(self, bound: str, whom: str) -> None:
        """Take note of one.

        Args:
            bound: one of ``BOUNDS``.
            whom: the login that it was about.
        """
        self._last[bound] = whom
        self._counts[bound] += 1

    def news(self) -> str:
        """Return what there is to tell since the last call, empty if nothing."""
        told, self._told = self._told, self.counts
        return ", ".join(
            f"{self._told[bound] - told[bound]} by limits.{bound} (the last one about {self._last[bound]})"
            for bound in BOUNDS
            if self._told[bound] != told[bound]
        )
