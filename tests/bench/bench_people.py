"""What people cost a node: a thousand idle sessions, and the first page of a chat with a hundred thousand messages."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import resource
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import uvloop
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve

from shine_node.client.connection import Connection
from shine_node.client.identity import Identity
from shine_node.clock import SystemClock
from shine_node.protocol.access import AccessServer
from shine_node.protocol.container import FORMAT_TEXT, MESSAGE_IN, SIGNATURE_BYTES, encode_unsigned
from shine_node.protocol.pair import check_pair, parse_pair
from shine_node.store.environment import Store, Transaction
from shine_node.store.messages import store_pair
from shine_node.store.users import add_record
from tests.bench.fill import MAX_BODY_BYTES, PAIRS_A_COMMIT, open_store
from tests.bench.load import BODY, Asking
from tests.bench.measure import Figure, cores, cpu_seconds, median, memory, pin, print_figures
from tests.bench.server import LOGIN, SETTINGS
from tests.support.devices import make_session
from tests.support.nodes import ServerProcess, register

__all__ = ["fill_chats", "main", "measure_first_page", "measure_people", "measure_sessions"]

SESSIONS = 1_000
SESSIONS_A_USER = 40
SESSIONS_MIB = 30
SETTLE_SECONDS = 2.0
BARE_SECONDS = 60.0
FILES_BESIDE = 64

ALICE = Identity.generate("alice")
FEW, MANY = 100, 100_000
PAGE_TIMES = 2.0
PAGES, ROUNDS = 50, 9


@asynccontextmanager
async def _server(folder: Path, core: int) -> AsyncIterator[ServerProcess]:
    limits = {**SETTINGS["limits"], "maxConnections": 10_000, "maxConnectionsPerAddress": 10_000}
    server = ServerProcess(LOGIN, folder, core=core, **{**SETTINGS, "limits": limits})
    try:
        await server.start()
        yield server
    finally:
        await server.discard()


@asynccontextmanager
async def _bare(core: int) -> AsyncIterator[tuple[str, int]]:
    """Serve connections of the same library that do nothing, in a process of its own: its URL and its number."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.bench.bench_people",
        "--bare",
        str(core),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        yield (await asyncio.wait_for(process.stdout.readline(), BARE_SECONDS)).decode().strip(), process.pid
        process.stdin.close()  # it ends when its input does
        await asyncio.wait_for(process.wait(), BARE_SECONDS)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _serve_bare() -> None:
    async def read(link: ServerConnection) -> None:
        async for _ in link:
            pass

    async with serve(read, "127.0.0.1", 0, compression=None, ping_interval=30, ping_timeout=30) as server:
        print(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/ws", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def _connect(stack: AsyncExitStack, url: str) -> ClientConnection:
    return await stack.enter_async_context(
        connect(url, proxy=None, compression=None, open_timeout=60, ping_interval=None)
    )


async def _growth_mib(pid: int, before: int) -> float:
    await asyncio.sleep(SETTLE_SECONDS)
    return (memory(pid).total - before) / 1024


async def measure_sessions(folder: Path, count: int = SESSIONS) -> list[Figure]:
    """Measure by how much a node grows with idle sessions, and a bare server of the same library with connections."""
    _allow_files(count + FILES_BESIDE)
    server_core, load_core = cores()
    pin(load_core)
    async with _server(folder, server_core) as server, AsyncExitStack() as stack:
        users = [Identity.generate(f"user{number}") for number in range(-(-count // SESSIONS_A_USER))]
        for user in users:
            await register(user, [server])
        warm = await _connect(stack, server.url)
        await make_session(Asking(warm).ask, users[0], SystemClock().now_ms())
        pid = server.process.pid
        before = memory(pid).total
        for number in range(count - 1):
            link = await _connect(stack, server.url)
            await make_session(Asking(link).ask, users[(number + 1) // SESSIONS_A_USER], SystemClock().now_ms())
        grown = await _growth_mib(pid, before)
    async with _bare(server_core) as (url, pid), AsyncExitStack() as stack:
        await _connect(stack, url)
        before = memory(pid).total
        for _ in range(count - 1):
            await _connect(stack, url)
        bare = await _growth_mib(pid, before)
    return [
        Figure(
            f"{count:,} idle sessions",
            f"{grown:.1f} MiB",
            f"{bare:.1f} MiB for as many bare connections",
            f"at most {SESSIONS_MIB} MiB",
            grown <= SESSIONS_MIB,
        )
    ]


def _allow_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (count if hard == resource.RLIM_INFINITY else min(count, hard), hard)
        )


def fill_chats(store: Store, chats: dict[str, int]) -> None:
    """Register alice, and add chats of hers with so many messages that were delivered, one a second."""
    now_ms = SystemClock().now_ms()
    record = ALICE.access_record([AccessServer(LOGIN, "ws://127.0.0.1:1/ws")], time_ms=now_ms - 1000)
    store.write_now(lambda txn: add_record(txn, record))
    for peer, count in chats.items():
        for first in range(0, count, PAIRS_A_COMMIT):
            numbers = range(first, min(first + PAIRS_A_COMMIT, count))

            def write(txn: Transaction, numbers: range = numbers, peer: str = peer, count: int = count) -> None:
                for number in numbers:
                    incoming, outgoing = (
                        encode_unsigned(
                            to_login=peer,
                            from_login="alice",
                            time_ms=now_ms - 1000 * (count - number),
                            nonce=number,
                            message_type=message_type,
                            body=BODY.encode(),
                            body_format=FORMAT_TEXT,
                        )
                        + os.urandom(SIGNATURE_BYTES)  # the store does not look at them
                        for message_type in (MESSAGE_IN, MESSAGE_IN + 1)
                    )
                    pair = check_pair(*parse_pair(incoming, outgoing, max_body_bytes=MAX_BODY_BYTES))
                    store_pair(txn, pair, now_ms=now_ms, from_client=True, delivery=None, own_login=LOGIN)

            store.write_now(write)


async def measure_first_page(folder: Path) -> list[Figure]:
    """Compare what the first page of a short and of a long chat cost the server, turn by turn.

    Args:
        folder: its store is filled by ``fill_chats`` with the chats ``short`` and ``long``.
    """
    server_core, load_core = cores()
    pin(load_core)
    async with _server(folder, server_core) as server, await Connection.open(server.url) as client:
        await make_session(client.request, ALICE, SystemClock().now_ms())

        async def used(peer: str) -> float:
            begin = cpu_seconds(server.process.pid)
            for _ in range(PAGES):
                page = await client.request("GetDirectMessages", {"peerLogin": peer})
                if len(page["messages"]) != 50:
                    raise AssertionError(f"a page of {peer} holds {len(page['messages'])} messages")
            return (cpu_seconds(server.process.pid) - begin) / PAGES

        for peer in ("short", "long"):
            await used(peer)
        gc.collect()
        turns = [(await used("short"), await used("long")) for _ in range(ROUNDS)]
    times = median(long / short for short, long in turns)
    return [
        Figure(
            f"the first page of a chat of {MANY:,} messages",
            f"{median(long for _, long in turns) * 1e3:.2f} ms of the server's core",
            f"{times:.2f} × a chat of {FEW:,}, {median(short for short, _ in turns) * 1e3:.2f} ms",
            f"at most {PAGE_TIMES:g}",
            times <= PAGE_TIMES,
        )
    ]


async def measure_people(folder: Path) -> list[Figure]:
    """Measure both, with stores of their own in a folder."""
    with open_store(folder / "chats") as store:
        fill_chats(store, {"short": FEW, "long": MANY})
    return [*await measure_sessions(folder / "sessions"), *await measure_first_page(folder / "chats")]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dir", type=Path, help="where the stores lie for the time of the run: the disk to measure")
    parser.add_argument("--bare", type=int, metavar="CORE", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.bare is not None:
        pin(options.bare)
        uvloop.run(_serve_bare())
        return
    with tempfile.TemporaryDirectory(prefix="shine-bench-", dir=options.dir) as name:
        print_figures("People", uvloop.run(measure_people(Path(name))))


if __name__ == "__main__":
    main()
