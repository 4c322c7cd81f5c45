"""What ``check`` finds of the clock: whether it can be right, and whether something keeps it so."""

from __future__ import annotations

from collections.abc import Callable

from shine_node import RELEASED_MS
from shine_node.cli.findings import Finding, Level, Situation
from shine_node.clock import SystemClock, is_synchronised

__all__ = ["PRODUCERS", "judge_clock"]

MINUTE_MS = 60_000
STORE_FILE = "shine.mdb"


def find_clock(situation: Situation) -> list[Finding]:
    """Look at the clock of this machine."""
    try:
        written_ms = (situation.config.server.data_dir / STORE_FILE).stat().st_mtime_ns // 1_000_000
    except OSError:  # there is no store yet, or this user may not see it
        written_ms = None
    return [judge_clock(now_ms=SystemClock().now_ms(), written_ms=written_ms, synchronised=is_synchronised())]


def judge_clock(*, now_ms: int, written_ms: int | None, synchronised: bool | None) -> Finding:
    """Say whether a clock can be right; pure.

    Args:
        written_ms: when the store was written last, by the same clock; ``None`` where that is not known.
        synchronised: whether the system says that something keeps it right; ``None`` where it does not say.
    """
    advice = "set it right: timedatectl set-ntp true, or date -s"
    if now_ms < RELEASED_MS:
        return _clock(Level.ERROR, f"the clock of this machine stands before this version was made: {advice}")
    if written_ms is not None and written_ms - now_ms > MINUTE_MS:
        minutes = (written_ms - now_ms) // MINUTE_MS
        return _clock(
            Level.ERROR, f"the clock has gone back: the store was last written {minutes} minutes from now: {advice}"
        )
    if synchronised is False:
        text = "nothing keeps the clock of this machine right: timedatectl set-ntp true, or install chrony"
        return _clock(Level.WARNING, text)
    kept = "is kept right" if synchronised else "cannot be told to be kept right by something, and may be"
    return _clock(Level.OK, f"it stands at a possible time, and {kept}")


PRODUCERS: tuple[Callable[[Situation], list[Finding]], ...] = (find_clock,)


def _clock(level: Level, text: str) -> Finding:
    return Finding(level, "clock", text)
