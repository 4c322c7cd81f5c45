"""Places an item of an export, as it stood there, beside what a store has of it already."""

from __future__ import annotations

from shine_node.protocol.revisions import Arrival
from shine_node.protocol.schedule import DeliveryState
from shine_node.store.deliveries import due_table, end_delivery, finish_delivery
from shine_node.store.environment import Transaction
from shine_node.store.layout import Flag, Kind, Row, Table, encode_containers, pack_number, time_key
from shine_node.store.messages import STORED_ARRIVALS, follow, get_blobs, get_row, judge_copies
from shine_node.store.outbox import clear_entry, put_entry
from shine_node.store.portable import Item
from shine_node.store.usage import add_item, change_item
from shine_node.store.users import other_server

__all__ = ["place_item"]


def place_item(txn: Transaction, item: Item, *, own_login: str, foreign: bool = False) -> bool:
    """Store an item of which nothing or less is known, in a write transaction; its signatures are right.

    An item that is new here is as it was there, with its delivery and schedule. Where it is known, the greater revision
    counts, as ever; of the same revision a terminal state counts, and nothing reopens one. What is removed here stays
    so, and what was removed there is removed here by its tombstone.

    Args:
        own_login: this server's login, in lower case.
        foreign: it was exported by another server, whose failure is not this one's.

    Returns:
        Whether anything was changed.
    """
    if item.row.removed:
        if get_row(txn, item.key) is not None:
            return False
        _write(txn, item, None, own_login)
        return True
    incoming, outgoing = item.blobs
    revision_ms = item.row.revision_ms
    old, arrival = judge_copies(txn, item.key, revision_ms, incoming[-64:], incoming, outgoing)
    if arrival in STORED_ARRIVALS:
        _write(txn, item, old, own_login)
        follow(txn, item.container, item.key, item.row.changed_at_ms, own_login)
        return True
    ends = item.row.state is DeliveryState.DELIVERED or (item.row.state is DeliveryState.FAILED and not foreign)
    if arrival is Arrival.SAME and old is not None and old.delivery is not None and ends:
        finish_delivery(txn, item.key, old, item.row.state)
        return True
    return False


def _count(txn: Transaction, item: Item, old: Row | None) -> None:
    """Count what the owner has stored more, or less."""
    row = item.row
    size = 0 if row.removed else sum(map(len, item.blobs))
    sent = item.key.kind is Kind.MESSAGE and bool(row.flags & Flag.SENT_HERE)
    if old is not None:
        grows = size - sum(map(len, get_blobs(txn, old)))
        change_item(txn, item.key.owner, grows=grows, now_ms=row.changed_at_ms, sent=sent)
    elif not row.removed:
        add_item(txn, item.key.owner, size=size, now_ms=row.changed_at_ms, sent=sent)


def _write(txn: Transaction, item: Item, old: Row | None, own_login: str) -> None:
    """Write the row of an item over whatever is there, with all that is found by other keys."""
    key, wanted = item.key, item.row
    server = other_server(txn, key.owner, own_login)
    other = server.server_login if server is not None else None
    seq, changed_at_ms, version = 0, wanted.changed_at_ms, wanted.version
    if old is not None:
        end_delivery(txn, old)
        clear_entry(txn, other, key.owner, old)
        # As ever, two revisions have two times and two versions.
        seq, changed_at_ms, version = old.seq, max(changed_at_ms, old.changed_at_ms + 1), max(version, old.version + 1)
    elif wanted.seq:
        seq = txn.next_seq(Table.CONTAINERS)
    _count(txn, item, old)
    unsynced = other is not None and item.synced != other.lower() and not wanted.removed
    flags = wanted.flags | Flag.UNSYNCED if unsynced else wanted.flags
    row = wanted._replace(flags=flags, seq=seq, changed_at_ms=changed_at_ms, version=version)
    encoded_key = key.encode()
    if seq:
        containers = b"" if row.removed else encode_containers(*item.blobs)
        txn.put(Table.CONTAINERS, pack_number(seq), containers)
    txn.put(Table.HISTORY, encoded_key, row.encode())
    if row.delivery is not None:
        txn.put(due_table(row), time_key(row.delivery.due_at_ms, seq), encoded_key)
    if unsynced and other is not None:
        put_entry(txn, other, key, row)
