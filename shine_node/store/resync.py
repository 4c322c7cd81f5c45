"""Making all entries of an owner unsynced again, in bounded steps that survive a restart (PROTOCOL.md §6).

A row in ``resync`` is work that is not finished: it is written in the transaction that makes it necessary, and moves
with each step: through the settings first, then through the messages. It also takes the entries away that stood under
the server that the owner had before.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from shine_node.store.environment import Transaction
from shine_node.store.layout import Flag, Row, Table, is_flagged, pack_number, unpack_number
from shine_node.store.outbox import outbox_key
from shine_node.store.settings import count_settings, mark_settings
from shine_node.store.unreadable import UnreadableRow
from shine_node.store.users import access_servers, other_server

__all__ = [
    "FIRST",
    "Counts",
    "Part",
    "Place",
    "Resync",
    "all_resyncs",
    "begin_resync",
    "count_entries",
    "decode_work",
    "has_entries",
    "has_other_server",
    "list_owners",
    "next_resync",
    "put_resync",
    "step_resync",
]


class Counts(NamedTuple):
    """How many entries a resync sends."""

    settings: int
    messages: int


class Place(NamedTuple):
    """Where a count goes on: at which one of the owners, and behind which key of the history."""

    owner: int
    after: bytes


FIRST = Place(0, b"")
MAX_KEY_BYTES = 511
"""LMDB's bound."""


class Part(enum.Enum):
    """What the work is at; the order is that of a session."""

    SETTINGS = b"s"
    MESSAGES = b"m"


class Resync(NamedTuple):
    """Unfinished work: the owner, the other server of before (empty if there was none), and how far it has come.

    Entries that have not changed since ``since_ms`` (Unix milliseconds) stay as they are.
    """

    owner: str
    former: str
    since_ms: int
    part: Part
    after: bytes


def begin_resync(txn: Transaction, owner: str, *, former: str = "", since_ms: int = 0) -> None:
    """Have all entries of an owner made unsynced, from the first one on, also if that is under way already.

    Args:
        owner: in lower case.
        since_ms: only those that have changed since then, Unix milliseconds.
        former: the login of the other server under which the entries stand now, where it has been replaced.
    """
    prefix = owner.encode() + b"\0"
    number = 0
    for key, value in list(txn.scan(Table.RESYNC, prefix=prefix)):
        try:
            number = max(number, min(unpack_number(key[-8:]), 2**62))
            work = decode_work(key, value)
        except UnreadableRow as error:
            txn.pass_over(error)
            continue
        if work.former == former.lower():
            txn.put(Table.RESYNC, key, _encode(former, min(since_ms, work.since_ms), Part.SETTINGS, b""))
            return
    # Two replacements in a row leave entries under two former servers: each gets a pass of its own.
    txn.put(Table.RESYNC, prefix + pack_number(number + 1), _encode(former, since_ms, Part.SETTINGS, b""))


def all_resyncs(txn: Transaction, owner: str = "") -> Iterator[Resync]:
    """Yield all unfinished work, that of one owner (in lower case) or of all, by owner and in its order.

    Raises:
        UnreadableRow: one cannot be read.
    """
    for key, value in txn.scan(Table.RESYNC, prefix=owner.encode() + b"\0" if owner else b""):
        yield decode_work(key, value)


def put_resync(txn: Transaction, work: Resync) -> None:
    """Write work as far as it has come elsewhere; of an owner of whom nothing else is stored yet."""
    prefix = work.owner.encode() + b"\0"
    last = max((unpack_number(key[-8:]) for key in txn.scan_keys(Table.RESYNC, prefix=prefix)), default=0)
    key = prefix + pack_number(last + 1)
    txn.put(Table.RESYNC, key, _encode(work.former, work.since_ms, work.part, work.after))


def next_resync(txn: Transaction) -> Resync | None:
    """Return the first unfinished work that can be done, ``None`` if there is none."""
    found = _next(txn, "")
    return found[1] if found is not None else None


def step_resync(txn: Transaction, own_login: str, *, limit: int, after: str = "") -> tuple[str, int] | None:
    """Do at most ``limit`` rows of the unfinished work of one owner.

    Args:
        after: the owner of the step before: the next one's turn comes first, so that nobody's work is in the way of
            another's, however often it is begun anew.

    Returns:
        The owner, and how many rows were looked at; ``None`` if no work was left.
    """
    found = _next(txn, after)
    if found is None:
        return None
    key, work = found
    server = other_server(txn, work.owner, own_login)
    other = server.server_login.lower() if server is not None else ""
    former = work.former if work.former != other else ""
    mark = mark_settings if work.part is Part.SETTINGS else _mark_messages
    count, end = mark(
        txn, work.owner, former=former, other=other, since_ms=work.since_ms, after=work.after, limit=limit
    )
    if end is not None:
        txn.put(Table.RESYNC, key, _encode(work.former, work.since_ms, work.part, end))
    elif work.part is Part.SETTINGS:
        txn.put(Table.RESYNC, key, _encode(work.former, work.since_ms, Part.MESSAGES, b""))
    else:
        txn.delete(Table.RESYNC, key)
    return work.owner, count


def has_entries(txn: Transaction, owner: str, own_login: str) -> bool:
    """Say whether an owner in lower case has another server, and entries that may have to be sent to it."""
    if other_server(txn, owner, own_login) is None:
        return False
    prefix = owner.encode() + b"\0"
    return any(next(txn.scan_keys(table, prefix=prefix), None) for table in (Table.SETTINGS, Table.HISTORY))


def count_entries(
    txn: Transaction, owners: Sequence[str], own_login: str, *, place: Place = FIRST, limit: int
) -> tuple[Counts, Place | None]:
    """Count entries that a resync sends, a bounded number of rows at a time.

    What was removed is not sent; nor is anything where the owner has no other server.

    Args:
        owners: in lower case.
        place: where the step before ended.
        limit: how many rows of the history at most; an owner counts as one more, with all of the settings, of which
            nobody has many.

    Returns:
        What this step has counted, and where the next one goes on: ``None`` where this was the last.
    """
    settings, messages, left = 0, 0, limit
    index, after = place
    while index < len(owners) and left > 0:
        owner, rows = owners[index], list[tuple[bytes, bytes]]()
        if has_other_server(txn, owner, own_login):
            if not after:
                settings += count_settings(txn, owner)
            rows = _history(txn, owner, after, left)
            messages += sum(not is_flagged(value, Flag.REMOVED) for _, value in rows)
            if len(rows) == left:
                return Counts(settings, messages), Place(index, rows[-1][0])
        index, after, left = index + 1, b"", left - len(rows) - 1
    return Counts(settings, messages), Place(index, b"") if index < len(owners) else None


def list_owners(txn: Transaction, own_login: str) -> list[str]:
    """Return all who have this server (in lower case) and another one, in lower case."""
    logins = [key.decode("ascii", "replace") for key in txn.scan_keys(Table.ACCESS_CURRENT)]
    return [login for login in logins if has_other_server(txn, login, own_login)]


def has_other_server(txn: Transaction, login: str, own_login: str) -> bool:
    """Say whether a user (in lower case) has this server and another one; not of one who cannot be read."""
    try:
        return other_server(txn, login, own_login) is not None
    except UnreadableRow as error:
        txn.pass_over(error)
        return False


def _next(txn: Transaction, after: str) -> tuple[bytes, Resync] | None:
    """Return the first work of the owner who comes after another one, or else of the first one.

    What cannot be read, or is of a user who cannot, is passed over: it is in nobody's way.
    """
    behind = after.encode() + b"\0" + b"\xff" * 9  # the keys of that owner's rows end in eight bytes
    for start in (behind, b"") if after else (b"",):
        for key, value in txn.scan(Table.RESYNC, start):
            try:
                work = decode_work(key, value)
                access_servers(txn, work.owner)
            except UnreadableRow as error:
                txn.pass_over(error)
            else:
                return key, work
    return None


def _mark_messages(
    txn: Transaction, owner: str, *, former: str, other: str, since_ms: int, after: bytes, limit: int
) -> tuple[int, bytes | None]:
    """Do as ``mark_settings`` does, with messages."""
    rows = _history(txn, owner, after, limit)
    for key, value in rows:
        try:
            row = Row.decode(value)
        except UnreadableRow as error:
            txn.pass_over(error)
            continue
        if row.changed_at_ms >= since_ms:
            _mark(txn, key, row, former, other)
    return len(rows), rows[-1][0] if len(rows) == limit else None


def _history(txn: Transaction, owner: str, after: bytes, limit: int) -> list[tuple[bytes, bytes]]:
    """Return rows of an owner behind a key, from the first one on if that is empty."""
    prefix = owner.encode() + b"\0"
    rows = txn.scan(Table.HISTORY, max(after, prefix), prefix=prefix)
    return list(itertools.islice((row for row in rows if row[0] != after), limit))


def _mark(txn: Transaction, key: bytes, row: Row, former: str, other: str) -> None:
    if row.removed or not row.seq:
        return
    if former:  # also where the server of now has acknowledged it already
        txn.delete(Table.OUTBOX_UNSYNCED, outbox_key(former, row))
    flags = row.flags | Flag.UNSYNCED if other else row.flags & ~Flag.UNSYNCED
    if flags != row.flags:
        txn.put(Table.HISTORY, key, row._replace(flags=flags).encode())
    if other:
        txn.put(Table.OUTBOX_UNSYNCED, outbox_key(other, row), key)


def _encode(former: str, since_ms: int, part: Part, after: bytes) -> bytes:
    return former.lower().encode() + b"\0" + pack_number(since_ms) + part.value + after


def decode_work(key: bytes, value: bytes) -> Resync:
    """Return the unfinished work of a row in ``resync``.

    Raises:
        UnreadableRow: these bytes are no such row.
    """
    former, _, place = value.partition(b"\0")
    try:
        owner, since_ms = key[:-9].decode("ascii"), unpack_number(place[:8])
        work = Resync(owner, former.decode("ascii"), since_ms, Part(place[8:9]), place[9:])
    except ValueError:
        raise UnreadableRow("a row of unfinished work", key + value) from None
    if not owner or len(work.after) > MAX_KEY_BYTES:
        raise UnreadableRow("a row of unfinished work", key + value)
    return work
