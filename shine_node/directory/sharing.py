"""Access records travel between servers: both sides of ``AccessDataSyncBatch`` (PROTOCOL.md §3)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from shine_node.clock import Clock
from shine_node.directory.users import Users
from shine_node.peers.asking import Peers
from shine_node.peers.directory import KnownPeer
from shine_node.protocol.access import AccessRecord, AccessServer, parse_record, record_payload
from shine_node.protocol.encoding import read_list, read_number
from shine_node.protocol.errors import BadFields, PeerRefused, Refusal
from shine_node.store.environment import Store, Transaction
from shine_node.store.layout import Table, pack_number, unpack_number
from shine_node.store.users import records_after

__all__ = ["AccessPull", "access_page"]

log = logging.getLogger(__name__)

MAX_REMEMBERED = 1000
MAX_PAGES = 1000
"""Pages of one session; what is left comes in the next one."""


def access_page(txn: Transaction, *, after_seq: int, limit: int, max_bytes: int) -> dict[str, object]:
    """Return a page of signed records in the order in which this server learned them.

    Args:
        after_seq: the ``nextSeq`` of the page before, 0 to begin.
        limit: how many records at most.
        max_bytes: of all records as they travel; one record goes in any case.
    """
    records: list[dict[str, object]] = []
    next_seq, size, more = after_seq, 0, False
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


class AccessPull:
    """Asks a peer for the records that it has learned since the last time.

    Args:
        vouches: whether a peer's word is enough for the first record of a login.
        allow_insecure: whether records may name ``ws://``.
        page_limit: ``sync.pageLimit``.
        interval_seconds: a peer is asked no more often than this, ``sync.accessIntervalSeconds``.
    """

    def __init__(
        self,
        *,
        store: Store,
        users: Users,
        peers: Peers,
        vouches: Callable[[str, AccessRecord], bool],
        allow_insecure: bool,
        page_limit: int,
        clock: Clock,
        interval_seconds: float,
    ) -> None:
        self._store = store
        self._users = users
        self._peers = peers
        self._vouches = vouches
        self._allow_insecure = allow_insecure
        self._page_limit = page_limit
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._asked_at: dict[str, float] = {}

    async def step(self, peer: KnownPeer) -> None:
        """Take what a peer has learned, as a part of a session, unless it was asked within the interval."""
        login, now = peer.server_login.lower(), self._clock.monotonic()
        asked_at = self._asked_at.get(login)
        if asked_at is not None and now - asked_at < self._interval_seconds:
            return
        try:
            taken = await self.run(AccessServer(peer.server_login, peer.url))
        except PeerRefused as refused:
            log.info("%s gives no access records: %s", peer.server_login, refused)  # an older peer may not know how
            taken = 0
        if taken:
            log.info("%d records were new from %s", taken, peer.server_login)
        self._asked_at.pop(login, None)
        while len(self._asked_at) >= MAX_REMEMBERED:
            del self._asked_at[next(iter(self._asked_at))]
        self._asked_at[login] = now

    async def run(self, server: AccessServer) -> int:
        """Take all pages that a peer has; a record that is refused is logged and passed over.

        Returns:
            How many records were new here.

        Raises:
            LinkError: the peer could not be asked to the end; the next session goes on from the last page.
            StorageFull, ServerBusy: not now.
        """
        place = f"access_seq {server.server_login.lower()}".encode()
        after = self._read_place(place)
        taken = 0
        for _ in range(MAX_PAGES):
            answer = await self._peers.request(
                server, "AccessDataSyncBatch", {"afterSeq": after, "limit": self._page_limit}
            )
            taken += await self._take(server, read_list(answer, "records"))
            next_seq, more = read_number(answer, "nextSeq"), answer.get("hasMore") is True
            if next_seq < after or (more and next_seq == after):
                # A peer that was restored counts from an earlier number: all of it is asked for once more.
                log.warning("%s has gone back in its records; they are read anew", server.server_login)
                next_seq, more = 0, False
            if next_seq != after:
                await self._store.write(lambda txn, seq=next_seq: _keep_place(txn, place, seq))  # type: ignore[misc]
                after = next_seq
            if not more:
                break
        return taken

    def _read_place(self, place: bytes) -> int:
        with self._store.read() as txn:
            value = txn.get(Table.META, place)
        return unpack_number(value) if value is not None else 0

    async def _take(self, server: AccessServer, payloads: list[Any]) -> int:
        results = await asyncio.gather(*(self._take_one(server, payload) for payload in payloads))
        return sum(results)

    async def _take_one(self, server: AccessServer, payload: object) -> bool:
        try:
            record = self._read(payload)
            if self._users.get(record.key) is None and not self._vouches(server.server_login, record):
                return False  # a stranger's word is not enough to fix the root key of a login
            return await self._users.add(record)
        except Refusal as refusal:
            if refusal.retryable:
                raise
            log.warning("a record from %s was refused: %s", server.server_login, refusal)
            return False

    def _read(self, payload: object) -> AccessRecord:
        if not isinstance(payload, Mapping):
            raise BadFields("a record must be an object")
        return parse_record(payload, allow_insecure=self._allow_insecure)


def _keep_place(txn: Transaction, place: bytes, seq: int) -> None:
    txn.put(Table.META, place, pack_number(seq))
