"""Whom a user of this server takes nothing from, as the user's own setting says (PROTOCOL.md §8.4)."""

from __future__ import annotations

import functools

from shine_node.protocol.blocking import BLOCKED_PARAM, blocked_logins
from shine_node.store.environment import Transaction
from shine_node.store.layout import Table
from shine_node.store.settings import setting_in

__all__ = ["blocks"]

MOST_REMEMBERED_BYTES = 65536
"""Of a setting whose list is kept in memory: longer ones, which no client can store here, are read each time."""


def blocks(txn: Transaction, owner: str, sender: str) -> bool:
    """Say whether an owner takes nothing from a sender; both in lower case. Nobody blocks themselves."""
    value = txn.get(Table.SETTINGS, f"{owner}\0{BLOCKED_PARAM}".encode())
    return value is not None and sender != owner and sender in _logins(value)


def _logins(value: bytes) -> frozenset[str]:
    return _remembered(value) if len(value) <= MOST_REMEMBERED_BYTES else _parsed(value)


def _parsed(value: bytes) -> frozenset[str]:
    return frozenset(blocked_logins(setting_in(value).value))


_remembered = functools.lru_cache(maxsize=128)(_parsed)
