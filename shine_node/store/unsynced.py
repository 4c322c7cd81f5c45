"""Pages of what an owner's other server has not acknowledged yet, oldest change first (PROTOCOL.md §6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from shine_node.protocol.container import SIGNATURE_BYTES
from shine_node.store.environment import Transaction
from shine_node.store.layout import Flag, ItemKey, Row, Table, is_flagged
from shine_node.store.messages import get_blobs
from shine_node.store.outbox import outbox_key
from shine_node.store.unreadable import UnreadableRow

__all__ = ["MAX_LOOKED_AT", "Entry", "Page", "read_page"]

MAX_LOOKED_AT = 2000
"""Rows that one page looks at, so that entries of other owners cannot make it long."""
FRAME_BYTES = 128
"""What an entry takes beside its copies as it travels: its ``syncId``, a login, names and signs."""


class Entry(NamedTuple):
    """One entry as it is sent: the item, its copies in the order incoming, outgoing, and which revision they are."""

    key: ItemKey
    blobs: tuple[bytes, ...]
    seq: int
    changed_at_ms: int

    @property
    def signatures(self) -> bytes:
        """What tells this revision from others of the item (``signatures_of``)."""
        return b"".join(blob[-SIGNATURE_BYTES:] for blob in self.blobs)

    @property
    def sync_id(self) -> str:
        """The ``syncId`` of this revision of this entry."""
        return f"{self.seq:x}-{self.changed_at_ms:x}"


class Page(NamedTuple):
    """Some entries, where the next page begins, whether there is more, and the first that was passed over."""

    entries: list[Entry]
    cursor: bytes
    more: bool
    too_large: str = ""
    """The ``syncId`` of the first entry that was passed over because the asking server could not take it."""


def read_page(
    txn: Transaction,
    server: str,
    *,
    serves: Callable[[str], bool],
    after: bytes,
    limit: int,
    max_bytes: int,
    peer_bytes: int | None = None,
) -> Page:
    """Return the next unsynced entries of a server; one entry in any case, unless that server cannot take it.

    Args:
        server: the asking server's login.
        serves: whether an owner (in lower case) has both servers now, and was asked for.
        after: the cursor of the page before, ``b""`` to begin.
        limit: how many entries at most.
        max_bytes: of all entries as they travel, with their copies as Base64.
        peer_bytes: what the asking server can take of them at once; ``None``: it has not said so. An entry that alone
            takes more is passed over, and no more than ``max_bytes`` of such are looked at.
    """
    room = max_bytes if peer_bytes is None else min(max_bytes, peer_bytes)
    prefix = server.lower().encode() + b"\0"
    entries: list[Entry] = []
    cursor, too_large = after, ""
    size, passed, looked_at = 0, 0, 0
    for index_key, encoded in txn.scan(Table.OUTBOX_UNSYNCED, max(after, prefix), prefix=prefix):
        if index_key == after:
            continue
        if looked_at == MAX_LOOKED_AT:
            return Page(entries, cursor, True, too_large)
        looked_at += 1
        try:
            key = ItemKey.decode(encoded)
            entry = _entry(txn, server, key, encoded, index_key) if serves(key.owner) else None
        except UnreadableRow as error:
            txn.pass_over(error)
            entry = None
        if entry is not None:
            length = FRAME_BYTES + sum((len(blob) + 2) // 3 * 4 for blob in entry.blobs)
            if entries and (len(entries) == limit or size + length > room):
                return Page(entries, cursor, True, too_large)
            if peer_bytes is not None and length > peer_bytes:
                too_large, passed = too_large or entry.sync_id, passed + length
                if passed > max_bytes:
                    return Page(entries, index_key, True, too_large)
            else:
                entries.append(entry)
                size += length
        cursor = index_key
    return Page(entries, cursor, False, too_large)


def _entry(txn: Transaction, server: str, key: ItemKey, encoded_key: bytes, index_key: bytes) -> Entry | None:
    """Return the entry of an index row, ``None`` where the row speaks of a revision that is no longer there."""
    value = txn.get(Table.HISTORY, encoded_key)
    if value is None or not is_flagged(value, Flag.UNSYNCED):
        return None
    row = Row.decode(value)
    if outbox_key(server, row) != index_key:
        return None
    incoming, outgoing = get_blobs(txn, row)
    return Entry(key, (incoming, outgoing) if outgoing else (incoming,), row.seq, row.changed_at_ms)
