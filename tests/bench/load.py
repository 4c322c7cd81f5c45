"""Load: pre-signed pairs sent over some connections with a window of requests under way on each."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson
from websockets.asyncio.client import ClientConnection, connect

from shine_node.client.identity import Identity
from shine_node.client.messages import make_message
from shine_node.clock import SystemClock
from shine_node.protocol.envelope import encode_request
from tests.bench.measure import percentile

__all__ = ["Asking", "Outcome", "drive", "sign_pairs"]

BODY = "Will you be there at seven? I bring the maps, you bring the lamp, and we meet at the old bridge."
OPEN_SECONDS = 30.0
DRIVE_SECONDS = 300.0


class Outcome(NamedTuple):
    """What a run of the load came to; latencies in seconds, from the sending of a request to its answer."""

    per_second: float
    p50: float
    p99: float
    load_busy: float
    """The share of its core that the load itself used: near 1, it is the load that is measured."""


class Asking:
    """Requests on a bare connection, one at a time."""

    def __init__(self, link: ClientConnection) -> None:
        self._link = link

    async def ask(self, op: str, payload: dict[str, object]) -> dict[str, Any]:
        """Make a request that succeeds, and return the payload of its answer."""
        await self._link.send(encode_request(op, "r", payload))
        answer = orjson.loads(await self._link.recv())
        if answer["status"] != 200:
            raise AssertionError(f"{op} was answered {answer}")
        found: dict[str, Any] = answer["payload"]
        return found


def sign_pairs(author: Identity, to_login: str, count: int) -> list[bytes]:
    """Return requests to send, with ``requestId`` from 0 on; signed now, sent later."""
    clock = SystemClock()
    return [
        encode_request(
            "SendMessagePair", str(number), make_message(author, to_login, BODY, time_ms=clock.now_ms()).payload
        ).encode()
        for number in range(count)
    ]


async def drive(url: str, frames: Sequence[bytes], *, connections: int, window: int, state: str) -> Outcome:
    """Send all requests and check that each is answered with the delivery state.

    Args:
        frames: of ``sign_pairs``.
        connections: over how many connections they are spread.
        window: how many are under way on each at once; 1 is one at a time.
        state: the ``deliveryState`` that every answer must have.

    Raises:
        AssertionError: an answer was another one.
    """
    links = [
        await connect(url, proxy=None, compression=None, open_timeout=OPEN_SECONDS, ping_interval=None, max_queue=None)
        for _ in range(connections)
    ]
    times: list[float] = []
    gc.collect()
    gc.disable()
    try:
        begin, busy = time.perf_counter(), time.process_time()
        await asyncio.wait_for(
            asyncio.gather(
                *(
                    _drive_one(link, frames, first, connections, window, state, times)
                    for first, link in enumerate(links)
                )
            ),
            DRIVE_SECONDS,
        )
        elapsed, busy = time.perf_counter() - begin, time.process_time() - busy
    finally:
        gc.enable()
        for link in links:
            await link.close()
    return Outcome(len(frames) / elapsed, percentile(times, 0.50), percentile(times, 0.99), busy / elapsed)


async def _drive_one(
    link: ClientConnection,
    frames: Sequence[bytes],
    first: int,
    step: int,
    window: int,
    state: str,
    times: list[float],
) -> None:
    """Send every ``step``-th request from ``first`` on; a new one goes out as each answer comes in."""
    sent: dict[str, float] = {}
    numbers = iter(range(first, len(frames), step))

    async def send_next() -> None:
        number = next(numbers, None)
        if number is not None:
            sent[str(number)] = time.perf_counter()
            await link.send(frames[number], text=True)

    for _ in range(window):
        await send_next()
    while sent:
        answer = orjson.loads(await link.recv(decode=False))
        times.append(time.perf_counter() - sent.pop(answer["requestId"]))
        if answer["status"] != 200 or answer["payload"]["deliveryState"] != state:
            raise AssertionError(f"expected {state}, the answer was {answer}")
        await send_next()
