"""The latency of one who sends now and then: alone, beside a noisy client, a noisy peer, a recipient who hangs.

The server runs as a process of its own on one core with the limits that every node has. The noise comes from another
process, from an address of its own, by the connections that one address may have; it heeds no refusal. A recipient is
noisy whose server takes connections and answers nothing: each message to it is an attempt that hangs.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import orjson
import uvloop
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from shine_node.client.identity import Identity
from shine_node.protocol.access import AccessServer, record_payload
from shine_node.protocol.envelope import encode_request
from tests.bench.load import sign_pairs
from tests.bench.measure import Figure, cores, percentile, pin, print_figures
from tests.support.nodes import ServerProcess, now_ms, register

__all__ = ["main", "measure_noisy"]

QUIET, NOISY = "192.0.2.1", "198.51.100.7"
SAMPLES = 300
PAUSE_SECONDS = 0.02
WARM_SECONDS = 2.0
CONNECTIONS = 32
WINDOW = 32
PAIRS = 4_000
OPEN_SECONDS = 30.0
LIMITS = {"messagesPerMinutePerSender": 0}
"""That of one sender to one recipient would keep the noise from the store, and the quiet one is faster than people."""
MOST_TIMES = 8.0
"""How much longer the quiet one may wait, in the middle, beside noise that keeps the core busy."""

ALICE, BOB, CAROL, MALLORY = (Identity.generate(login) for login in ("alice", "bob", "carol", "mallory"))
HELLO = encode_request("ServerHello", "hello", {"serverLogin": "noisy", "protocolVersion": 1, "capabilities": []})


async def measure_noisy(folder: Path, *, samples: int = SAMPLES, pairs: int = PAIRS) -> list[Figure]:
    """Measure the quiet one alone, then beside each noise, and compare."""
    server_core, load_core = cores()
    pin(load_core)
    figures: list[Figure] = []
    server = ServerProcess("bench", folder, core=server_core, limits=LIMITS, log={"level": "error"})
    async with _tarpit() as silent:
        try:
            await server.start()
            for user in (ALICE, BOB, MALLORY):
                await register(user, [server])
            record = CAROL.access_record([AccessServer("silent", silent)], time_ms=now_ms() - 1000)
            await server.request("AddUser", record_payload(record))
            to_bob, to_carol = sign_pairs(MALLORY, "bob", pairs), sign_pairs(MALLORY, "carol", pairs)
            as_peer = [_as_peer(frame) for frame in to_bob]
            alone = await _quiet(server.url, samples)
            figures.append(_figure("alone", alone, alone))
            for name, frames in (
                ("beside a noisy client", to_bob),
                ("beside a noisy peer", [HELLO.encode(), *as_peer]),
                ("beside one who writes to a server that hangs", to_carol),
            ):
                async with _noise(server.url, frames):
                    figures.append(_figure(name, await _quiet(server.url, samples), alone))
        finally:
            await server.discard()
    return figures


def _figure(name: str, times: Sequence[float], alone: Sequence[float]) -> Figure:
    p50, p99 = percentile(times, 0.50), percentile(times, 0.99)
    ratio50, ratio99 = p50 / percentile(alone, 0.50), p99 / percentile(alone, 0.99)
    if times is alone:
        return Figure(name, f"p50 {p50 * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms")
    return Figure(
        name,
        f"p50 {p50 * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms",
        f"{ratio50:.1f} and {ratio99:.1f} times",
        f"p50 at most {MOST_TIMES:g} times",
        ratio50 <= MOST_TIMES,
    )


async def _quiet(url: str, samples: int) -> list[float]:
    """Send messages one at a time, each of which must be delivered, and return how long each took, seconds."""
    times = []
    async with _connect(url, QUIET) as link:
        for frame in sign_pairs(ALICE, "bob", samples):
            await asyncio.sleep(PAUSE_SECONDS)
            begin = time.perf_counter()
            await link.send(frame, text=True)
            answer = orjson.loads(await link.recv(decode=False))
            times.append(time.perf_counter() - begin)
            if answer["status"] != 200 or answer["payload"]["deliveryState"] != "delivered":
                raise AssertionError(f"the quiet one was answered {answer}")
    return times


@asynccontextmanager
async def _noise(url: str, frames: Sequence[bytes]) -> AsyncIterator[None]:
    """Have another process make noise for the block; it has begun when the block does."""
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_make_noise, args=(url, frames), daemon=True)
    process.start()
    try:
        await asyncio.sleep(WARM_SECONDS)
        yield
    finally:
        process.terminate()
        await asyncio.to_thread(process.join)


def _make_noise(url: str, frames: Sequence[bytes]) -> None:
    os.nice(5)  # the load shares a core: it is the server that is to be slowed, and not who measures it
    asyncio.run(_flood(url, frames))


async def _flood(url: str, frames: Sequence[bytes]) -> None:
    hello = [frames[0]] if frames[0] == HELLO.encode() else []
    rest = frames[len(hello) :]
    await asyncio.gather(*(_flood_one(url, hello, rest[number::CONNECTIONS]) for number in range(CONNECTIONS)))


async def _flood_one(url: str, first: Sequence[bytes], frames: Sequence[bytes]) -> None:
    """Send the same frames over and over, whatever is answered; connect again when cut."""
    while True:
        with suppress(ConnectionClosed, OSError, TimeoutError):
            async with _connect(url, NOISY) as link:
                for frame in first:
                    await link.send(frame, text=True)
                    await link.recv()
                under_way = 0
                while True:
                    for frame in frames:
                        await link.send(frame, text=True)
                        under_way += 1
                        if under_way >= WINDOW:
                            await link.recv()
                            under_way -= 1
        await asyncio.sleep(0.1)


def _connect(url: str, address: str) -> connect:
    return connect(
        url,
        proxy=None,
        compression=None,
        open_timeout=OPEN_SECONDS,
        ping_interval=None,
        max_queue=None,
        additional_headers={"X-Forwarded-For": address},
    )


def _as_peer(frame: bytes) -> bytes:
    """Make the request of a client that of a server, which brings the recipient's copy."""
    request = orjson.loads(frame)
    payload = {"incomingBlobB64": request["payload"]["incomingBlobB64"], "sourceServerLogin": "noisy"}
    return encode_request("ReceiveIncomingMessage", request["requestId"], payload).encode()


@asynccontextmanager
async def _tarpit() -> AsyncIterator[str]:
    """Listen, take connections, and say nothing."""
    writers: list[asyncio.StreamWriter] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    try:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/ws"
    finally:
        for writer in writers:
            writer.transport.abort()
        server.close()


def main() -> None:
    """Measure, and print one table."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.bench_noisy", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--samples", type=int, default=SAMPLES, help="messages of the quiet one in each part")
    parser.add_argument("--dir", type=Path, help="where the store lies for the time of the run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="shine-bench-", dir=options.dir) as name:
        print_figures("A quiet one beside a noisy one", uvloop.run(measure_noisy(Path(name), samples=options.samples)))


if __name__ == "__main__":
    main()
