"""The asking side of a ``*SyncBatch``: page after page, each stored before it is acknowledged (PROTOCOL.md §6)."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from shine_node.clock import Clock
from shine_node.peers.asking import Peers
from shine_node.peers.directory import KnownPeer
from shine_node.peers.snapshot import printable
from shine_node.peers.waiting import all_results
from shine_node.protocol.access import AccessServer
from shine_node.protocol.encoding import read_list, read_login, read_optional_text, read_text
from shine_node.protocol.errors import (
    BadRequestFormat,
    LinkLost,
    NotAccessServer,
    Refusal,
    ServerBusy,
)
from shine_node.store.lineage import Lineage

__all__ = ["Puller"]

log = logging.getLogger(__name__)

AT_ONCE = 25
"""Entries that are checked and committed together: enough to share commits, too few to be in the way of live ones."""
SIDE_BY_SIDE = 2
MAX_PAGES = 10_000
"""Pages of one session; what is left comes in the next one."""
BUSY_SECONDS = 0.2
BUSY_ROUNDS = 25
"""Pauses in a row after which a session is given up because this server is too busy to store anything at all."""


class Puller:
    """Fetches one feed from peers.

    Args:
        op: ``SettingsSyncBatch`` or ``DmSyncBatch``.
        apply: takes the peer's login and items whose ``login`` names an owner that both servers share; checks and
            stores them, idempotently; returns for each ``None``, or why it is not stored.
        shares: whether an owner (in lower case) has this server and that one.
        page_limit: ``sync.pageLimit``.
        offered: whether the capability that the operation needs is in force with a peer.
        lineage: returns how far this server's store has come; ``None`` where peers are not told.
        on_stored: called after each page of which something was stored.
    """

    def __init__(
        self,
        *,
        op: str,
        peers: Peers,
        clock: Clock,
        apply: Callable[[str, Sequence[Mapping[str, Any]]], Awaitable[list[Refusal | None]]],
        shares: Callable[[str, str], bool],
        page_limit: int,
        offered: Callable[[str], bool],
        lineage: Callable[[], Lineage | None] = lambda: None,
        on_stored: Callable[[], None] = lambda: None,
    ) -> None:
        self._op = op
        self._peers = peers
        self._clock = clock
        self._apply = apply
        self._shares = shares
        self._page_limit = page_limit
        self._offered = offered
        self._lineage = lineage
        self._on_stored = on_stored
        self._limits: dict[str, int] = {}
        """How much is asked for at once of peers whose link was lost over a page."""

    async def step(self, peer: KnownPeer) -> None:
        """Fetch what a peer has, as a part of a session, if it can give it.

        Only a peer with a permanent link can have anything: the other server of some user of this one.
        """
        if peer.permanent and self._offered(peer.server_login):
            stored = await self.run(peer)
            if stored:
                log.info("%d entries of %s came from %s", stored, self._op, peer.server_login)

    async def run(self, peer: KnownPeer) -> int:
        """Fetch until the peer has no more, and return how many entries were stored.

        An entry that cannot be applied is logged and not acknowledged: it comes again in the next session.

        Raises:
            LinkError: the link was lost; what was not acknowledged comes again.
            Refusal: the peer's answer is none, or this server cannot store now.
        """
        acks: list[str] = []
        cursor, stored, restored, told = "", 0, False, False
        for _ in range(MAX_PAGES):
            answer = await self._ask(peer, acks, cursor, restored=restored)
            told = told or restored
            restored = not told and self._was_restored(answer)
            acks = await self._take(peer.server_login, read_list(answer, "items"))
            if acks:
                stored += len(acks)
                self._on_stored()
            following, more = read_optional_text(answer, "cursor"), answer.get("hasMore") is True
            if following == cursor:
                if more:
                    log.warning("%s gives the same page of %s for ever; the session ends", peer.server_login, self._op)
                if acks or restored:
                    await self._ask(peer, acks, cursor, restored=restored)
                break
            cursor = following
            if not more and not acks and not restored:
                break
        return stored

    def _was_restored(self, answer: Mapping[str, Any]) -> bool:
        """Say whether this server's store lacks what the peer knows to have been in it: it was restored (stores.py)."""
        lineage = self._lineage()
        return lineage is not None and lineage.lost(read_optional_text(answer, "storeMark"))

    async def _ask(self, peer: KnownPeer, acks: list[str], cursor: str, *, restored: bool) -> Mapping[str, Any]:
        """Ask for a page. Where the link is lost over it, it may be more than this server takes in one frame."""
        login = peer.server_login.lower()
        limit = self._limits.pop(login, self._page_limit)
        payload: dict[str, object] = {"ackSyncIds": acks, "limit": limit}
        if cursor:
            payload["cursor"] = cursor
        lineage = self._lineage()
        if lineage is not None:
            payload["storeMark"] = lineage.mark()
        if restored:
            payload["restored"] = True
        try:
            answer = await self._peers.request(AccessServer(peer.server_login, peer.url), self._op, payload)
        except LinkLost:
            self._limits[login] = max(1, limit // 4)
            raise
        if limit < self._page_limit:
            self._limits[login] = min(2 * limit, self._page_limit)
        return answer

    async def _take(self, server_login: str, items: Sequence[Any]) -> list[str]:
        """Store the items of a page and return the ``syncId`` of each that is stored, in their order."""
        shared: dict[str, bool] = {}
        refusals: list[Refusal | None] = [self._look_at(item, server_login, shared) for item in items]
        good = iter([index for index, refusal in enumerate(refusals) if refusal is None])

        async def store_stretches() -> None:
            while indexes := list(itertools.islice(good, AT_ONCE)):
                found = await self._store(server_login, [items[index] for index in indexes])
                for index, refusal in zip(indexes, found, strict=True):
                    refusals[index] = refusal

        # While one stretch is being written to the disk, the signatures of the other are checked.
        await all_results(store_stretches() for _ in range(SIDE_BY_SIDE))
        self._log_refused(server_login, items, refusals)
        return [item["syncId"] for item, refusal in zip(items, refusals, strict=True) if refusal is None]

    def _look_at(self, item: object, server_login: str, shared: dict[str, bool]) -> Refusal | None:
        """Return what is wrong with an item whatever it holds; ``shared`` remembers the owners of a page."""
        try:
            if not isinstance(item, Mapping):
                raise BadRequestFormat("an item must be an object")
            read_text(item, "syncId")
            owner = read_login(item).lower()
            if owner not in shared:
                shared[owner] = self._shares(owner, server_login)
            if not shared[owner]:
                raise NotAccessServer(f"{owner} does not have both this server and {server_login}")
        except Refusal as refusal:
            return refusal
        return None

    async def _store(self, server_login: str, items: Sequence[Mapping[str, Any]]) -> list[Refusal | None]:
        """Store a stretch of a page; what this server is too busy for is tried again.

        Raises:
            StorageFull, ServerBusy: not now.
        """
        refusals = await self._apply(server_login, items)
        rounds = 0
        while busy := [index for index, refusal in enumerate(refusals) if isinstance(refusal, ServerBusy)]:
            if rounds == BUSY_ROUNDS:
                raise ServerBusy("this server has been too busy to store what it was given")
            await self._clock.sleep(BUSY_SECONDS)
            again = await self._apply(server_login, [items[index] for index in busy])
            for index, refusal in zip(busy, again, strict=True):
                refusals[index] = refusal
            rounds = rounds + 1 if all(isinstance(refusal, ServerBusy) for refusal in again) else 0
        return refusals

    def _log_refused(self, server_login: str, items: Sequence[Any], refusals: Sequence[Refusal | None]) -> None:
        refused = [(item, refusal) for item, refusal in zip(items, refusals, strict=True) if refusal is not None]
        if refused:
            item, refusal = refused[0]
            name = item.get("syncId") if isinstance(item, Mapping) else item
            log.warning(
                "%d of %d entries of %s from %s were refused, the first, %s, because of %s",
                len(refused),
                len(items),
                self._op,
                server_login,
                printable(str(name)),
                refusal,
            )
