"""What is asked before an item is stored, and told whether it frees room: a tombstone of a message that is here."""

from __future__ import annotations

from typing import Protocol

from shine_node.protocol.container import Container
from shine_node.protocol.keys import MessageId
from shine_node.store.environment import Transaction
from shine_node.store.layout import ItemKey, Kind, Row, Table

__all__ = ["Gate", "removes", "target_of"]


class Gate(Protocol):
    """Says what a user may not store; asked before anything is written, so that a refusal undoes nothing."""

    def sends(self, txn: Transaction, key: ItemKey, *, grows: int, removes: bool, now_ms: int) -> None:
        """Let a sender's pair pass that would be stored, or raise a ``Refusal``.

        Args:
            grows: by how many bytes what is stored of the item grows.
            removes: whether it takes away the bodies of a message that its owner has here.
        """

    def sent(self, key: ItemKey, *, removes: bool) -> None:
        """Count a pair that ``sends`` let pass, and that is stored now: ``receives`` has been asked too."""

    def receives(self, txn: Transaction, key: ItemKey, *, grows: int, removes: bool) -> None:
        """Let a recipient's copy pass that would be stored, or raise a ``Refusal``; all as for ``sends``."""


def removes(txn: Transaction, container: Container, key: ItemKey) -> bool:
    """Say whether an item is a tombstone of a message that its owner has here, and that is not removed yet.

    One that comes before its message, or again, or for a message that never was, takes room and frees none (§4).
    """
    if key.kind is not Kind.TOMBSTONE or container.reference is None:
        return False
    value = txn.get(Table.HISTORY, target_of(container.reference, key).encode())
    return value is not None and not Row.decode(value).removed


def target_of(reference: MessageId, key: ItemKey) -> ItemKey:
    """Return the message that a tombstone refers to, as the owner of the tombstone's item has it."""
    return ItemKey(key.owner, key.peer, Kind.MESSAGE, reference.time_ms, reference.nonce, key.direction)
