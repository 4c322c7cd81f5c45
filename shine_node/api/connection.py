"""One WebSocket connection: frames in, answers out, with bounds on what is under way (PROTOCOL.md §2)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, Protocol

from websockets.exceptions import ConnectionClosed

from shine_node.api.limits import LARGE_FRAME, Share, TokenBucket, decoding_cost
from shine_node.api.outbound import Outbound, Writer
from shine_node.clock import Clock
from shine_node.config import LimitsConfig
from shine_node.protocol.envelope import (
    BadEnvelope,
    Request,
    decode_request,
    encode_answer,
    encode_refusal,
)
from shine_node.protocol.errors import InternalError, NotAuthenticated, RateLimited, Refusal
from shine_node.protocol.glimpse import glimpse
from shine_node.protocol.hello import Hello
from shine_node.protocol.sessions import AuthChallenge, SessionChallenge

__all__ = ["Connection", "Handler", "LiveSession", "WebSocket"]

log = logging.getLogger(__name__)

MAX_REQUESTS_UNDER_WAY = 256
MAX_BYTES_UNDER_WAY = 4 * 2**20
MAX_OUTBOUND_BYTES = 4 * 2**20
LONGEST_PAUSE_SECONDS = 1.0
"""A connection that has ended meanwhile is noticed after so long."""
UNSUPPORTED_DATA = 1003


class WebSocket(Writer, Protocol):
    """What a connection needs of a WebSocket."""

    async def recv(self) -> str | bytes:
        """Return the next message: a text frame as ``str``, a binary one as ``bytes``."""


class LiveSession(NamedTuple):
    """The session that a connection has proven; the login in lower case."""

    login: str
    session_id: str


Handler = Callable[["Connection", dict[str, Any]], Awaitable[Mapping[str, object]]]
"""Takes the payload of a request and returns the payload of its answer, or raises a ``Refusal``."""


class Connection:
    """One client or peer. Requests are worked on side by side; answers leave in the order in which they are ready.

    Reading stops while ``MAX_REQUESTS_UNDER_WAY`` requests, or ``MAX_BYTES_UNDER_WAY`` of them, are not answered: what
    then waits is in the other side's buffers. So it is with one who does not heed refusals: no more is refused than
    would be let through, and meanwhile nothing is read.

    Args:
        handlers: operation → handler.
        requests_per_second: ``limits.requestsPerSecond``; a large request counts as several.
        share: what other connections of the address take their requests from too.
        address: the other side's address, for the log.
        max_outbound_bytes: ``limits.maxOutboundBytes``.
        user_agent: what the handshake says of the client.
    """

    def __init__(
        self,
        websocket: WebSocket,
        *,
        handlers: Mapping[str, Handler],
        clock: Clock,
        requests_per_second: int,
        address: str,
        share: Share | None = None,
        max_outbound_bytes: int = MAX_OUTBOUND_BYTES,
        user_agent: str = "",
    ) -> None:
        self.address = address
        self.user_agent = user_agent
        self.hello: Hello | None = None
        self.auth_challenge: AuthChallenge | None = None
        self.session_challenge: SessionChallenge | None = None
        self.session: LiveSession | None = None
        """Given and taken by ``Live`` alone."""
        self.pages = asyncio.Lock()
        """Held while an answer of many entries is made: one at a time, so that few of them wait to be sent."""
        self.outbound = Outbound(websocket, max_bytes=max_outbound_bytes, address=address)
        self._websocket = websocket
        self._handlers = handlers
        self._clock = clock
        now = clock.monotonic()
        self._bucket = TokenBucket(requests_per_second, now)
        self._refusals = TokenBucket(requests_per_second, now)
        self._share = share or Share(TokenBucket(requests_per_second, now))
        self._shared = self._share.clients
        self._tasks: set[asyncio.Task[None]] = set()
        self._bytes_under_way = 0
        self._room = asyncio.Event()
        self._settling = False
        self._last_request: tuple[asyncio.Task[Any] | None, int, str] | None = None
        self._when_ended: list[Callable[[Connection], None]] = []

    def introduce(self, hello: Hello, requests_per_second: int) -> None:
        """Take note of the peer's ``ServerHello``; a second one replaces the first."""
        self.hello = hello
        self._bucket.change_rate(requests_per_second)
        self._refusals.change_rate(requests_per_second)
        self._shared = self._share.peers

    def change_limits(self, limits: LimitsConfig) -> None:
        """Go on with other limits; ``Share`` has those of its address."""
        rate = limits.requests_per_second if self.hello is None else limits.peer_requests_per_second
        self._bucket.change_rate(rate)
        self._refusals.change_rate(rate)
        self.outbound.max_bytes = limits.max_outbound_bytes

    def need_hello(self) -> Hello:
        """Return what the peer has said of itself.

        Raises:
            NotAuthenticated: nothing yet.
        """
        if self.hello is None:
            raise NotAuthenticated("this is for servers: send ServerHello first")
        return self.hello

    def need_session(self) -> LiveSession:
        """Return the session of this connection.

        Raises:
            NotAuthenticated: there is none.
        """
        if self.session is None:
            raise NotAuthenticated("this needs a session: CreateAuthSession or SessionLogin first")
        return self.session

    def end_after_answer(self, code: int, reason: str) -> None:
        """Close the connection once the request that is being worked on has been answered."""
        self._last_request = asyncio.current_task(), code, reason  # each request is worked on in a task of its own

    def call_when_ended(self, call: Callable[[Connection], None]) -> None:
        """Have something called once the connection has ended and no request of it is worked on any more."""
        self._when_ended.append(call)

    async def serve(self) -> None:
        """Work until the connection ends; requests under way are finished, their answers may be lost."""
        try:
            while True:
                frame = await self._websocket.recv()
                if self._settling or self.outbound.ended:
                    continue  # it was sent before its sender knew; the end of the connection tells it to send again
                if not isinstance(frame, str):
                    self.outbound.end(UNSUPPORTED_DATA, "text frames only")
                    continue
                too_many = self._over_rate(frame)
                self._start(frame, too_many)
                if too_many:
                    await self._slow_down(len(frame))
                while self._full:
                    self._room.clear()
                    await self._room.wait()
        except ConnectionClosed:
            pass  # by either side, in good order or not: there is nothing left to tell it
        finally:
            if self._tasks:
                await asyncio.wait(self._tasks)
            for call in self._when_ended:
                call(self)
            await self.outbound.finish()

    async def settle(self, seconds: float) -> None:
        """Take no more requests, and wait at most ``seconds`` until those under way are answered."""
        self._settling = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)

    def give_up(self) -> None:
        """End what is still under way; it is not answered."""
        for task in self._tasks:
            task.cancel()

    @property
    def _full(self) -> bool:
        return len(self._tasks) >= MAX_REQUESTS_UNDER_WAY or self._bytes_under_way >= MAX_BYTES_UNDER_WAY

    def _start(self, frame: str, too_many: RateLimited | None) -> None:
        answer = self._refuse(frame, too_many) if too_many else None
        size = len(frame if answer is None else answer)
        task = asyncio.get_running_loop().create_task(self._answer(frame if answer is None else "", answer))
        self._bytes_under_way += size
        self._tasks.add(task)

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            self._bytes_under_way -= size
            self._room.set()

        task.add_done_callback(done)

    async def _answer(self, frame: str, answer: str | None) -> None:
        await self.outbound.send(await self._work(frame) if answer is None else answer)
        if self._last_request is not None:
            task, code, reason = self._last_request
            if task is asyncio.current_task():
                self.outbound.end(code, reason)

    async def _work(self, frame: str) -> str:
        try:
            request = decode_request(frame, self._handlers)
        except BadEnvelope as bad:
            return encode_refusal(bad.op, bad.request_id, bad.refusal)
        try:
            payload = await self._handlers[request.op](self, request.payload)
            return encode_answer(request.op, request.request_id, payload)
        except Refusal as refusal:
            return encode_refusal(request.op, request.request_id, refusal)
        except Exception:
            return self._defect(request)

    def _refuse(self, frame: str, refusal: RateLimited) -> str:
        if len(frame) >= LARGE_FRAME or decoding_cost(frame):  # to decode it would cost what it may not have
            return encode_refusal(*glimpse(frame), refusal)
        try:
            request = decode_request(frame, self._handlers)
        except BadEnvelope as bad:
            return encode_refusal(bad.op, bad.request_id, refusal)
        return encode_refusal(request.op, request.request_id, refusal)

    def _over_rate(self, frame: str) -> RateLimited | None:
        now = self._clock.monotonic()
        heavy, buckets = self._share.heavy, [bucket for bucket in (self._bucket, self._shared) if bucket is not None]
        wait_ms = max(bucket.wait_ms(now) for bucket in buckets)
        wait_ms = wait_ms or (heavy.wait_ms(now) if len(frame) >= LARGE_FRAME else 0)
        if not wait_ms:
            cost = decoding_cost(frame)
            wait_ms = heavy.take(now, cost) if cost else 0
            if not wait_ms:
                for bucket in buckets:
                    bucket.take(now, 1 + len(frame) // LARGE_FRAME)
        if not wait_ms:
            return None
        return RateLimited("too many requests, or too large ones: repeat this one later", {"retryAfterMs": wait_ms})

    async def _slow_down(self, size: int) -> None:
        """Read on later, where more has been refused than would be let through."""
        buckets = [bucket for bucket in (self._refusals, self._share.refusals) if bucket is not None]
        wait_ms = max(bucket.wait_ms(self._clock.monotonic()) for bucket in buckets)
        if wait_ms:
            await self._clock.sleep(min(wait_ms / 1000, LONGEST_PAUSE_SECONDS))
        for bucket in buckets:
            bucket.take(self._clock.monotonic(), 1 + size // LARGE_FRAME)

    def _defect(self, request: Request) -> str:
        log.exception("a defect in %s", request.op)
        return encode_refusal(request.op, request.request_id, InternalError("the server could not do this"))
