"""Read marks: up to when the messages of a chat are read (PROTOCOL.md §4)."""

from __future__ import annotations

from shine_node.store.environment import Transaction
from shine_node.store.layout import Direction, Table, pack_number, unpack_number
from shine_node.store.unreadable import UnreadableRow

__all__ = ["move_mark", "read_mark_key", "read_up_to_ms"]


def read_mark_key(owner: str, peer: str, direction: Direction) -> bytes:
    """Return the key in ``read_marks`` of a direction of a chat."""
    return f"{owner}\0{peer}\0".encode() + bytes((direction,))


def read_up_to_ms(txn: Transaction, owner: str, peer: str, direction: Direction) -> int | None:
    """Return the time up to which the owner's messages of a direction in a chat are read, or ``None`` (§4).

    One that cannot be read counts as none: the next receipt writes it anew.
    """
    value = txn.get(Table.READ_MARKS, read_mark_key(owner, peer, direction))
    try:
        return unpack_number(value) if value is not None else None
    except UnreadableRow as error:
        txn.pass_over(error.named(f"the read mark of {owner} for {peer}"))
        return None


def move_mark(txn: Transaction, owner: str, peer: str, direction: Direction, time_ms: int) -> None:
    """Take note that messages are read up to a time; a mark never goes back."""
    known_ms = read_up_to_ms(txn, owner, peer, direction)
    if known_ms is None or known_ms < time_ms:
        txn.put(Table.READ_MARKS, read_mark_key(owner, peer, direction), pack_number(time_ms))
