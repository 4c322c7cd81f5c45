"""Bringing a message to a server of its sender, and seeing it through: the same bytes again do no harm (§5.2)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from shine_node.client.connection import ClientError, Connection, RequestRefused, RequestTimedOut
from shine_node.client.history import BadAnswer, read_state
from shine_node.client.messages import SignedPair
from shine_node.client.online import CONNECT_SECONDS, connect_first, is_passing
from shine_node.client.people import PersonError
from shine_node.clock import Clock
from shine_node.protocol.access import AccessServer
from shine_node.protocol.errors import Refusal

__all__ = ["ACCEPTED", "DELIVERED", "FAILED", "Outgoing", "await_delivery", "submit"]

ACCEPTED, DELIVERED, FAILED = "accepted", "delivered", "failed"
PAUSES_SECONDS = (0.5, 1.0, 2.0, 5.0)
"""Between tries; the last one from then on."""
LEAST_REQUEST_SECONDS = 1.0
MOST_REQUEST_SECONDS = 30.0
USUAL_ANSWER_SECONDS = 10.0
"""A server that tries the recipient's servers before it answers takes up to 8 s, unless it is told otherwise."""

Seal: TypeAlias = Callable[[Connection], Awaitable[SignedPair]]
"""Asks a server for what the sealing needs, and seals; may raise a ``PersonError``."""


class Outgoing:
    """A message on its way: sealed once, when a server has told for which key; from then on always the same bytes."""

    def __init__(self, seal: Seal, pair: SignedPair | None = None) -> None:
        self.pair = pair
        """``None`` until it is sealed: no server can have accepted it."""
        self._seal = seal

    async def sealed(self, connection: Connection, seconds: float) -> SignedPair:
        """Return the pair.

        Raises:
            PersonError: this server cannot tell for whom to seal it.
            ClientError: there was no answer, or none in time.
        """
        if self.pair is None:
            try:
                async with asyncio.timeout(seconds):
                    self.pair = await self._seal(connection)
            except TimeoutError:
                raise RequestTimedOut(f"the recipient's keys: no answer within {seconds:g} s") from None
        return self.pair


class _Way:
    """The servers that can still take a message, the next one first, and the time that is left for it."""

    def __init__(self, servers: Sequence[AccessServer], clock: Clock, limit_seconds: float) -> None:
        self.deadline = clock.monotonic() + limit_seconds
        self.problem: PersonError | None = None
        """What a server has said of the recipient: it ends the matter, unless another one knows better."""
        self._servers = list(servers)
        self._clock = clock
        self._untried = len(self._servers)
        self._at = self._servers[0]

    @property
    def left(self) -> float:
        return self.deadline - self._clock.monotonic()

    @property
    def share(self) -> float:
        """The seconds that one server may let the message wait, so that each has its turn."""
        return _bounded(self.left / max(self._untried, 1))

    async def bring(self, message: Outgoing) -> str:
        """Try the first server that answers once."""
        open_seconds = min(self.share, CONNECT_SECONDS)
        async with connect_first(self._servers, open_timeout=open_seconds) as (connection, self._at):
            pair = await message.sealed(connection, self.share)
            seconds = _bounded(max(self.share, min(self.left, USUAL_ANSWER_SECONDS)))
            answer = await connection.request("SendMessagePair", pair.payload, timeout=seconds)
            try:
                return read_state(answer)
            except Refusal as problem:
                raise BadAnswer(problem.detail) from None

    def failed(self, problem: ClientError | PersonError) -> bool:
        """Take the next server; say whether that one is to be tried without a pause.

        Raises:
            ClientError, PersonError: there is nothing more to try.
        """
        self._untried -= 1
        if isinstance(problem, PersonError):
            self.problem = problem
        elif self.problem is None and is_passing(problem):
            self._servers.remove(self._at)
            self._servers.append(self._at)
            return False
        elif self.problem is None and not _is_elsewhere(problem):
            raise problem
        # One that has said all that it knows is not asked again; of the others each is, once.
        self._servers.remove(self._at)
        if not self._servers:
            raise self.problem or problem
        self._at = self._servers[0]
        return True


async def submit(
    servers: Sequence[AccessServer], message: SignedPair | Outgoing, *, clock: Clock, limit_seconds: float
) -> str:
    """Have a message accepted by one of its sender's servers, and return the delivery state that it answers.

    Where a server cannot be reached, loses the connection or is busy, the next one is tried, over and over; one that
    does not know the recipient leaves that to the other.

    Args:
        servers: the sender's, at least one; the first is tried first.
        limit_seconds: no try begins later than that.

    Raises:
        PersonError: no server that answers can tell for whom to seal it; nothing was sent.
        RequestRefused: a server has refused it for good, or all are busy; nothing was stored.
        ClientError: there was no answer in time; once it is sealed, it may have been accepted.
    """
    return await _submit(_Way(servers, clock, limit_seconds), _outgoing(message), clock)


async def await_delivery(
    servers: Sequence[AccessServer], message: SignedPair | Outgoing, *, clock: Clock, limit_seconds: float
) -> str:
    """Wait until a message is delivered or has failed, and return the last state that is known, asked for repeatedly.

    Args:
        limit_seconds: after which it is returned as it is, ``accepted``.

    Raises:
        PersonError: as ``submit``.
        RequestRefused: a server refuses it now: a later revision is stored, say.
        ClientError: as ``submit``, if there was no answer at all.
    """
    way, outgoing, tries = _Way(servers, clock, limit_seconds), _outgoing(message), 0
    state = await _submit(way, outgoing, clock)
    while state == ACCEPTED:
        pause = min(_pause(tries), way.left)
        if pause <= 0:
            break
        await clock.sleep(pause)
        tries += 1
        try:
            state = await way.bring(outgoing)
        except ClientError as problem:
            way.failed(problem)
    return state


async def _submit(way: _Way, outgoing: Outgoing, clock: Clock) -> str:
    tries = 0
    while True:
        try:
            return await way.bring(outgoing)
        except (ClientError, PersonError) as problem:
            pause = 0.0 if way.failed(problem) else max(_asked_pause(problem), _pause(tries))
            if pause >= way.left:
                raise way.problem or problem from None
        tries += 1
        await clock.sleep(pause)


def _outgoing(message: SignedPair | Outgoing) -> Outgoing:
    if isinstance(message, Outgoing):
        return message

    async def seal(connection: Connection) -> SignedPair:
        return message

    return Outgoing(seal, message)


def _is_elsewhere(problem: ClientError) -> bool:
    return isinstance(problem, RequestRefused) and problem.code == "NOT_ACCESS_SERVER"


def _bounded(seconds: float) -> float:
    return min(max(seconds, LEAST_REQUEST_SECONDS), MOST_REQUEST_SECONDS)


def _pause(tries: int) -> float:
    return PAUSES_SECONDS[min(tries, len(PAUSES_SECONDS) - 1)]


def _asked_pause(problem: ClientError | PersonError) -> float:
    """Return the seconds that a busy server asks for, within reason."""
    asked = problem.payload.get("retryAfterMs") if isinstance(problem, RequestRefused) else None
    return min(asked / 1000, MOST_REQUEST_SECONDS) if isinstance(asked, int | float) else 0.0
