"""Which servers are known peers, kept up to date beside the event loop (PROTOCOL.md §7)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shine_node.clock import Clock
from shine_node.peers.directory import KnownPeer, known_peers
from shine_node.protocol.access import AccessRecord, AccessServer
from shine_node.store.environment import Transaction
from shine_node.store.readers import Readers
from shine_node.store.users import list_users

__all__ = ["PeerDirectory"]

MAX_KNOWN = 10_000
"""Servers that are known at most: whoever makes up records shall not keep the event loop busy with them."""


class PeerDirectory:
    """Works out, in a thread, which peers the configuration and the newest records of all users name.

    Args:
        own_login: this server's login.
        sync_servers: the peers that the operator configured; may be replaced while it runs.
        refresh_seconds: ``server.pool.refreshSeconds``.
    """

    def __init__(
        self,
        *,
        readers: Readers,
        clock: Clock,
        own_login: str,
        sync_servers: Sequence[AccessServer],
        refresh_seconds: float,
    ) -> None:
        self._readers = readers
        self._clock = clock
        self._own_login = own_login
        self.sync_servers = tuple(sync_servers)
        self._refresh_seconds = refresh_seconds
        self._known: list[KnownPeer] = []

    def known(self) -> list[KnownPeer]:
        """Return the peers as they were worked out last; at once."""
        return self._known

    def is_configured(self, server_login: str) -> bool:
        """Say whether the operator named a server in ``[[sync_servers]]``."""
        wanted = server_login.lower()
        return any(server.server_login.lower() == wanted for server in self.sync_servers)

    def vouches(self, server_login: str, record: AccessRecord) -> bool:
        """Say whether a peer's word is enough for the first record of a login: a configured one, or one it names."""
        return self.is_configured(server_login) or record.names_server(server_login)

    async def refresh(self) -> None:
        """Work the peers out anew."""
        self._known = await self._readers.run(self._read)

    async def refresh_forever(self, then: Callable[[], None]) -> None:
        """Work the peers out anew at their interval, and call something each time, until cancelled."""
        while True:
            await self._clock.sleep(self._refresh_seconds)
            await self.refresh()
            then()

    def _read(self, txn: Transaction) -> list[KnownPeer]:
        records = (registration.record for registration in list_users(txn))
        return known_peers(self._own_login, self.sync_servers, records)[:MAX_KNOWN]
