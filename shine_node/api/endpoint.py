"""The WebSocket endpoint ``/ws``: listens, counts connections, and serves each one (PROTOCOL.md §2, §10).

On the same port requests for pages are answered; they never come this far (``front.py``).
"""

from __future__ import annotations

import asyncio
import http
import logging
import re
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, cast

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.http11 import Request, Response
from websockets.protocol import CONNECTING

from shine_node.api.connection import Connection, Handler
from shine_node.api.front import Front
from shine_node.api.guarded import GuardedConnection
from shine_node.api.limits import AddressCount, AddressShares
from shine_node.api.pages import PageSet
from shine_node.api.sockets import AcceptedSockets, Doorway, is_in, is_loopback, origin_of
from shine_node.clock import Clock
from shine_node.config import LimitsConfig, ListenAddress

__all__ = ["Endpoint", "client_address"]

log = logging.getLogger(__name__)

CLOSE_SECONDS = 2
GOING_AWAY = 1001
POLICY_VIOLATION = 1008
HANDSHAKE_SECONDS = 10
PING_SECONDS = 30
"""A connection that says nothing is pinged this often, and ended if it is silent for as long again."""
WRITE_BUFFER_BYTES = 65536
MAX_USER_AGENT_CHARACTERS = 256
_WITH_PORT = re.compile(r"\[(?P<six>[^\[\]]+)\](?::[0-9]+)?|(?P<four>[0-9.]+):[0-9]+")


class Endpoint:
    """Serves clients and peers on every listening address.

    Args:
        handlers: operation → handler.
        limits: ``[limits]`` of the configuration.
        tls: the context of ``wss://``, or ``None`` behind a proxy that ends TLS.
        pages: what is answered to requests that are for no WebSocket; without any, that they are not found.
    """

    def __init__(
        self,
        *,
        handlers: Mapping[str, Handler],
        limits: LimitsConfig,
        clock: Clock,
        tls: ssl.SSLContext | None = None,
        pages: PageSet | None = None,
    ) -> None:
        self._handlers = handlers
        self._limits = limits
        self._clock = clock
        self._tls = tls
        self._pages = pages or PageSet()
        self._servers: list[Server] = []
        self._sockets = AcceptedSockets(limits)
        self._connections: set[Connection] = set()
        self._count = AddressCount(
            greatest=limits.max_connections, greatest_per_address=limits.max_connections_per_address
        )
        self._shares = AddressShares()

    @property
    def connections(self) -> int:
        """Connections that are open."""
        return self._count.total

    def change_limits(self, limits: LimitsConfig) -> None:
        """Go on with other limits, also for the connections that are open; the size of frames stays as it is.

        Those that may not be there any more are ended: of addresses that are blocked now, and of servers. Those that
        only are more than there may be now can stay.
        """
        self._limits = limits
        self._shares.change_limits(limits)
        for doorway in self._sockets:
            doorway.websocket.most_unread = self._most_unread
        for connection in self._connections:
            if is_in(connection.address, limits.blocked_addresses):
                connection.outbound.end(POLICY_VIOLATION, "this address is blocked here")
            elif connection.hello is not None and connection.hello.server_login.lower() in limits.blocked_peers:
                connection.outbound.end(POLICY_VIOLATION, "this server is blocked here")
            else:
                connection.change_limits(limits)
        self._sockets.change_limits(limits)
        self._count.change(greatest=limits.max_connections, greatest_per_address=limits.max_connections_per_address)

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of every socket that listens."""
        return [sock.getsockname()[:2] for server in self._servers for sock in server.sockets]

    async def start(self, listen: Sequence[ListenAddress]) -> None:
        """Listen; a port of 0 takes a free one.

        Raises:
            OSError: an address cannot be had; none is listened on then.
        """
        try:
            for address in listen:
                self._servers.append(
                    await serve(
                        self._serve,
                        address.host or None,
                        address.port,
                        process_request=self._admit,
                        create_connection=cast("type[ServerConnection]", self._accept),  # is only called
                        compression=None,
                        max_size=self._limits.max_frame_bytes,
                        write_limit=WRITE_BUFFER_BYTES,
                        open_timeout=HANDSHAKE_SECONDS,
                        close_timeout=CLOSE_SECONDS,
                        ping_interval=PING_SECONDS,
                        ping_timeout=PING_SECONDS,
                        server_header=None,
                    )
                )
        except OSError:
            await self.close()
            raise

    async def settle(self, seconds: float) -> None:
        """Stop listening and taking requests; wait at most ``seconds`` until those under way are answered."""
        self._sockets.close()
        for server in self._servers:
            server.close(close_connections=False)
        await asyncio.gather(*(connection.settle(seconds) for connection in self._connections))

    async def close(self, seconds: float | None = None) -> None:
        """Stop listening, and end every connection and what is still under way on it.

        Args:
            seconds: for each of the four steps that this takes at most; ``CLOSE_SECONDS`` where left out.
        """
        seconds = CLOSE_SECONDS if seconds is None else seconds
        await self.settle(seconds)
        for connection in self._connections:
            connection.give_up()
        await asyncio.gather(*(_end(doorway, seconds) for doorway in self._sockets))
        await self._sockets.until_empty(seconds)
        ends = [asyncio.ensure_future(server.wait_closed()) for server in self._servers]
        if ends:
            await asyncio.wait(ends, timeout=seconds)
        self._servers.clear()

    @property
    def _most_unread(self) -> int:
        return self._limits.max_outbound_bytes + self._limits.max_frame_bytes

    def _accept(self, *args: Any, **kwargs: Any) -> Doorway:
        """Make what takes a socket that was accepted, and count it while it is open."""
        websocket = GuardedConnection(
            *args,
            most_unread=self._most_unread,
            unread_seconds=PING_SECONDS,
            monotonic=self._clock.monotonic,
            **kwargs,
        )
        front = Front(websocket, pages=self._pages, now_ms=self._clock.now_ms, seconds=HANDSHAKE_SECONDS)
        return Doorway(
            front,
            sockets=self._sockets,
            tls=self._tls,
            handshake_seconds=HANDSHAKE_SECONDS,
            shutdown_seconds=CLOSE_SECONDS,
        )

    def _admit(self, websocket: ServerConnection, request: Request) -> Response | None:
        """Answer a request that is for one connection too many, or comes through a proxy from a blocked address."""
        # ``Origin`` is not looked at. It would keep pages of other sites from using what a browser adds by itself to
        # whatever it sends here, such as cookies; there is no such thing: each connection is a stranger's until it
        # proves a key, and anybody may write a client, also one that is a page elsewhere.
        address = _address(websocket, request)
        if is_in(address, self._limits.blocked_addresses):
            return websocket.respond(http.HTTPStatus.FORBIDDEN, "This address is blocked here.\n")
        refusal = self._count.refusal(origin_of(address))
        if refusal is not None:
            return websocket.respond(http.HTTPStatus.SERVICE_UNAVAILABLE, refusal)
        return None

    async def _serve(self, websocket: ServerConnection) -> None:
        request = websocket.request
        if request is None:
            raise AssertionError("a connection that is open had a request")
        address = _address(websocket, request)
        origin = origin_of(address)
        self._count.add(origin)
        counted = not is_loopback(address)
        share = self._shares.join(origin, self._limits, self._clock.monotonic(), counted=counted)
        try:
            connection = Connection(
                websocket,
                handlers=self._handlers,
                clock=self._clock,
                requests_per_second=self._limits.requests_per_second,
                address=address,
                share=share,
                max_outbound_bytes=self._limits.max_outbound_bytes,
                user_agent=user_agent(request.headers.get_all("User-Agent")),
            )
            self._connections.add(connection)
            try:
                await connection.serve()
            finally:
                self._connections.discard(connection)
        except Exception:  # else only the library would know, whose log is off
            log.exception("a defect in the connection of %s", address)
        finally:
            self._count.remove(origin)
            self._shares.leave(origin, self._clock.monotonic(), counted=counted)


def client_address(remote: str, forwarded: Sequence[str]) -> str:
    """Return the address that counts: the socket's, or what a proxy on this machine says of its client.

    Args:
        remote: the other side of the socket.
        forwarded: the values of ``X-Forwarded-For``; the last entry is the one that the proxy itself has seen.
    """
    if not forwarded or not is_loopback(remote):
        return remote
    client = forwarded[-1].rpartition(",")[2].strip()[:64]
    # Some proxies say the port too: each connection of a client would count as another address.
    with_port = _WITH_PORT.fullmatch(client)
    return (with_port["six"] or with_port["four"] if with_port else client) or remote


async def _end(doorway: Doorway, seconds: float) -> None:
    """End a connection; one that has not even asked to be one is not waited for."""
    websocket = doorway.websocket
    if websocket.state is CONNECTING:
        doorway.abort()
        return
    try:
        # The library's own bound begins when its closing frame has left, which the other side can put off.
        async with asyncio.timeout(seconds):
            await websocket.close(GOING_AWAY, "this server is stopping")
    except TimeoutError:
        doorway.abort()


def _address(websocket: ServerConnection, request: Request) -> str:
    remote = websocket.remote_address
    return client_address(str(remote[0]) if remote else "unknown", request.headers.get_all("X-Forwarded-For"))


def user_agent(headers: Sequence[str]) -> str:
    """Return what the handshake says of the client, in one short line; nothing without a ``User-Agent``."""
    return "".join(filter(str.isprintable, " ".join(headers)))[:MAX_USER_AGENT_CHARACTERS]
