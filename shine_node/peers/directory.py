"""Which servers are known, and whose word counts where records disagree about one (PROTOCOL.md §7); pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from shine_node.protocol.access import AccessRecord, AccessServer, record_order

__all__ = ["KnownPeer", "known_peers"]


class KnownPeer(NamedTuple):
    """One server that links may go to; a permanent link is kept open."""

    server_login: str
    url: str
    permanent: bool


class _Claim(NamedTuple):
    """What one record says of a server; the greatest claim counts."""

    of_own_user: bool
    order: tuple[int, bytes]
    server: AccessServer


def known_peers(
    own_login: str, sync_servers: Iterable[AccessServer], records: Iterable[AccessRecord]
) -> list[KnownPeer]:
    """Return the peers: those of the configuration first, then the other servers of own users, then the rest.

    For the URL of one ``serverLogin`` the configuration decides, then the newest record of a user of this server, then
    the newest record of anyone.

    Args:
        own_login: this server, which is no peer of its own.
        sync_servers: the peers that the operator configured.
        records: the newest record of every known user; one pass is made over them.
    """
    own = own_login.lower()
    configured = {server.server_login.lower(): server for server in sync_servers}
    configured.pop(own, None)
    claims: dict[str, _Claim] = {}
    for record in records:
        of_own_user = record.names_server(own_login)
        for server in record.access_servers:
            login = server.server_login.lower()
            if login == own or (login in configured and not of_own_user):
                continue
            claim = _Claim(of_own_user, record_order(record), server)
            known = claims.get(login)
            if known is None or claim > known:
                claims[login] = claim
    peers = [KnownPeer(server.server_login, server.url, True) for server in configured.values()]
    others = [claim for login, claim in claims.items() if login not in configured]
    others.sort(key=lambda claim: not claim.of_own_user)
    peers.extend(KnownPeer(claim.server.server_login, claim.server.url, claim.of_own_user) for claim in others)
    return peers
