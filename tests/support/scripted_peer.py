"""A peer on a real socket that behaves as a test tells it, well or badly."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import orjson
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode
from websockets.protocol import Event

from tests.support.stored import stored

PATIENCE = 20.0
"""Seconds that a test waits for what must happen; only a failing test waits so long."""

CLOSE_SECONDS = 10.0
"""How long the peer waits for the end of a connection that it closes."""

Behaviour = Callable[["PeerConnection", dict[str, Any]], Awaitable[None]]


def success(request: dict[str, Any], payload: dict[str, Any] | None = None) -> str:
    """Return the text of a success; without a payload it says that what was sent has been stored."""
    op = request["op"]
    payload = stored(op, request.get("payload", {})) if payload is None else payload
    return orjson.dumps(
        {"op": op, "requestId": request["requestId"], "status": 200, "ok": True, "payload": payload}
    ).decode()


def refusal(request: dict[str, Any], status: int, error: str, message: str = "") -> str:
    """Return the text of an error."""
    return orjson.dumps(
        {
            "op": request["op"],
            "requestId": request["requestId"],
            "status": status,
            "ok": False,
            "error": error,
            "message": message,
            "payload": {},
        }
    ).decode()


class WatchedConnection(ServerConnection):
    """A connection that counts the pings that it gets; the library answers them with pongs."""

    pings = 0

    def process_event(self, event: Event) -> None:
        if isinstance(event, Frame) and event.opcode is Opcode.PING:
            self.pings += 1
        super().process_event(event)


class PeerConnection:
    """One connection that a node opened to the scripted peer."""

    def __init__(self, socket: ServerConnection, peer: ScriptedPeer) -> None:
        self.socket = socket
        self.peer = peer
        self.requests: list[dict[str, Any]] = []
        """All that came, the hello included."""

    async def answer(self, request: dict[str, Any], payload: dict[str, Any] | None = None) -> None:
        """Send a success."""
        await self.socket.send(success(request, payload))

    async def refuse(self, request: dict[str, Any], status: int, error: str, message: str = "") -> None:
        """Send an error."""
        await self.socket.send(refusal(request, status, error, message))

    async def send(self, frame: str | bytes) -> None:
        """Send any frame."""
        await self.socket.send(frame)

    def freeze(self) -> None:
        """Stop reading, as the far side of a half-open TCP connection does: no answers, no pongs."""
        self.socket.transport.pause_reading()

    def cut(self) -> None:
        """Cut the connection without a closing handshake."""
        self.socket.transport.abort()

    @property
    def pings(self) -> int:
        """How many pings came."""
        assert isinstance(self.socket, WatchedConnection)
        return self.socket.pings

    @property
    def closed_with(self) -> int | None:
        """The code with which it was closed; 1006 for one that was cut, ``None`` while it is open."""
        return self.socket.close_code

    @property
    def ops(self) -> list[str]:
        """The operations that came, in order."""
        return [request["op"] for request in self.requests]


class ScriptedPeer:
    """A server whose behaviour is ``script``: operation → what is done with such a request.

    An operation that the script does not have is answered with a success; the hello, where the script has none,
    as a peer named ``login`` with ``capabilities`` does. Use it as an asynchronous context manager.
    """

    def __init__(
        self,
        login: str = "server2",
        script: dict[str, Behaviour] | None = None,
        *,
        capabilities: tuple[str, ...] = ("connection-pool",),
        tls: ssl.SSLContext | None = None,
        port: int = 0,
    ) -> None:
        self.login = login
        self.script: dict[str, Behaviour] = script or {}
        self.capabilities = capabilities
        self.connections: list[PeerConnection] = []
        self.port = port
        self._tls = tls
        self._server: Server | None = None
        self._changed = asyncio.Condition()

    async def __aenter__(self) -> ScriptedPeer:
        await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"{'wss' if self._tls else 'ws'}://127.0.0.1:{self.port}/ws"

    async def listen(self) -> None:
        """Listen, on the port of before if it has listened already."""
        self._server = await serve(
            self._serve,
            "127.0.0.1",
            self.port,
            ssl=self._tls,
            ping_interval=None,
            close_timeout=CLOSE_SECONDS,
            max_size=2**24,
            create_connection=WatchedConnection,
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Cut all connections and stop listening."""
        server, self._server = self._server, None
        if server is not None:
            for connection in self.connections:
                connection.cut()
            server.close()
            await server.wait_closed()

    @property
    def live(self) -> list[PeerConnection]:
        """The connections that are open, oldest first."""
        return [connection for connection in self.connections if connection.closed_with is None]

    @property
    def requests(self) -> list[dict[str, Any]]:
        """All requests but the hellos, of all connections."""
        return [r for connection in self.connections for r in connection.requests if r["op"] != "ServerHello"]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so; it is looked at whenever anything happens here, and now and then besides."""

        async def wait() -> None:
            while not condition():
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.02), self._changed:
                        await self._changed.wait()

        async with asyncio.timeout(PATIENCE):
            await wait()

    async def until_connected(self, count: int = 1) -> PeerConnection:
        """Wait until so many connections have come and said hello; return the last of them."""
        await self.until(lambda: len([c for c in self.connections if c.requests]) >= count)
        return self.connections[-1]

    async def until_asked(self, count: int) -> list[dict[str, Any]]:
        """Wait until so many requests have come in all, hellos not counted, and return them."""
        await self.until(lambda: len(self.requests) >= count)
        return self.requests

    async def _serve(self, socket: ServerConnection) -> None:
        connection = PeerConnection(socket, self)
        self.connections.append(connection)
        await self._tell()
        try:
            async for frame in socket:
                request = orjson.loads(frame)
                connection.requests.append(request)
                await self._tell()
                behaviour = self.script.get(request["op"], _hello if request["op"] == "ServerHello" else _answer)
                await behaviour(connection, request)
        except ConnectionClosed:
            pass
        finally:
            await self._tell()

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()


async def _hello(connection: PeerConnection, request: dict[str, Any]) -> None:
    peer = connection.peer
    await connection.answer(
        request,
        {
            "accepted": True,
            "serverLogin": peer.login,
            "protocolVersion": 1,
            "capabilities": list(peer.capabilities),
        },
    )


async def _answer(connection: PeerConnection, request: dict[str, Any]) -> None:
    await connection.answer(request)


async def never(connection: PeerConnection, request: dict[str, Any]) -> None:
    """Do not answer."""


class Holder:
    """A behaviour that keeps requests until the test lets them be answered."""

    def __init__(self) -> None:
        self.held: list[tuple[PeerConnection, dict[str, Any]]] = []

    async def __call__(self, connection: PeerConnection, request: dict[str, Any]) -> None:
        self.held.append((connection, request))

    async def answer(self, payload: dict[str, Any] | None = None) -> dict[str, Any]:
        """Answer the oldest, and return it."""
        connection, request = self.held.pop(0)
        await connection.answer(request, payload)
        return request
