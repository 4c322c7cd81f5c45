"""The clocks of the machine."""

from __future__ import annotations

import asyncio
import ctypes
import struct
import time
from pathlib import Path
from typing import Any

import pytest

from shine_node import clock as clock_module
from shine_node.clock import Clock, SystemClock, is_synchronised


def test_the_wall_clock_is_that_of_the_machine_in_milliseconds() -> None:
    before = time.time()
    now_ms = SystemClock().now_ms()
    after = time.time()
    assert isinstance(now_ms, int)
    assert int(before * 1000) - 1 <= now_ms <= int(after * 1000) + 1


def test_the_monotonic_clock_counts_seconds_and_never_goes_back() -> None:
    clock = SystemClock()
    readings = [clock.monotonic() for _ in range(1000)]
    assert readings == sorted(readings)
    assert abs(clock.monotonic() - time.monotonic()) < 5


def test_sleeping_takes_at_least_its_time_and_leaves_the_loop_to_others() -> None:
    async def story() -> None:
        clock: Clock = SystemClock()
        before, others = clock.monotonic(), 0

        async def other() -> None:
            nonlocal others
            while True:
                await asyncio.sleep(0)
                others += 1

        task = asyncio.create_task(other())
        await clock.sleep(0.05)
        assert clock.monotonic() - before >= 0.049
        assert others > 0
        task.cancel()

    asyncio.run(story())


class System:
    """A libc whose kernel says a status, or nothing."""

    def __init__(self, status: int, answer: int = 0) -> None:
        self._status = status
        self._answer = answer

    def adjtimex(self, timex: Any) -> int:
        assert not any(timex.raw), "nothing is to be set"
        struct.pack_into("@Illlli", timex, 0, 0, 0, 0, 0, 0, self._status)
        return self._answer


@pytest.mark.parametrize(
    ("system", "expected"),
    [(System(0x2001), True), (System(0x40, 5), False), (System(0, -1), None), (object(), None)],
)
def test_whether_something_keeps_the_clock_right(
    monkeypatch: pytest.MonkeyPatch, system: object, expected: bool | None
) -> None:
    monkeypatch.setattr(clock_module, "_TIMESYNCD_DONE", Path("/nowhere"))
    monkeypatch.setattr(ctypes, "CDLL", lambda name: system)
    assert is_synchronised() is expected


def test_where_the_kernel_refuses_to_say_timesyncd_is_looked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done = tmp_path / "synchronized"
    monkeypatch.setattr(clock_module, "_TIMESYNCD_DONE", done)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: System(0, -1))
    assert is_synchronised() is None
    done.touch()
    assert is_synchronised() is True
    monkeypatch.setattr(ctypes, "CDLL", lambda name: System(0x40, 5))
    assert is_synchronised() is False, "the kernel knows better"


def test_the_kernel_of_this_machine_is_asked() -> None:
    assert is_synchronised() in (True, False, None)
