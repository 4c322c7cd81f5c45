"""One WSS to one peer: opened, introduced, kept alive, lost and opened again (PROTOCOL.md §7; seed 003)."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any

from websockets.asyncio.server import broadcast
from websockets.exceptions import ConnectionClosed
from websockets.protocol import State

from shine_node.clock import Clock
from shine_node.peers.alarm import Alarm
from shine_node.peers.answers import BinaryFrame, next_answer
from shine_node.peers.backoff import DOUBT_SECONDS, PAUSE_STEPS, pause_seconds
from shine_node.peers.dial import Dialer, DialFailed
from shine_node.peers.exchange import Exchange
from shine_node.peers.guarded import GuardedConnection
from shine_node.peers.introduction import HelloFailed, introduce
from shine_node.peers.outage import Outage
from shine_node.peers.priorities import Priority
from shine_node.peers.queue import LinkRequest
from shine_node.peers.settings import PoolSettings
from shine_node.peers.snapshot import LinkState, PeerSnapshot, printable
from shine_node.peers.vitals import Vitals
from shine_node.peers.waiting import within
from shine_node.protocol.errors import LinkDown, LinkLost
from shine_node.protocol.hello import CAPABILITIES, Hello

__all__ = ["Link"]

NORMAL_CLOSURE, GOING_AWAY, UNSUPPORTED_DATA = 1000, 1001, 1003

_log = logging.getLogger(__name__)


class Link:
    """The link to one server under one URL; it lives from ``start`` to ``stop``.

    Args:
        server_login: the peer, as it is spelled where it is known.
        url: where it is.
        permanent: kept open, or opened on first use and closed when idle.
        own_login: what the hello says.
        settings: bounds and times.
        clock: measures them.
        dialer: opens connections.
        random: 0 … 1, for the pauses.
        on_connected: told when the hello was answered and requests can go.
        not_before: monotonic seconds; it is not opened earlier.
    """

    def __init__(
        self,
        *,
        server_login: str,
        url: str,
        permanent: bool,
        own_login: str,
        settings: PoolSettings,
        clock: Clock,
        dialer: Dialer,
        random: Callable[[], float],
        on_connected: Callable[[Link], None],
        not_before: float = -math.inf,
    ) -> None:
        self.server_login = server_login
        self.url = url
        self.permanent = permanent
        self.state = LinkState.IDLE
        self._own_login = own_login
        self._settings = settings
        self._clock = clock
        self._dialer = dialer
        self._random = random
        self._on_connected = on_connected
        self._not_before = not_before
        self._believes_again_at = -math.inf
        self._alarm = Alarm(clock)
        self._exchange = Exchange(
            server_login,
            max_waiting=settings.max_queue_per_peer,
            request_seconds=settings.request_timeout_seconds,
            on_deadline=self._alarm.wake_by,
        )
        self._connection: GuardedConnection | None = None
        self._hello: Hello | None = None
        self._reason = ""
        self._outage = Outage()
        self._retired = False
        self._failures = 0
        self._wanted = asyncio.Event()
        self._pause_over = asyncio.Event()
        self.vitals = Vitals(clock)
        self._ping: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin its life."""
        self._spawn(self._run(), "run")
        self._spawn(self._keep_time(), "time")

    def stop(self, reason: str, *, abruptly: bool = False) -> None:
        """End its life: fail its requests and let ``wait_stopped`` see the connection closed.

        Requests fail with ``LinkLost``, or with ``LinkDown`` where there was no connection yet.

        Args:
            reason: what they are told.
            abruptly: without a closing handshake, which a peer may draw out.
        """
        error = LinkLost if self.state is LinkState.CONNECTED else LinkDown
        self.state = LinkState.CLOSED
        self._reason = reason
        self._exchange.disconnect(error, reason)
        if abruptly and self._connection is not None:
            self._connection.transport.abort()
        for task in self._tasks:
            task.cancel()

    async def wait_stopped(self) -> None:
        """Wait until all of it has ended; bounded by the closing handshake."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    @property
    def busy(self) -> bool:
        """Whether a request waits or is under way."""
        return self._exchange.busy

    @property
    def waits_since(self) -> float | None:
        """Since when the peer has let this server wait for a connection or an answer, monotonic; ``None`` if not."""
        if self.state is LinkState.CONNECTING:
            return self.vitals.tried_at
        in_flight = self._exchange.in_flight
        return in_flight.slot_deadline - self._settings.request_timeout_seconds if in_flight is not None else None

    async def request(
        self, op: str, payload: Mapping[str, object], priority: Priority, seconds: float
    ) -> dict[str, Any]:
        """Ask the peer, and return the payload of its success; see ``Pool.request``.

        Raises:
            QueueFull, CallerTimeout, RequestTimeout, LinkLost, LinkDown, PeerRefused.
        """
        if self.state is LinkState.PAUSE or self.state is LinkState.CLOSED:
            self._exchange.failed += 1
            raise LinkDown(self.server_login, op, self._reason)
        now = self._clock.monotonic()
        request = LinkRequest(op, payload, priority, now + seconds, asyncio.get_running_loop().create_future())
        self._exchange.submit(request, now)
        self.vitals.used_at = now
        if self.state is LinkState.IDLE:
            self._wanted.set()
        try:
            return await request.future
        except asyncio.CancelledError:
            self._exchange.abandon(request)
            raise

    def set_permanent(self, permanent: bool) -> None:
        """Keep it open from now on, or let it close when idle."""
        if permanent == self.permanent:
            return
        self.permanent = permanent
        self._wanted.set()
        self._alarm.wake_by(self._clock.monotonic())

    def end_pause(self) -> None:
        """Try again now, or soon: somebody who calls himself the peer has shown that he is there."""
        self._pause_over.set()

    def in_force(self, capability: str) -> bool:
        """Say whether a capability is in force on the connection that there is now."""
        return self.state is LinkState.CONNECTED and self._hello is not None and self._hello.in_force(capability)

    # --- the life of the connection ---

    async def _run(self) -> None:
        try:
            while True:
                await self._until_wanted()
                try:
                    await self._open()
                    await self._serve()
                except (DialFailed, HelloFailed, ConnectionClosed, BinaryFrame) as error:
                    await self._lose(error)
                except Exception as error:
                    _log.exception("link to %s: a defect of this server; the link starts anew", self.server_login)
                    await self._lose(error)
        finally:
            await self._hang_up(GOING_AWAY)

    async def _until_wanted(self) -> None:
        self.state = LinkState.IDLE
        while not (self.permanent or self._exchange.busy):
            self._wanted.clear()
            await self._wanted.wait()

    async def _open(self) -> None:
        clock, vitals = self._clock, self.vitals
        self.state = LinkState.CONNECTING
        self._retired = False
        vitals.tried_at = clock.monotonic()
        await clock.sleep(self._not_before - vitals.tried_at)
        vitals.tried_at = clock.monotonic()
        try:
            await within(clock, self._settings.connect_timeout_seconds, self._dial())
        except TimeoutError:
            raise DialFailed(f"no connection within {self._settings.connect_timeout_seconds:g} s") from None
        try:
            await within(clock, self._settings.request_timeout_seconds, self._introduce())
        except TimeoutError:
            raise HelloFailed(f"no answer to ServerHello in {self._settings.request_timeout_seconds:g} s") from None

    async def _dial(self) -> None:
        self._connection = await self._dialer.open(self.url)

    async def _introduce(self) -> None:
        connection = self._connection
        assert connection is not None  # noqa: S101 - dialled a moment ago
        self._hello = await introduce(
            connection, self._exchange.next_id(), own_login=self._own_login, expected_login=self.server_login
        )

    async def _serve(self) -> None:
        """Read answers until the connection ends; return only if it was closed because it was idle."""
        connection, clock, exchange, vitals = self._connection, self._clock, self._exchange, self.vitals
        assert connection is not None  # noqa: S101
        now = clock.monotonic()
        self.state = LinkState.CONNECTED
        self._failures = 0
        vitals.connected(now)
        exchange.connect(self._transmit, now)
        self._alarm.wake_by(now)
        older = "" if self._hello else ", an older peer"
        _log.log(self._outage.up(now), "link to %s (%s) is up%s", self.server_login, self.url, older)
        self._on_connected(self)
        try:
            while True:
                answer = await next_answer(connection)
                now = clock.monotonic()
                vitals.heard(now)
                if answer is not None and exchange.receive(answer, now):
                    vitals.used_at = now
                    if not self.permanent:
                        self._alarm.wake_by(now + self._settings.idle_close_seconds)
        except ConnectionClosed:
            if not self._retired:
                raise
            self._connection = None

    def _transmit(self, frame: str) -> None:
        """Write without waiting: what is in flight is one request, and what is not read is bounded."""
        connection = self._connection
        assert connection is not None  # noqa: S101
        if connection.state is not State.OPEN:
            connection.cut("the peer is closing the connection")
            return
        self.vitals.active_at = self._clock.monotonic()
        broadcast((connection,), frame)
        connection.check_unread()

    async def _lose(self, error: Exception) -> None:
        """Fail the requests, hang up, and rest."""
        was_up = self.state is LinkState.CONNECTED
        cut_because = self._connection.cut_because if self._connection is not None else ""
        reason = self._reason = printable(cut_because or str(error) or type(error).__name__)
        now = self._clock.monotonic()
        self.state = LinkState.PAUSE
        next_try_at = self.vitals.next_try_at = now + pause_seconds(self._failures, self._random)
        self._pause_over.clear()
        self._exchange.disconnect(LinkLost if was_up else LinkDown, reason)
        _log.log(self._outage.down(now), "link to %s (%s) is down: %s", self.server_login, self.url, reason)
        self._failures += 1
        await self._hang_up(UNSUPPORTED_DATA if isinstance(error, BinaryFrame) else NORMAL_CLOSURE)
        await self._rest(next_try_at)
        self.vitals.next_try_at = None

    async def _rest(self, next_try_at: float) -> None:
        """Wait for the end of the pause, or until the peer has arrived.

        Anybody can say hello in the peer's name, as often as he likes: it must not make this server knock as often. One
        hello is believed at once; after it, for a while, the first step of the pauses is kept all the same.
        """
        clock, tried_at = self._clock, self.vitals.tried_at or 0.0
        if not (at_once := clock.monotonic() >= self._believes_again_at):
            await clock.sleep(min(tried_at + PAUSE_STEPS[0], next_try_at) - clock.monotonic())
        with suppress(TimeoutError):
            await within(clock, next_try_at - clock.monotonic(), self._pause_over.wait())
            if at_once:
                self._believes_again_at = clock.monotonic() + DOUBT_SECONDS

    async def _hang_up(self, code: int) -> None:
        if self._connection is not None:
            await self._connection.close(code)
            self._connection = None  # not before: a close that is cancelled is begun anew by the end of the task

    # --- time ---

    async def _keep_time(self) -> None:
        while True:
            now = self._clock.monotonic()
            if self._exchange.expire(now):
                self._start_ping("no answer, and no pong")
            due = self._exchange.next_deadline()
            if self.state is LinkState.CONNECTED:
                due = min(due, self._tend(now))
            await self._alarm.wait(due)

    def _tend(self, now: float) -> float:
        """Ping or close the connection if that is due; return when to look again."""
        due = math.inf
        if not self.permanent:
            idle_at = self.vitals.used_at + self._settings.idle_close_seconds
            if idle_at > now:
                due = idle_at
            elif not self._exchange.busy:
                self._retire()
                return due
        if self._ping is None:
            ping_due = self.vitals.ping_due(self._settings.ping_idle_seconds)
            if ping_due <= now:
                self._start_ping("no pong")
                ping_due = now + self._settings.ping_idle_seconds
            due = min(due, ping_due)
        return due

    def _retire(self) -> None:
        connection = self._connection
        assert connection is not None  # noqa: S101 - the state says so
        self._exchange.detach()
        self.state = LinkState.IDLE
        self._retired = True
        self._spawn(connection.close(NORMAL_CLOSURE), "close")

    def _start_ping(self, loss: str) -> None:
        connection = self._connection
        if self._ping is None and connection is not None and self.state is LinkState.CONNECTED:
            self._ping = self._spawn(self._check_pong(connection, loss), "ping")

    async def _check_pong(self, connection: GuardedConnection, loss: str) -> None:
        self.vitals.pinged(self._clock.monotonic())
        try:
            await within(self._clock, self._settings.pong_timeout_seconds, _ping(connection))
            self.vitals.ponged_at = self._clock.monotonic()
        except TimeoutError:
            connection.cut(f"{loss} within {self._settings.pong_timeout_seconds:g} s")
        except ConnectionClosed:
            pass  # the reader has seen it too
        finally:
            self._ping = None
            self._alarm.wake_by(self._clock.monotonic())

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=f"link {self.server_login} {name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # --- what is known of it ---

    def snapshot(self) -> PeerSnapshot:
        """Return its state as plain data."""
        vitals, wall = self.vitals, self.vitals.wall
        waiting = self._exchange.queue.lengths()
        in_flight = self._exchange.in_flight
        return PeerSnapshot(
            server_login=self.server_login,
            url=self.url,
            state=self.state,
            permanent=self.permanent,
            capabilities=tuple(sorted(name for name in CAPABILITIES if self.in_force(name))),
            connected_at_ms=wall(vitals.connected_at),
            last_activity_ms=wall(vitals.active_at),
            last_ping_ms=wall(vitals.pinged_at),
            last_pong_ms=wall(vitals.ponged_at),
            next_try_ms=wall(vitals.next_try_at),
            reconnects=max(0, vitals.connects - 1),
            waiting_realtime=waiting[Priority.REALTIME],
            waiting_normal=waiting[Priority.NORMAL],
            waiting_bulk=waiting[Priority.BULK],
            in_flight=in_flight.op if in_flight is not None else None,
            succeeded=self._exchange.succeeded,
            failed=self._exchange.failed,
            timed_out=self._exchange.timed_out,
            last_error=self._exchange.last_error,
        )


async def _ping(connection: GuardedConnection) -> None:
    await (await connection.ping())
