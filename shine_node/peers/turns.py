"""A peer's turn in its session: when a part must give way, and what is left for the next turn (PROTOCOL.md §6)."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["Ending", "Turn", "ending"]


class Turn(NamedTuple):
    """What a part of a session is given."""

    over: Callable[[], bool]
    """Whether the part has had its time: it ends what it is at, and leaves the rest to the next turn."""
    kept: dict[str, str]
    """What parts keep, by names of their own, for the next turn of the same session: a lost link empties it."""


class Ending(enum.IntEnum):
    """How a part of a session ended; of several parts, the greatest says how the turn did."""

    DONE = 0
    """There was no more."""
    LATER = 1
    """There is more, and nothing of what came could be used: it is gone on with at the next interval."""
    AT_ONCE = 2
    """There is more: it is gone on with in the peer's next turn."""


def ending(*, more: bool, taken: int) -> Ending:
    """Return how a part ended that took so many entries, and knows whether the peer has more."""
    if not more:
        return Ending.DONE
    return Ending.AT_ONCE if taken else Ending.LATER
