"""Whether the store of another server still holds what it has acknowledged, or was restored from a backup.

A caller of a ``*SyncBatch`` says in ``storeMark`` how far its store has come. It is kept with what is acknowledged, and
echoed; a caller whose store does not reach so far says ``restored``, and all that both servers share is sent to it once
more. Peers that know nothing of these fields ignore them, and nothing else changes for them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from shine_node.clock import Clock
from shine_node.store.environment import Store, Transaction
from shine_node.store.layout import ItemKey, Table
from shine_node.store.lineage import get_peer_mark, put_peer_mark
from shine_node.store.outbox import reopen
from shine_node.store.readers import Readers
from shine_node.store.resync import begin_resync
from shine_node.store.users import other_server

__all__ = ["PeerStores"]

log = logging.getLogger(__name__)

MAX_IN_DOUBT = 500
"""Entries of one server that are remembered between two of its sessions."""
MAX_SERVERS = 200
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
        self._in_doubt: dict[str, dict[ItemKey, None]] = {}
        """What a server was found to have since its last session."""
        self._runs: dict[str, str] = {}
        """The run of each server's store in its last session."""
        self._restored_at: dict[str, float] = {}

    def has(self, server: str, key: ItemKey) -> None:
        """Take note that a server has an entry, which it took or brought outside of a session: its mark is not known.

        Args:
            server: its login.
        """
        entries = self._in_doubt.setdefault(server.lower(), {})
        entries.pop(key, None)
        if len(entries) >= MAX_IN_DOUBT:
            del entries[next(iter(entries))]
        entries[key] = None
        if len(self._in_doubt) > MAX_SERVERS:
            del self._in_doubt[next(iter(self._in_doubt))]

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
        kept = self.kept(server)
        run = mark.partition("-")[0]
        in_doubt = self._in_doubt.get(server, {})
        if in_doubt and self._runs.get(server) != run:
            # It was started anew since: whether what it stored last is still there is not known.
            keys = list(in_doubt)
            await self._store.write(lambda txn: _reopen(txn, self._own_login, server, keys))
            for key in keys:
                in_doubt.pop(key, None)
        self._remember_run(server, run)
        if echoed != kept:
            return False  # the caller has not said yet whether it holds that
        if restored and kept:
            await self._send_anew(server, mark)
        elif in_doubt:
            await self._store.write(lambda txn: put_peer_mark(txn, server, mark))
            self._in_doubt.pop(server, None)
        return not restored

    def _remember_run(self, server: str, run: str) -> None:
        self._runs.pop(server, None)
        if len(self._runs) >= MAX_SERVERS:
            del self._runs[next(iter(self._runs))]
        self._runs[server] = run

    async def _send_anew(self, server: str, mark: str) -> None:
        now, before = self._clock.monotonic(), self._restored_at.get(server)
        if before is not None and now - before < RESTORED_PAUSE:
            return
        owners = await self._readers.run(lambda txn: _shared_owners(txn, self._own_login, server))
        log.warning("%s was restored from a backup; %d users' entries are sent to it anew", server, len(owners))
        for first in range(0, len(owners), OWNERS_A_COMMIT):
            some = owners[first : first + OWNERS_A_COMMIT]
            await self._store.write(lambda txn, some=some: _begin_all(txn, some))  # type: ignore[misc]
        await self._store.write(lambda txn: put_peer_mark(txn, server, mark))
        self._restored_at.pop(server, None)
        if len(self._restored_at) >= MAX_SERVERS:
            del self._restored_at[next(iter(self._restored_at))]
        self._restored_at[server] = now


def _reopen(txn: Transaction, own_login: str, server: str, keys: Sequence[ItemKey]) -> None:
    for key in keys:
        other = other_server(txn, key.owner, own_login)
        if other is not None and other.server_login.lower() == server:
            reopen(txn, server, key)


def _begin_all(txn: Transaction, owners: Sequence[str]) -> None:
    for owner in owners:
        begin_resync(txn, owner)


def _shared_owners(txn: Transaction, own_login: str, server: str) -> list[str]:
    owners = []
    for key, _ in txn.scan(Table.ACCESS_CURRENT):
        other = other_server(txn, key.decode(), own_login)
        if other is not None and other.server_login.lower() == server:
            owners.append(key.decode())
    return owners
