"""What is wrong with a configuration, all of it at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from shine_node.protocol.errors import ShineError

__all__ = ["ConfigError", "Origin", "Problem"]


class Origin(NamedTuple):
    """Where a value was written: a file and a line; an empty file for a mapping, line 0 where it is not known."""

    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        if not self.file:
            return ""
        return f"{self.file}:{self.line}: " if self.line else f"{self.file}: "


class Problem(NamedTuple):
    """One mistake: where, and a sentence that names key, value and range and says what to do. It holds no secrets."""

    origin: Origin
    text: str

    def __str__(self) -> str:
        return f"{self.origin}{self.text}"


class ConfigError(ShineError):
    """A configuration that cannot be used; its text has one line for each problem that was found (§10).

    Args:
        problems: at least one.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))
