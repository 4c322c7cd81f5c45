"""The way in for what catches up between a user's two servers: many entries at once, in one commit (PROTOCOL.md §6)."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from functools import partial

from shine_node.clock import Clock
from shine_node.crypto.pool import CryptoPool, Submission
from shine_node.delivery.admission import bad_signature, find_stored, known_user, must_be_here, parse_timely_pair
from shine_node.delivery.quotas import Quotas
from shine_node.directory.lookup import Lookup
from shine_node.directory.users import Users
from shine_node.protocol.container import PEER_AHEAD_MS, Container, check_clock
from shine_node.protocol.errors import BadFields, Refusal, ServerBusy, StorageFull
from shine_node.protocol.pair import Pair, parse_incoming
from shine_node.protocol.schedule import Schedule
from shine_node.store.environment import Job, Store, Transaction
from shine_node.store.layout import OpenDelivery
from shine_node.store.messages import store_incoming, store_pair

__all__ = ["CatchUp"]

AT_A_STRETCH = 16
"""Entries that are looked at before others have their turn on the event loop."""

Put = Callable[[Transaction, Sequence[Container]], None]


class CatchUp:
    """Checks entries of ``DmSyncBatch`` as every other way in does, and stores them.

    Their signatures are checked after those of live messages, and all entries of a call are one piece of work for the
    writer: nobody waits for a single one of them.

    Args:
        max_body_bytes: ``limits.maxBodyBytes``.
        quotas: what recipients of pairs take who are users of this server; the entries themselves are always taken.
        defect: told the server whose entry has met a defect, while that is being raised; returns what is said of it.
    """

    def __init__(
        self,
        *,
        store: Store,
        crypto: CryptoPool,
        users: Users,
        lookup: Lookup,
        clock: Clock,
        schedule: Schedule,
        max_body_bytes: int,
        quotas: Quotas,
        defect: Callable[[str], Refusal],
    ) -> None:
        self._store = store
        self._crypto = crypto
        self._users = users
        self._lookup = lookup
        self._clock = clock
        self._schedule = schedule
        self._max_body_bytes = max_body_bytes
        self._quotas = quotas
        self._defect = defect

    async def take(self, entries: Sequence[tuple[str, Sequence[bytes]]], *, from_server: str) -> list[Refusal | None]:
        """Store entries, and return for each why it is not stored; one that is wrong harms no other.

        The delivery of a pair joins the schedule by its age, or is only asked about.

        Args:
            entries: whose each is said to be, in lower case, and its copies: a pair, or a recipient's copy.
            from_server: the peer that gives them.
        """
        try:
            self._store.check_room()
        except StorageFull as full:
            return [full] * len(entries)
        now_ms = self._clock.now_ms()
        refusals: list[Refusal | None] = []
        begun: list[_Entry] = []
        here: set[str] = set()
        for owner, blobs in entries:
            if len(refusals) % AT_A_STRETCH == AT_A_STRETCH - 1:
                await asyncio.sleep(0)  # live messages have their turn
            try:
                begun.append(self._prepare(owner, blobs, now_ms, here, len(refusals)))
            except Refusal as wrong:
                refusals.append(wrong)
            except Exception:
                refusals.append(self._defect(from_server))
            else:
                refusals.append(None)
        if begun:
            await self._check_and_store(begun, self._put(now_ms, from_server))
        for entry in begun:
            refusals[entry.index] = entry.refusal if entry.failed is None else self._look_for(entry)
        return refusals

    async def find_sender(self, blob: bytes, *, from_server: str) -> None:
        """Look up the sender of a recipient's copy at the server that gives it.

        Of strangers a server tells nobody who does not ask (§3), yet it has checked the copy with the sender's key.

        Raises:
            Refusal: the copy is wrong, or the sender could not be stored now.
        """
        container = parse_incoming(blob, max_body_bytes=self._max_body_bytes)
        await self._lookup.find_at(container.message.from_login.lower(), from_server)

    def _prepare(self, owner: str, blobs: Sequence[bytes], now_ms: int, here: set[str], index: int) -> _Entry:
        """Check all but the signatures; ``here`` remembers the owners whose access server this one is."""
        limit = self._max_body_bytes
        copies: Sequence[Container]
        if len(blobs) == 2:
            pair = parse_timely_pair(blobs[0], blobs[1], max_body_bytes=limit, now_ms=now_ms, ahead_ms=PEER_AHEAD_MS)
            copy, copies = pair.incoming, pair
            _must_belong(owner, copy.message.from_login)
            sender = known_user(self._users, owner, "the sender")
        elif len(blobs) == 1:
            copy = parse_incoming(blobs[0], max_body_bytes=limit)
            copies = (copy,)
            check_clock(copy, now_ms=now_ms, ahead_ms=PEER_AHEAD_MS)
            _must_belong(owner, copy.message.to_login)
            sender = known_user(self._users, copy.message.from_login, "the sender")
        else:
            raise BadFields("an entry must hold one copy, or two")
        if owner not in here:
            must_be_here(self._users, known_user(self._users, owner, "the owner"))
            here.add(owner)
        return _Entry(sender.device_key_at(copy.effective_ms), copies, index)

    async def _check_and_store(self, entries: Sequence[_Entry], put: Put) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        size = sum(len(copy.blob) for entry in entries for copy in entry.copies)
        stretch = _Stretch(self._store, len(entries), Job(partial(_put_all, entries, put), future, size=size))
        try:
            self._crypto.submit(entries, stretch, later=True)
        except ServerBusy:
            self._submit_what_fits(entries, stretch)
        try:
            await future
        except (ServerBusy, StorageFull) as refusal:
            for entry in entries:
                entry.refusal = entry.refusal or refusal
        except Refusal:  # one of them may have broken it for all
            for entry in entries:
                await self._store_alone(entry, put)

    def _put(self, now_ms: int, from_server: str) -> Put:
        """Return what stores an entry, in a transaction that may be run twice."""
        own_login, gate = self._users.own_login, self._quotas.gate(own=False, live=False)

        def put(txn: Transaction, copies: Sequence[Container]) -> None:
            if not isinstance(copies, Pair):
                store_incoming(txn, copies[0], now_ms=now_ms, own_login=own_login, from_server=from_server)
                return
            joins = self._schedule.adopt(effective_ms=copies.incoming.effective_ms, now_ms=now_ms)
            store_pair(
                txn,
                copies,
                now_ms=now_ms,
                from_client=False,
                delivery=OpenDelivery(now_ms if joins is None else joins.accepted_at_ms, 0, now_ms, 0),
                own_login=own_login,
                settling=joins is None,
                from_server=from_server,
                gate=gate,
            )

        return put

    def _submit_what_fits(self, entries: Sequence[_Entry], stretch: _Stretch) -> None:
        for entry in entries:
            try:
                self._crypto.submit([entry], stretch, later=True)
            except ServerBusy as busy:
                entry.refusal = busy
                stretch.checked([entry])

    async def _store_alone(self, entry: _Entry, put: Put) -> None:
        try:
            await self._store.write(lambda txn: _put_all([entry], put, txn))
        except Refusal as refusal:
            entry.refusal = refusal

    def _look_for(self, entry: _Entry) -> Refusal | None:
        """Return why an entry whose signatures do not hold is refused, if it is."""
        try:
            stored = find_stored(self._store, entry.copies)
        except Refusal as refusal:
            return refusal
        return bad_signature(entry.failed or 0) if stored is None else None


class _Entry(Submission):
    """An entry with its place among those of a call, and why it is refused for anything but its signatures."""

    __slots__ = ("copies", "index", "refusal")

    def __init__(self, key: bytes, copies: Sequence[Container], index: int) -> None:
        super().__init__([(key, copy.signed_part, copy.signature) for copy in copies])
        self.copies = copies
        self.index = index
        self.refusal: Refusal | None = None


class _Stretch:
    """Hands one job to the writer, once a number of entries are checked, which threads of the pool may share."""

    def __init__(self, store: Store, count: int, job: Job[None]) -> None:
        self._store = store
        self._left = count
        self._job = job
        self._lock = threading.Lock()

    def checked(self, batch: list[Submission]) -> None:
        """Take some of the entries; called in any thread."""
        with self._lock:
            self._left -= len(batch)
            if self._left:
                return
        try:
            self._store.submit([self._job])
        except ServerBusy as busy:
            future = self._job.future
            with contextlib.suppress(RuntimeError):  # the loop has been closed: nobody waits any more
                future.get_loop().call_soon_threadsafe(_fail, future, busy)


def _put_all(entries: Sequence[_Entry], put: Put, txn: Transaction) -> None:
    for entry in entries:
        if entry.failed is None and entry.refusal is None:
            put(txn, entry.copies)


def _must_belong(owner: str, login: str) -> None:
    """Refuse an entry that is said to be another's than its containers say."""
    if login != owner:
        raise BadFields(f"this is an entry of {login}, not of {owner}")


def _fail(future: asyncio.Future[None], busy: ServerBusy) -> None:
    if not future.done():
        future.set_exception(busy)
