"""How long a link rests before its next try: a pure function of how often it failed (PROTOCOL.md §7)."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["DOUBT_SECONDS", "PAUSE_STEPS", "pause_seconds"]

PAUSE_STEPS = (1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 60.0)
"""Seconds; the last one repeats."""
DOUBT_SECONDS = 5.0
"""After a hello that has ended a pause at once, for how long the next ones only do so after the first step."""


def pause_seconds(failures: int, random: Callable[[], float]) -> float:
    """Return the seconds to rest, in the upper half of the step, so that many links do not come back in one moment.

    Args:
        failures: how often the link was lost or could not be opened since its last answered hello; 0 for the first.
        random: returns a number from 0 to 1.
    """
    step = PAUSE_STEPS[min(failures, len(PAUSE_STEPS) - 1)]
    return step / 2 + step / 2 * random()
