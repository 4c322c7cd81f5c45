"""Waiting for the next time at which something is due, which may come to be earlier meanwhile."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress

from shine_node.clock import Clock
from shine_node.peers.waiting import within

__all__ = ["Alarm"]


class Alarm:
    """Wakes one task. Times are monotonic seconds.

    Args:
        clock: measures the time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due = math.inf
        self._early = asyncio.Event()

    def wake_by(self, at: float) -> None:
        """Have the task wake now if what it waits for lies after a time, so that it works out anew what is due."""
        if at < self._due:
            self._early.set()

    async def wait(self, due: float) -> None:
        """Wait for a time, infinity for none, or until ``wake_by`` names an earlier one."""
        self._early.clear()
        self._due = due
        with suppress(TimeoutError):
            if due == math.inf:
                await self._early.wait()
            else:
                await within(self._clock, due - self._clock.monotonic(), self._early.wait())
