"""The serving side of a ``*SyncBatch``: acknowledgements in, a page out (PROTOCOL.md §6)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from shine_node.clock import Clock
from shine_node.peers.repeats import Repeats
from shine_node.protocol.encoding import (
    decode_base64,
    encode_base64,
    read_limit,
    read_list,
    read_login,
    read_optional_number,
    read_optional_text,
)
from shine_node.protocol.errors import BadBase64, BadFields, BadRequestFormat, ServerBusy
from shine_node.store.environment import Job, Store, Transaction
from shine_node.store.lineage import MAX_MARK_CHARACTERS, note_doubt, put_peer_mark
from shine_node.store.readers import Readers
from shine_node.sync.stores import PeerStores

__all__ = ["Feed", "FeedPage", "Sent", "SyncServing"]

log = logging.getLogger(__name__)

DEFAULT_LIMIT = 100
GREATEST_LIMIT = 500
MAX_SENT = GREATEST_LIMIT
"""Entries of one connection that may wait for their acknowledgement; the oldest are forgotten, and come again."""
MAX_CURSOR_BYTES = 400
"""No cursor of this server is longer, and no key of the store may be."""
ENVELOPE_BYTES = 4096
MAX_AHEAD = 4
"""Pages that are kept for requests which may never come, of all peers together."""
AHEAD_SECONDS = 5.0
"""What was read longer ago than this is read anew: entries, and who may have them, change meanwhile."""


class FeedPage(NamedTuple):
    """A page of a feed: per entry its ``syncId``, what acknowledges it, and the item as it travels."""

    entries: Sequence[tuple[str, object, Mapping[str, object]]]
    cursor: bytes
    more: bool
    too_large: str = ""
    """The ``syncId`` of the first entry that was passed over because the peer could not take it."""


class Feed(Protocol):
    """One kind of entries that a peer can fetch: settings, or messages."""

    def page(
        self,
        txn: Transaction,
        server: str,
        *,
        login: str | None,
        after: bytes,
        limit: int,
        max_bytes: int,
        peer_bytes: int | None = None,
    ) -> FeedPage:
        """Return the next unsynced entries that a peer may have; called in a thread.

        Args:
            server: the peer's login, in lower case.
            login: whose entries alone are asked for, in lower case.
            after: the cursor of the page before, ``b""`` to begin.
            limit: how many entries at most.
            max_bytes: of all items as they travel; yet one goes in any case that the peer can take.
            peer_bytes: what the peer can take of them at once, ``None`` if it has not said so; an entry that alone
                takes more is passed over.
        """

    def acknowledge(self, txn: Transaction, server: str, mark: object) -> None:
        """Take note that a peer has stored one revision of one entry, in a write transaction."""


class Sent:
    """What one connection was sent of a feed in its present session, by ``syncId``."""

    def __init__(self) -> None:
        self._marks: dict[str, object] = {}
        self.echoed: str | None = None
        """The mark of the peer's store in the last answer."""
        self.told_too_large = False
        """Whether the log has been told in this session that an entry was passed over."""

    def clear(self) -> None:
        """Forget all: a new session begins."""
        self._marks.clear()
        self.told_too_large = False

    def add(self, sync_id: str, mark: object) -> None:
        """Note an entry that is being sent."""
        self._marks.pop(sync_id, None)  # so that the oldest stands first
        if len(self._marks) >= MAX_SENT:
            del self._marks[next(iter(self._marks))]
        self._marks[sync_id] = mark

    def take(self, sync_ids: Sequence[str]) -> list[object]:
        """Return, and forget, the marks of entries that were sent here; others are passed over."""
        return [mark for sync_id in sync_ids if (mark := self._marks.pop(sync_id, None)) is not None]


class _Asked(NamedTuple):
    """What decides what a page holds."""

    server: str
    login: str | None
    after: bytes
    limit: int
    peer_bytes: int | None


class _Ahead(NamedTuple):
    """The page that a connection is likely to ask for next, and since when it is being read."""

    asked: _Asked
    since: float
    page: asyncio.Future[FeedPage]


class SyncServing:
    """Answers the requests for one feed.

    While a peer works on a page, the next one is read already: it waits for the link alone.

    Args:
        clock: says how old is what was read ahead, and how long ago the log was told the same.
        max_frame_bytes: ``limits.maxFrameBytes``; a page takes at most half of it.
        stores: keeps the marks of the peers' stores, of all feeds together.
    """

    def __init__(
        self,
        *,
        feed: Feed,
        store: Store,
        readers: Readers,
        clock: Clock,
        max_frame_bytes: int,
        stores: PeerStores | None = None,
    ) -> None:
        self._feed = feed
        self._clock = clock
        self._ahead: dict[Sent, _Ahead] = {}
        self._stores = stores
        self._noting: dict[str, asyncio.Future[None]] = {}
        """By peer: the commit of acknowledgements that was not waited for."""
        self._store = store
        self._readers = readers
        self._max_bytes = max_frame_bytes // 2 - ENVELOPE_BYTES
        self._repeats = Repeats(clock)

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
        after, peer_bytes = _read_cursor(payload), _read_peer_bytes(payload)
        store_mark, restored = _read_mark(payload), payload.get("restored") is True

        marks = sent.take(sync_ids)
        noting = self._noting.pop(server, None)
        if noting is not None:
            await noting
        told: dict[str, object] = {}
        if self._stores is not None and store_mark:
            if not await self._stores.hear(server, store_mark, echoed=sent.echoed, restored=restored):
                store_mark = ""
            sent.echoed = self._stores.kept(server)
            told["storeMark"] = sent.echoed
        if not after:  # what is acknowledged must not come again with the first page
            await self._note(server, sent, marks, store_mark)
            sent.clear()
        page = await self._page(sent, _Asked(server, login, after, limit, peer_bytes))
        if after:  # it lies behind the cursor: the peer can work on this page while it is being noted
            await self._note(server, sent, marks, store_mark, wait=not page.more)
        if page.too_large and not sent.told_too_large:
            sent.told_too_large = True
            self._tell_too_large(server, page.too_large)
        items = []
        for sync_id, mark, item in page.entries:
            sent.add(sync_id, mark)
            items.append({"syncId": sync_id, **item})
        if page.more and page.cursor:  # once this answer is on its way
            asked = _Asked(server, login, page.cursor, limit, peer_bytes)
            asyncio.get_running_loop().call_soon(self._read_ahead, sent, asked)
        return {"items": items, "cursor": encode_base64(page.cursor or after), "hasMore": page.more, **told}

    def _tell_too_large(self, server: str, sync_id: str) -> None:
        level = self._repeats.level(logging.WARNING, server, "too large")
        text = "the entry %s, and maybe others, is larger than %s takes: raise limits.maxFrameBytes there"
        log.log(level, text, sync_id, server)

    async def _page(self, sent: Sent, asked: _Asked) -> FeedPage:
        ahead = self._ahead.pop(sent, None)
        now = self._clock.monotonic()
        if ahead is not None and ahead.asked == asked and now - ahead.since <= AHEAD_SECONDS:
            return await ahead.page
        return await self._begin(asked)

    def _read_ahead(self, sent: Sent, asked: _Asked) -> None:
        now = self._clock.monotonic()
        for other, ahead in list(self._ahead.items()):
            if now - ahead.since > AHEAD_SECONDS:
                del self._ahead[other]
        if len(self._ahead) < MAX_AHEAD:
            with contextlib.suppress(RuntimeError):  # the node is stopping: nothing is read any more
                self._ahead[sent] = _Ahead(asked, now, self._begin(asked))

    def _begin(self, asked: _Asked) -> asyncio.Future[FeedPage]:
        return self._readers.begin(
            lambda txn: self._feed.page(
                txn,
                asked.server,
                login=asked.login,
                after=asked.after,
                limit=asked.limit,
                max_bytes=self._max_bytes,
                peer_bytes=asked.peer_bytes,
            )
        )

    async def _note(
        self, server: str, sent: Sent, marks: Sequence[object], store_mark: str, *, wait: bool = True
    ) -> None:
        """Have acknowledgements written, all in one transaction, with the mark of the peer's store if there is one."""
        if not marks:
            return
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        job = Job(lambda txn: self._acknowledge(txn, server, marks, store_mark), future)
        if store_mark:
            sent.echoed = store_mark  # the caller knows it: its own store is there now
        if wait:
            self._submit(job)
            await future
        else:
            self._noting[server] = future
            future.add_done_callback(partial(self._noted, server))
            loop.call_soon(self._submit, job)  # once the answer is on its way

    def _submit(self, job: Job[None]) -> None:
        try:
            self._store.submit([job])
        except ServerBusy as busy:
            job.future.set_exception(busy)

    def _noted(self, server: str, future: asyncio.Future[None]) -> None:
        """Forget a commit that has ended well; one that has not is met by the peer's next request."""
        if not future.cancelled() and future.exception() is None and self._noting.get(server) is future:
            del self._noting[server]

    def _acknowledge(self, txn: Transaction, server: str, marks: Sequence[object], store_mark: str) -> None:
        for mark in marks:
            self._feed.acknowledge(txn, server, mark)
        if store_mark:
            put_peer_mark(txn, server, store_mark)
        elif self._stores is not None:
            note_doubt(txn, server, 0)


def _read_mark(payload: Mapping[str, Any]) -> str:
    mark = read_optional_text(payload, "storeMark")
    if len(mark) > MAX_MARK_CHARACTERS or not mark.isascii():
        raise BadFields(f"storeMark must be at most {MAX_MARK_CHARACTERS} ASCII characters")
    return mark


def _read_peer_bytes(payload: Mapping[str, Any]) -> int | None:
    """Return what the caller's frame has room for beside the envelope, ``None`` if it does not say."""
    most = read_optional_number(payload, "maxBytes")
    if most == 0:
        raise BadFields("maxBytes must be from 1 to 2^53 - 1")
    return None if most is None else max(0, most - ENVELOPE_BYTES)


def _read_cursor(payload: Mapping[str, Any]) -> bytes:
    text = read_optional_text(payload, "cursor")
    try:
        cursor = decode_base64(text, "cursor")
    except BadBase64:
        cursor = None
    if cursor is None or len(cursor) > MAX_CURSOR_BYTES:
        raise BadFields("cursor is none that this server gave")
    return cursor
