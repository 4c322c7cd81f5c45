"""The feed of messages: pairs and incoming copies that a user's other server has not acknowledged (PROTOCOL.md §6)."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol

from shine_node.clock import Clock
from shine_node.peers.waiting import all_results
from shine_node.protocol.encoding import decode_base64, encode_base64, read_list, read_login
from shine_node.protocol.errors import BadFields, BadRequestFormat, Refusal, StorageFull, UserNotFound
from shine_node.store.environment import Transaction
from shine_node.store.layout import ItemKey
from shine_node.store.outbox import acknowledge
from shine_node.store.unsynced import read_page
from shine_node.sync.defects import Defects
from shine_node.sync.owners import sharing
from shine_node.sync.serving import FeedPage

__all__ = ["MessageApply", "MessageFeed"]


class MessageFeed:
    """What a peer fetches with ``DmSyncBatch``.

    Args:
        own_login: this server's login, in lower case.
    """

    def __init__(self, own_login: str) -> None:
        self._own_login = own_login

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
        """Return the next unsynced entries of the owners that have both servers."""
        serves = sharing(txn, server, own_login=self._own_login, login=login)
        page = read_page(
            txn, server, serves=serves, after=after, limit=limit, max_bytes=max_bytes, peer_bytes=peer_bytes
        )
        entries = [
            (
                entry.sync_id,
                (entry.key, entry.signatures),
                {"login": entry.key.owner, "blobsB64": [encode_base64(blob) for blob in entry.blobs]},
            )
            for entry in page.entries
        ]
        return FeedPage(entries, page.cursor, page.more, page.too_large)

    def acknowledge(self, txn: Transaction, server: str, mark: object) -> None:
        """Take note that the peer has stored one revision of one entry."""
        if not isinstance(mark, tuple):
            raise AssertionError("a mark of this feed")
        key, signatures = mark
        if not isinstance(key, ItemKey):
            raise AssertionError("a mark of this feed")
        acknowledge(txn, server, key, signatures, marked=True)


class Take(Protocol):
    """The ways in; ``Intake`` has them."""

    def sync_pair(
        self, incoming_blob: bytes, outgoing_blob: bytes, *, owner: str, from_server: str
    ) -> Awaitable[object]:
        """Begin to check and store a sender's pair; it and what it returns raise ``Refusal``."""

    def sync_incoming(self, blob: bytes, *, owner: str, from_server: str) -> Awaitable[object]:
        """Begin to check and store a recipient's copy; it and what it returns raise ``Refusal``."""

    async def find_sender(self, blob: bytes, *, from_server: str) -> None:
        """Look up the sender of a recipient's copy, who is not known here; raises ``Refusal``."""


class MessageApply:
    """Stores items of ``DmSyncBatch``; the checks are those of every other way in."""

    def __init__(self, take: Take, clock: Clock) -> None:
        self._take = take
        self._defects = Defects(clock)

    async def __call__(self, server_login: str, items: Sequence[Mapping[str, Any]]) -> list[Refusal | None]:
        """Store items that a peer gives, side by side, and return for each why it is not stored.

        Raises:
            StorageFull: the store has no room.
        """
        refusals = await self._store(server_login, items)
        strangers = [index for index, refusal in enumerate(refusals) if isinstance(refusal, UserNotFound)]
        if strangers:
            some = [items[index] for index in strangers]
            await all_results(self._find_sender(server_login, item) for item in some)
            for index, refusal in zip(strangers, await self._store(server_login, some), strict=True):
                refusals[index] = refusal
        return refusals

    async def _store(self, server_login: str, items: Sequence[Mapping[str, Any]]) -> list[Refusal | None]:
        begun = [self._begin(server_login, item) for item in items]
        refusals = [one if isinstance(one, Refusal) else await self._ended(server_login, one) for one in begun]
        for refusal in refusals:
            if isinstance(refusal, StorageFull):
                raise refusal
        return refusals

    async def _find_sender(self, server_login: str, item: Mapping[str, Any]) -> None:
        with contextlib.suppress(Refusal):  # the next try says what is wrong
            await self._take.find_sender(decode_base64(item["blobsB64"][0], "blobsB64"), from_server=server_login)

    def _begin(self, server_login: str, item: Mapping[str, Any]) -> Awaitable[object] | Refusal:
        try:
            owner = read_login(item).lower()
            texts = read_list(item, "blobsB64")
            if not all(isinstance(text, str) for text in texts):
                raise BadRequestFormat("blobsB64 must be texts")
            blobs = [decode_base64(text, "blobsB64") for text in texts]
            if len(blobs) == 2:
                return self._take.sync_pair(blobs[0], blobs[1], owner=owner, from_server=server_login)
            if len(blobs) == 1:
                return self._take.sync_incoming(blobs[0], owner=owner, from_server=server_login)
            raise BadFields("blobsB64 must hold one copy, or two")
        except Refusal as refusal:
            return refusal
        except Exception:
            return self._defects.refusal(server_login)

    async def _ended(self, server_login: str, taking: Awaitable[object]) -> Refusal | None:
        try:
            await taking
        except Refusal as refusal:
            return refusal
        except Exception:
            return self._defects.refusal(server_login)
        return None
