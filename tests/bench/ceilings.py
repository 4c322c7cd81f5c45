"""What the server's core and disk could do at best: signatures checked, commits made, round trips answered.

Each runs in a process of its own on the server's core, as the node does. ``python -m tests.bench.ceilings NAME CORE …``
is such a process; it prints its numbers, or the address where it echoes.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import lmdb
import uvloop
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from shine_node.client.identity import Identity
from shine_node.client.messages import make_message
from shine_node.protocol.container import SIGNATURE_BYTES
from shine_node.protocol.signatures import is_signed_by
from tests.bench.measure import median, pin

__all__ = ["check_pairs", "commit_seconds", "paced_seconds", "round_trip_seconds"]

SECONDS = 0.7
ROUND_TRIPS = 1500
PACED = 150
ROW_BYTES = 500
PROCESS_SECONDS = 60.0


def check_pairs(core: int) -> tuple[float, float]:
    """Return how many pairs of signatures one core checks per second, and the processor time of one, seconds."""
    per_second, busy = _run("signatures", core).split()
    return float(per_second), float(busy)


def paced_seconds(core: int, folder: Path, pause: float) -> tuple[float, float]:
    """Return the median times of one signature check and of one commit, each after a pause, seconds."""
    check, commit = _run("paced", core, str(folder), str(pause)).split()
    return float(check), float(commit)


def commit_seconds(core: int, folder: Path) -> float:
    """Return the median time of an LMDB commit of one row, each on disk before the next, in a folder."""
    return float(_run("commits", core, str(folder)))


async def round_trip_seconds(core: int, frame: bytes, *, pause: float = 0.0, count: int = ROUND_TRIPS) -> float:
    """Return the median time of a round trip to an echo server of the same library on the server's core.

    Args:
        pause: seconds between one and the next; without it the core has nothing else in its caches.
    """
    async with _echo_server(core) as url, connect(url, proxy=None, compression=None) as link:
        times: list[float] = []
        for _ in range(count):
            if pause:
                await asyncio.sleep(pause)
            begin = time.perf_counter()
            await link.send(frame, text=True)
            await link.recv(decode=False)
            times.append(time.perf_counter() - begin)
    return median(times)


@asynccontextmanager
async def _echo_server(core: int) -> AsyncIterator[str]:
    process = await asyncio.create_subprocess_exec(
        *_command("echo", core), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        yield (await asyncio.wait_for(process.stdout.readline(), PROCESS_SECONDS)).decode().strip()
        process.stdin.close()  # it ends when its input does
    except BaseException:
        process.kill()
        raise
    finally:
        await asyncio.wait_for(process.wait(), PROCESS_SECONDS)


def _command(name: str, core: int, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "tests.bench.ceilings", name, str(core), *arguments]


def _run(name: str, core: int, *arguments: str) -> str:
    command = _command(name, core, *arguments)
    done = subprocess.run(command, capture_output=True, text=True, timeout=PROCESS_SECONDS, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{name}: {done.stderr}")
    return done.stdout


def _check_signatures() -> tuple[float, float]:
    alice = Identity.generate("alice")
    pair = make_message(alice, "bob", "x" * 100, time_ms=1_774_700_000_000)
    copies = [(copy[:-SIGNATURE_BYTES], copy[-SIGNATURE_BYTES:]) for copy in (pair.incoming, pair.outgoing)]
    checked = 0
    begin, busy = time.perf_counter(), time.process_time()
    while (elapsed := time.perf_counter() - begin) < SECONDS:
        for _ in range(50):
            for text, signature in copies:
                if not is_signed_by(alice.device.public, text, signature):
                    raise AssertionError("a good signature was refused")
        checked += 50
    return checked / elapsed, (time.process_time() - busy) / checked


def _commit(folder: Path) -> float:
    times: list[float] = []
    with _scratch(folder) as env:
        end = time.perf_counter() + SECONDS
        while time.perf_counter() < end:
            times.append(_commit_once(env, len(times)))
    return median(times)


def _pace(folder: Path, pause: float) -> tuple[float, float]:
    alice = Identity.generate("alice")
    copy = make_message(alice, "bob", "x" * 100, time_ms=1_774_700_000_000).incoming
    checks: list[float] = []
    commits: list[float] = []
    with _scratch(folder) as env:
        for number in range(PACED):
            time.sleep(pause)
            begin = time.perf_counter()
            if not is_signed_by(alice.device.public, copy[:-SIGNATURE_BYTES], copy[-SIGNATURE_BYTES:]):
                raise AssertionError("a good signature was refused")
            checks.append(time.perf_counter() - begin)
            commits.append(_commit_once(env, number))
    return median(checks), median(commits)


@contextmanager
def _scratch(folder: Path) -> Iterator[lmdb.Environment]:
    file = folder / "commits.mdb"
    with lmdb.open(str(file), subdir=False, map_size=1 << 30) as env:
        yield env
    for left in (file, file.with_name(file.name + "-lock")):
        left.unlink()


def _commit_once(env: lmdb.Environment, number: int) -> float:
    begin = time.perf_counter()
    with env.begin(write=True) as txn:
        txn.put(number.to_bytes(8, "big"), bytes(ROW_BYTES))
    return time.perf_counter() - begin


async def _echo() -> None:
    async def handler(link: ServerConnection) -> None:
        async for frame in link:
            await link.send(frame)

    async with serve(handler, "127.0.0.1", 0, compression=None) as server:
        print(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/ws", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def _main(name: str, core: str, *arguments: str) -> None:
    pin(int(core))
    if name == "signatures":
        print(*_check_signatures())
    elif name == "commits":
        print(_commit(Path(arguments[0])))
    elif name == "paced":
        print(*_pace(Path(arguments[0]), float(arguments[1])))
    else:
        uvloop.run(_echo())


if __name__ == "__main__":
    _main(*sys.argv[1:])
