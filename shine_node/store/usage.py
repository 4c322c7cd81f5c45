"""How much is stored of each owner's messages, and how many were sent today: exact, at nearly no cost to the disk.

A row in ``usage`` is the sum over an owner's items up to a number in ``containers``. What came after it is added up in
memory, and once more when the store is opened, from the items themselves. So a new message writes no row. Rows are
written for an owner of whom an older item changes (an edit, a removal), and for all after every ``MOST_ITEMS`` items,
in the same transaction: items behind the number of a row have never changed.

Each function is called in a write transaction, before it writes the item.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from shine_node.protocol.container import parse_container
from shine_node.protocol.errors import Refusal
from shine_node.store.layout import (
    Flag,
    ItemKey,
    Kind,
    Row,
    Table,
    decode_containers,
    pack_number,
    unpack_number,
)
from shine_node.store.unreadable import UnreadableRow

if TYPE_CHECKING:
    from shine_node.store.transaction import Transaction

__all__ = [
    "MOST_BYTES",
    "MOST_ITEMS",
    "REACH_KEY",
    "Tail",
    "Usage",
    "Used",
    "add_item",
    "change_item",
    "day_of",
    "decode_used",
    "encode_used",
    "read_usage",
    "rows_reach",
    "snapshot_usage",
    "usage_rows",
]

MOST_ITEMS = 1000
MOST_BYTES = 8 * 2**20
"""Of items that a start adds up again."""
DAY_MS = 86_400_000
REACH_KEY = b"usage"
"""In ``meta``: the number up to which the rows of all owners reach; those of some reach further."""
_ROW = struct.Struct(">QQQQ")
_MOST = 2**62
"""More bytes, days and messages than there are; what is added still fits into 64 bits."""


class Used(NamedTuple):
    """What an owner has stored, in bytes, and the messages and edits that were sent through this server on a day."""

    stored_bytes: int
    day: int
    """Days since 1970, UTC."""
    sent: int

    def plus(self, other: Used) -> Used:
        """Add what came later; of two days those messages count that came later, whatever the clock has done."""
        stored_bytes = self.stored_bytes + other.stored_bytes
        if not other.sent:
            return Used(stored_bytes, self.day, self.sent)
        return Used(stored_bytes, other.day, other.sent + (self.sent if self.day == other.day else 0))


NOTHING = Used(0, 0, 0)


class Tail:
    """What the items of owners add that their rows do not know of; of all commits, or of one transaction."""

    def __init__(self) -> None:
        self.added: dict[str, Used] = {}
        self.written: set[str] = set()
        """Of a transaction: owners whose rows it has written, so that what was added before is in them."""
        self.items = 0
        self.item_bytes = 0

    @property
    def is_long(self) -> bool:
        """Whether it is time to write rows for all."""
        return self.items >= MOST_ITEMS or self.item_bytes >= MOST_BYTES

    def add(self, owner: str, used: Used) -> None:
        """Add an item."""
        self.added[owner] = self.added.get(owner, NOTHING).plus(used)
        self.items += 1
        self.item_bytes += used.stored_bytes

    def join(self, later: Tail) -> None:
        """Add what a transaction has brought, once it is committed."""
        for owner in later.written:
            self.added.pop(owner, None)
        for owner, used in later.added.items():
            self.added[owner] = self.added.get(owner, NOTHING).plus(used)
        self.items += later.items
        self.item_bytes += later.item_bytes


class Usage:
    """The tail of all commits; read from the store when it is first asked for."""

    def __init__(self) -> None:
        self._committed: Tail | None = None

    def committed(self, txn: Transaction) -> Tail:
        """Return it, in a transaction that has written no item yet."""
        if self._committed is None:
            self._committed = _load_tail(txn)
        return self._committed

    def keep_short(self, txn: Transaction) -> None:
        """Write the rows of all owners, where it is time to, at the end of a transaction."""
        if self._committed is not None and self._committed.is_long:
            _write_all(txn, self._committed)

    def written(self, txn: Transaction) -> None:
        """Take note that a transaction was committed."""
        if self._committed is not None:
            self._committed.join(txn.usage)


def day_of(now_ms: int) -> int:
    """Return the day of a time, in days since 1970, UTC; of one before that, which a clock may say, the first."""
    return max(0, now_ms) // DAY_MS


def read_usage(txn: Transaction, owner: str) -> Used:
    """Return what an owner in lower case has stored and has sent on the last day on which something was sent."""
    used = _read_row(txn, owner)[0]
    if owner not in txn.usage.written:
        used = used.plus(txn.committed_usage().added.get(owner, NOTHING))
    return used.plus(txn.usage.added.get(owner, NOTHING))


def snapshot_usage(txn: Transaction, owner: str) -> Used:
    """Return the same from a snapshot of a store that another process may have open; some items are added up for it."""
    return _read_row(txn, owner)[0].plus(_load_tail(txn).added.get(owner, NOTHING))


def add_item(txn: Transaction, owner: str, *, size: int, now_ms: int, sent: bool) -> None:
    """Count an item that is new.

    Args:
        size: bytes of its containers.
        now_ms: the time of the change, as its row says it.
        sent: whether it is a message that was sent through this server, as ``Flag.SENT_HERE`` of its row says.
    """
    txn.committed_usage()  # the items are added up before there is one more of them
    txn.usage.add(owner, Used(size, day_of(now_ms), 1) if sent else Used(size, 0, 0))


def change_item(txn: Transaction, owner: str, *, grows: int, now_ms: int, sent: bool) -> None:
    """Count the change of an item that was there before; ``grows`` is negative where it becomes smaller."""
    used = read_usage(txn, owner)
    used = used._replace(stored_bytes=max(0, used.stored_bytes + grows))
    if sent:
        used = used.plus(Used(0, day_of(now_ms), 1))
    _write_row(txn, owner, used)


def usage_rows(txn: Transaction) -> Iterator[tuple[str, Used, int]]:
    """Yield the rows: the owner, the sum, and the number of the last item in it."""
    for key, value in txn.scan(Table.USAGE):
        yield key.decode(), *decode_used(value)


def decode_used(value: bytes) -> tuple[Used, int]:
    """Return what a row says: the sum, and the number of the last item in it.

    Raises:
        UnreadableRow: it is no row, or a sum that nobody can have.
    """
    try:
        *used, seq = _ROW.unpack(value)
    except struct.error:
        raise UnreadableRow("a row of what is counted", value) from None
    if max(used) >= _MOST:
        raise UnreadableRow("a row of what is counted", value)
    return Used(*used), seq


def encode_used(used: Used, seq: int) -> bytes:
    """Return a row."""
    return _ROW.pack(*used, seq)


def rows_reach(txn: Transaction) -> int:
    """Return the number up to which the rows of all owners reach.

    Raises:
        UnreadableRow: it is no number.
    """
    up_to = txn.get(Table.META, REACH_KEY)
    return unpack_number(up_to) if up_to else 0


def _write_all(txn: Transaction, committed: Tail) -> None:
    for owner in {*committed.added, *txn.usage.added}:
        _write_row(txn, owner, read_usage(txn, owner))
    txn.put(Table.META, REACH_KEY, pack_number(_last_item(txn)))
    txn.usage.items, txn.usage.item_bytes = -committed.items, -committed.item_bytes


def _load_tail(txn: Transaction) -> Tail:
    """Add up what the rows do not know of, from the items themselves."""
    tail = Tail()
    reached: dict[str, int] = {}
    try:
        begin = min(rows_reach(txn), 2**64 - 2) + 1
    except UnreadableRow as error:
        txn.pass_over(error)
        begin = 1
    for number, value in txn.scan(Table.CONTAINERS, pack_number(begin)):
        if value:  # else it was removed, which has written its owner's row
            try:
                _add_stored(txn, tail, reached, unpack_number(number), value)
            except UnreadableRow as error:
                txn.pass_over(error)
            except Refusal:  # what a container that is none is refused with
                txn.pass_over(UnreadableRow("the contents of a message", number))
    return tail


def _add_stored(txn: Transaction, tail: Tail, reached: dict[str, int], seq: int, value: bytes) -> None:
    incoming, outgoing = decode_containers(value)
    blob = outgoing or incoming
    key = ItemKey.of(parse_container(blob, max_body_bytes=len(blob)))
    if key.owner not in reached:
        reached[key.owner] = _read_row(txn, key.owner)[1]
    if seq > reached[key.owner]:
        stored = txn.get(Table.HISTORY, key.encode())
        row = Row.decode(stored) if stored else None
        sent = row is not None and key.kind is Kind.MESSAGE and bool(row.flags & Flag.SENT_HERE)
        day = day_of(row.changed_at_ms) if row is not None and sent else 0
        tail.add(key.owner, Used(len(incoming) + len(outgoing), day, int(sent)))


def _read_row(txn: Transaction, owner: str) -> tuple[Used, int]:
    value = txn.get(Table.USAGE, owner.encode())
    try:
        return decode_used(value) if value is not None else (NOTHING, 0)
    except UnreadableRow as error:
        txn.pass_over(error)
        return NOTHING, 0


def _write_row(txn: Transaction, owner: str, used: Used) -> None:
    txn.put(Table.USAGE, owner.encode(), encode_used(used, _last_item(txn)))
    txn.usage.written.add(owner)
    txn.usage.added.pop(owner, None)


def _last_item(txn: Transaction) -> int:
    """Return the greatest number that is in use: greater ones, of transactions that were undone, are given again."""
    key = txn.last_key(Table.CONTAINERS)
    return unpack_number(key) if key else 0
