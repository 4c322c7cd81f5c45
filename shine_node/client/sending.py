"""Bringing a signed pair to a server of its sender, and seeing it through: the same bytes again do no harm (§5.2)."""

from __future__ import annotations

from collections.abc import Sequence

from shine_node.client.connection import ClientError, RequestRefused
from shine_node.client.history import BadAnswer, read_state
from shine_node.client.messages import SignedPair
from shine_node.client.online import connect_first, is_passing
from shine_node.clock import Clock
from shine_node.protocol.access import AccessServer
from shine_node.protocol.errors import Refusal

__all__ = ["ACCEPTED", "DELIVERED", "FAILED", "await_delivery", "submit"]

ACCEPTED, DELIVERED, FAILED = "accepted", "delivered", "failed"
PAUSES_SECONDS = (0.5, 1.0, 2.0, 5.0)
"""Between tries; the last one from then on."""
LEAST_REQUEST_SECONDS = 1.0
MOST_REQUEST_SECONDS = 30.0


async def submit(servers: Sequence[AccessServer], pair: SignedPair, *, clock: Clock, limit_seconds: float) -> str:
    """Have a pair accepted by one of its sender's servers, and return the delivery state that it answers.

    Where a server cannot be reached, loses the connection or is busy, the next one is tried, over and over.

    Args:
        servers: the sender's, at least one; the first is tried first.
        limit_seconds: no try begins later than that.

    Raises:
        RequestRefused: a server has refused it for good, or all are busy; nothing was stored.
        ClientError: there was no answer in time; the pair may have been accepted.
    """
    deadline = clock.monotonic() + limit_seconds
    tries = 0
    while True:
        try:
            return await _submit_once(servers, pair, deadline - clock.monotonic())
        except ClientError as problem:
            pause = max(_asked_pause(problem), _pause(tries))
            left_this_one = isinstance(problem, RequestRefused) and problem.code == "NOT_ACCESS_SERVER"
            if left_this_one and len(servers) > 1:
                servers, pause = servers[1:], 0.0
            elif is_passing(problem):
                servers = [*servers[1:], servers[0]]
            else:
                raise
            if clock.monotonic() + pause >= deadline:
                raise
        tries += 1
        await clock.sleep(pause)


async def await_delivery(
    servers: Sequence[AccessServer], pair: SignedPair, *, clock: Clock, limit_seconds: float
) -> str:
    """Wait until a pair is delivered or has failed, and return the last state that is known; asked for again and again.

    Args:
        limit_seconds: after which it is returned as it is, ``accepted``.

    Raises:
        RequestRefused: a server refuses it now: a later revision is stored, say.
        ClientError: as ``submit``, if there was no answer at all.
    """
    deadline = clock.monotonic() + limit_seconds
    tries = 0
    state = await submit(servers, pair, clock=clock, limit_seconds=limit_seconds)
    while state == ACCEPTED:
        pause = min(_pause(tries), deadline - clock.monotonic())
        if pause <= 0:
            break
        await clock.sleep(pause)
        tries += 1
        try:
            state = await _submit_once(servers, pair, MOST_REQUEST_SECONDS)
        except ClientError as problem:
            if not is_passing(problem):
                raise
    return state


async def _submit_once(servers: Sequence[AccessServer], pair: SignedPair, seconds: float) -> str:
    async with connect_first(servers) as (connection, _):
        seconds = min(max(seconds, LEAST_REQUEST_SECONDS), MOST_REQUEST_SECONDS)
        answer = await connection.request("SendMessagePair", pair.payload, timeout=seconds)
        try:
            return read_state(answer)
        except Refusal as problem:
            raise BadAnswer(problem.detail) from None


def _pause(tries: int) -> float:
    return PAUSES_SECONDS[min(tries, len(PAUSES_SECONDS) - 1)]


def _asked_pause(problem: ClientError) -> float:
    """Return the seconds that a busy server asks for, within reason."""
    asked = problem.payload.get("retryAfterMs") if isinstance(problem, RequestRefused) else None
    return min(asked / 1000, MOST_REQUEST_SECONDS) if isinstance(asked, int | float) else 0.0
