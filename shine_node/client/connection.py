"""A client's connection to one server: pipelined requests, events in a bounded queue, a bound on every wait."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self

import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI

from shine_node.protocol.envelope import Answer, decode_answer, encode_request
from shine_node.protocol.errors import RETRYABLE_CODES, ShineError

__all__ = [
    "ClientError",
    "ConnectFailed",
    "Connection",
    "ConnectionLost",
    "Event",
    "RequestRefused",
    "RequestTimedOut",
]

MAX_FRAME_BYTES = 64 * 1024 * 1024
"""The greatest ``limits.maxFrameBytes`` that a server can have (§10)."""


class ClientError(ShineError):
    """A request, or an attempt to connect, that came to no success."""


class ConnectFailed(ClientError):
    """No connection came about: nobody listens, the address is wrong, or the server did not answer in time."""

    def __init__(self, url: str, detail: str) -> None:
        super().__init__(url, detail)
        self.url = url
        self.detail = detail

    def __str__(self) -> str:
        return f"cannot connect to {self.url}: {self.detail}"


class ConnectionLost(ClientError):
    """The connection ended; whether the server took the request is not known, and sending it again is safe (§5.2)."""


class RequestTimedOut(ClientError):
    """No answer came in time; whether the server took the request is not known."""


class RequestRefused(ClientError):
    """The server answered with an error.

    Args:
        status: the status of §2, 300–599.
        code: ``error`` of the answer.
        message: a sentence for a person.
        payload: the payload of the answer, for instance ``retryAfterMs``.
    """

    def __init__(self, op: str, status: int, code: str, message: str, payload: Mapping[str, Any]) -> None:
        super().__init__(op, status, code, message)
        self.op = op
        self.status = status
        self.code = code
        self.message = message
        self.payload = payload

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later (§2)."""
        return self.code in RETRYABLE_CODES

    def __str__(self) -> str:
        return " ".join(f"{self.op}: {self.status} {self.code}: {self.message}".splitlines())


class Event(NamedTuple):
    """Something that the server said unasked (§8.2)."""

    op: str
    event_id: str
    payload: dict[str, Any]


class Connection:
    """One open connection; made by ``open``, ended by ``close`` or by leaving ``async with``.

    Requests may be made from many tasks at once: they are pipelined and their answers matched by ``requestId``.
    """

    def __init__(self, socket: ClientConnection, *, max_pending: int, max_events: int) -> None:
        self.missed_events = 0
        """How many events were dropped, oldest first, because nobody took them in time."""
        self._socket = socket
        self._slots = asyncio.Semaphore(max_pending)
        self._pending: dict[str, asyncio.Future[Answer | None]] = {}
        self._last_id = 0
        self._events: deque[Event] = deque()
        self._max_events = max_events
        self._changed = asyncio.Event()
        self._loss: str | None = None
        self._reader = asyncio.create_task(self._read(), name="client-reader")

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        open_timeout: float = 15.0,
        close_timeout: float = 5.0,
        max_pending: int = 1024,
        max_events: int = 1024,
        tls: ssl.SSLContext | None = None,
    ) -> Self:
        """Connect to a server's ``/ws``.

        Args:
            url: ``ws://…`` or ``wss://…``.
            open_timeout: seconds for the whole handshake.
            close_timeout: seconds that ``close`` waits for the other side.
            max_pending: requests under way at once; further ones wait, within their own time-out.
            max_events: events kept for ``next_event``; beyond it the oldest are dropped and counted.
            tls: for ``wss://`` with an authority that the system does not know.

        Raises:
            ConnectFailed: with the reason.
        """
        options: dict[str, Any] = {} if tls is None else {"ssl": tls}
        try:
            socket = await connect(
                url,
                proxy=None,
                compression=None,
                open_timeout=open_timeout,
                close_timeout=close_timeout,
                max_size=MAX_FRAME_BYTES,
                **options,
            )
        except TimeoutError:
            raise ConnectFailed(url, f"no answer within {open_timeout:g} s") from None
        except (OSError, InvalidHandshake, InvalidURI, ValueError) as problem:
            raise ConnectFailed(url, str(problem)) from problem
        return cls(socket, max_pending=max_pending, max_events=max_events)

    @property
    def is_open(self) -> bool:
        """Whether requests can still be made."""
        return self._loss is None

    @property
    def waiting_events(self) -> int:
        """How many events have come that nobody has taken."""
        return len(self._events)

    async def request(self, op: str, payload: Mapping[str, object], *, timeout: float = 30.0) -> dict[str, Any]:
        """Make a request and return the payload of its success.

        Args:
            timeout: seconds, waiting for a free slot included.

        Raises:
            RequestRefused: the server answered with an error.
            RequestTimedOut: no answer in time; a late one is dropped.
            ConnectionLost: the connection ended before the answer.
        """
        try:
            async with asyncio.timeout(timeout), self._slots:
                answer = await self._exchange(op, payload)
        except TimeoutError:
            raise RequestTimedOut(f"{op}: no answer within {timeout:g} s") from None
        if not answer.ok:
            raise RequestRefused(op, answer.status, answer.error, answer.message, answer.payload)
        return answer.payload

    async def next_event(self, *, timeout: float = 30.0) -> Event:
        """Return the next event, oldest first.

        Raises:
            RequestTimedOut: none came within ``timeout`` seconds.
            ConnectionLost: the connection ended and all its events have been taken.
        """
        try:
            async with asyncio.timeout(timeout):
                while not self._events:
                    if self._loss is not None:
                        raise ConnectionLost(self._loss)
                    self._changed.clear()
                    await self._changed.wait()
                return self._events.popleft()
        except TimeoutError:
            raise RequestTimedOut(f"no event within {timeout:g} s") from None

    async def close(self) -> None:
        """End the connection; requests still under way fail with ``ConnectionLost``. Closing twice is harmless."""
        await self._socket.close()
        await self._reader

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _exchange(self, op: str, payload: Mapping[str, object]) -> Answer:
        if self._loss is not None:
            raise ConnectionLost(self._loss)
        self._last_id += 1
        request_id = str(self._last_id)
        answered: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()
        self._pending[request_id] = answered
        try:
            await self._socket.send(encode_request(op, request_id, payload))
            answer = await answered
        except ConnectionClosed:
            answer = None
        finally:
            del self._pending[request_id]
        if answer is None:
            raise ConnectionLost(self._reason())
        return answer

    async def _read(self) -> None:
        try:
            while True:
                self._take(await self._socket.recv(decode=False))
        except ConnectionClosed:
            self._loss = self._reason()
        for answered in self._pending.values():
            _settle(answered, None)
        self._changed.set()

    def _take(self, frame: bytes) -> None:
        answer = decode_answer(frame)
        if answer is None:
            self._take_event(frame)
            return
        if answer.refuses_unread:
            for answered in self._pending.values():  # which one it is for is not known: each may be sent again (§5.2)
                _settle(answered, answer)
            return
        named = self._pending.get(answer.request_id or "")
        if named is not None:  # else late, or an answer to nothing of ours
            _settle(named, answer)

    def _take_event(self, frame: bytes) -> None:
        event = _decode_event(frame)
        if event is None:
            return
        if len(self._events) >= self._max_events:
            self._events.popleft()
            self.missed_events += 1
        self._events.append(event)
        self._changed.set()

    def _reason(self) -> str:
        code, reason = self._socket.close_code, self._socket.close_reason
        return f"the connection ended with {code}" + (f": {' '.join(reason.splitlines())}" if reason else "")


def _settle(answered: asyncio.Future[Answer | None], answer: Answer | None) -> None:
    if not answered.done():  # its caller may just have given up, and a second answer counts for nothing
        answered.set_result(answer)


def _decode_event(frame: bytes) -> Event | None:
    """Decode an event; ``None`` for a frame that holds none."""
    try:
        document = orjson.loads(frame)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(document, dict) or document.get("event") is not True:
        return None
    op, event_id, payload = document.get("op"), document.get("requestId"), document.get("payload")
    if not isinstance(op, str) or not isinstance(payload, dict):
        return None
    return Event(op, event_id if isinstance(event_id, str) else "", payload)
