"""A store that began empty in the place of a lost one, and the servers that are to fill it.

The users of a server are its operator's to choose. Those of a lost store were chosen already: the operator's configured
peers say who they are, each of its own users, of whom they name this server too. A peer's records are read twice: of
somebody who was here before coming to the peer too, the older records count once the newest has been taken.
"""

from __future__ import annotations

from collections.abc import Sequence

from shine_node.store.environment import Transaction
from shine_node.store.layout import Table, pack_number, unpack_number
from shine_node.store.unreadable import UnreadableRow

__all__ = ["begin_refill", "end_reading", "is_refilling", "list_refilling"]

READINGS = 2
_PREFIX = b"refill "


def begin_refill(txn: Transaction, servers: Sequence[str]) -> None:
    """Take note of the servers that are to fill a store."""
    for server in servers:
        txn.put(Table.META, _key(server), pack_number(READINGS))


def is_refilling(txn: Transaction, server: str) -> bool:
    """Say whether a server has yet to tell who the users were; its login in any case."""
    return txn.get(Table.META, _key(server)) is not None


def list_refilling(txn: Transaction) -> list[str]:
    """Return the servers, in lower case, that have yet to tell."""
    return [key[len(_PREFIX) :].decode("ascii", "replace") for key in txn.scan_keys(Table.META, prefix=_PREFIX)]


def end_reading(txn: Transaction, server: str) -> bool:
    """Take note that all records of a server have been read, and say whether they are to be read once more."""
    value = txn.get(Table.META, _key(server))
    try:
        left = min(unpack_number(value), READINGS) - 1 if value is not None else 0
    except UnreadableRow as error:
        txn.pass_over(error)
        left = READINGS - 1
    if left > 0:
        txn.put(Table.META, _key(server), pack_number(left))
    elif value is not None:
        txn.delete(Table.META, _key(server))
    return left > 0


def _key(server: str) -> bytes:
    return _PREFIX + server.lower().encode()
