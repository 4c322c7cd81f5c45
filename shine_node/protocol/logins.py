"""Logins of users and servers, and names of blockchains (PROTOCOL.md §1, §3)."""

from __future__ import annotations

import re

from shine_node.protocol.errors import BadLogin

__all__ = ["check_login", "is_blockchain_name", "is_login", "login_key"]

LOGIN_PATTERN = r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,29}"
_LOGIN = re.compile(LOGIN_PATTERN)
_CHAIN_SUFFIX = re.compile(r"-[0-9]{3}")


def is_login(text: str) -> bool:
    """Say whether a text is a login: 1–30 ASCII letters, digits, ``_ . -``, the first a letter or digit (§1)."""
    return _LOGIN.fullmatch(text) is not None


def check_login(text: str, *, field: str = "login") -> str:
    """Return the text if it is a login.

    Raises:
        BadLogin: it is none; the message names the field.
    """
    if _LOGIN.fullmatch(text) is None:
        raise BadLogin(f"{field} must be 1 to 30 of A-Z a-z 0-9 _ . - and begin with a letter or digit")
    return text


def login_key(login: str) -> str:
    """Return the form in which logins are compared and stored: lower case (§1)."""
    return login.lower()


def is_blockchain_name(name: str, login: str) -> bool:
    """Say whether a name is ``<login>-NNN`` for this login, whatever the case of its letters (§3)."""
    key = login.lower()
    if not name.isascii():  # the Kelvin sign is no k, though its lower case is
        return False
    return name[: len(key)].lower() == key and _CHAIN_SUFFIX.fullmatch(name, len(key)) is not None
