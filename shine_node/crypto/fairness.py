"""A queue that gives each source its turn: who has much waiting waits behind itself, and not before the others."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["FairQueue"]

T = TypeVar("T")


class FairQueue(Generic[T]):
    """First come, first served among what one source has put; sources take turns. Not for use by two threads."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[Hashable, deque[T]] = OrderedDict()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def waiting_of(self, source: Hashable) -> int:
        """Return how much a source has waiting."""
        return len(self._waiting.get(source, ()))

    def put(self, source: Hashable, item: T) -> None:
        """Have an item wait; a source that had nothing waiting has its turn after those that had."""
        self._waiting.setdefault(source, deque()).append(item)
        self._length += 1

    def take(self, most: int) -> list[T]:
        """Return at most so many items, one of each source at a time."""
        taken: list[T] = []
        while self._waiting and len(taken) < most:
            source, items = self._waiting.popitem(last=False)
            taken.append(items.popleft())
            if items:
                self._waiting[source] = items
        self._length -= len(taken)
        return taken

    def clear(self) -> None:
        """Forget all that waits."""
        self._waiting.clear()
        self._length = 0
