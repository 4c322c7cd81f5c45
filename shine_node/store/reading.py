"""Looks into an owner's history: a chat from its end, the chats there are, what is unread (PROTOCOL.md §8.2).

Each function is called in a read transaction, away from the event loop: an owner may have much history.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from shine_node.store.environment import Transaction
from shine_node.store.layout import Direction, Flag, ItemKey, Kind, Row, Table, is_flagged, pack_number, unpack_number
from shine_node.store.marks import read_up_to_ms
from shine_node.store.messages import get_blobs
from shine_node.store.unreadable import UnreadableRow

__all__ = ["MOST_PASSED", "Entry", "Position", "count_unread", "get_own_copy", "list_chats", "read_chat"]

GREATEST_TIME_MS = 2**64 - 1
MOST_PASSED = 10_000
"""So many rows that are not listed are passed over at one go: anybody can leave many in a chat with somebody."""
_POSITION = struct.Struct(">QIB")
_NO_NUMBER = pack_number(0)
_DIRECTIONS = frozenset(Direction)


class Position(NamedTuple):
    """Where a message stands in its chat; a chat is read from a position towards its beginning."""

    time_ms: int
    nonce: int
    direction: Direction

    def encode(self) -> bytes:
        """Return 13 bytes, as they stand at the end of a key."""
        return _POSITION.pack(*self)

    @classmethod
    def decode(cls, data: bytes) -> Position:
        """Return what ``encode`` was given.

        Raises:
            ValueError: these bytes are no position.
        """
        if len(data) != _POSITION.size:
            raise ValueError("not 13 bytes")
        time_ms, nonce, direction = _POSITION.unpack(data)
        return cls(time_ms, nonce, Direction(direction))


class Entry(NamedTuple):
    """A message as its chat lists it."""

    key: ItemKey
    row: Row

    @property
    def position(self) -> Position:
        """Where it stands."""
        return Position(self.key.time_ms, self.key.nonce, self.key.direction)


def read_chat(txn: Transaction, owner: str, peer: str, before: Position | None = None) -> Iterator[Entry | Position]:
    """Yield the messages of a chat, the newest first: removed ones too, no receipts and no tombstones.

    A message to oneself is one entry, the outgoing one. One that was removed before it came is none: whoever writes a
    tombstone chooses what it names. After ``MOST_PASSED`` of these the last thing yielded is where to read on from. One
    that cannot be read is told in the log and passed over.

    Args:
        owner: whose history, in lower case.
        peer: the other side, in lower case.
        before: where an earlier reading ended; from the end without it.
    """
    prefix = _chat_prefix(owner, peer) + bytes((Kind.MESSAGE,))
    end = prefix + before.encode() if before is not None else _chat_prefix(owner, peer) + bytes((Kind.MESSAGE + 1,))
    passed = 0
    for encoded, value in txn.scan_back(Table.HISTORY, end, prefix=prefix):
        if _never_came(value):
            passed += 1
            if passed >= MOST_PASSED and encoded[-1] in _DIRECTIONS:
                yield Position.decode(encoded[-_POSITION.size :])
                return
            continue
        try:
            entry = Entry(ItemKey.decode(encoded), Row.decode(value))
        except UnreadableRow as error:
            txn.pass_over(error)
            continue
        if entry.key.direction is Direction.OUT or owner != peer:
            yield entry


def list_chats(txn: Transaction, owner: str) -> Iterator[tuple[int, str]]:
    """Yield when the newest message of every chat of an owner was written, and the peer, all in lower case.

    There may be very many: two keys of each are looked at, and hardly a row. A chat that begins, from its end, with
    ``MOST_PASSED`` messages that were removed before they came is left out.
    """
    prefix = f"{owner}\0".encode()
    with txn.seek(Table.HISTORY) as seek:
        key = seek.at_or_after(prefix)
        while key is not None and key.startswith(prefix):
            end = key.find(b"\0", len(prefix))
            if end < 0 or not key[:end].isascii():
                txn.pass_over(UnreadableRow("a key of a message", key))
                key = seek.at_or_after(key + b"\0" if end < 0 else key[:end] + b"\1")
                continue
            peer = key[len(prefix) : end].decode()
            messages = key[: end + 1] + bytes((Kind.MESSAGE,))
            newest = seek.before(key[: end + 1] + bytes((Kind.MESSAGE + 1,)))
            if newest is not None and newest.startswith(messages):
                # Of a message to oneself only one of two rows counts.
                value = seek.value()
                if peer == owner or _never_came(value) or not _is_readable(txn, newest, value):
                    entry = next(read_chat(txn, owner, peer), None)
                    if isinstance(entry, Entry):
                        yield entry.key.time_ms, peer
                else:
                    yield unpack_number(newest[len(messages) : len(messages) + 8]), peer
            key = seek.at_or_after(key[:end] + b"\1")


def get_own_copy(txn: Transaction, entry: Entry) -> bytes:
    """Return the owner's copy of a message, the incoming or the outgoing one; empty if it is removed."""
    incoming, outgoing = get_blobs(txn, entry.row)
    return outgoing if entry.key.direction is Direction.OUT else incoming


def count_unread(txn: Transaction, owner: str, peer: str, greatest: int) -> int:
    """Count the messages that came in and that no receipt of the owner covers, up to a bound; removed ones not.

    After ``MOST_PASSED`` removed ones the count ends.
    """
    if owner == peer:
        return 0
    mark_ms = read_up_to_ms(txn, owner, peer, Direction.IN)
    if mark_ms == GREATEST_TIME_MS:
        return 0
    prefix = _chat_prefix(owner, peer) + bytes((Kind.MESSAGE,))
    start = prefix if mark_ms is None else prefix + pack_number(mark_ms + 1)
    count = passed = 0
    for key, value in txn.scan(Table.HISTORY, start, prefix=prefix):
        if is_flagged(value, Flag.REMOVED):
            passed += 1
            if passed == MOST_PASSED:
                break
        elif key[-1] == Direction.IN:
            count += 1
            if count == greatest:
                break
    return count


def _never_came(value: bytes) -> bool:
    """Say of a row in ``history``, encoded, whether its message was removed before it came; cheaper than decoding."""
    return is_flagged(value, Flag.REMOVED) and value[2:10] == _NO_NUMBER


def _is_readable(txn: Transaction, key: bytes, value: bytes) -> bool:
    try:
        ItemKey.decode(key)
        Row.decode(value)
    except UnreadableRow as error:
        txn.pass_over(error)
        return False
    return True


def _chat_prefix(owner: str, peer: str) -> bytes:
    return f"{owner}\0{peer}\0".encode()
