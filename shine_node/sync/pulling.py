"""The asking side of a ``*SyncBatch``: page after page, each stored before it is acknowledged (PROTOCOL.md §6)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from shine_node.peers.asking import Peers
from shine_node.peers.directory import KnownPeer
from shine_node.peers.waiting import all_results
from shine_node.protocol.access import AccessServer
from shine_node.protocol.encoding import read_list, read_optional_text, read_text
from shine_node.protocol.errors import BadRequestFormat, Refusal

__all__ = ["Puller"]

log = logging.getLogger(__name__)

AT_ONCE = 16
"""Entries that are checked side by side: enough to share commits, too few to be in the way of live messages."""
MAX_PAGES = 100_000


class Puller:
    """Fetches one feed from a peer.

    Args:
        op: ``SettingsSyncBatch`` or ``DmSyncBatch``.
        apply: checks an item and stores it, idempotently; raises ``Refusal`` where it cannot.
        page_limit: ``sync.pageLimit``.
        offered: whether the capability that the operation needs is in force with a peer.
        on_stored: called after a session that stored something.
    """

    def __init__(
        self,
        *,
        op: str,
        peers: Peers,
        apply: Callable[[Mapping[str, Any]], Awaitable[None]],
        page_limit: int,
        offered: Callable[[str], bool],
        on_stored: Callable[[], None] = lambda: None,
    ) -> None:
        self._op = op
        self._peers = peers
        self._apply = apply
        self._page_limit = page_limit
        self._offered = offered
        self._on_stored = on_stored

    async def step(self, peer: KnownPeer) -> None:
        """Fetch what a peer has, as a part of a session, if it can give it."""
        if self._offered(peer.server_login):
            stored = await self.run(peer)
            if stored:
                log.info("%d entries of %s came from %s", stored, self._op, peer.server_login)
                self._on_stored()

    async def run(self, peer: KnownPeer) -> int:
        """Fetch until the peer has no more, and return how many entries were stored.

        An entry that cannot be applied is logged and not acknowledged: it comes again in the next session.

        Raises:
            LinkError: the link was lost; what was not acknowledged comes again.
            Refusal: the peer's answer is none, or this server cannot store now.
        """
        server = AccessServer(peer.server_login, peer.url)
        acks: list[str] = []
        cursor, stored = "", 0
        for _ in range(MAX_PAGES):
            payload: dict[str, object] = {"ackSyncIds": acks, "limit": self._page_limit}
            if cursor:
                payload["cursor"] = cursor
            answer = await self._peers.request(server, self._op, payload)
            items = read_list(answer, "items")
            acks = await self._take(peer.server_login, items)
            stored += len(acks)
            more = answer.get("hasMore") is True
            following = read_optional_text(answer, "cursor")
            if more and following == cursor:
                log.warning("%s gives the same page of %s again; the session ends", peer.server_login, self._op)
                more = False
            cursor = following
            if not more and not acks:
                break
        return stored

    async def _take(self, server_login: str, items: Sequence[Any]) -> list[str]:
        """Store the items of a page and return the ``syncId`` of each that is stored, in their order."""
        acks: list[str] = []
        for start in range(0, len(items), AT_ONCE):
            batch = items[start : start + AT_ONCE]
            results = await all_results(self._take_one(server_login, item) for item in batch)
            acks.extend(sync_id for sync_id in results if sync_id is not None)
        return acks

    async def _take_one(self, server_login: str, item: object) -> str | None:
        try:
            if not isinstance(item, Mapping):
                raise BadRequestFormat("an item must be an object")
            sync_id = read_text(item, "syncId")
            await self._apply(item)
            return sync_id
        except Refusal as refusal:
            if refusal.retryable:
                raise
            log.warning("an entry of %s from %s was refused: %s", self._op, server_login, refusal)
            return None
