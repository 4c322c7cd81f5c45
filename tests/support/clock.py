"""A clock that only moves when a test says so: hours of idleness and of pauses in milliseconds."""

from __future__ import annotations

import asyncio
import heapq
from itertools import count

SETTLE_PASSES = 40
"""Rounds of the event loop given to the tasks after each step; enough for chains of a few awaits."""


class ManualClock:
    """An implementation of ``shine_node.clock.Clock`` whose hands a test moves.

    ``advance`` moves both clocks and wakes sleepers in the order of their times; ``jump`` moves the wall clock alone,
    as a correction by NTP does.
    """

    def __init__(self, now_ms: int = 1_774_700_000_000, monotonic: float = 1_000.0) -> None:
        self._wall_ms = float(now_ms)
        self._monotonic = monotonic
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = count()

    def now_ms(self) -> int:
        """Return the wall clock, Unix milliseconds."""
        return round(self._wall_ms)

    def monotonic(self) -> float:
        """Return the monotonic clock, seconds."""
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        """Wait until ``advance`` has moved the clock by this much; not at all for 0 or less."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._monotonic + seconds, next(self._order), future))
        await future

    @property
    def sleeping(self) -> int:
        """How many sleepers there are now."""
        return sum(not future.done() for _, _, future in self._sleepers)

    def next_wake(self) -> float | None:
        """Return the seconds until the next sleeper wakes; ``None`` if nobody sleeps."""
        times = [at for at, _, future in self._sleepers if not future.done()]
        return min(times) - self._monotonic if times else None

    def jump(self, milliseconds: int) -> None:
        """Move the wall clock alone, forward or back."""
        self._wall_ms += milliseconds

    async def advance(self, seconds: float) -> None:
        """Move both clocks; sleepers wake in the order of their times, and tasks run after each of them."""
        await settle()
        target = self._monotonic + seconds
        while self._sleepers and self._sleepers[0][0] <= target:
            at, _, future = heapq.heappop(self._sleepers)
            if future.done():
                continue
            self._move_to(max(at, self._monotonic))
            future.set_result(None)
            await settle()
        self._move_to(target)
        await settle()

    def _move_to(self, monotonic: float) -> None:
        self._wall_ms += (monotonic - self._monotonic) * 1000
        self._monotonic = monotonic


async def settle() -> None:
    """Let the tasks that are ready run, and those that they make ready."""
    for _ in range(SETTLE_PASSES):
        await asyncio.sleep(0)
