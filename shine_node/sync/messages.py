"""The feed of messages: pairs and incoming copies that a user's other server has not acknowledged (PROTOCOL.md §6)."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any, Protocol

from shine_node.protocol.encoding import decode_base64, encode_base64, read_list, read_login
from shine_node.protocol.errors import BadFields, BadRequestFormat
from shine_node.store.environment import Transaction
from shine_node.store.layout import ItemKey
from shine_node.store.outbox import acknowledge
from shine_node.store.unsynced import read_page
from shine_node.store.users import other_server
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
        self, txn: Transaction, server: str, *, login: str | None, after: bytes, limit: int, max_bytes: int
    ) -> FeedPage:
        """Return the next unsynced entries of the owners that have both servers."""
        shares: dict[str, bool] = {}

        def serves(owner: str) -> bool:
            if login is not None and owner != login:
                return False
            if owner not in shares:
                other = other_server(txn, owner, self._own_login)
                shares[owner] = other is not None and other.server_login.lower() == server.lower()
            return shares[owner]

        page = read_page(txn, server, serves=serves, after=after, limit=limit, max_bytes=max_bytes)
        entries = [
            (
                entry.sync_id,
                (entry.key, entry.signature),
                {"login": entry.key.owner, "blobsB64": [encode_base64(blob) for blob in entry.blobs]},
            )
            for entry in page.entries
        ]
        return FeedPage(entries, page.cursor, page.more)

    def acknowledge(self, txn: Transaction, server: str, mark: object) -> None:
        """Take note that the peer has stored one revision of one entry."""
        if not isinstance(mark, tuple):
            raise AssertionError("a mark of this feed")
        key, signature = mark
        if not isinstance(key, ItemKey):
            raise AssertionError("a mark of this feed")
        acknowledge(txn, server, key, signature)


class TakePair(Protocol):
    """Checks and stores a sender's pair; ``Intake.sync_pair`` is it."""

    def __call__(
        self, incoming_blob: bytes, outgoing_blob: bytes, /, *, owner: str, from_server: str
    ) -> Awaitable[object]:
        """Take a pair; raises ``Refusal``."""


class TakeIncoming(Protocol):
    """Checks and stores a recipient's copy; ``Intake.sync_incoming`` is it."""

    def __call__(self, blob: bytes, /, *, owner: str, from_server: str) -> Awaitable[object]:
        """Take a copy; raises ``Refusal``."""


class MessageApply:
    """Stores an item of ``DmSyncBatch``; the checks are those of every other way in."""

    def __init__(self, *, take_pair: TakePair, take_incoming: TakeIncoming) -> None:
        self._take_pair = take_pair
        self._take_incoming = take_incoming

    async def __call__(self, server_login: str, item: Mapping[str, Any]) -> None:
        """Store one item that a peer gives.

        Raises:
            Refusal: it is wrong, or cannot be stored now.
        """
        owner = read_login(item).lower()
        texts = read_list(item, "blobsB64")
        if not all(isinstance(text, str) for text in texts):
            raise BadRequestFormat("blobsB64 must be texts")
        blobs = [decode_base64(text, "blobsB64") for text in texts]
        if len(blobs) == 2:
            await self._take_pair(blobs[0], blobs[1], owner=owner, from_server=server_login)
        elif len(blobs) == 1:
            await self._take_incoming(blobs[0], owner=owner, from_server=server_login)
        else:
            raise BadFields("blobsB64 must hold one copy, or two")
