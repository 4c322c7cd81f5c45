"""Sockets that were accepted: counted from then on, before they have said anything (PROTOCOL.md §10, ``[limits]``)."""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import logging
import resource
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import cast

from shine_node.api.front import Front
from shine_node.api.guarded import GuardedConnection
from shine_node.api.limits import AddressCount
from shine_node.config import LimitsConfig, Network

__all__ = ["AcceptedSockets", "Doorway", "is_in", "is_loopback", "most_sockets", "origin_of"]

log = logging.getLogger(__name__)

FILES_KEPT_FREE = 32
"""For the links to other servers, the store and the control socket, when strangers have taken the other ones."""


def most_sockets(connections: int) -> int:
    """Return how many sockets may be open for so many connections: a few more, so that those can be told why not."""
    return connections + max(4, connections // 16)


def origin_of(address: str) -> str:
    """Return what counts as one address: of IPv6 the network of 64 bits, all of which any one customer has."""
    found = _address(address)
    if found is None:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    return str(ipaddress.IPv6Network((int(found), 64), strict=False))


def is_loopback(host: str) -> bool:
    """Say whether an address is this machine's own: a proxy's, which says whose its connections are."""
    found = _address(host)
    return found is not None and found.is_loopback


def is_in(host: str, networks: Sequence[Network]) -> bool:
    """Say whether an address is in one of some networks."""
    found = _address(host) if networks else None
    return found is not None and any(found in network for network in networks)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    # Where one socket listens for both families, an address of IPv4 comes as ``::ffff:192.0.2.7``.
    return found.ipv4_mapped or found if isinstance(found, ipaddress.IPv6Address) else found


class AcceptedSockets:
    """Knows the sockets that are open, and which one is too many.

    One from this machine counts in all, and not for its address: it may be a proxy's, and says whose it is later.

    Args:
        limits: ``[limits]`` of the configuration.
        most_files: how many files this process may have open.
    """

    def __init__(self, limits: LimitsConfig, *, most_files: Callable[[], int] | None = None) -> None:
        self._count = AddressCount(
            greatest=most_sockets(limits.max_connections),
            greatest_per_address=most_sockets(limits.max_connections_per_address),
        )
        self._blocked = limits.blocked_addresses
        self._most_files = most_files or _most_files
        self._inside: dict[Doorway, str] = {}
        self._told = False
        self._closed = False
        self._empty = asyncio.Event()

    def __len__(self) -> int:
        return len(self._inside)

    def __iter__(self) -> Iterator[Doorway]:
        return iter(list(self._inside))

    def __contains__(self, doorway: Doorway) -> bool:
        return doorway in self._inside

    def change_limits(self, limits: LimitsConfig) -> None:
        """Go on with other limits; who is connected stays."""
        self._blocked = limits.blocked_addresses
        self._count.change(
            greatest=most_sockets(limits.max_connections),
            greatest_per_address=most_sockets(limits.max_connections_per_address),
        )

    def close(self) -> None:
        """Let nobody in any more: one that was accepted before its server stopped listening may yet come."""
        self._closed = True

    def add(self, doorway: Doorway, transport: asyncio.BaseTransport) -> bool:
        """Count a socket, or say that it is too many or of a blocked address; then it should be closed at once."""
        peer, sock = transport.get_extra_info("peername"), transport.get_extra_info("socket")
        remote = str(peer[0]) if peer else "unknown"
        origin = None if is_loopback(remote) else origin_of(remote)
        if self._closed or is_in(remote, self._blocked) or self._count.refusal(origin):
            return False
        if self._no_files_left(sock.fileno()):
            return False
        self._inside[doorway] = origin or remote
        self._count.add(origin or remote)
        self._empty.clear()
        return True

    def remove(self, doorway: Doorway) -> None:
        """Take a socket out of the count, once."""
        counted = self._inside.pop(doorway, None)
        if counted is not None:
            self._count.remove(counted)
        if not self._inside:
            self._empty.set()

    async def until_empty(self, seconds: float) -> None:
        """Wait at most so long until no socket is open."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._inside:
                    await self._empty.wait()

    def _no_files_left(self, number: int) -> bool:
        # The system gives the lowest number that is free, so all below are in use. When there is none left, the event
        # loop closes what comes and tells nobody.
        most = self._most_files()
        if number < most - FILES_KEPT_FREE:
            return False
        if not self._told:
            self._told = True
            log.error(
                "nearly all of the %d files that this process may have open are open: new connections are closed at "
                "once. Raise the limit (LimitNOFILE= of the systemd unit, ulimit -n) and start the node again, or "
                "lower limits.maxConnections",
                most,
            )
        return True


class Doorway(asyncio.Protocol):
    """Lets one socket in: counts it, and shakes hands where there is TLS; then it is for what stands behind.

    The event loop would do the latter by itself, and would say nothing of the socket before it is done.

    Args:
        front: whose the socket is to be.
        tls: the context of ``wss://``, or ``None``.
        handshake_seconds: how long the handshake of TLS may take.
        shutdown_seconds: how long the end of TLS may take.
    """

    def __init__(
        self,
        front: Front,
        *,
        sockets: AcceptedSockets,
        tls: ssl.SSLContext | None,
        handshake_seconds: float,
        shutdown_seconds: float,
    ) -> None:
        self._front = front
        self._sockets = sockets
        self._tls = tls
        self._handshake_seconds = handshake_seconds
        self._shutdown_seconds = shutdown_seconds
        self._handshake: asyncio.Task[None] | None = None
        front.when_lost = lambda: sockets.remove(self)

    @property
    def websocket(self) -> GuardedConnection:
        """What the socket is or may become."""
        return self._front.websocket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Let the socket in, or close it."""
        transport = cast("asyncio.Transport", transport)
        if not self._sockets.add(self, transport):
            transport.abort()
        elif self._tls is None:
            transport.set_protocol(self._front)
            self._front.connection_made(transport)
        else:
            self._begin_handshake(transport, self._tls)

    def abort(self) -> None:
        """Close the socket at once, whatever its state; nothing is done where it has gone."""
        if self._handshake is not None and not self._handshake.done():
            self._handshake.cancel()
        elif self in self._sockets:
            self._front.abort()

    def _begin_handshake(self, transport: asyncio.Transport, tls: ssl.SSLContext) -> None:
        # The event loop takes over sockets, and no transports: they may have read what TLS has to read.
        try:
            sock = transport.get_extra_info("socket").dup()
        except OSError:  # the last file has just been taken by something else
            self._sockets.remove(self)
        else:
            sock.setblocking(False)
            self._handshake = asyncio.get_running_loop().create_task(self._shake_hands(sock, tls))
            self._handshake.add_done_callback(functools.partial(self._look_at_handshake, sock))
        transport.abort()

    async def _shake_hands(self, sock: socket.socket, tls: ssl.SSLContext) -> None:
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: self._front,
            sock,
            ssl=tls,
            ssl_handshake_timeout=self._handshake_seconds,
            ssl_shutdown_timeout=self._shutdown_seconds,
        )

    def _look_at_handshake(self, sock: socket.socket, handshake: asyncio.Task[None]) -> None:
        """Take the socket out of the count where nobody has got it, also when the task never began."""
        problem = None if handshake.cancelled() else handshake.exception()
        if problem is None and not handshake.cancelled():
            return
        sock.close()
        self._sockets.remove(self)
        # ssl's exceptions are OSErrors too: the other side has gone, or is too slow, or does not trust this server.
        if problem is not None and not isinstance(problem, OSError):
            log.error("a defect in the handshake of TLS", exc_info=problem)


def _most_files() -> int:
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if most != resource.RLIM_INFINITY else 2**31
