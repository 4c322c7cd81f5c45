"""What two servers of one owner have to have in common: the history and the read marks."""

from __future__ import annotations

from typing import NamedTuple

from shine_node.store.environment import Transaction
from shine_node.store.layout import Flag, ItemKey, Row, Table
from shine_node.store.messages import get_blobs

__all__ = ["History", "history_of", "unsynced_of"]


class History(NamedTuple):
    """All of an owner: the copies by item (``None`` where it is removed), and the marks by chat and direction."""

    items: dict[ItemKey, tuple[bytes, bytes] | None]
    read_marks: dict[bytes, bytes]


def history_of(txn: Transaction, owner: str) -> History:
    """Return what is stored of an owner in lower case."""
    prefix = owner.encode() + b"\0"
    items: dict[ItemKey, tuple[bytes, bytes] | None] = {}
    for key, value in txn.scan(Table.HISTORY, prefix=prefix):
        row = Row.decode(value)
        items[ItemKey.decode(key)] = None if row.removed else get_blobs(txn, row)
    return History(items, dict(txn.scan(Table.READ_MARKS, prefix=prefix)))


def unsynced_of(txn: Transaction, owner: str) -> list[ItemKey]:
    """Return the items of an owner that the other server has yet to acknowledge."""
    rows = txn.scan(Table.HISTORY, prefix=owner.encode() + b"\0")
    return [ItemKey.decode(key) for key, value in rows if Row.decode(value).flags & Flag.UNSYNCED]
