"""Rows whose bytes are not what was written: the one error for them, and how many of them a store has met."""

from __future__ import annotations

import logging
from typing import Final

from shine_node.protocol.errors import InternalError

__all__ = ["REPAIR", "Unreadable", "UnreadableRow", "describe"]

log = logging.getLogger(__name__)

REPAIR: Final = "run `shine-node verify --repair`"
"""What to do about them."""
MOST_REMEMBERED = 1000
"""Rows that are told from each other; with so many, how many there are in all is for `verify` to say."""


class UnreadableRow(InternalError, ValueError):
    """A row of the store cannot be read; raised by all that decodes one.

    It is the answer to the request that needed the row, and harms no other. A ``ValueError`` it is for those who decode
    bytes that are no row of a store yet.

    Args:
        what: which row, or of which table, as words that may stand in a log: no contents.
        row: the bytes that cannot be read, or the key of the row; they tell it from others.
    """

    def __init__(self, what: str, row: bytes) -> None:
        super().__init__("the server cannot read what it has stored about this; its operator has to repair that")
        self.what = what
        self.row = row

    def named(self, what: str) -> UnreadableRow:
        """Return the same with a better name, where it is known which row it is."""
        return UnreadableRow(what, self.row)

    def __str__(self) -> str:
        return f"{self.what} cannot be read: {REPAIR}"


def describe(count: int) -> str:
    """Return what is wrong where so many rows could not be read, and what to do; empty for none."""
    if not count:
        return ""
    rows = "1 row" if count == 1 else f"{count} rows" if count < MOST_REMEMBERED else f"{count} rows or more"
    return f"{rows} of the store could not be read: stop the node, and {REPAIR}"


class Unreadable:
    """The rows of a store that could not be read since it was opened; each is told once in the log."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    @property
    def count(self) -> int:
        """How many rows it were, at most ``MOST_REMEMBERED``."""
        return len(self._seen)

    @property
    def problem(self) -> str:
        """What is wrong and what to do; empty while nothing is."""
        return describe(self.count)

    def note(self, error: UnreadableRow) -> None:
        """Take note of one; from any thread."""
        seen = hash(error.row)
        if seen in self._seen or len(self._seen) >= MOST_REMEMBERED:
            return
        self._seen.add(seen)
        log.error("%s", error)
