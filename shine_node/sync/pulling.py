"""The asking side of a ``*SyncBatch``: page after page, each stored before it is acknowledged (PROTOCOL.md §6)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from shine_node.clock import Clock
from shine_node.peers.asking import Peers
from shine_node.peers.directory import KnownPeer
from shine_node.peers.repeats import Repeats
from shine_node.peers.snapshot import printable
from shine_node.peers.turns import Ending, Turn, ending
from shine_node.protocol.access import AccessServer
from shine_node.protocol.encoding import read_list, read_login, read_optional_text, read_text
from shine_node.protocol.errors import (
    BadFields,
    BadRequestFormat,
    CallerTimeout,
    LeftAlone,
    LinkLost,
    NotAccessServer,
    Refusal,
    RequestTimeout,
    ServerBusy,
)
from shine_node.store.lineage import MAX_MARK_CHARACTERS, Lineage
from shine_node.sync.paces import Paces
from shine_node.sync.storing import AT_ONCE, SIDE_BY_SIDE, Storing

__all__ = ["Pulled", "Puller"]

log = logging.getLogger(__name__)

REMEMBERED = 500
"""What a peer was asked for and has not acknowledged to it yet: no more, for a server of this program forgets it."""
MAX_CURSOR_CHARACTERS = 1024
MAX_SYNC_ID_CHARACTERS = 256
"""More than this server gives; what a peer gives goes back to it, five hundred in one frame."""
BUSY_SECONDS = 0.2
BUSY_ROUNDS = 25
"""Pauses in a row after which a session is given up because this server is too busy to store anything at all."""


class Pulled(NamedTuple):
    """What a turn brought: how many entries were stored, and whether the peer has more."""

    stored: int
    more: bool


class _Page(NamedTuple):
    items: Sequence[Any]
    cursor: str
    more: bool
    store_mark: str


class _Refused:
    """The entries of one turn that could not be stored: how many of how many, and the first one."""

    def __init__(self) -> None:
        self.count = self.of = 0
        self.first = ""

    def note(self, items: Sequence[Any], refusals: Sequence[Refusal | None]) -> None:
        """Count a page."""
        self.of += len(items)
        for item, refusal in zip(items, refusals, strict=True):
            if refusal is not None:
                self.count += 1
                name = item.get("syncId") if isinstance(item, Mapping) else item
                self.first = self.first or f"{printable(str(name))}, because of {refusal}"


class Puller:
    """Fetches one feed from peers.

    Args:
        op: ``SettingsSyncBatch`` or ``DmSyncBatch``.
        apply: takes the peer's login and items whose ``login`` names an owner that both servers share; checks and
            stores them, idempotently; returns for each ``None``, or why it is not stored.
        shares: whether an owner (in lower case) has this server and that one.
        page_limit: ``sync.pageLimit``.
        max_frame_bytes: the greatest frame that the links read; peers that know of it send no greater one.
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
        max_frame_bytes: int,
        offered: Callable[[str], bool],
        lineage: Callable[[], Lineage | None] = lambda: None,
        on_stored: Callable[[], None] = lambda: None,
    ) -> None:
        self._op = op
        self._peers = peers
        self._clock = clock
        self._apply = apply
        self._shares = shares
        self._max_frame_bytes = max_frame_bytes
        self._offered = offered
        self._lineage = lineage
        self._on_stored = on_stored
        self._repeats = Repeats(clock)
        self._paces = Paces(clock, page_limit)

    async def step(self, peer: KnownPeer, turn: Turn) -> Ending:
        """Fetch what a peer has, as a part of a session, if it can give it.

        Only a peer with a permanent link can have anything: the other server of some user of this one.

        Raises:
            LeftAlone: nothing is asked for now.
        """
        if not peer.permanent or not self._offered(peer.server_login):
            return Ending.DONE
        if rest := self._paces.rest(peer.server_login):
            text = (
                f"not even single entries came, maybe for being larger than limits.maxFrameBytes; again in {rest:.0f} s"
            )
            raise LeftAlone(peer.server_login, self._op, text)
        pulled = await self.run(peer, turn)
        if pulled.stored:
            log.info("%d entries of %s came from %s", pulled.stored, self._op, peer.server_login)
        return ending(more=pulled.more, taken=pulled.stored)

    async def run(self, peer: KnownPeer, turn: Turn) -> Pulled:
        """Fetch until the peer has no more, or the turn is over: then the cursor is kept, and the next turn goes on.

        An entry that cannot be applied is logged and not acknowledged: it comes again in the next session. As that
        begins when this one has come to its end, in however many turns, it never hides those behind it.

        Raises:
            LinkError: the link was lost; what was not acknowledged comes again.
            Refusal: the peer's answer is none, or this server cannot store now.
        """
        refused = _Refused()
        try:
            return await self._fetch(peer, turn, refused)
        finally:
            if refused.count:
                level = self._repeats.level(logging.WARNING, peer.server_login, "refused")
                text = "%d of %d entries of %s from %s were refused, the first, %s"
                log.log(level, text, refused.count, refused.of, self._op, peer.server_login, refused.first)

    async def _fetch(self, peer: KnownPeer, turn: Turn, refused: _Refused) -> Pulled:
        acks: list[str] = []
        cursor, stored, restored, told = turn.kept.pop(self._op, ""), 0, False, False
        turns = asyncio.Semaphore(SIDE_BY_SIDE)
        pages: list[Storing] = []  # this one, and before it one of which the last stretch is being stored
        try:
            while True:
                page = await self._ask(peer, acks, cursor, restored=restored)
                told = told or restored
                restored = not told and self._was_restored(page.store_mark)
                pages.append(self._begin(peer.server_login, page.items, turns))
                stands, cursor = page.cursor == cursor, page.cursor
                more = page.more and not stands
                acks = await self._end(pages, refused, but=1)
                if more and pages[0].long and self._paces.limit(peer.server_login) + AT_ONCE <= REMEMBERED:
                    acks += await pages[0].most()
                else:
                    acks += await self._end(pages, refused)
                self._paces.came(peer.server_login, useful=bool(acks) or not page.more)
                stored += self._note(acks)
                if stands and page.more:
                    level = self._repeats.level(logging.WARNING, peer.server_login, "stands")
                    text = "%s gives the same page of %s for ever; the session ends"
                    log.log(level, text, peer.server_login, self._op)
                if not (more or acks or restored):
                    return Pulled(stored, False)
                if stands or turn.over():
                    late = await self._end(pages, refused)
                    stored += self._note(late)
                    if acks or late or restored:
                        await self._tell(peer, acks + late, cursor, restored=restored)
                    if more:
                        turn.kept[self._op] = cursor
                    return Pulled(stored, more)
        finally:
            for storing in pages:
                await storing.close()
                refused.note(storing.items, storing.refusals)

    def _begin(self, server_login: str, items: Sequence[Any], turns: asyncio.Semaphore) -> Storing:
        """Begin to store the items of a page."""
        shared: dict[str, bool] = {}
        refusals = [self._look_at(item, server_login, shared) for item in items]
        return Storing(items, refusals, lambda some: self._store(server_login, some), turns)

    async def _end(self, pages: list[Storing], refused: _Refused, *, but: int = 0) -> list[str]:
        """Wait until pages are stored, all but the last few, and return what is to be acknowledged of them."""
        acks: list[str] = []
        while len(pages) > but:
            acks += await pages[0].rest()
            refused.note(pages[0].items, pages[0].refusals)
            del pages[0]
        return acks

    def _note(self, acks: Sequence[str]) -> int:
        if acks:
            self._on_stored()
        return len(acks)

    def _was_restored(self, store_mark: str) -> bool:
        """Say whether this server's store lacks what the peer knows to have been in it: it was restored (stores.py)."""
        lineage = self._lineage()
        return lineage is not None and lineage.lost(store_mark)

    async def _ask(self, peer: KnownPeer, acks: list[str], cursor: str, *, restored: bool) -> _Page:
        """Ask for a page; where it does not come, less is asked for from then on."""
        limit = self._paces.limit(peer.server_login)
        try:
            answer = await self._request(peer, acks, cursor, limit=limit, restored=restored)
        except (LinkLost, RequestTimeout, CallerTimeout):
            self._paces.failed(peer.server_login)
            raise
        return _read_page(answer, limit)

    async def _tell(self, peer: KnownPeer, acks: list[str], cursor: str, *, restored: bool) -> None:
        """Acknowledge the last page of a turn; what the peer gives for it is not looked at, and comes again."""
        await self._request(peer, acks, cursor, limit=1, restored=restored)

    async def _request(
        self, peer: KnownPeer, acks: list[str], cursor: str, *, limit: int, restored: bool
    ) -> Mapping[str, Any]:
        payload: dict[str, object] = {"ackSyncIds": acks, "limit": limit, "maxBytes": self._max_frame_bytes}
        if cursor:
            payload["cursor"] = cursor
        lineage = self._lineage()
        if lineage is not None:
            payload["storeMark"] = lineage.mark()
        if restored:
            payload["restored"] = True
        return await self._peers.request(AccessServer(peer.server_login, peer.url), self._op, payload)

    def _look_at(self, item: object, server_login: str, shared: dict[str, bool]) -> Refusal | None:
        """Return what is wrong with an item whatever it holds; ``shared`` remembers the owners of a page."""
        try:
            if not isinstance(item, Mapping):
                raise BadRequestFormat("an item must be an object")
            if len(read_text(item, "syncId")) > MAX_SYNC_ID_CHARACTERS:
                raise BadFields(f"its syncId has more than {MAX_SYNC_ID_CHARACTERS} characters")
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


def _read_page(answer: Mapping[str, Any], limit: int) -> _Page:
    """Read an answer whole, before anything of it is stored.

    Raises:
        BadFields, BadRequestFormat: it is none, or more than was asked for.
    """
    items = read_list(answer, "items")
    if len(items) > limit:
        raise BadFields(f"an answer holds {len(items)} entries where at most {limit} were asked for")
    cursor = _read_short(answer, "cursor", MAX_CURSOR_CHARACTERS)
    store_mark = _read_short(answer, "storeMark", MAX_MARK_CHARACTERS)
    return _Page(items, cursor, answer.get("hasMore") is True, store_mark)


def _read_short(answer: Mapping[str, Any], field: str, most: int) -> str:
    text = read_optional_text(answer, field)
    if len(text) > most:
        raise BadFields(f"{field} of an answer has more than {most} characters")
    return text
