"""What this server knows of a delivery, for ``GetDmDeliveryStatus`` (PROTOCOL.md §5.4)."""

from __future__ import annotations

from shine_node.protocol.keys import MessageKey
from shine_node.protocol.schedule import DeliveryState
from shine_node.store.environment import Store
from shine_node.store.layout import ItemKey, Row
from shine_node.store.messages import get_row

__all__ = ["DeliveryStatus"]


class DeliveryStatus:
    """Reads delivery states."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def look_up(self, key: MessageKey, revision_ms: int | None) -> tuple[bool, bool]:
        """Return whether the message is known here, and whether it was delivered.

        Args:
            key: the ``outgoingKey``; an ``incomingKey`` names a copy that has no delivery of its own.
            revision_ms: where given and greater than the revision known here, the message counts as unknown.
        """
        if key.message_type % 2 == 1:
            return False, False
        row = self._row(key)
        if row is None or not row.seq or (revision_ms is not None and revision_ms > row.revision_ms):
            return False, False
        return True, row.state is DeliveryState.DELIVERED

    def state(self, key: MessageKey) -> DeliveryState:
        """Return the state, as it stands now, of a message that is stored; ``key`` is its ``outgoingKey``."""
        row = self._row(key)
        if row is None:
            raise AssertionError("what is stored stays")
        return row.state

    def _row(self, key: MessageKey) -> Row | None:
        with self._store.read() as txn:
            return get_row(txn, ItemKey.outgoing(key.message, key.message_type))
