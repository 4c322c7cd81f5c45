"""Which lines of a log are written and which are only counted: none comes more often than once in a while; pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Generic, NamedTuple, TypeVar

__all__ = ["Repeats", "Summary"]

T = TypeVar("T")

SECONDS = 60.0
MAX_LINES = 256
"""Different lines that are remembered; of more, the earliest are forgotten, and written again if they come again."""


class Summary(NamedTuple, Generic[T]):
    """How often a line came and was not written, and over how many seconds; ``line`` is the one that was written."""

    line: T
    times: int
    seconds: float


class _Seen(NamedTuple, Generic[T]):
    line: T
    since: float
    times: int


class Repeats(Generic[T]):
    """Remembers the lines of the last ``SECONDS``.

    Args:
        seconds: for how long a line is not written again.
        most: how many lines are remembered.
    """

    def __init__(self, *, seconds: float = SECONDS, most: int = MAX_LINES) -> None:
        self._seconds = seconds
        self._most = most
        self._seen: OrderedDict[Hashable, _Seen[T]] = OrderedDict()

    def over(self, now: float) -> Iterator[Summary[T]]:
        """Yield what is to be told of lines that were counted, and whose time is over.

        Args:
            now: monotonic seconds.
        """
        while self._seen:
            key, seen = next(iter(self._seen.items()))
            if now - seen.since < self._seconds:
                return
            del self._seen[key]
            if seen.times:
                # What is told of it now is a line of it too: the next one waits as long again.
                self._seen[key] = _Seen(seen.line, now, 0)
                yield Summary(seen.line, seen.times, now - seen.since)

    def admit(self, key: Hashable, line: T, now: float) -> bool:
        """Say whether a line is to be written; one that is not is counted. Ask for ``over`` before."""
        seen = self._seen.get(key)
        if seen is not None:
            self._seen[key] = seen._replace(times=seen.times + 1)
            return False
        self._seen[key] = _Seen(line, now, 0)
        return True

    def excess(self, now: float) -> Iterator[Summary[T]]:
        """Forget the earliest of more lines than are remembered, and yield what is to be told of them."""
        while len(self._seen) > self._most:
            _, seen = self._seen.popitem(last=False)
            if seen.times:
                yield Summary(seen.line, seen.times, now - seen.since)

    def end(self, now: float) -> Iterator[Summary[T]]:
        """Forget all, and yield what is to be told of it: for the end of the log."""
        while self._seen:
            _, seen = self._seen.popitem(last=False)
            if seen.times:
                yield Summary(seen.line, seen.times, now - seen.since)
