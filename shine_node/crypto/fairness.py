"""A queue that gives each source its turn: who has much waiting waits behind itself, and not before the others."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["FairQueue"]

T = TypeVar("T")


class FairQueue(Generic[T]):
    """First come, first served among what one source has put; sources take turns. Not for use by two threads."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[Hashable, deque[tuple[T, int]]] = OrderedDict()
        self._sizes: Counter[Hashable] = Counter()
        self._length = 0
        self.size = 0
        """Of all that waits, in bytes, as it was said of each."""

    def __len__(self) -> int:
        return self._length

    def waiting_of(self, source: Hashable) -> int:
        """Return how much a source has waiting."""
        return len(self._waiting.get(source, ()))

    def size_of(self, source: Hashable) -> int:
        """Return the size of all that a source has waiting."""
        return self._sizes[source]

    def put(self, source: Hashable, item: T, size: int = 0) -> None:
        """Have an item wait; a source that had nothing waiting has its turn after those that had."""
        self._waiting.setdefault(source, deque()).append((item, size))
        self._sizes[source] += size
        self.size += size
        self._length += 1

    def take(self, most: int, most_size: int) -> list[T]:
        """Return at most so many items, one of each source at a time; none more once they have such a size."""
        taken: list[T] = []
        left = most_size
        while self._waiting and len(taken) < most and left > 0:
            source, items = self._waiting.popitem(last=False)
            item, size = items.popleft()
            taken.append(item)
            left -= size
            self.size -= size
            self._sizes[source] -= size
            if items:
                self._waiting[source] = items
            else:
                del self._sizes[source]
        self._length -= len(taken)
        return taken

    def clear(self) -> None:
        """Forget all that waits."""
        self._waiting.clear()
        self._sizes.clear()
        self._length = self.size = 0
