"""Whom a user takes nothing from: the value of the setting ``blocked``, one login to a line (PROTOCOL.md §8.4)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from shine_node.protocol.logins import is_login

__all__ = ["BLOCKED_PARAM", "MAX_BLOCKED", "blocked_logins", "blocked_value"]

BLOCKED_PARAM: Final = "blocked"
MAX_BLOCKED: Final = 1000
"""Logins of one user's list that count, the first ones."""


def blocked_logins(value: str) -> list[str]:
    """Return the logins of a list in lower case, each once, in their order; a line that is no login is passed over."""
    lines = (line.strip() for line in value.split("\n"))
    return list(dict.fromkeys(line.lower() for line in lines if is_login(line)))[:MAX_BLOCKED]


def blocked_value(logins: Iterable[str]) -> str:
    """Return the value of the setting for some logins."""
    return "\n".join(logins)
