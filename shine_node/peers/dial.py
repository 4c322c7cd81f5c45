"""Opening a WebSocket to a peer: resolve, check every address, connect to exactly that one, TLS (PROTOCOL.md §7)."""

from __future__ import annotations

import asyncio
import functools
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus, WebSocketException

from shine_node.clock import Clock
from shine_node.peers.address import Endpoint, parse_endpoint, why_not_public
from shine_node.peers.guarded import GuardedConnection
from shine_node.protocol.errors import ShineError

__all__ = ["CLOSE_SECONDS", "DialFailed", "Dialer", "Resolver", "make_tls_context"]

CLOSE_SECONDS = 2.0
"""How long a peer may take over the closing handshake before its socket is cut."""

MAX_CANDIDATES = 8
"""Addresses of one name that are tried; a name cannot make this server knock at more doors."""

STAGGER_SECONDS = 0.5
"""The head start of an address over the next one, so that one that swallows packets costs little."""

CONCURRENT_LOOKUPS = 4
"""Names that are resolved at one time: a dead name server must not pile up look-ups, which cannot be cancelled."""

UNREAD_FRAMES = 3
"""Requests that a peer may leave unread: as many as are sent by the default time-outs before its pong is missed."""

PONGS_BYTES = 65536
"""Answers to pings that it may leave unread besides."""

_wire_log = logging.getLogger(f"{__name__}.wire")
_wire_log.setLevel(logging.INFO)  # at DEBUG the library would write frames, bodies included, to the log


class DialFailed(ShineError):
    """No connection came about; the text says why, for the operator."""


class Candidate(NamedTuple):
    """One address of a peer, as the resolver gave it."""

    family: int
    address: tuple[Any, ...]


def make_tls_context(ca_file: Path | None) -> ssl.SSLContext:
    """Return the TLS settings of outgoing links: the system's authorities, and those of a file.

    Raises:
        DialFailed: the file cannot be read or holds no certificates.
    """
    context = ssl.create_default_context()
    if ca_file is not None:
        try:
            context.load_verify_locations(ca_file)
        except (OSError, ssl.SSLError) as error:
            raise DialFailed(
                f"server.pool.caFile = {str(ca_file)!r} cannot be used ({error}); "
                "give a readable file with certificates in PEM form"
            ) from None
    return context


Lookup = Callable[[str, int], Awaitable[Iterable[tuple[Any, ...]]]]


async def _look_up(host: str, port: int) -> Iterable[tuple[Any, ...]]:
    return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)


class Resolver:
    """Looks names up, a few at a time.

    Args:
        look_up: returns what ``getaddrinfo`` returns; the system's resolver by default.
    """

    def __init__(self, look_up: Lookup = _look_up) -> None:
        self._look_up = look_up
        self._slots = asyncio.Semaphore(CONCURRENT_LOOKUPS)
        self._lookups: set[asyncio.Future[Any]] = set()

    async def __call__(self, host: str, port: int) -> list[Candidate]:
        """Return the addresses of a host; at once where the host is an address itself.

        Raises:
            OSError: the name has none, or the resolver does not answer.
        """
        with suppress(socket.gaierror):
            return _candidates(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST))
        await self._slots.acquire()
        lookup = asyncio.ensure_future(self._look_up(host, port))
        self._lookups.add(lookup)
        lookup.add_done_callback(self._done)
        return _candidates(await asyncio.shield(lookup))  # the caller may give up; the resolver keeps the slot

    def _done(self, lookup: asyncio.Future[Any]) -> None:
        self._lookups.discard(lookup)
        self._slots.release()
        if not lookup.cancelled():
            lookup.exception()

    def close(self) -> None:
        """Let go of the look-ups that are under way."""
        for lookup in list(self._lookups):
            lookup.cancel()


class Dialer:
    """Opens connections to peers under the rules of the configuration.

    Args:
        clock: paces the tries of several addresses.
        tls: the settings for ``wss://``; ``None`` for those with the system's authorities, which are read for the first
            connection: they take a MiB of memory.
        allow_insecure: ``server.pool.allowInsecurePeers``: also ``ws://``.
        allow_private: ``server.pool.allowPrivatePeers``: also addresses that are not public.
        max_frame_bytes: the greatest message that is read; a greater one closes the connection with 1009. A peer that
            leaves more than some such frames unread is cut off.
        resolve: finds the addresses of a host.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        tls: ssl.SSLContext | None,
        allow_insecure: bool,
        allow_private: bool,
        max_frame_bytes: int,
        resolve: Callable[[str, int], Awaitable[Sequence[Candidate]]],
    ) -> None:
        self._clock = clock
        self.tls = tls
        self._allow_insecure = allow_insecure
        self._allow_private = allow_private
        self._max_frame_bytes = max_frame_bytes
        self._resolve = resolve

    async def open(self, url: str) -> GuardedConnection:
        """Open a WebSocket; no proxy, no redirect, no compression, no pings of the library's own.

        Raises:
            DialFailed: with the reason. The time is the caller's to bound.
        """
        try:
            endpoint = parse_endpoint(url)
        except ValueError as error:
            raise DialFailed(str(error)) from None
        if not endpoint.secure and not self._allow_insecure:
            raise DialFailed(f"{url} is not encrypted; use wss://, or set server.pool.allowInsecurePeers for tests")
        if endpoint.secure and self.tls is None:
            self.tls = await asyncio.to_thread(make_tls_context, None)
        sock = await self._connect_first(await self._candidates(endpoint), endpoint)
        return await self._handshake(endpoint, sock)

    async def _candidates(self, endpoint: Endpoint) -> list[Candidate]:
        try:
            found = await self._resolve(endpoint.host, endpoint.port)
        except (OSError, UnicodeError) as error:
            raise DialFailed(f"no address found for {endpoint.host}: {error}") from None
        allowed, refused = [], []
        for candidate in found:
            kind = None if self._allow_private else why_not_public(str(candidate.address[0]))
            if kind is None:
                allowed.append(candidate)
            else:
                refused.append(f"{candidate.address[0]} is {kind} address")
        if not allowed:
            reason = "; ".join(refused[:MAX_CANDIDATES]) or "the name has no address"
            raise DialFailed(f"{endpoint.host}: {reason} (server.pool.allowPrivatePeers)" if refused else reason)
        return _alternate(allowed)[:MAX_CANDIDATES]

    async def _connect_first(self, candidates: list[Candidate], endpoint: Endpoint) -> socket.socket:
        """Connect to the first address that lets us, each with a head start over the next."""
        waiting = list(candidates)
        errors: list[str] = []
        tries: dict[asyncio.Future[socket.socket], Candidate] = {}
        try:
            while waiting or tries:
                if waiting:
                    candidate = waiting.pop(0)
                    tries[asyncio.ensure_future(_connect(candidate))] = candidate
                winner = await self._next_result(tries, errors, bounded=bool(waiting))
                if winner is not None:
                    return winner
        finally:
            for attempt in tries:
                attempt.cancel()
                attempt.add_done_callback(_close_result)
        raise DialFailed(f"no connection to {endpoint.host} port {endpoint.port}: {'; '.join(errors)}")

    async def _next_result(
        self, tries: dict[asyncio.Future[socket.socket], Candidate], errors: list[str], *, bounded: bool
    ) -> socket.socket | None:
        """Wait until a try ends, or its head start is over; return the socket of one that succeeded."""
        bell = asyncio.ensure_future(self._clock.sleep(STAGGER_SECONDS)) if bounded else None
        try:
            watched: list[asyncio.Future[Any]] = [*tries] if bell is None else [*tries, bell]
            done, _ = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if bell is not None:
                bell.cancel()
        for attempt in [attempt for attempt in tries if attempt in done]:
            error = attempt.exception()
            if error is None:
                del tries[attempt]
                return attempt.result()
            errors.append(f"{tries.pop(attempt).address[0]}: {error}")
        return None

    async def _handshake(self, endpoint: Endpoint, sock: socket.socket) -> GuardedConnection:
        tls: dict[str, Any] = {"ssl": self.tls, "server_hostname": endpoint.host} if endpoint.secure else {}
        most_unread = UNREAD_FRAMES * self._max_frame_bytes + PONGS_BYTES
        make: Any = functools.partial(GuardedConnection, most_unread=most_unread, monotonic=self._clock.monotonic)
        try:
            connection = await connect(
                endpoint.url,
                sock=sock,
                create_connection=make,
                proxy=None,
                compression=None,
                user_agent_header="shine-node",
                open_timeout=None,
                ping_interval=None,
                close_timeout=CLOSE_SECONDS,
                max_size=self._max_frame_bytes,
                logger=_wire_log,
                **tls,
            )
        except ssl.SSLCertVerificationError as error:
            raise DialFailed(
                f"the certificate of {endpoint.host} is not accepted: {error.verify_message or error} "
                "(an own authority goes into server.pool.caFile)"
            ) from None
        except InvalidStatus as error:
            raise DialFailed(f"{endpoint.url} answers with HTTP {error.response.status_code}, no WebSocket") from None
        except (OSError, WebSocketException, ValueError, EOFError) as error:
            raise DialFailed(f"no WebSocket at {endpoint.url}: {error or type(error).__name__}") from None
        assert isinstance(connection, GuardedConnection)  # noqa: S101 - it was made so
        return connection


async def _connect(candidate: Candidate) -> socket.socket:
    sock = socket.socket(candidate.family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, candidate.address)
    except BaseException:
        sock.close()
        raise
    return sock


def _candidates(found: Iterable[tuple[Any, ...]]) -> list[Candidate]:
    return [Candidate(family, address) for family, _, _, _, address in found]


def _close_result(attempt: asyncio.Future[socket.socket]) -> None:
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().close()


def _alternate(candidates: list[Candidate]) -> list[Candidate]:
    """Put the two families in turns, the resolver's first choice first."""
    first = [candidate for candidate in candidates if candidate.family == candidates[0].family]
    second = [candidate for candidate in candidates if candidate.family != candidates[0].family]
    turns = chain.from_iterable(zip_longest(first, second))
    return [candidate for candidate in turns if candidate is not None]
