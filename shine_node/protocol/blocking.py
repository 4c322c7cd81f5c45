"""Whom a user takes nothing from: the value of the setting ``blocked``, one login to a line (PROTOCOL.md §8.4)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from shine_node.protocol.errors import TooLarge
from shine_node.protocol.logins import is_login

__all__ = [
    "BLOCKED_PARAM",
    "MAX_BLOCKED",
    "MAX_LIST_CHARACTERS",
    "MAX_LIST_LINES",
    "blocked_logins",
    "blocked_value",
    "check_blocked",
]

BLOCKED_PARAM: Final = "blocked"
MAX_BLOCKED: Final = 1000
"""Logins of one user's list that count, the first ones."""
MAX_LIST_LINES: Final = 2 * MAX_BLOCKED
MAX_LIST_CHARACTERS: Final = 40 * MAX_BLOCKED
"""Of a list as a client may store it. What a list of another server has beyond them is not looked at: it is looked at
for each message."""


def blocked_logins(value: str) -> list[str]:
    """Return the logins of a list in lower case, each once, in their order; a line that is no login is passed over."""
    whole = value[:MAX_LIST_CHARACTERS]
    lines = whole.split("\n", MAX_LIST_LINES)
    if len(lines) > MAX_LIST_LINES or (len(value) > len(whole) and value[len(whole)] != "\n"):
        del lines[-1]  # what comes after the last one that counts, or a login that may have been cut
    lines = [line.strip() for line in lines]
    return list(dict.fromkeys(line.lower() for line in lines if is_login(line)))[:MAX_BLOCKED]


def check_blocked(value: str) -> None:
    """Refuse a list that a client may not store.

    Raises:
        TooLarge: it has more than ``MAX_LIST_LINES`` lines or ``MAX_LIST_CHARACTERS`` characters.
    """
    if len(value) > MAX_LIST_CHARACTERS or value.count("\n") >= MAX_LIST_LINES:
        text = f"{BLOCKED_PARAM} must be at most {MAX_LIST_LINES} lines and {MAX_LIST_CHARACTERS} characters"
        raise TooLarge(f"{text}: one login to a line, of which the first {MAX_BLOCKED} count")


def blocked_value(logins: Iterable[str]) -> str:
    """Return the value of the setting for some logins."""
    return "\n".join(logins)
