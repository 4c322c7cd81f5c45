"""Making all entries of an owner unsynced again, in bounded steps that survive a restart (PROTOCOL.md §6).

A row in ``resync`` is work that is not finished: it is written in the transaction that makes it necessary, and moves
with each step: through the settings first, then through the messages. It also takes the entries away that stood under
the server that the owner had before.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from shine_node.store.environment import Transaction
from shine_node.store.layout import Flag, Row, Table, pack_number, unpack_number
from shine_node.store.outbox import outbox_key
from shine_node.store.settings import count_settings, mark_settings
from shine_node.store.users import other_server

__all__ = ["Counts", "Part", "Resync", "begin_resync", "count_entries", "list_owners", "next_resync", "step_resync"]


class Counts(NamedTuple):
    """How many entries a resync sends."""

    settings: int
    messages: int


class Part(enum.Enum):
    """What the work is at; the order is that of a session."""

    SETTINGS = b"s"
    MESSAGES = b"m"


class Resync(NamedTuple):
    """Unfinished work: the owner, the other server of before (empty if there was none), and how far it has come."""

    owner: str
    former: str
    part: Part
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
            txn.put(Table.RESYNC, key, _encode(former, Part.SETTINGS, b""))
            return
    # Two replacements in a row leave entries under two former servers: each gets a pass of its own.
    txn.put(Table.RESYNC, prefix + pack_number(number + 1), _encode(former, Part.SETTINGS, b""))


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
    key, value = found
    work = _decode(key, value)
    server = other_server(txn, work.owner, own_login)
    other = server.server_login.lower() if server is not None else ""
    former = work.former if work.former != other else ""
    if work.part is Part.SETTINGS:
        count, after = mark_settings(txn, work.owner, former=former, other=other, after=work.after, limit=limit)
    else:
        count, after = _mark_messages(txn, work.owner, former=former, other=other, after=work.after, limit=limit)
    if after is not None:
        txn.put(Table.RESYNC, key, _encode(work.former, work.part, after))
    elif work.part is Part.SETTINGS:
        txn.put(Table.RESYNC, key, _encode(work.former, Part.MESSAGES, b""))
    else:
        txn.delete(Table.RESYNC, key)
    return count


def count_entries(txn: Transaction, owner: str, own_login: str) -> Counts:
    """Count the entries of an owner in lower case that a resync sends.

    What was removed is not sent; nor is anything where the owner has no other server.
    """
    if other_server(txn, owner, own_login) is None:
        return Counts(0, 0)
    history = txn.scan(Table.HISTORY, prefix=owner.encode() + b"\0")
    return Counts(count_settings(txn, owner), sum(1 for _, value in history if not value[0] & Flag.REMOVED))


def list_owners(txn: Transaction, own_login: str) -> list[str]:
    """Return all who have this server (in lower case) and another one, in lower case."""
    logins = [key.decode() for key in txn.scan_keys(Table.ACCESS_CURRENT)]
    return [login for login in logins if other_server(txn, login, own_login) is not None]


def _mark_messages(
    txn: Transaction, owner: str, *, former: str, other: str, after: bytes, limit: int
) -> tuple[int, bytes | None]:
    """Do as ``mark_settings`` does, with messages."""
    prefix = owner.encode() + b"\0"
    rows: list[tuple[bytes, bytes]] = []
    for key, value in txn.scan(Table.HISTORY, max(after, prefix), prefix=prefix):
        if key == after:
            continue
        rows.append((key, value))
        if len(rows) == limit:
            break
    for key, value in rows:
        _mark(txn, key, Row.decode(value), former, other)
    return len(rows), rows[-1][0] if len(rows) == limit else None


def _mark(txn: Transaction, key: bytes, row: Row, former: str, other: str) -> None:
    if row.removed or not row.seq:
        return
    if former and row.flags & Flag.UNSYNCED:
        txn.delete(Table.OUTBOX_UNSYNCED, outbox_key(former, row))
    flags = row.flags | Flag.UNSYNCED if other else row.flags & ~Flag.UNSYNCED
    if flags != row.flags:
        txn.put(Table.HISTORY, key, row._replace(flags=flags).encode())
    if other:
        txn.put(Table.OUTBOX_UNSYNCED, outbox_key(other, row), key)


def _encode(former: str, part: Part, after: bytes) -> bytes:
    return former.lower().encode() + b"\0" + part.value + after


def _decode(key: bytes, value: bytes) -> Resync:
    former, _, place = value.partition(b"\0")
    return Resync(key[:-9].decode(), former.decode(), Part(place[:1]), place[1:])
