"""Catch-up between a user's two servers: its rate beside the ceiling, its memory, and what it costs others.

Two nodes run as processes of their own, each on one core. One of them holds messages that the other one lacks, which is
started and fetches them. ``--messages N`` says how many.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import orjson
import uvloop

from shine_node.client.connection import Connection
from shine_node.client.identity import Identity
from shine_node.client.messages import SignedPair, make_message
from shine_node.clock import SystemClock
from shine_node.protocol.access import AccessRecord, AccessServer
from shine_node.protocol.container import parse_container
from shine_node.protocol.hello import hello_payload
from shine_node.protocol.pair import Pair, check_pair, parse_pair
from shine_node.store.environment import Store, Transaction
from shine_node.store.layout import Table
from shine_node.store.messages import store_incoming, store_pair
from shine_node.store.users import add_record
from tests.bench.ceilings import check_pairs
from tests.bench.fill import add_delivered, open_store
from tests.bench.load import BODY
from tests.bench.measure import Figure, cores, cpu_seconds, median, memory, percentile, pin, print_figures
from tests.bench.server import SETTINGS, pinned_server
from tests.support.nodes import ServerProcess

__all__ = ["MESSAGES", "main", "measure_catch_up", "measure_nothing_new"]

ALICE, BOB, CAROL, DAVE = (Identity.generate(login) for login in ("alice", "bob", "carol", "dave"))
MESSAGES = 100_000
RATE_SHARE = 0.5
LATENCY_TIMES = 5.0
LIVE_PAUSE = 0.02
LOOK_SECONDS = 0.1
LIVE_ALONE = 300
"""Messages that are sent without a session, for comparison."""
MEMORY_GROWTH_KIB = 8 * 1024
ROWS_A_COMMIT = 2_000
AGE_MS = 2 * 86_400_000
REQUESTS = 400
FEW, MANY = 10_000, 1_000_000
MOST_TIMES = 1.2
CATCH_UP_SECONDS = 900.0
URL = "ws://127.0.0.1:1/ws"


class Kind(NamedTuple):
    """What is caught up: its name, how many signatures a message has, and how messages are made and stored."""

    name: str
    signatures: int
    fill: Callable[[Store, int, str], str]


class Outcome(NamedTuple):
    """What one catch-up came to."""

    per_second: float
    used: float
    """Seconds of processor time of the node that fetches, per message."""
    giver_used: float
    memory: list[int]
    """KiB of its own, on the way."""
    alone: list[float]
    during: list[float]
    """Seconds that messages of others took without a session, and meanwhile."""


def _old(author: Identity, to_login: str, number: int, now_ms: int) -> SignedPair:
    return make_message(author, to_login, BODY, time_ms=now_ms - AGE_MS + number)


def _fill_pairs(store: Store, count: int, own_login: str) -> str:
    """Add messages that alice has sent and that were delivered; return the key of the last one."""
    now_ms = SystemClock().now_ms()

    def put(txn: Transaction, number: int) -> str:
        signed = _old(ALICE, "bob", number, now_ms)
        pair: Pair = check_pair(*parse_pair(signed.incoming, signed.outgoing, max_body_bytes=65_536))
        store_pair(txn, pair, now_ms=now_ms + number, from_client=True, delivery=None, own_login=own_login)
        return signed.outgoing_key

    return _fill(store, count, put)


def _fill_copies(store: Store, count: int, own_login: str) -> str:
    """Add messages that alice got from bob, and one that she has sent, the key of which is returned."""
    now_ms = SystemClock().now_ms()

    def put(txn: Transaction, number: int) -> str:
        signed = _old(BOB, "alice", number, now_ms)
        copy = parse_container(signed.incoming, max_body_bytes=65_536)
        store_incoming(txn, copy, now_ms=now_ms + number, own_login=own_login)
        return signed.incoming_key

    _fill(store, count, put)
    last = _old(ALICE, "bob", count, now_ms)
    pair = check_pair(*parse_pair(last.incoming, last.outgoing, max_body_bytes=65_536))
    store.write_now(
        lambda txn: store_pair(txn, pair, now_ms=now_ms + count, from_client=True, delivery=None, own_login=own_login)
    )
    return last.outgoing_key


def _fill(store: Store, count: int, put: Callable[[Transaction, int], str]) -> str:
    last = ""
    for first in range(0, count, ROWS_A_COMMIT):

        def write(txn: Transaction, first: int = first) -> str:
            return [put(txn, number) for number in range(first, min(first + ROWS_A_COMMIT, count))][-1]

        last = store.write_now(write)
    return last


PAIRS = Kind("pairs that alice sent", 2, _fill_pairs)
COPIES = Kind("copies that alice got", 1, _fill_copies)


def _store_of(server: ServerProcess) -> Store:
    server.store_file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return Store(server.store_file, map_size=SETTINGS["storage"]["mapSizeMiB"] * 2**20)


def _register(store: Store, *records: AccessRecord) -> None:
    for record in records:
        store.write_now(lambda txn, record=record: add_record(txn, record))  # type: ignore[misc]


@asynccontextmanager
async def _two_servers(folder: Path, kind: Kind, count: int) -> AsyncIterator[tuple[ServerProcess, ServerProcess, str]]:
    """Make a full server and an empty one, both of alice; neither runs."""
    empty_core, full_core = cores()
    settings = {**SETTINGS, "delivery": {}}  # the schedule of every node: what is two days old is not sent
    full = ServerProcess("full", folder, core=full_core, **settings)
    empty = ServerProcess("empty", folder, core=empty_core, **settings)
    try:
        records = [
            ALICE.access_record([full.access, empty.access], time_ms=1),
            BOB.access_record([], time_ms=1),
            CAROL.access_record([empty.access], time_ms=1),
            DAVE.access_record([empty.access], time_ms=1),
        ]
        store = _store_of(full)
        try:
            _register(store, *records)
            last = kind.fill(store, count, full.login)
        finally:
            store.close()
        store = _store_of(empty)
        try:
            _register(store, *records)
        finally:
            store.close()
        yield full, empty, last
    finally:
        await full.discard()
        await empty.discard()


async def _catch_up(folder: Path, kind: Kind, count: int, *, live: bool) -> Outcome:
    """Let the empty server fetch all messages; with ``live``, others send messages there before and meanwhile."""
    async with _two_servers(folder, kind, count) as (full, empty, last):
        await empty.start()
        async with await empty.connect() as client, await empty.connect() as watcher:
            alone = await _send_live(client, asyncio.Event(), LIVE_ALONE) if live else []
            await full.start()
            pids = empty.process.pid, full.process.pid
            begin, before = time.perf_counter(), [cpu_seconds(pid) for pid in pids]
            done = asyncio.Event()
            sending = asyncio.create_task(_send_live(client, done, None if live else 0))
            own = [memory(pids[0]).own]

            async with asyncio.timeout(CATCH_UP_SECONDS):
                while not (await watcher.request("GetDmDeliveryStatus", {"messageKey": last}))["known"]:
                    own.append(memory(pids[0]).own)
                    await asyncio.sleep(LOOK_SECONDS)
            elapsed = time.perf_counter() - begin
            used = [(cpu_seconds(pid) - start) / count for pid, start in zip(pids, before, strict=True)]
            done.set()
            return Outcome(count / elapsed, used[0], used[1], own, alone, await sending)


async def _send_live(client: Connection, done: asyncio.Event, count: int | None) -> list[float]:
    """Send messages one at a time, with pauses, so many or until it is done; return how long each answer took."""
    times: list[float] = []
    while not done.is_set() and len(times) != count:
        payload = make_message(CAROL, "dave", BODY, time_ms=SystemClock().now_ms()).payload
        begin = time.perf_counter()
        answer = await client.request("SendMessagePair", payload, timeout=60)
        times.append(time.perf_counter() - begin)
        if answer["deliveryState"] != "delivered":
            raise AssertionError(f"expected delivered, the answer was {answer}")
        await asyncio.sleep(LIVE_PAUSE)
    return times


async def measure_catch_up(folder: Path, count: int) -> list[Figure]:
    """Fetch pairs, then copies, then pairs while others send."""
    node_core, load_core = cores()
    pin(load_core)
    figures: list[Figure] = []
    for kind in (PAIRS, COPIES):
        before = check_pairs(node_core)
        outcome = await _catch_up(folder / kind.name.replace(" ", "-"), kind, count, live=False)
        checked, busy = max(before, check_pairs(node_core))  # where others use the machine too, the better one is true
        ceiling, check = checked * 2 / kind.signatures, busy * kind.signatures / 2
        share = outcome.per_second / ceiling
        tenth = outcome.memory[len(outcome.memory) // 10]
        growth = outcome.memory[-1] - tenth
        figures += [
            Figure(
                f"{count:,} {kind.name}",
                f"{outcome.per_second:,.0f} /s",
                f"{share:.2f} of the {ceiling:,.0f} whose signatures one core checks",
                f"at least {RATE_SHARE}",
                share >= RATE_SHARE,
            ),
            Figure(
                "    memory of the node that fetches",
                f"{outcome.memory[-1] / 1024:.1f} MiB",
                f"{growth / 1024:+.1f} MiB after the first tenth",
                f"flat (at most {MEMORY_GROWTH_KIB // 1024} MiB)",
                growth <= MEMORY_GROWTH_KIB,
            ),
            Figure(
                "    processor time",
                f"{outcome.used * 1e6:,.0f} µs a message",
                f"{check / outcome.used:.2f} of it the checks; the node that gives {outcome.giver_used * 1e6:,.0f} µs",
            ),
        ]
    outcome = await _catch_up(folder / "live", PAIRS, count, live=True)
    alone, during = percentile(outcome.alone, 0.99), percentile(outcome.during, 0.99)
    figures += [
        Figure(
            "a message of others sent meanwhile, p99",
            f"{during * 1e3:.2f} ms",
            f"{during / alone:.1f} × the {alone * 1e3:.2f} ms without a session",
            f"at most {LATENCY_TIMES:g}",
            during <= LATENCY_TIMES * alone,
        ),
        Figure(
            "    p50",
            f"{median(outcome.during) * 1e3:.2f} ms",
            f"{median(outcome.alone) * 1e3:.2f} ms without; {outcome.per_second:,.0f} caught up a second meanwhile",
        ),
    ]
    return figures


async def measure_nothing_new(few: Path, many: Path) -> list[Figure]:
    """Ask for messages where there are none that are new, beside few and many that the peer has already."""
    node_core, load_core = cores()
    pin(load_core)
    record = ALICE.access_record([AccessServer("bench", URL), AccessServer("peer", URL)], time_ms=1)
    counts: list[int] = []
    for folder in (few, many):
        with open_store(folder) as store:
            _register(store, record)
            with store.read() as txn:
                counts.append(txn.count(Table.HISTORY))
    async with pinned_server(few, node_core) as small, pinned_server(many, node_core) as large:
        times: dict[ServerProcess, list[float]] = {small: [], large: []}
        async with await small.connect() as to_small, await large.connect() as to_large:
            for client in (to_small, to_large):
                await client.request("ServerHello", hello_payload("peer"))
            for _ in range(REQUESTS):
                for server, client in ((small, to_small), (large, to_large)):
                    begin = time.perf_counter()
                    answer = await client.request("DmSyncBatch", {"ackSyncIds": [], "limit": 100})
                    times[server].append(time.perf_counter() - begin)
                    if answer["items"] or answer["hasMore"]:
                        raise AssertionError("something was new")
        size = len(orjson.dumps(answer))
    with_few, with_many = median(times[small]), median(times[large])
    return [
        Figure(
            f"a session with nothing new beside {counts[1]:,} synced messages",
            f"{with_many * 1e6:,.0f} µs",
            f"{with_many / with_few:.2f} × the {with_few * 1e6:,.0f} µs beside {counts[0]:,}; {size} bytes",
            f"at most {MOST_TIMES:g}",
            with_many <= MOST_TIMES * with_few,
        )
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=MESSAGES, help="how many are caught up")
    parser.add_argument("--synced", type=int, default=MANY, help="how many the peer has already, at most")
    parser.add_argument("--dir", type=Path, help="where the stores lie for the time of the run: the disk to measure")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="shine-bench-", dir=options.dir) as name:
        folder = Path(name)
        figures = uvloop.run(measure_catch_up(folder, options.messages))
        for count, place in ((FEW, folder / "few"), (options.synced, folder / "many")):
            with open_store(place) as store:
                add_delivered(store, count)
        figures += uvloop.run(measure_nothing_new(folder / "few", folder / "many"))
        print_figures("Catch-up between two servers", figures)


if __name__ == "__main__":
    main()
