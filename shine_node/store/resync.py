"""Making all entries of an owner unsynced again, in bounded steps that survive a restart (PROTOCOL.md §6).

A row in ``resync`` is work that is not finished: it is written in the transaction that makes it necessary, and moves
with each step. It also takes the entries away that stood under the server that the owner had before.
"""

from __future__ import annotations

from typing import NamedTuple

from shine_node.store.environment import Transaction
from shine_node.store.layout import Flag, Row, Table, pack_number, unpack_number
from shine_node.store.outbox import outbox_key
from shine_node.store.users import other_server

__all__ = ["Resync", "begin_resync", "count_entries", "next_resync", "step_resync"]


class Resync(NamedTuple):
    """Unfinished work: the owner, the other server of before (empty if there was none), and how far it has come."""

    owner: str
    former: str
    after: bytes


def begin_resync(txn: Transaction, owner: str, *, former: str = "") -> None:
    """Have all entries of an owner made unsynced, from the first one on, also if that is under way already.

    Args:
        owner: in lower case.
        former: the login of the other server under which the entries stand now, where it has been replaced.
    """
    prefix = owner.encode() + b"\0"
    number = 0
    for key, value in list(txn.scan(Table.RESYNC, prefix=prefix)):
        number = unpack_number(key[-8:])
        if _decode(key, value).former == former.lower():
            txn.put(Table.RESYNC, key, _encode(former, b""))
            return
    # Two replacements in a row leave entries under two former servers: each gets a pass of its own.
    txn.put(Table.RESYNC, prefix + pack_number(number + 1), _encode(former, b""))


def next_resync(txn: Transaction) -> Resync | None:
    """Return the first unfinished work, ``None`` if there is none."""
    found = next(txn.scan(Table.RESYNC), None)
    return _decode(*found) if found is not None else None


def step_resync(txn: Transaction, own_login: str, *, limit: int) -> int | None:
    """Do at most ``limit`` rows of the first unfinished work.

    Returns:
        How many rows were looked at; ``None`` if no work was left.
    """
    found = next(txn.scan(Table.RESYNC), None)
    if found is None:
        return None
    work_key, value = found
    work = _decode(work_key, value)
    prefix = work.owner.encode() + b"\0"
    rows: list[tuple[bytes, bytes]] = []
    for key, row in txn.scan(Table.HISTORY, max(work.after, prefix), prefix=prefix):
        if key == work.after:
            continue
        rows.append((key, row))
        if len(rows) == limit:
            break
    other = other_server(txn, work.owner, own_login)
    for key, row_value in rows:
        _mark(txn, key, Row.decode(row_value), work.former, other.server_login if other is not None else "")
    if len(rows) < limit:
        txn.delete(Table.RESYNC, work_key)
    else:
        txn.put(Table.RESYNC, work_key, _encode(work.former, rows[-1][0]))
    return len(rows)


def count_entries(txn: Transaction, owner: str) -> int:
    """Count the entries of an owner in lower case that a resync sends: what was removed is not sent."""
    prefix = owner.encode() + b"\0"
    return sum(1 for _, value in txn.scan(Table.HISTORY, prefix=prefix) if not value[0] & Flag.REMOVED)


def _mark(txn: Transaction, key: bytes, row: Row, former: str, other: str) -> None:
    if row.removed or not row.seq:
        return
    if former and former.lower() != other.lower() and row.flags & Flag.UNSYNCED:
        txn.delete(Table.OUTBOX_UNSYNCED, outbox_key(former, row))
    flags = row.flags | Flag.UNSYNCED if other else row.flags & ~Flag.UNSYNCED
    if flags != row.flags:
        txn.put(Table.HISTORY, key, row._replace(flags=flags).encode())
    if other:
        txn.put(Table.OUTBOX_UNSYNCED, outbox_key(other, row), key)


def _encode(former: str, after: bytes) -> bytes:
    return former.lower().encode() + b"\0" + after


def _decode(key: bytes, value: bytes) -> Resync:
    former, _, after = value.partition(b"\0")
    return Resync(key[:-9].decode(), former.decode(), after)
