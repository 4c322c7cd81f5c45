"""TCP servers below the level of WebSockets: what a link meets that is no peer at all."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Iterator

from tests.support.scripted_peer import PATIENCE


class RawServer:
    """A TCP server below the level of WebSockets: what it does with a connection is a function."""

    def __init__(self) -> None:
        self.accepted = 0
        self.ended = 0
        self.changed = asyncio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


@contextlib.asynccontextmanager
async def raw_server(reply: bytes | None) -> AsyncIterator[tuple[int, RawServer]]:
    """Serve a fixed reply and hang up; with ``None`` say nothing and wait for the other side to end it."""
    seen = RawServer()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.accepted += 1
        seen.changed.set()
        with contextlib.suppress(OSError):
            if reply is None:
                while await reader.read(65536):
                    pass
            else:
                await reader.read(65536)
                writer.write(reply)
                await writer.drain()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        seen.ended += 1
        seen.changed.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], seen
    finally:
        server.close()
        await server.wait_closed()
        async with asyncio.timeout(PATIENCE):
            await seen.until(lambda: seen.ended == seen.accepted)


@contextlib.asynccontextmanager
async def silent_port() -> AsyncIterator[int]:
    """Hold a port that swallows packets: its backlog is full, so connecting to it comes to nothing."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        while True:
            filler = stack.enter_context(socket.socket())
            filler.settimeout(0.2)
            try:
                filler.connect(address)
            except TimeoutError:
                break
        yield address[1]


@contextlib.contextmanager
def tarpit() -> Iterator[int]:
    """Hold a port where connections are made, and nothing is ever said."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(100)
        yield listener.getsockname()[1]
