"""All links to other servers: one for each server, and one more where a user's record names another URL (§7)."""

from __future__ import annotations

import asyncio
import logging
import random as random_module
import ssl
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from typing import Any

from shine_node.clock import Clock
from shine_node.peers.address import Endpoint, parse_endpoint
from shine_node.peers.dial import Dialer, Resolver, make_tls_context
from shine_node.peers.directory import KnownPeer
from shine_node.peers.link import Link
from shine_node.peers.places import Holder, most_kept, most_of_one_place, who_gives_way
from shine_node.peers.priorities import priority_of
from shine_node.peers.settings import PoolSettings
from shine_node.peers.snapshot import LinkState, PoolSnapshot, log_lines
from shine_node.peers.tries import Tries
from shine_node.protocol.access import AccessServer
from shine_node.protocol.errors import LinkDown

__all__ = ["KnownPeer", "Pool", "PoolSettings"]

_log = logging.getLogger(__name__)

BLOCKED = "the operator of this server has blocked it"

_Key = tuple[str, Endpoint]
"""What makes two links one: the server's login in lower case, and the place."""


class NoRoom(Exception):
    """Another link would be one too many; the text says which bound is reached."""


class Pool:
    """The links of this server to its peers; it lives from ``start`` to ``close``.

    Args:
        own_login: this server, as its hello says.
        own_url: where it is reached; no link goes there, whatever the name.
        settings: bounds and times.
        clock: measures them.
        known_peers: returns who is known; called at the start and every ``refresh_seconds``, and must not block.
        on_connected: told the login of a known peer whose link came up (its hello was answered); must not block.
        blocked: logins of servers, in lower case, to which there are no links.
        random: 0 … 1, for the pauses.
    """

    def __init__(
        self,
        *,
        own_login: str,
        own_url: str,
        settings: PoolSettings,
        clock: Clock,
        known_peers: Callable[[], Iterable[KnownPeer]],
        on_connected: Callable[[str], None] | None = None,
        blocked: Collection[str] = (),
        random: Callable[[], float] = random_module.random,
    ) -> None:
        self._own_login = own_login
        self._own_endpoint = parse_endpoint(own_url)
        self._settings = settings
        self._clock = clock
        self._read_known_peers = known_peers
        self._on_connected = on_connected
        self._blocked = blocked
        self._random = random
        self._known: dict[str, tuple[KnownPeer, Endpoint]] = {}
        self._links: dict[_Key, Link] = {}
        self._tries: Tries[_Key] = Tries()
        self._dialer: Dialer | None = None
        self._resolver: Resolver | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping: set[asyncio.Task[None]] = set()
        self._share = most_of_one_place(settings.max_connections)
        self._complaints: set[str] = set()

    async def start(self) -> None:
        """Read who is known, open the permanent links, and keep both up to date.

        Raises:
            DialFailed: ``ca_file`` cannot be used.
        """
        settings = self._settings
        self._resolver = Resolver()
        self._dialer = Dialer(
            clock=self._clock,
            tls=self._read_authorities(),
            allow_insecure=settings.allow_insecure_peers,
            allow_private=settings.allow_private_peers,
            max_frame_bytes=settings.max_frame_bytes,
            resolve=self._resolver,
        )
        self.refresh()
        self._spawn(self._every(settings.refresh_seconds, self.refresh), "refresh")
        self._spawn(self._every(settings.snapshot_seconds, self._log_snapshot), "snapshot")

    async def close(self) -> None:
        """Close every link and end every task, within the time of a closing handshake; what waits fails."""
        self._dialer = None
        for task in self._tasks:
            task.cancel()
        for key in list(self._links):
            self._drop(key, "this server is stopping")
        while self._tasks:
            await asyncio.wait(self._tasks)
        if self._resolver is not None:
            self._resolver.close()

    def read_authorities(self) -> Callable[[], bool]:
        """Read ``ca_file`` and the system's authorities again, and change nothing yet.

        Returns:
            What brings them into force, for the connections that are opened from then on, and says whether they are
            others than before; of the system's alone it says that they are not.

        Raises:
            DialFailed: ``ca_file`` cannot be used; those of before stay.
        """
        read = self._read_authorities()

        def bring_into_force() -> bool:
            if self._dialer is None:
                return False
            before, self._dialer.tls = self._dialer.tls, read
            return before is not None and read is not None and _authorities(before) != _authorities(read)

        return bring_into_force

    def _read_authorities(self) -> ssl.SSLContext | None:
        """Read ``ca_file``, so that a mistake is told at once; those of the system alone can wait."""
        ca_file = self._settings.ca_file
        return None if ca_file is None else make_tls_context(ca_file)

    def block(self, logins: Collection[str]) -> None:
        """Have no links to some servers from now on, and to those of before again; requests to these fail.

        Args:
            logins: in lower case.
        """
        self._blocked = logins
        for key in [key for key in self._links if key[0] in logins]:
            self._drop(key, BLOCKED)
        self.refresh()

    async def request(
        self, server: AccessServer, op: str, payload: Mapping[str, object], *, timeout: float | None = None
    ) -> dict[str, Any]:
        """Ask a server, and return the payload of its success. Nothing is ever asked twice.

        Args:
            server: whom, and where: another URL than the known one gets a link of its own.
            op: decides the priority (table of §7).
            payload: what is sent.
            timeout: how long the caller waits in all, seconds; ``None`` for ``caller_timeout_seconds``.

        Raises:
            QueueFull: too many are waiting for this peer.
            CallerTimeout: the time was over while it waited or was under way.
            RequestTimeout: it was sent, and not answered in ``request_timeout_seconds``.
            LinkLost: the connection was lost meanwhile.
            LinkDown: there is no connection, and none is being opened now; or the server is blocked.
            PeerRefused: the peer answered with an error.
            ValueError: the operation is none between servers.
        """
        priority = priority_of(op)
        link = self._link_to(server, op)
        seconds = self._settings.caller_timeout_seconds if timeout is None else timeout
        return await link.request(op, payload, priority, seconds)

    def capability(self, server_login: str, name: str) -> bool:
        """Say whether a capability is in force on the link to a server now."""
        return any(link.in_force(name) for link in self._links_of(server_login) if self._is_main(link))

    def peer_arrived(self, server_login: str) -> None:
        """End the reconnect pause of a server that has just introduced itself on an inbound connection.

        A link is opened about once a second at most all the same: anybody can introduce himself by that name.
        """
        for link in self._links_of(server_login):
            link.end_pause()

    def connected(self) -> list[KnownPeer]:
        """Return the known peers whose links are up, the permanent ones first."""
        peers = [peer for peer, endpoint in self._known.values() if self._is_up(peer, endpoint)]
        return sorted(peers, key=lambda peer: not peer.permanent)

    def connected_peer(self, server_login: str) -> KnownPeer | None:
        """Return a known peer by its login while its link is up, else ``None``."""
        known = self._known.get(server_login.lower())
        return known[0] if known is not None and self._is_up(*known) else None

    def snapshot(self) -> PoolSnapshot:
        """Return the state of all links as plain data."""
        peers = [link.snapshot() for link in self._links.values()]
        return PoolSnapshot(
            at_ms=self._clock.now_ms(),
            known_peers=len(self._known),
            max_connections=self._settings.max_connections,
            peers=tuple(sorted(peers, key=lambda peer: (peer.server_login.lower(), peer.url))),
        )

    # --- which link ---

    def _link_to(self, server: AccessServer, op: str) -> Link:
        login = server.server_login.lower()
        try:
            endpoint = parse_endpoint(server.url)
        except ValueError as error:
            raise LinkDown(server.server_login, op, str(error)) from None
        link = self._links.get((login, endpoint))
        if link is not None:
            return link
        if login in self._blocked:
            raise LinkDown(server.server_login, op, BLOCKED)
        if self._is_self(login, endpoint):
            raise LinkDown(server.server_login, op, "this is this server itself")
        if self._dialer is None:
            raise LinkDown(server.server_login, op, "this server is not running")
        try:
            return self._add(self._dialer, server.server_login, endpoint, permanent=False)
        except NoRoom as full:
            raise LinkDown(server.server_login, op, str(full)) from None

    def _is_self(self, login: str, endpoint: Endpoint) -> bool:
        return login == self._own_login.lower() or endpoint == self._own_endpoint

    def _links_of(self, server_login: str) -> list[Link]:
        wanted = server_login.lower()
        return [link for (login, _), link in self._links.items() if login == wanted]

    def _is_main(self, link: Link) -> bool:
        """Say whether a link goes where its server is known to be; one to a server that is not known does."""
        known = self._known.get(link.server_login.lower())
        return known is None or known[1].url == link.url

    def _add(self, dialer: Dialer, server_login: str, endpoint: Endpoint, *, permanent: bool) -> Link:
        self._make_room(endpoint, permanent=permanent)
        key = server_login.lower(), endpoint
        link = Link(
            server_login=server_login,
            url=endpoint.url,
            permanent=permanent,
            own_login=self._own_login,
            settings=self._settings,
            clock=self._clock,
            dialer=dialer,
            random=self._random,
            on_connected=self._connected,
            not_before=self._tries.not_before(key),
        )
        self._links[key] = link
        link.start()
        return link

    def _make_room(self, endpoint: Endpoint, *, permanent: bool) -> None:
        """Have room for one more link, at the expense of the one on demand that is least needed.

        Raises:
            NoRoom: there is none.
        """
        most, share = self._settings.max_connections, self._share
        place = (endpoint.host, endpoint.port)
        if not permanent:
            there = [key for key, link in self._links.items() if (key[1].host, key[1].port) == place]
            there = [key for key in there if not self._links[key].permanent]
            if len(there) >= share and not self._give_one_up(there):
                raise NoRoom(f"all {share} connections that {place[0]} port {place[1]} may have are in use")
        if len(self._links) >= most and not self._give_one_up(self._links):
            raise NoRoom("all connections of server.pool.maxConnections are in use")

    def _give_one_up(self, keys: Iterable[_Key]) -> bool:
        links = ((key, self._links[key]) for key in keys)
        key = who_gives_way(
            (
                Holder(key, link.state, link.busy, link.vitals.used_at, link.waits_since)
                for key, link in links
                if not link.permanent
            ),
            self._clock.monotonic(),
        )
        if key is None:
            return False
        self._drop(key, "its place was needed", abruptly=len(self._stopping) >= self._share)
        return True

    def _drop(self, key: _Key, reason: str, *, abruptly: bool = False) -> None:
        link = self._links.pop(key)
        self._tries.note(key, link.vitals.tried_at, self._clock.monotonic())
        link.stop(reason, abruptly=abruptly)
        stopping = self._spawn(link.wait_stopped(), f"stop {link.server_login}")
        self._stopping.add(stopping)
        stopping.add_done_callback(self._stopping.discard)

    def _connected(self, link: Link) -> None:
        if self._on_connected is not None and self._is_main(link):
            try:
                self._on_connected(link.server_login)
            except Exception:
                _log.exception("a defect of this server: nobody could be told of the link to %s", link.server_login)

    def _is_up(self, peer: KnownPeer, endpoint: Endpoint) -> bool:
        link = self._links.get((peer.server_login.lower(), endpoint))
        return link is not None and link.state is LinkState.CONNECTED

    # --- who is known ---

    def refresh(self) -> None:
        """Read who is known, and open, replace and forget links by it; also done every ``refresh_seconds``."""
        try:
            peers = list(self._read_known_peers())
        except Exception:
            _log.exception("the known peers could not be read; those of before stay")
            return
        before, self._known = self._known, self._usable(peers)
        for login, (_, endpoint) in before.items():
            now = self._known.get(login)
            if now is not None and now[1] != endpoint and (login, endpoint) in self._links:
                self._drop((login, endpoint), f"its address is now {now[1].url}")
        self._sweep()
        self._keep_links()
        for login, (peer, endpoint) in self._known.items():
            link = self._links.get((login, endpoint))
            if link is not None and before.get(login) != (peer, endpoint) and link.state is LinkState.CONNECTED:
                self._connected(link)  # told anew: it was another's before, nobody's, or one that may be closed

    def _keep_links(self) -> None:
        """Have a permanent link to each peer that is to have one, as far as there is room."""
        most, kept = most_kept(self._settings.max_connections), 0
        for login, (peer, endpoint) in self._known.items():
            link = self._links.get((login, endpoint))
            keep = peer.permanent and kept < most
            try:
                if link is not None:
                    link.set_permanent(keep)
                elif keep and self._dialer is not None:
                    self._add(self._dialer, peer.server_login, endpoint, permanent=True)
            except NoRoom:
                keep = False
            kept += keep
            if peer.permanent and not keep:
                self._complain(f"no permanent link to {peer.server_login}: server.pool.maxConnections is too small")

    def _usable(self, peers: Iterable[KnownPeer]) -> dict[str, tuple[KnownPeer, Endpoint]]:
        """Return the peers by login, without this server itself; the first one of a login counts."""
        usable: dict[str, tuple[KnownPeer, Endpoint]] = {}
        for peer in peers:
            login = peer.server_login.lower()
            try:
                endpoint = parse_endpoint(peer.url)
            except ValueError as error:
                self._complain(f"no link to {peer.server_login}: {error}")
                continue
            if login not in usable and login not in self._blocked and not self._is_self(login, endpoint):
                usable[login] = (peer, endpoint)
        return usable

    def _sweep(self) -> None:
        """Forget links on demand that nobody has used for long; those of servers no longer known become such."""
        old = self._clock.monotonic() - self._settings.idle_close_seconds
        for key, link in list(self._links.items()):
            known = self._known.get(key[0])
            if known is None or known[1] != key[1]:
                link.set_permanent(False)
                resting = link.state is LinkState.IDLE or link.state is LinkState.PAUSE
                if resting and not link.busy and link.vitals.used_at <= old:
                    self._drop(key, "nobody uses it")

    def _complain(self, text: str) -> None:
        if text not in self._complaints and len(self._complaints) < 1000:
            self._complaints.add(text)
            _log.warning("%s", text)

    def _log_snapshot(self) -> None:
        for line in log_lines(self.snapshot()):
            _log.info("%s", line)

    # --- tasks ---

    async def _every(self, seconds: float, work: Callable[[], None]) -> None:
        while True:
            await self._clock.sleep(seconds)
            work()

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=f"pool {name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _authorities(context: ssl.SSLContext) -> set[bytes]:
    return set(context.get_ca_certs(binary_form=True))
