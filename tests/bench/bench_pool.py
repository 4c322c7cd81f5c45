"""What the pool costs: against a bare WebSocket, behind a full queue, and with 200 dead peers.

``python -m tests.bench.bench_pool`` runs it alone. The peer is a process of its own, so its time is not the pool's.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import multiprocessing
import resource
import socket
import time
from multiprocessing.connection import Connection

import orjson
import uvloop
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from shine_node.clock import SystemClock
from shine_node.peers.pool import KnownPeer, Pool, PoolSettings
from shine_node.protocol.access import AccessServer
from shine_node.protocol.envelope import decode_answer, encode_answer, encode_request
from tests.bench.measure import Figure, median, print_figures

SETTINGS = PoolSettings(allow_insecure_peers=True, allow_private_peers=True)
PAYLOADS = {
    "delivery": ("ReceiveIncomingMessage", {"incomingBlobB64": "A" * 700, "sourceServerLogin": "server1"}),
    "status": ("GetDmDeliveryStatus", {"messageKey": "alice|bob|1774700000123|123456789|2"}),
    "block": ("AddBlock", {"blockchainName": "alice-001", "blockNumber": 1, "blockBytesB64": "A" * 20_000}),
}


async def serve_peer(pipe: Connection, work_seconds: float) -> None:
    """Answer everything, a BULK request after ``work_seconds``."""

    async def answer(socket: ServerConnection) -> None:
        async for frame in socket:
            request = orjson.loads(frame)
            op = request["op"]
            payload: dict[str, object] = {}
            if op == "ServerHello":
                payload = {"accepted": True, "serverLogin": "server2", "protocolVersion": 1, "capabilities": []}
            elif op == "GetBlocks" and work_seconds:
                await asyncio.sleep(work_seconds)
            await socket.send(encode_answer(op, request["requestId"], payload))

    async with serve(answer, "127.0.0.1", 0, compression=None, ping_interval=None) as server:
        pipe.send(server.sockets[0].getsockname()[1])
        await asyncio.get_running_loop().run_in_executor(None, pipe.recv)


def run_peer(pipe: Connection, work_seconds: float) -> None:
    """Be the peer, in a process of its own."""
    uvloop.run(serve_peer(pipe, work_seconds))


class Peer:
    """The peer's process, seen from here."""

    def __init__(self, work_seconds: float = 0.0) -> None:
        self._pipe, far = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("spawn").Process(target=run_peer, args=(far, work_seconds))

    def __enter__(self) -> str:
        self._process.start()
        return f"ws://127.0.0.1:{self._pipe.recv()}/ws"

    def __exit__(self, *_: object) -> None:
        self._pipe.send(None)
        self._process.join(10)


def make_pool(peers: list[KnownPeer]) -> Pool:
    """Return a pool with the default settings, that may go to loopback."""
    return Pool(
        own_login="server1",
        own_url="ws://127.0.0.1:1/ws",
        settings=SETTINGS,
        clock=SystemClock(),
        known_peers=lambda: peers,
    )


async def against_bare(rounds: int, operations: int) -> dict[str, tuple[float, float, float]]:
    """Return per kind of request the medians in µs, bare and over the pool, and the median of the rounds' ratios.

    Rounds are short and of both kinds in turns, so that what else the machine does falls on both alike.
    """
    results: dict[str, tuple[float, float, float]] = {}
    with Peer() as url:
        pool = make_pool([KnownPeer("server2", url, True)])
        await pool.start()
        server = AccessServer("server2", url)
        async with connect(url, compression=None, ping_interval=None, proxy=None) as bare:
            for kind, (op, payload) in PAYLOADS.items():
                bare_times, pool_times = [], []
                for number in range(rounds + 1):
                    begun = time.perf_counter()
                    for i in range(operations):
                        await bare.send(encode_request(op, str(i), payload))
                        answer = decode_answer(await bare.recv())
                        assert answer is not None and answer.ok
                    middle = time.perf_counter()
                    for _ in range(operations):
                        await pool.request(server, op, payload)
                    ended = time.perf_counter()
                    if number:  # the first round warms up
                        bare_times.append((middle - begun) / operations)
                        pool_times.append((ended - middle) / operations)
                ratios = [pooled / alone for alone, pooled in zip(bare_times, pool_times, strict=True)]
                results[kind] = (
                    median(bare_times) * 1e6,
                    median(pool_times) * 1e6,
                    median(ratios),
                )
        await pool.close()
    return results


async def behind_bulk(queued: int, work_seconds: float) -> dict[str, float]:
    """Return the waiting times in ms of requests of each priority that come behind queued BULK ones."""
    with Peer(work_seconds) as url:
        pool = make_pool([KnownPeer("server2", url, True)])
        await pool.start()
        server = AccessServer("server2", url)
        await pool.request(server, "GetDmDeliveryStatus", {})
        bulk = [asyncio.ensure_future(pool.request(server, "GetBlocks", {})) for _ in range(queued)]
        await asyncio.sleep(work_seconds * 5)

        async def timed(op: str) -> float:
            begun = time.perf_counter()
            await pool.request(server, op, {})
            return (time.perf_counter() - begun) * 1000

        waits: dict[str, list[float]] = {"REALTIME": [], "NORMAL": []}
        for _ in range(20):
            waits["REALTIME"].append(await timed("ReceiveIncomingMessage"))
            waits["NORMAL"].append(await timed("DmSyncBatch"))
            await asyncio.sleep(work_seconds * 3)
        last = await timed("GetBlockchainHeads")
        await asyncio.gather(*bulk)
        await pool.close()
    return {
        "REALTIME median": median(waits["REALTIME"]),
        "REALTIME greatest": max(waits["REALTIME"]),
        "NORMAL median": median(waits["NORMAL"]),
        "NORMAL greatest": max(waits["NORMAL"]),
        "BULK": last,
    }


async def with_dead_peers(count: int, seconds: float, *, settle_seconds: float = 80) -> tuple[float, float]:
    """Return the share of one core (%) that dead peers cost in their longest pauses, and the growth of memory (KiB)."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound and not listening: every connection is refused
        url = f"ws://127.0.0.1:{unused.getsockname()[1]}/"
        pool = make_pool([KnownPeer(f"dead{number}", f"{url}{number}", True) for number in range(count)])
        await pool.start()
        await asyncio.sleep(settle_seconds)  # over the steps to those of a minute
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        cpu, begun = time.process_time(), time.perf_counter()
        await asyncio.sleep(seconds)
        share = (time.process_time() - cpu) / (time.perf_counter() - begun) * 100
        growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
        await pool.close()
    return share, growth


async def measure_pool(rounds: int, operations: int, *, queued: int = 1000, work_ms: float = 4) -> list[Figure]:
    """Return the cost of the pool beside a bare WebSocket, and the waiting times behind a full queue."""
    figures = []
    for kind, (bare, pooled, ratio) in (await against_bare(rounds, operations)).items():
        what = f"pool: one {kind} request"
        beside = f"{bare:.0f} µs bare, {(ratio - 1) * 100:+.1f} %"
        figures.append(Figure(what, f"{pooled:.0f} µs", beside, "at most +15 %", ratio <= 1.15))
    waits = await behind_bulk(queued, work_ms / 1000)
    beside = f"behind {queued} BULK of {work_ms:g} ms"
    for name, value in waits.items():
        figures.append(Figure(f"waiting: {name}", f"{value:.1f} ms", beside))
    return figures


async def measure_dead_peers(count: int, seconds: float, *, settle_seconds: float = 80) -> list[Figure]:
    """Return what peers cost that are all down."""
    share, growth = await with_dead_peers(count, seconds, settle_seconds=settle_seconds)
    return [
        Figure(f"{count} dead peers: one core", f"{share:.2f} %", "", "under 1 %", share < 1),
        Figure(f"{count} dead peers: growth of memory", f"{growth:.0f} KiB", f"in {seconds:g} s"),
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.bench_pool", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--operations", type=int, default=300)
    parser.add_argument("--dead-seconds", type=float, default=60, help="0 leaves the dead peers out")
    options = parser.parse_args()
    logging.disable()  # of each dead peer there is one line
    figures = uvloop.run(measure_pool(options.rounds, options.operations))
    if options.dead_seconds:
        figures += uvloop.run(measure_dead_peers(200, options.dead_seconds))
    print_figures("Links to other servers", figures)


if __name__ == "__main__":
    main()
