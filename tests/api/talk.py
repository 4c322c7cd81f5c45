"""Raw conversations over real sockets, and nodes for one story or for a whole file of cases."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from shine_node.clock import Clock
from tests.support.nodes import PATIENCE, LocalServer, eventually

__all__ = ["LoopThread", "Silent", "Talk", "asked", "loop_thread", "node"]

T = TypeVar("T")


def asked(op: str, payload: Mapping[str, object] | None = None, request_id: str | None = "r") -> str:
    """Return the frame of a request."""
    return orjson.dumps({"op": op, "requestId": request_id, "payload": payload or {}}).decode()


class Talk:
    """A client that can say anything, and sees everything that it is told; made by ``open``."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    @classmethod
    async def open(cls, url: str, *, headers: Mapping[str, str] | None = None, **options: Any) -> Self:
        """Connect; ``options`` are those of ``websockets``."""
        return cls(
            await connect(
                url,
                proxy=None,
                compression=None,
                open_timeout=PATIENCE,
                close_timeout=5,
                ping_interval=None,
                additional_headers=headers or {},
                **({"max_size": 2**26} | options),
            )
        )

    async def say(self, frame: str | bytes, *, text: bool | None = None) -> None:
        """Send a frame: a text for a ``str``, a binary one for ``bytes``, unless ``text`` says otherwise."""
        await asyncio.wait_for(self.socket.send(frame, text=text), PATIENCE)

    async def hear(self) -> dict[str, Any]:
        """Return the next frame, parsed."""
        answer = orjson.loads(await asyncio.wait_for(self.socket.recv(), PATIENCE))
        assert isinstance(answer, dict)
        return answer

    async def ask(self, op: str, payload: Mapping[str, object] | None = None) -> dict[str, Any]:
        """Make one request and return its answer as it came."""
        await self.say(asked(op, payload))
        return await self.hear()

    async def succeed(self, op: str, payload: Mapping[str, object] | None = None) -> dict[str, Any]:
        """Make one request that succeeds, and return the payload of its answer."""
        answer = await self.ask(op, payload)
        assert (answer["status"], answer["ok"]) == (200, True), answer
        assert isinstance(answer["payload"], dict)
        return answer["payload"]

    async def refused(self, op: str, payload: Mapping[str, object] | None = None) -> tuple[int, str]:
        """Make one request that is refused, and return the status and the code."""
        answer = await self.ask(op, payload)
        assert answer["ok"] is False, answer
        assert answer["message"], answer
        return answer["status"], answer["error"]

    async def end(self) -> int | None:
        """Wait until the server ends the connection, whatever it says before, and return the code."""
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    await self.socket.recv()
        except ConnectionClosed:
            return self.socket.close_code

    def stop_reading(self) -> None:
        """Leave what the server sends in the buffers of the system."""
        self.socket.transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        self.socket.transport.resume_reading()

    def leave(self) -> None:
        """Go without a word, as when the power fails."""
        self.socket.transport.abort()

    async def close(self) -> None:
        """Say good-bye."""
        await self.socket.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Silent:
    """Sockets on which nothing is said, while a block lasts."""

    def __init__(self, address: tuple[str, int], number: int) -> None:
        self._address = address
        self._number = number
        self.readers: list[asyncio.StreamReader] = []
        self.writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Self:
        opened = await asyncio.gather(*(asyncio.open_connection(*self._address) for _ in range(self._number)))
        self.readers, self.writers = [reader for reader, _ in opened], [writer for _, writer in opened]
        return self

    async def __aexit__(self, *problem: object) -> None:
        self.leave()

    def leave(self) -> None:
        for writer in self.writers:
            writer.transport.abort()

    @property
    def closed(self) -> int:
        """How many of them the server has closed."""
        return sum(reader.at_eof() or reader.exception() is not None for reader in self.readers)

    async def until_closed(self, number: int) -> None:
        async def so() -> bool:
            return self.closed >= number

        await eventually(so)
        assert self.closed == number


@asynccontextmanager
async def node(
    folder: Path, *, login: str = "server1", clock: Clock | None = None, **sections: Any
) -> AsyncIterator[LocalServer]:
    """Run a node of this process while a story lasts; ``sections`` as for ``node_settings``."""
    server = LocalServer(login, folder, clock=clock, **({"storage": {"mapSizeMiB": 16}} | sections))
    try:
        await server.start()
        yield server
    finally:
        await server.discard()


class LoopThread:
    """An event loop in a thread of its own, for what outlives one test."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="loop of a test")
        self._thread.start()

    def run(self, story: Coroutine[Any, Any, T], *, timeout: float = 2 * PATIENCE) -> T:
        """Run a story there, with a bound, and return its result."""
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(story, timeout), self._loop).result()

    def close(self) -> None:
        """End the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextmanager
def loop_thread() -> Iterator[LoopThread]:
    """Have an event loop for the length of a block."""
    loop = LoopThread()
    try:
        yield loop
    finally:
        loop.close()
