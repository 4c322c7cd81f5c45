"""The only place that reads clocks; everything else takes one from outside, so that tests run hours in milliseconds."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """What the node needs of time."""

    def now_ms(self) -> int:
        """Return the wall clock, Unix milliseconds; it may jump, and is what is stored and compared with peers."""

    def monotonic(self) -> float:
        """Return seconds that never go back, for durations within this process."""

    async def sleep(self, seconds: float) -> None:
        """Wait for a duration of the monotonic clock."""


class SystemClock:
    """The clocks of the machine."""

    def now_ms(self) -> int:
        """Return the wall clock, Unix milliseconds."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Return the monotonic clock, seconds."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait on the event loop."""
        await asyncio.sleep(seconds)
