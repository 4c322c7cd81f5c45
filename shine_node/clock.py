"""The only place that reads clocks; everything else takes one from outside, so that tests run hours in milliseconds."""

from __future__ import annotations

import asyncio
import struct
import time
from pathlib import Path
from typing import Protocol

__all__ = ["Clock", "SystemClock", "is_synchronised"]

_TIMEX_BYTES = 512
"""More than ``struct timex`` of adjtimex(2) has on any machine."""
_TIMEX_HEAD = struct.Struct("@Illll")
"""What stands before ``status`` in it: modes, offset, freq, maxerror, esterror."""
_STA_UNSYNC = 0x40
_TIMESYNCD_DONE = Path("/run/systemd/timesync/synchronized")
"""What systemd-timesyncd leaves once it has set the clock; it goes with it. chrony and ntpd leave nothing like it."""


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


def is_synchronised() -> bool | None:
    """Say whether something keeps the wall clock of this machine right, as the kernel has been told by it.

    Within the sandbox of the packaged service the kernel refuses to say (``ProtectClock=``): there it is asked whether
    systemd-timesyncd has set the clock.

    Returns:
        ``None`` where nothing of this can be told.
    """
    kernel = _ask_kernel()
    return True if kernel is None and _TIMESYNCD_DONE.exists() else kernel


def _ask_kernel() -> bool | None:
    import ctypes  # not above: it takes memory, and is seldom needed

    timex = ctypes.create_string_buffer(_TIMEX_BYTES)  # modes 0: nothing is changed
    try:
        asked = ctypes.CDLL(None).adjtimex(timex)
    except (AttributeError, OSError):
        return None
    if asked < 0:
        return None
    (status,) = struct.unpack_from("@i", timex, _TIMEX_HEAD.size)
    return not status & _STA_UNSYNC
