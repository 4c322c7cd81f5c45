"""What a socket meets first: a request for a page is answered here, any other is the WebSocket's.

The library that speaks WebSocket would answer plain requests too, but of each version other ones: 15.0.1 closes the
connection without a word on anything but GET.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from websockets.protocol import CONNECTING

from shine_node.api.guarded import GuardedConnection
from shine_node.api.http_request import Refused, Request, RequestLine
from shine_node.api.pages import PATH, Answer, PageSet

__all__ = ["Front"]

MOST_UNHEARD_BYTES = 262144
"""What may come after the answer, a body that nobody has asked for: less would hide the answer from who sends one."""


class Front(asyncio.Protocol):
    """Reads the request of a socket, and answers it or hands all over to the WebSocket.

    Whatever is not a WebSocket when its time is over is cut, however far it has come: one that says nothing or too
    little, that does not read its answer, or does not go.

    Args:
        websocket: what a socket is handed over to that asks for ``PATH``.
        pages: what is answered to all others.
        now_ms: the clock, Unix milliseconds.
        seconds: how long it may take until there is a WebSocket, or the answer was read.

    Attributes:
        when_lost: called at the end of the socket, whoever has it then.
    """

    when_lost: Callable[[], None]

    def __init__(
        self, websocket: GuardedConnection, *, pages: PageSet, now_ms: Callable[[], int], seconds: float
    ) -> None:
        self.websocket = websocket
        self.when_lost = lambda: None
        self._pages = pages
        self._now_ms = now_ms
        self._seconds = seconds
        self._transport: asyncio.Transport
        self._limit: asyncio.TimerHandle
        self._come = bytearray()
        self._line: RequestLine | None = None
        self._answered = False
        self._unheard = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for the request."""
        self._transport = cast("asyncio.Transport", transport)
        self._limit = asyncio.get_running_loop().call_later(self._seconds, self._cut)

    def data_received(self, data: bytes) -> None:
        """Take bytes from the socket."""
        if self._answered:
            self._unheard += len(data)
            if self._unheard > MOST_UNHEARD_BYTES:
                self.abort()
            return
        self._come += data
        try:
            request = self._read()
        except Refused as refusal:
            self._answer(Answer.refusal(refusal.status, refusal.text))
        else:
            if request is not None:
                self._answer(self._pages.answer(request))

    def connection_lost(self, exc: Exception | None) -> None:
        """Take note of the end."""
        self._limit.cancel()
        self.when_lost()

    def abort(self) -> None:
        """Close the socket at once, whoever has it."""
        self._transport.abort()

    def _read(self) -> Request | None:
        """Return the request when it is complete, unless it is the WebSocket's, which gets it then."""
        if self._line is None:
            self._line = RequestLine.read(self._come)
        if self._line is None:
            return None
        if self._line.path == PATH and self._line.method == "GET" and self._line.version == (1, 1):
            self._hand_over()
            return None
        return Request.read(self._line, self._come)

    def _hand_over(self) -> None:
        self.websocket.when_lost = self._lost_by_websocket
        self._transport.set_protocol(self.websocket)
        self.websocket.connection_made(self._transport)
        come, self._come = bytes(self._come), bytearray()
        self.websocket.data_received(come)

    def _lost_by_websocket(self) -> None:
        self._limit.cancel()
        self.when_lost()

    def _answer(self, answer: Answer) -> None:
        self._answered = True
        self._come.clear()
        self._transport.write(answer.encode(self._now_ms()))
        # The other side is to close: what it has yet to read can be lost when this one does, either because of what it
        # still sends, or because the end of TLS is waited for a short time only. It knows the answer's length.
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def _cut(self) -> None:
        if self.websocket.state is CONNECTING:
            self.abort()
