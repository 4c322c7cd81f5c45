"""The outbox: which items an owner's other server has not acknowledged yet (PROTOCOL.md §6).

An entry is an item; ``synced`` is the absence of its row in ``outbox_unsynced``. An owner without another server has no
rows: when one comes, all of the owner's items become unsynced.
"""

from __future__ import annotations

from shine_node.protocol.container import SIGNATURE_BYTES
from shine_node.store.environment import Transaction
from shine_node.store.layout import Flag, ItemKey, Row, Table, decode_containers, is_flagged, pack_number, time_key
from shine_node.store.lineage import note_doubt
from shine_node.store.unreadable import UnreadableRow

__all__ = ["acknowledge", "clear_entry", "former_servers", "outbox_key", "put_entry", "signatures_of"]

_UNSYNCED = int(Flag.UNSYNCED)
"""In the first byte of a row."""


def outbox_key(server: str, row: Row) -> bytes:
    """Return the key of an item's entry for a server; it rises with the time of the change."""
    return server.lower().encode() + b"\0" + time_key(row.changed_at_ms, row.seq)


def former_servers(txn: Transaction, owner: str) -> list[str]:
    """Return the servers, beside the present one, under which entries of an owner may stand: a resync has yet to end.

    Args:
        owner: in lower case.
    """
    found: list[str] = []
    for _, value in txn.scan(Table.RESYNC, prefix=owner.encode() + b"\0"):
        former = value.partition(b"\0")[0]
        if former.isascii():
            found += [former.decode()] if former else []
        else:
            txn.pass_over(UnreadableRow("a row of unfinished work", value))
    return found


def put_entry(txn: Transaction, server: str, key: ItemKey, row: Row) -> None:
    """Write the entry of a row that carries ``Flag.UNSYNCED``."""
    txn.put(Table.OUTBOX_UNSYNCED, outbox_key(server, row), key.encode())


def clear_entry(txn: Transaction, server: str | None, owner: str, row: Row) -> None:
    """Remove the entry of a row as it stands, if it has one; ``server`` is the owner's other server.

    While the entries of a former server are being moved, it may stand there yet.
    """
    if row.flags & Flag.UNSYNCED and server is not None:
        txn.delete(Table.OUTBOX_UNSYNCED, outbox_key(server, row))
    for former in former_servers(txn, owner):
        txn.delete(Table.OUTBOX_UNSYNCED, outbox_key(former, row))


def signatures_of(incoming: bytes, outgoing: bytes) -> bytes:
    """Return what tells revisions of an item apart: the signatures of its copies, ``outgoing`` empty if it has one."""
    return incoming[-SIGNATURE_BYTES:] + outgoing[-SIGNATURE_BYTES:]


def acknowledge(txn: Transaction, server: str, key: ItemKey, signatures: bytes, *, marked: bool) -> bool:
    """Take note that a server has stored one revision of an item; of a later revision it says nothing.

    Args:
        server: the owner's other server.
        signatures: of that revision (``signatures_of``).
        marked: whether it said so in a request that tells how far its store has come.

    Returns:
        Whether there was anything to note.
    """
    encoded_key = key.encode()
    value = txn.get(Table.HISTORY, encoded_key)
    if value is None or not is_flagged(value, Flag.UNSYNCED):
        return False
    row = Row.decode(value)
    containers = txn.get(Table.CONTAINERS, pack_number(row.seq))
    if not containers or signatures_of(*decode_containers(containers)) != signatures:
        return False
    if not txn.delete(Table.OUTBOX_UNSYNCED, outbox_key(server, row)):
        return False  # the owner has another other server by now, which has acknowledged nothing
    txn.put(Table.HISTORY, encoded_key, bytes((value[0] & ~_UNSYNCED,)) + value[1:])
    if not marked:
        note_doubt(txn, server.lower(), row.changed_at_ms)
    return True
