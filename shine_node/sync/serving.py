"""The serving side of a ``*SyncBatch``: acknowledgements in, a page out (PROTOCOL.md §6)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from shine_node.protocol.encoding import (
    decode_base64,
    encode_base64,
    read_limit,
    read_list,
    read_login,
    read_optional_text,
)
from shine_node.protocol.errors import BadBase64, BadFields, BadRequestFormat
from shine_node.store.environment import Job, Store, Transaction
from shine_node.store.readers import Readers

__all__ = ["Feed", "FeedPage", "Sent", "SyncServing"]

DEFAULT_LIMIT = 100
GREATEST_LIMIT = 500
MAX_SENT = GREATEST_LIMIT
"""Entries of one connection that may wait for their acknowledgement; the oldest are forgotten, and come again."""
MAX_CURSOR_BYTES = 400
"""No cursor of this server is longer, and no key of the store may be."""
ENVELOPE_BYTES = 4096


class FeedPage(NamedTuple):
    """A page of a feed: per entry its ``syncId``, what acknowledges it, and the item as it travels."""

    entries: Sequence[tuple[str, object, Mapping[str, object]]]
    cursor: bytes
    more: bool


class Feed(Protocol):
    """One kind of entries that a peer can fetch: settings, or messages."""

    def page(
        self, txn: Transaction, server: str, *, login: str | None, after: bytes, limit: int, max_bytes: int
    ) -> FeedPage:
        """Return the next unsynced entries that a peer may have; called in a thread.

        Args:
            server: the peer's login, in lower case.
            login: whose entries alone are asked for, in lower case.
            after: the cursor of the page before, ``b""`` to begin.
            limit: how many entries at most.
            max_bytes: of all items as they travel; yet one goes in any case.
        """

    def acknowledge(self, txn: Transaction, server: str, mark: object) -> None:
        """Take note that a peer has stored one revision of one entry, in a write transaction."""


class Sent:
    """What one connection was sent of a feed in its present session, by ``syncId``."""

    def __init__(self) -> None:
        self._marks: dict[str, object] = {}
        self.noting: asyncio.Future[None] | None = None
        """The commit of the last acknowledgements, if it was not waited for."""

    def clear(self) -> None:
        """Forget all: a new session begins."""
        self._marks.clear()

    def add(self, sync_id: str, mark: object) -> None:
        """Note an entry that is being sent."""
        self._marks.pop(sync_id, None)  # so that the oldest stands first
        if len(self._marks) >= MAX_SENT:
            del self._marks[next(iter(self._marks))]
        self._marks[sync_id] = mark

    def take(self, sync_ids: Sequence[str]) -> list[object]:
        """Return, and forget, the marks of entries that were sent here; others are passed over."""
        return [mark for sync_id in sync_ids if (mark := self._marks.pop(sync_id, None)) is not None]


class SyncServing:
    """Answers the requests for one feed.

    Args:
        max_frame_bytes: ``limits.maxFrameBytes``; a page takes at most half of it.
    """

    def __init__(self, *, feed: Feed, store: Store, readers: Readers, max_frame_bytes: int) -> None:
        self._feed = feed
        self._store = store
        self._readers = readers
        self._max_bytes = max_frame_bytes // 2 - ENVELOPE_BYTES

    async def answer(self, server: str, sent: Sent, payload: Mapping[str, Any]) -> Mapping[str, object]:
        """Take the acknowledgements of a request, then return its page.

        Args:
            server: the login that the connection's ``ServerHello`` names.
            sent: of this connection and feed.

        Raises:
            BadFields, BadLogin, BadRequestFormat: the request is wrong; nothing was acknowledged.
        """
        login = read_login(payload).lower() if payload.get("login") is not None else None
        sync_ids = read_list(payload, "ackSyncIds")
        if not all(isinstance(sync_id, str) for sync_id in sync_ids):
            raise BadRequestFormat("ackSyncIds must be texts")
        limit = read_limit(payload, DEFAULT_LIMIT, GREATEST_LIMIT)
        after = _read_cursor(payload)

        marks = sent.take(sync_ids)
        if not after:  # what is acknowledged must not come again with the first page
            await self._note(server, sent, marks)
            sent.clear()
        page = await self._readers.run(
            lambda txn: self._feed.page(txn, server, login=login, after=after, limit=limit, max_bytes=self._max_bytes)
        )
        if after:  # it lies behind the cursor: the peer can work on this page while it is being noted
            await self._note(server, sent, marks, wait=not page.more)
        items = []
        for sync_id, mark, item in page.entries:
            sent.add(sync_id, mark)
            items.append({"syncId": sync_id, **item})
        return {"items": items, "cursor": encode_base64(page.cursor or after), "hasMore": page.more}

    async def _note(self, server: str, sent: Sent, marks: Sequence[object], *, wait: bool = True) -> None:
        """Have acknowledgements written, all in one transaction, once those of before are."""
        before, sent.noting = sent.noting, None
        if before is not None:
            await before
        if marks:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._store.submit([Job(lambda txn: self._acknowledge(txn, server, marks), future)])
            if wait:
                await future
            else:
                future.add_done_callback(_look_at_error)
                sent.noting = future

    def _acknowledge(self, txn: Transaction, server: str, marks: Sequence[object]) -> None:
        for mark in marks:
            self._feed.acknowledge(txn, server, mark)


def _look_at_error(future: asyncio.Future[None]) -> None:
    """The next request meets the error; if there is none, the entries come again in the next session."""
    if not future.cancelled():
        future.exception()


def _read_cursor(payload: Mapping[str, Any]) -> bytes:
    text = read_optional_text(payload, "cursor")
    try:
        cursor = decode_base64(text, "cursor")
    except BadBase64:
        cursor = None
    if cursor is None or len(cursor) > MAX_CURSOR_BYTES:
        raise BadFields("cursor is none that this server gave")
    return cursor
