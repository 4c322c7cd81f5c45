"""Access records travel between servers: both sides of ``AccessDataSyncBatch`` (PROTOCOL.md §3)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import orjson

from shine_node.clock import Clock
from shine_node.directory.users import TooManyUsers, Users
from shine_node.peers.asking import Peers
from shine_node.peers.directory import KnownPeer
from shine_node.peers.repeats import Repeats
from shine_node.peers.turns import Ending, Turn, ending
from shine_node.peers.waiting import all_results
from shine_node.protocol.access import AccessRecord, AccessServer, parse_record, record_payload
from shine_node.protocol.encoding import read_list, read_number
from shine_node.protocol.errors import BadFields, PeerRefused, RateLimited, Refusal
from shine_node.store.environment import Store, Transaction
from shine_node.store.layout import Table, pack_number, unpack_number
from shine_node.store.refill import end_reading, is_refilling
from shine_node.store.unreadable import UnreadableRow
from shine_node.store.users import records_after

__all__ = ["AccessPull", "Pulled", "access_page"]

log = logging.getLogger(__name__)

MAX_REMEMBERED = 1000
"""Peers of which it is remembered when they were asked."""
AT_ONCE = 64
"""Records that are checked at one time: a peer's long page must not fill the queue of signatures."""
MAX_RECORD_BYTES = 4096
"""More than a record can take in a frame."""


def access_page(txn: Transaction, *, after_seq: int, limit: int, max_bytes: int) -> dict[str, object]:
    """Return a page of signed records in the order in which this server learned them.

    Its ``nextSeq`` is less than ``after_seq`` where this server has not come so far: its store is another one than the
    asker knows, and its clock was ahead then.

    Args:
        after_seq: the ``nextSeq`` of the page before, 0 to begin.
        limit: how many records at most.
        max_bytes: of all records as they travel; one record goes in any case.
    """
    records: list[dict[str, object]] = []
    next_seq, size, more = min(after_seq, txn.last_seq(Table.ACCESS_RECORDS)), 0, False
    for looked_at, (seq, record, local) in enumerate(records_after(txn, after_seq, limit + 1)):
        payload = record_payload(record)
        size += len(orjson.dumps(payload))
        if looked_at == limit or (records and size > max_bytes):
            more = True
            break
        next_seq = seq
        if not local:
            records.append(payload)
    return {"records": records, "nextSeq": next_seq, "hasMore": more}


class Pulled(NamedTuple):
    """What a turn brought: how many records were new here, and whether the peer has more."""

    new: int
    more: bool


class AccessPull:
    """Asks a peer for the records that it has learned since the last time.

    Args:
        vouches: whether a peer's word is enough for the first record of a login.
        takes_anyone: whether this server registers whoever asks (``registration.mode`` is ``open``): only then does a
            record of a peer make somebody a user of this server.
        allow_insecure: whether records may name ``ws://``.
        page_limit: ``sync.pageLimit``.
        max_frame_bytes: ``limits.maxFrameBytes``: no more records are asked for than a frame holds for sure.
        interval_seconds: a peer is asked no more often than this, ``sync.accessIntervalSeconds``.
    """

    def __init__(
        self,
        *,
        store: Store,
        users: Users,
        peers: Peers,
        vouches: Callable[[str, AccessRecord], bool],
        takes_anyone: Callable[[], bool],
        allow_insecure: bool,
        page_limit: int,
        max_frame_bytes: int,
        clock: Clock,
        interval_seconds: float,
    ) -> None:
        self._store = store
        self._users = users
        self._peers = peers
        self._vouches = vouches
        self._takes_anyone = takes_anyone
        self._allow_insecure = allow_insecure
        self._page_limit = min(page_limit, max_frame_bytes // MAX_RECORD_BYTES)
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._asked_at: dict[str, float] = {}
        self._repeats = Repeats(clock)

    async def step(self, peer: KnownPeer, turn: Turn) -> Ending:
        """Take what a peer has learned, as a part of a session, unless it was asked within the interval."""
        login, now = peer.server_login.lower(), self._clock.monotonic()
        asked_at = self._asked_at.get(login)
        if asked_at is not None and now - asked_at < self._interval_seconds:
            return Ending.DONE
        try:
            pulled = await self.run(AccessServer(peer.server_login, peer.url), turn)
        except PeerRefused as refused:
            log.info("%s gives no access records: %s", peer.server_login, refused)  # an older peer may not know how
            pulled = Pulled(0, False)
        if pulled.new:
            log.info("%d records were new from %s", pulled.new, peer.server_login)
        self._asked_at.pop(login, None)
        if pulled.more:
            return ending(more=True, taken=pulled.new)
        while len(self._asked_at) >= MAX_REMEMBERED:
            del self._asked_at[next(iter(self._asked_at))]
        self._asked_at[login] = now
        return Ending.DONE

    async def run(self, server: AccessServer, turn: Turn) -> Pulled:
        """Take the pages that a peer has until the turn is over; a record that is refused is logged and passed over.

        Raises:
            BadFields, BadRequestFormat: an answer is none, or holds more than was asked for; nothing of it is taken.
            LinkError: the peer could not be asked to the end; the next session goes on from the last page.
            StorageFull, ServerBusy: not now.
        """
        place = f"access_seq {server.server_login.lower()}".encode()
        after = self._read_place(place)
        taken, more = 0, True
        refused, first = 0, None
        try:
            while more:
                answer = await self._peers.request(
                    server, "AccessDataSyncBatch", {"afterSeq": after, "limit": self._page_limit}
                )
                records, next_seq, more = self._read_page(answer)
                refusals: list[Refusal] = []
                taken += await self._take(server, records, refusals)
                refused, first = refused + len(refusals), first or next(iter(refusals), None)
                if next_seq < after or (more and next_seq == after):
                    # A peer that was restored counts from an earlier number: all of it is asked for once more.
                    level = self._repeats.level(logging.WARNING, server.server_login, "back")
                    log.log(level, "%s has gone back in its records; they are read anew", server.server_login)
                    next_seq, more = 0, False
                elif not more and await self._read_again(server):
                    next_seq, more = 0, True
                if next_seq != after:
                    await self._store.write(lambda txn, seq=next_seq: _keep_place(txn, place, seq))  # type: ignore[misc]
                    after = next_seq
                if turn.over():
                    break
        finally:  # once, whatever the number of pages
            if refused:
                level = self._repeats.level(logging.WARNING, server.server_login, "refused")
                text = "%d records from %s were refused, the first because of %s"
                log.log(level, text, refused, server.server_login, first)
        return Pulled(taken, more)

    def _read_page(self, answer: Mapping[str, Any]) -> tuple[list[Any], int, bool]:
        records = read_list(answer, "records")
        if len(records) > self._page_limit:
            raise BadFields(f"an answer holds {len(records)} records where at most {self._page_limit} were asked for")
        return records, read_number(answer, "nextSeq"), answer.get("hasMore") is True

    def _read_place(self, place: bytes) -> int:
        with self._store.read() as txn:
            value = txn.get(Table.META, place)
            try:
                return unpack_number(value) if value is not None else 0
            except UnreadableRow as error:  # all of it is asked for once more
                txn.pass_over(error)
                return 0

    async def _take(self, server: AccessServer, payloads: list[Any], refusals: list[Refusal]) -> int:
        """Store the records of a page; those of one user one after the other, as the peer has learned them.

        Args:
            refusals: gets why records are not taken.

        Returns:
            How many became the newest of their user.
        """
        taken = 0
        for begin in range(0, len(payloads), AT_ONCE):
            users: dict[str, list[AccessRecord]] = {}
            for payload in payloads[begin : begin + AT_ONCE]:
                try:
                    record = self._read(payload)
                except Refusal as refusal:
                    refusals.append(refusal)
                else:
                    users.setdefault(record.key, []).append(record)
            taken += sum(await all_results(self._take_user(server, u, refusals) for u in users.values()))
        return taken

    async def _take_user(self, server: AccessServer, records: list[AccessRecord], refusals: list[Refusal]) -> int:
        """Store what a page has of one user, oldest first.

        Raises:
            StorageFull, ServerBusy: not now.
        """
        taken = 0
        for record in records:
            try:
                if self._may_bring(server, record):
                    taken += await self._users.add(record)
            except Refusal as refusal:
                # What only this user or only new users have too many of must not keep the rest from being read.
                if refusal.retryable and not isinstance(refusal, RateLimited | TooManyUsers | UnreadableRow):
                    raise
                refusals.append(refusal)
        return taken

    async def _read_again(self, server: AccessServer) -> bool:
        """Say, at the end of what a peer has, whether a store that is being refilled needs all of it once more."""
        with self._store.read() as txn:
            if not is_refilling(txn, server.server_login):
                return False
        again = await self._store.write(lambda txn: end_reading(txn, server.server_login))
        if not again:
            log.warning("%s has told who the users of this server were; their history follows", server.server_login)
        return again

    def _may_bring(self, server: AccessServer, record: AccessRecord) -> bool:
        if self._users.comes_here(record) and not self._takes_anyone() and not self._was_here(server, record):
            return False  # a registration, which is for this server's operator to decide
        # A stranger's word is not enough to fix the root key of a login.
        return self._users.get(record.key) is not None or self._vouches(server.server_login, record)

    def _was_here(self, server: AccessServer, record: AccessRecord) -> bool:
        """Say whether a peer's word is enough that somebody was a user of this server before its store was lost."""
        if not record.names_server(server.server_login) or not self._vouches(server.server_login, record):
            return False
        with self._store.read() as txn:
            return is_refilling(txn, server.server_login)

    def _read(self, payload: object) -> AccessRecord:
        if not isinstance(payload, Mapping):
            raise BadFields("a record must be an object")
        return parse_record(payload, allow_insecure=self._allow_insecure)


def _keep_place(txn: Transaction, place: bytes, seq: int) -> None:
    txn.put(Table.META, place, pack_number(seq))
