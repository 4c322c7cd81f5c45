"""What leaves on one connection: answers, events, and its end; who reads too slowly is cut (PROTOCOL.md §8.2)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Coroutine, Iterator
from typing import Any, Protocol

from websockets.exceptions import ConnectionClosed

__all__ = ["Outbound", "Writer"]

log = logging.getLogger(__name__)

PARTING_SECONDS = 10
"""How long the other side may take to read that the connection ends; then its socket is closed."""
TRY_AGAIN_LATER = 1013
AT_A_STRETCH = 16
"""Events that are sent before others have their turn on the event loop."""


class Writer(Protocol):
    """What sending needs of a WebSocket."""

    async def send(self, message: str) -> None:
        """Send a text frame, waiting while the other side does not read."""

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Close; it waits while the other side does not read, however long."""

    @property
    def transport(self) -> asyncio.Transport:
        """The socket below."""


class Outbound:
    """Sends texts one at a time, so that what waits is counted here and does not hide in a buffer.

    Args:
        max_bytes: ``limits.maxOutboundBytes``; with more than that waiting, the next text cuts the connection.
        address: the other side's address, for the log.
    """

    def __init__(self, websocket: Writer, *, max_bytes: int, address: str) -> None:
        self.ended = False
        """Whether nothing is sent any more."""
        self._websocket = websocket
        self.max_bytes = max_bytes
        """In force now; what waits already may stay."""
        self._address = address
        self._waiting_bytes = 0
        self._turn = asyncio.Lock()
        self._events: deque[str] = deque()
        self._sending_events = False
        self._held = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def send(self, text: str) -> None:
        """Send an answer after those before it; it is lost if the connection ends first."""
        if self._may_wait(text):
            async with self._turn:
                await self._hand_over(text)

    def push(self, text: str) -> None:
        """Have an event sent after those before it, without waiting for it."""
        if self._may_wait(text):
            self._events.append(text)
            self._begin_events()

    @contextlib.contextmanager
    def events_held(self) -> Iterator[None]:
        """Keep events back while an answer is made that they may be newer than; they follow it."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
            self._begin_events()

    async def until_taken(self) -> None:
        """Wait until the other side has taken what is being sent to it; for answers so large that few may wait."""
        async with self._turn:
            pass

    def end(self, code: int, reason: str) -> None:
        """Close the connection at once; what is waiting is not sent any more. To end it twice does nothing."""
        if not self.ended:
            self.ended = True
            self._spawn(self._part(code, reason))

    async def finish(self) -> None:
        """Take note that the connection has ended, and wait for what was under way on it."""
        self.ended = True
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _may_wait(self, text: str) -> bool:
        """Count one more text that waits, or cut a side that has let too much wait already."""
        if self._waiting_bytes > self.max_bytes:
            self.end(TRY_AGAIN_LATER, "you read too slowly: come again, and ask for what you missed")
        if self.ended:
            return False
        self._waiting_bytes += len(text)
        return True

    def _begin_events(self) -> None:
        if self._events and not self._held and not self._sending_events:
            self._sending_events = True
            self._spawn(self._send_events())

    async def _send_events(self) -> None:
        sent = 0
        while self._events and not self._held:
            async with self._turn:
                await self._hand_over(self._events.popleft())
            sent += 1
            if sent % AT_A_STRETCH == 0:
                await asyncio.sleep(0)  # a side that reads at once would never let anybody else have a turn
        self._sending_events = False

    async def _hand_over(self, text: str) -> None:
        self._waiting_bytes -= len(text)
        if self.ended:
            return
        try:
            await self._websocket.send(text)
        except ConnectionClosed:
            log.debug("%s left before its answer", self._address)

    async def _part(self, code: int, reason: str) -> None:
        try:
            async with asyncio.timeout(PARTING_SECONDS):
                await self._websocket.close(code, reason)
        except TimeoutError:
            self._websocket.transport.abort()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
