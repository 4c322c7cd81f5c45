"""Whether the store of another server still holds what it has acknowledged, or was restored from a backup.

A caller of a ``*SyncBatch`` says in ``storeMark`` how far its store has come. It is kept with what is acknowledged, and
echoed; a caller whose store does not reach so far says ``restored``, and all that both servers share is sent to it once
more. What it is known to have from elsewhere (it brought it, or took it when it was handed over) is in doubt until its
next mark; where its store was opened anew before, that is sent once more too. Peers that know nothing of these fields
ignore them, and nothing else changes for them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from shine_node.clock import Clock
from shine_node.store.environment import Store, Transaction
from shine_node.store.layout import Table
from shine_node.store.lineage import (
    get_doubt,
    get_peer_mark,
    get_peer_run,
    put_peer_mark,
    put_peer_run,
    settle_doubt,
)
from shine_node.store.readers import Readers
from shine_node.store.resync import begin_resync
from shine_node.store.unreadable import UnreadableRow
from shine_node.store.users import other_server

__all__ = ["PeerStores"]

log = logging.getLogger(__name__)

MAX_SERVERS = 200
"""Servers of which it is remembered when everything was sent to them anew."""
OWNERS_A_COMMIT = 200
RESTORED_PAUSE = 600.0
"""Seconds in which one server can have everything sent anew once: it is much work, and a name is taken on trust."""


class PeerStores:
    """The marks of the other servers.

    Args:
        own_login: this server's login, in lower case.
    """

    def __init__(self, *, store: Store, readers: Readers, clock: Clock, own_login: str) -> None:
        self._store = store
        self._readers = readers
        self._clock = clock
        self._own_login = own_login
        self._restored_at: dict[str, float] = {}
        self._lacking: set[str] = set()
        """The servers that have said that they were restored, and have not been sent everything yet.

        Only their first session says so on one connection: the next begins as if there were nothing to say.
        """

    def kept(self, server: str) -> str:
        """Return the mark that is kept of a server, in lower case; it is to be echoed."""
        with self._store.read() as txn:
            return get_peer_mark(txn, server)

    async def hear(self, server: str, mark: str, *, echoed: str | None, restored: bool) -> bool:
        """Take the mark of a request and say whether it may be kept with what the request acknowledges.

        Args:
            server: in lower case.
            mark: not empty.
            echoed: what was echoed in the answer before, on the same connection; ``None`` for the first request.
            restored: the caller's word that its store does not reach as far as that.

        Raises:
            ServerBusy, StorageFull: not now.
        """
        with self._store.read() as txn:
            kept, doubt = get_peer_mark(txn, server), get_doubt(txn, server)
            known_run = get_peer_run(txn, server)
        run = mark.partition("-")[0]
        if known_run != run:
            await self._heard_anew(server, run, doubt if known_run else None)
        if echoed != kept:
            return False  # the caller has not said yet whether it holds that
        if restored and kept:
            self._lacking.add(server)
        if server in self._lacking:
            await self._send_anew(server, mark)
            return False
        if doubt is not None:
            await self._store.write(lambda txn: _settle(txn, server, mark))
        return not restored

    async def _heard_anew(self, server: str, run: str, doubt: int | None) -> None:
        """Take note of a run; whether what is in doubt came through the end of the run before is not known."""
        owners = await self._readers.run(lambda txn: _shared_owners(txn, self._own_login, server))
        if not owners:
            return  # nothing is kept of a stranger
        if doubt is not None:
            await self._begin(owners, since_ms=doubt)
        await self._store.write(lambda txn: put_peer_run(txn, server, run))

    async def _send_anew(self, server: str, mark: str) -> None:
        now, before = self._clock.monotonic(), self._restored_at.get(server)
        if before is not None and now - before < RESTORED_PAUSE:
            return
        owners = await self._readers.run(lambda txn: _shared_owners(txn, self._own_login, server))
        log.warning("%s was restored from a backup; %d users' entries are sent to it anew", server, len(owners))
        await self._begin(owners, since_ms=0)
        await self._store.write(lambda txn: put_peer_mark(txn, server, mark))
        self._lacking.discard(server)
        self._restored_at.pop(server, None)
        if len(self._restored_at) >= MAX_SERVERS:
            del self._restored_at[next(iter(self._restored_at))]
        self._restored_at[server] = now

    async def _begin(self, owners: Sequence[str], *, since_ms: int) -> None:
        for first in range(0, len(owners), OWNERS_A_COMMIT):
            some = owners[first : first + OWNERS_A_COMMIT]
            await self._store.write(lambda txn, some=some: _begin_all(txn, some, since_ms))  # type: ignore[misc]


def _settle(txn: Transaction, server: str, mark: str) -> None:
    put_peer_mark(txn, server, mark)
    settle_doubt(txn, server)


def _begin_all(txn: Transaction, owners: Sequence[str], since_ms: int) -> None:
    for owner in owners:
        begin_resync(txn, owner, since_ms=since_ms)


def _shared_owners(txn: Transaction, own_login: str, server: str) -> list[str]:
    owners = []
    for key in txn.scan_keys(Table.ACCESS_CURRENT):
        login = key.decode("ascii", "replace")
        try:
            other = other_server(txn, login, own_login)
        except UnreadableRow as error:
            txn.pass_over(error)
            continue
        if other is not None and other.server_login.lower() == server:
            owners.append(login)
    return owners
