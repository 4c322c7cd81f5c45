"""How soon a place may be knocked at again whose link has been dropped meanwhile; no I/O."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Generic, TypeVar

from shine_node.peers.backoff import PAUSE_STEPS

__all__ = ["Tries"]

Key = TypeVar("Key", bound=Hashable)


class Tries(Generic[Key]):
    """When dropped links were last opened, for as long as that matters: the first step of the pauses.

    Without it, a link that is dropped and made again in turns would knock as often as anybody liked. All times are
    monotonic seconds.
    """

    def __init__(self) -> None:
        self._tried_at: dict[Key, float] = {}

    def __len__(self) -> int:
        return len(self._tried_at)

    def note(self, key: Key, tried_at: float | None, now: float) -> None:
        """Note that a link is dropped, and when it last began to be opened; ``None`` for never."""
        old = now - PAUSE_STEPS[0]
        while self._tried_at:
            first = next(iter(self._tried_at))
            if self._tried_at[first] > old:
                break
            del self._tried_at[first]
        if tried_at is not None and tried_at > old:
            self._tried_at.pop(key, None)  # so that the order stays that of the drops, and none is kept for good
            self._tried_at[key] = tried_at

    def not_before(self, key: Key) -> float:
        """Return the earliest time at which it may be opened again; it may lie in the past."""
        return self._tried_at.get(key, -math.inf) + PAUSE_STEPS[0]
