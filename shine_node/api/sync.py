"""Operations by which servers become equal (PROTOCOL.md §3, §6); a ``ServerHello`` comes first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from shine_node.api.connection import Connection, Handler
from shine_node.directory.sharing import access_page
from shine_node.protocol.encoding import read_limit, read_optional_number
from shine_node.store.readers import Readers
from shine_node.sync.serving import Sent, SyncServing

__all__ = ["SyncOperations"]

DEFAULT_LIMIT = 100
GREATEST_LIMIT = 500
ENVELOPE_BYTES = 4096


class SyncOperations:
    """Serves batches to peers.

    Args:
        feeds: operation → what serves it, for the feeds with acknowledgements.
        max_frame_bytes: ``limits.maxFrameBytes``; an answer takes at most half of it, yet holds one entry.
    """

    def __init__(self, *, readers: Readers, feeds: Mapping[str, SyncServing], max_frame_bytes: int) -> None:
        self._readers = readers
        self._feeds = feeds
        self._sent: WeakKeyDictionary[Connection, tuple[str, dict[str, Sent]]] = WeakKeyDictionary()
        """What each connection was sent: the name that the peer gives itself, and by operation what was sent to it."""
        self._page_bytes = max_frame_bytes // 2 - ENVELOPE_BYTES

    @property
    def handlers(self) -> dict[str, Handler]:
        """The operations by name."""
        return {
            "AccessDataSyncBatch": self.access_data_sync_batch,
            **{op: self._feed_handler(op) for op in self._feeds},
        }

    async def access_data_sync_batch(self, connection: Connection, payload: dict[str, Any]) -> Mapping[str, object]:
        """Return a page of access records in the order in which this server learned them."""
        connection.need_hello()
        after = read_optional_number(payload, "afterSeq") or 0
        limit = read_limit(payload, DEFAULT_LIMIT, GREATEST_LIMIT)
        async with connection.pages:
            await connection.outbound.until_taken()
            return await self._readers.run(
                lambda txn: access_page(txn, after_seq=after, limit=limit, max_bytes=self._page_bytes)
            )

    def _feed_handler(self, op: str) -> Handler:
        serving = self._feeds[op]

        async def handler(connection: Connection, payload: dict[str, Any]) -> Mapping[str, object]:
            server = connection.need_hello().server_login.lower()
            async with connection.pages:
                await connection.outbound.until_taken()
                return await serving.answer(server, self._sent_to(connection, server).setdefault(op, Sent()), payload)

        return handler

    def _sent_to(self, connection: Connection, server: str) -> dict[str, Sent]:
        """Return what a peer was sent on a connection; under another name than before it is another peer."""
        name, sent = self._sent.get(connection, ("", {}))
        if name != server:
            sent = {}
            self._sent[connection] = server, sent
        return sent
