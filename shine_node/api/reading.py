"""Operations that read history: the messages of a chat, and the chats there are (PROTOCOL.md §8.2)."""

from __future__ import annotations

import heapq
import itertools
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar, cast

import orjson

from shine_node.api.connection import Connection, Handler
from shine_node.protocol.encoding import decode_base64, encode_base64, read_limit, read_login, read_optional_text
from shine_node.protocol.errors import BadBase64, BadFields
from shine_node.protocol.keys import MessageKey
from shine_node.protocol.logins import is_login
from shine_node.store.environment import Transaction
from shine_node.store.layout import Direction
from shine_node.store.marks import read_up_to_ms
from shine_node.store.readers import Readers
from shine_node.store.reading import Entry, Position, count_unread, get_own_copy, list_chats, read_chat
from shine_node.store.unreadable import UnreadableRow
from shine_node.store.users import get_registration

__all__ = ["MAX_UNREAD", "ReadingOperations"]

T = TypeVar("T")

DEFAULT_LIMIT = 50
GREATEST_LIMIT = 500
MAX_UNREAD = 1000
"""Where the count of unread messages ends: nobody reads a greater number, and counting costs."""
ENVELOPE_BYTES = 1024
_TIME = struct.Struct(">Q")


class ChatPlace(NamedTuple):
    """Where a chat stands among the chats of an owner: the one with the newest message first, then by peer."""

    time_ms: int
    peer: str

    @property
    def order(self) -> tuple[int, str]:
        """What sorts places."""
        return -self.time_ms, self.peer

    def encode(self) -> bytes:
        """Return the place as bytes."""
        return _TIME.pack(self.time_ms) + self.peer.encode()

    @classmethod
    def decode(cls, data: bytes) -> ChatPlace:
        """Return what ``encode`` was given.

        Raises:
            ValueError: these bytes are no place.
        """
        peer = data[_TIME.size :].decode("ascii")
        if not is_login(peer):
            raise ValueError("no login")
        return cls(_TIME.unpack_from(data)[0], peer)


class ReadingOperations:
    """Reads pages of an owner's history on threads of its own: one page at a time for each connection.

    Args:
        max_frame_bytes: ``limits.maxFrameBytes``; the encoded answer takes at most half of it, yet holds one entry.
    """

    def __init__(self, *, readers: Readers, max_frame_bytes: int) -> None:
        self._readers = readers
        self._page_bytes = max_frame_bytes // 2 - ENVELOPE_BYTES

    @property
    def handlers(self) -> dict[str, Handler]:
        """The operations by name."""
        return {"GetDirectMessages": self.get_direct_messages, "ListDialogs": self.list_dialogs}

    async def get_direct_messages(self, connection: Connection, payload: dict[str, Any]) -> Mapping[str, object]:
        """Return a page of a chat, the newest message first."""
        owner = connection.need_session().login
        peer = read_login(payload, "peerLogin").lower()
        cursor, before = _read_cursor(payload, Position.decode)
        limit = read_limit(payload, DEFAULT_LIMIT, GREATEST_LIMIT)

        def read(txn: Transaction) -> Mapping[str, object]:
            marks = _ReadMarks(txn, owner, peer)
            page = _Page(limit, self._page_bytes)
            for found in read_chat(txn, owner, peer, before):
                if isinstance(found, Position):
                    page.end_at(found.encode())
                    continue
                try:
                    entry = _entry(txn, found, marks)
                except UnreadableRow as error:
                    txn.pass_over(error)
                    continue
                if not page.add(entry, found.position.encode()):
                    break
            return page.answer("messages", cursor)

        return await self._read(connection, read)

    async def list_dialogs(self, connection: Connection, payload: dict[str, Any]) -> Mapping[str, object]:
        """Return a page of the owner's chats, the one with the newest message first."""
        owner = connection.need_session().login
        cursor, after = _read_cursor(payload, ChatPlace.decode)
        limit = read_limit(payload, DEFAULT_LIMIT, GREATEST_LIMIT)

        def read(txn: Transaction) -> Mapping[str, object]:
            page = _Page(limit, self._page_bytes)
            for place, entry in _newest_chats(txn, owner, after, limit + 1):
                dialog = _dialog(txn, entry)
                if dialog is not None and not page.add(dialog, place.encode()):
                    break
            return page.answer("dialogs", cursor)

        return await self._read(connection, read)

    async def _read(self, connection: Connection, work: Callable[[Transaction], T]) -> T:
        """Make one page after the other for a connection, each when the other side has taken the one before.

        Events of what changes meanwhile follow the page, so that what comes later is newer.
        """
        async with connection.pages:
            await connection.outbound.until_taken()
            with connection.outbound.events_held():
                return await self._readers.run(work)


class _Page:
    """The entries of one answer, bounded by their number and by their bytes as they will be encoded."""

    def __init__(self, limit: int, most_bytes: int) -> None:
        self._limit = limit
        self._bytes_left = most_bytes
        self._entries: list[dict[str, object]] = []
        self._last = b""
        self._has_more = False

    def add(self, entry: dict[str, object], place: bytes) -> bool:
        """Add an entry and say whether it fitted; the first one always does. What does not fit begins the next page."""
        size = len(orjson.dumps(entry)) + 1
        if len(self._entries) == self._limit or (self._entries and size > self._bytes_left):
            self._has_more = True
            return False
        self._bytes_left -= size
        self._entries.append(entry)
        self._last = place
        return True

    def end_at(self, place: bytes) -> None:
        """End the page at a place behind which there may be more, whether or not it has entries."""
        self._last = place
        self._has_more = True

    def answer(self, name: str, cursor: str | None) -> Mapping[str, object]:
        """Return the payload; where nothing was found at all the cursor stays that which was asked for with."""
        new_cursor = encode_base64(self._last) if self._last else cursor
        return {name: self._entries, "cursor": new_cursor, "hasMore": self._has_more}


class _ReadMarks:
    """Up to when the messages of a chat are read, in both directions."""

    def __init__(self, txn: Transaction, owner: str, peer: str) -> None:
        self._marks = {direction: read_up_to_ms(txn, owner, peer, direction) for direction in Direction}

    def cover(self, entry: Entry) -> bool:
        """Say whether a receipt covers a message."""
        mark_ms = self._marks[entry.key.direction]
        return mark_ms is not None and entry.key.time_ms <= mark_ms


def _newest_chats(
    txn: Transaction, owner: str, after: ChatPlace | None, limit: int
) -> Iterator[tuple[ChatPlace, Entry]]:
    """Yield the first chats after a place; all chats are looked at, a few of them are held and read."""
    orders = ((-time_ms, peer) for time_ms, peer in list_chats(txn, owner))
    if after is not None:
        begin = after.order
        orders = (order for order in orders if order > begin)
    for negative_ms, peer in heapq.nsmallest(limit, orders):
        entry = next(read_chat(txn, owner, peer))
        yield ChatPlace(-negative_ms, peer), cast(Entry, entry)  # list_chats names no chat that has none


def _dialog(txn: Transaction, newest: Entry) -> dict[str, object] | None:
    """Return a chat by its newest message that can be read; ``None`` if there is none."""
    owner, peer = newest.key.owner, newest.key.peer
    marks = _ReadMarks(txn, owner, peer)
    for entry in itertools.chain((newest,), read_chat(txn, owner, peer, newest.position)):
        try:
            if isinstance(entry, Entry):
                last = _entry(txn, entry, marks)
                return {
                    "peerLogin": _spelled(txn, peer),
                    "lastMessage": last,
                    "unread": count_unread(txn, owner, peer, MAX_UNREAD),
                }
        except UnreadableRow as error:
            txn.pass_over(error)
    return None


def _spelled(txn: Transaction, login: str) -> str:
    """Return a login in lower case as it was registered, where that can be read."""
    try:
        known = get_registration(txn, login)
    except UnreadableRow as error:
        txn.pass_over(error)
        known = None
    return known.record.login if known is not None else login


def _entry(txn: Transaction, entry: Entry, marks: _ReadMarks) -> dict[str, object]:
    key, row = entry
    out = key.direction is Direction.OUT
    found: dict[str, object] = {
        "messageKey": str(MessageKey(key.message, key.kind + 1 if out else key.kind)),
        "baseKey": key.message.base_key,
        "direction": "out" if out else "in",
        "timeMs": key.time_ms,
        "revisionMs": row.revision_ms,
        "read": marks.cover(entry),
        "deleted": row.removed,
    }
    if out:
        found["deliveryState"] = row.state.wire
    if not row.removed:
        found["blobB64"] = encode_base64(get_own_copy(txn, entry))
    return found


def _read_cursor(payload: Mapping[str, Any], decode: Callable[[bytes], T]) -> tuple[str | None, T | None]:
    """Return the cursor of a request, as it came and decoded; an empty one is none."""
    cursor = read_optional_text(payload, "cursor")
    if not cursor:
        return None, None
    try:
        return cursor, decode(decode_base64(cursor, "cursor"))
    except (BadBase64, ValueError, struct.error):
        raise BadFields("cursor is none that this server has given for this: begin without one") from None
