"""Finds single keys from both sides, for those who skip through a table and read next to nothing of it."""

from __future__ import annotations

from typing import Any

__all__ = ["Seeker"]


class Seeker:
    """One cursor of one table; for as long as its transaction."""

    __slots__ = ("_cursor",)

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    def at_or_after(self, key: bytes) -> bytes | None:
        """Return the first key that is not before this one, or ``None``."""
        return bytes(self._cursor.key()) if self._cursor.set_range(key) else None

    def before(self, key: bytes) -> bytes | None:
        """Return the last key before this one, or ``None``."""
        cursor = self._cursor
        return bytes(cursor.key()) if (cursor.prev() if cursor.set_range(key) else cursor.last()) else None

    def value(self) -> bytes:
        """Return the value of the key that was found last."""
        return bytes(self._cursor.value())
