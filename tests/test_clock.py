"""The clocks of the machine: their units, and that they agree with what the standard library says."""

from __future__ import annotations

import asyncio
import time

from shine_node.clock import Clock, SystemClock


def test_the_wall_clock_counts_unix_milliseconds() -> None:
    clock: Clock = SystemClock()
    before = time.time_ns() // 1_000_000
    now_ms = clock.now_ms()
    assert type(now_ms) is int
    assert before <= now_ms <= time.time_ns() // 1_000_000


def test_the_monotonic_clock_counts_seconds() -> None:
    before = time.monotonic()
    assert before <= SystemClock().monotonic() <= time.monotonic()


def test_sleeping_takes_its_time_and_lets_others_run() -> None:
    async def story() -> list[str]:
        clock = SystemClock()
        told: list[str] = []

        async def sleeper() -> None:
            begin = clock.monotonic()
            await clock.sleep(0.05)
            told.append("woke")
            assert clock.monotonic() - begin >= 0.04  # the loop's clock may be coarser than this one

        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            tasks.create_task(sleeper())
            await asyncio.sleep(0)
            told.append("went on")
        return told

    assert asyncio.run(story()) == ["went on", "woke"]
