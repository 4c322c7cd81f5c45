"""How often something may happen for each of many keys; what is kept of them is bounded."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["Rates"]

K = TypeVar("K", bound=Hashable)


class Rates(Generic[K]):
    """Lets ``most`` things happen in so many seconds for each key: at once if need be, then one after the other.

    What is kept of a key is one number: the time at which all that has happened will be forgotten.

    Args:
        greatest: keys that are remembered; of more, the one is forgotten for which nothing has happened for longest.
    """

    def __init__(self, greatest: int) -> None:
        self._greatest = greatest
        self._forgotten_at: OrderedDict[K, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._forgotten_at)

    def wait(self, key: K, now: float, *, most: int, seconds: float) -> float:
        """Return in how many seconds it may happen next, 0 for now.

        Args:
            now: the monotonic clock, seconds.
            most: how often it may happen within ``seconds``, at least once.
        """
        free_at = self._forgotten_at.get(key, now) + seconds / most - seconds
        return max(0.0, free_at - now)

    def note(self, key: K, now: float, *, most: int, seconds: float) -> None:
        """Take note that it has happened; also where it should not have, which makes nobody wait for longer."""
        after = max(self._forgotten_at.get(key, now), now) + seconds / most
        self._forgotten_at[key] = min(after, now + seconds)
        self._forgotten_at.move_to_end(key)
        if len(self._forgotten_at) > self._greatest:
            self._forgotten_at.popitem(last=False)
