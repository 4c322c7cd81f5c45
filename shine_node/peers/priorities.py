"""Which operation goes before which on a link (PROTOCOL.md §7; seed 003 §3)."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Priority", "priority_of"]


class Priority(IntEnum):
    """The order in which waiting requests are sent; the smaller number goes first."""

    REALTIME = 0
    NORMAL = 1
    BULK = 2


_PRIORITIES = {
    "ReceiveIncomingMessage": Priority.REALTIME,
    "ReceiveOutcomingMessage": Priority.REALTIME,
    "GetDmDeliveryStatus": Priority.REALTIME,
    "SettingsSyncBatch": Priority.NORMAL,
    "DmSyncBatch": Priority.NORMAL,
    "AccessDataSyncBatch": Priority.NORMAL,
    "GetUserAccess": Priority.NORMAL,
    "SetUserAccess": Priority.NORMAL,
    "GetBlockchainHeads": Priority.BULK,
    "GetBlocks": Priority.BULK,
    "AddBlock": Priority.BULK,
}


def priority_of(op: str) -> Priority:
    """Return the priority of an operation.

    Raises:
        ValueError: the table of §7 does not have it, so no server asks another one for it.
    """
    try:
        return _PRIORITIES[op]
    except KeyError:
        raise ValueError(f"{op} is no operation between servers") from None
