"""The feed of messages: pairs and incoming copies that a user's other server has not acknowledged (PROTOCOL.md §6)."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from shine_node.peers.waiting import all_results
from shine_node.protocol.encoding import decode_base64, encode_base64, read_list, read_login
from shine_node.protocol.errors import BadRequestFormat, Refusal, StorageFull, UserNotFound
from shine_node.store.environment import Transaction
from shine_node.store.layout import ItemKey
from shine_node.store.outbox import acknowledge
from shine_node.store.unreadable import UnreadableRow
from shine_node.store.unsynced import read_page
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
        try:
            acknowledge(txn, server, key, signatures, marked=True)
        except UnreadableRow as error:  # the others that are acknowledged with it count
            txn.pass_over(error)


class Take(Protocol):
    """The way in; ``CatchUp`` is it."""

    async def take(self, entries: Sequence[tuple[str, Sequence[bytes]]], *, from_server: str) -> list[Refusal | None]:
        """Check and store entries, each an owner with a pair or one copy; return for each why it is not stored."""

    async def find_sender(self, blob: bytes, *, from_server: str) -> None:
        """Look up the sender of a recipient's copy, who is not known here; raises ``Refusal``."""


class MessageApply:
    """Stores items of ``DmSyncBatch``; the checks are those of every other way in."""

    def __init__(self, take: Take) -> None:
        self._take = take

    async def __call__(self, server_login: str, items: Sequence[Mapping[str, Any]]) -> list[Refusal | None]:
        """Store items that a peer gives, and return for each why it is not stored.

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
        refusals: list[Refusal | None] = [None] * len(items)
        entries: list[tuple[str, list[bytes]]] = []
        places: list[int] = []
        for index, item in enumerate(items):
            try:
                entries.append((read_login(item).lower(), _read_blobs(item)))
                places.append(index)
            except Refusal as wrong:
                refusals[index] = wrong
        for index, refusal in zip(places, await self._take.take(entries, from_server=server_login), strict=True):
            refusals[index] = refusal
        for refusal in refusals:
            if isinstance(refusal, StorageFull):
                raise refusal
        return refusals

    async def _find_sender(self, server_login: str, item: Mapping[str, Any]) -> None:
        with contextlib.suppress(Refusal):  # the next try says what is wrong
            await self._take.find_sender(_read_blobs(item)[0], from_server=server_login)


def _read_blobs(item: Mapping[str, Any]) -> list[bytes]:
    texts = read_list(item, "blobsB64")
    for text in texts:
        if not isinstance(text, str):
            raise BadRequestFormat("blobsB64 must be texts")
    return [decode_base64(text, "blobsB64") for text in texts]
