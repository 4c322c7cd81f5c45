"""From the sending of a message to its event at the recipient's client, over two servers, beside the sum of its parts.

Alice's server and Bob's run as processes of their own, each on one core; messages go out at a fixed rate, whether or
not the ones before have arrived. The parts are what no way around leads past: three WebSocket hops one way, three
signature checks (both copies at Alice's server, one at Bob's), and a commit on each server's disk. They are measured at
the rate of the messages, since a core that has rested is slower than one that does the same thing over and over; what
they take back to back is shown too.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import orjson
import uvloop
from websockets.asyncio.client import ClientConnection, connect

from shine_node.client.identity import Identity
from shine_node.client.messages import make_message
from shine_node.clock import SystemClock
from shine_node.protocol.envelope import encode_request
from tests.bench.ceilings import check_pairs, commit_seconds, paced_seconds, round_trip_seconds
from tests.bench.load import BODY, Asking
from tests.bench.measure import Figure, cores, median, percentile, print_figures
from tests.bench.server import SETTINGS
from tests.support.devices import make_session
from tests.support.nodes import ServerProcess, register

__all__ = ["main", "measure_events"]

PER_SECOND = 100
MESSAGES = 500
"""A round: five seconds."""
WARM_UP = 50
PACED = 150
P50_TIMES, P99_TIMES = 3.0, 10.0
ROUND_SECONDS = 120.0
HOPS, CHECKS, COMMITS = 3, 3, 2


class Way(NamedTuple):
    """Alice's connection and Bob's, each with a session."""

    alice: Identity
    sends: ClientConnection
    hears: ClientConnection


class Parts(NamedTuple):
    """What a message cannot do without, seconds."""

    hop: float
    check: float
    commit: float

    @property
    def sum(self) -> float:
        """All of them together."""
        return HOPS * self.hop + CHECKS * self.check + COMMITS * self.commit


@asynccontextmanager
async def _way(folder: Path) -> AsyncIterator[Way]:
    async with AsyncExitStack() as stack:
        homes = []
        for login, core in zip(("ours", "theirs"), cores(), strict=True):
            home = ServerProcess(login, folder, core=core, **SETTINGS)
            stack.push_async_callback(home.discard)
            await home.start()
            homes.append(home)
        people = [Identity.generate("alice"), Identity.generate("bob")]
        links = []
        for person, home in zip(people, homes, strict=True):
            await register(person, [home], known_at=[other for other in homes if other is not home])
        for person, home in zip(people, homes, strict=True):
            link = await stack.enter_async_context(connect(home.url, proxy=None, compression=None, ping_interval=None))
            await make_session(Asking(link).ask, person, SystemClock().now_ms())
            links.append(link)
        yield Way(people[0], *links)


async def _round(way: Way, count: int) -> list[float]:
    """Send messages at the rate, and return the seconds until each was told of at Bob's."""
    frames: list[tuple[str, bytes]] = []
    for number in range(count):
        pair = make_message(way.alice, "bob", BODY, time_ms=SystemClock().now_ms())
        frames.append((pair.base_key, encode_request("SendMessagePair", str(number), pair.payload).encode()))
    sent: dict[str, float] = {}
    times: list[float] = []

    async def hear() -> None:
        while len(times) < count:
            frame = await way.hears.recv(decode=False)
            now = time.perf_counter()
            times.append(now - sent[orjson.loads(frame)["payload"]["baseKey"]])

    async def take_answers() -> None:
        answered = 0
        while answered < count:
            frame = orjson.loads(await way.sends.recv(decode=False))
            if not frame.get("event"):
                answered += 1
                if frame["status"] != 200 or frame["payload"]["deliveryState"] != "delivered":
                    raise AssertionError(f"a message was answered {frame}")

    async def send() -> None:
        begin = time.perf_counter()
        for number, (key, frame) in enumerate(frames):
            await asyncio.sleep(begin + number / PER_SECOND - time.perf_counter())
            sent[key] = time.perf_counter()
            await way.sends.send(frame, text=True)

    gc.collect()
    gc.disable()
    try:
        await asyncio.wait_for(asyncio.gather(hear(), take_answers(), send()), ROUND_SECONDS)
    finally:
        gc.enable()
    return times


async def _parts(folder: Path) -> tuple[Parts, Parts]:
    """Measure the parts at the rate of the messages, and back to back."""
    core, pause = cores()[0], 1 / PER_SECOND
    pair = make_message(Identity.generate("alice"), "bob", BODY, time_ms=1)
    frame = encode_request("SendMessagePair", "0", pair.payload).encode()
    trip = await round_trip_seconds(core, frame, pause=pause, count=PACED)
    check, commit = await asyncio.to_thread(paced_seconds, core, folder, pause)
    hot_trip = await round_trip_seconds(core, frame)
    pairs_a_second, _ = await asyncio.to_thread(check_pairs, core)
    hot_commit = await asyncio.to_thread(commit_seconds, core, folder)
    return Parts(trip / 2, check, commit), Parts(hot_trip / 2, 1 / pairs_a_second / 2, hot_commit)


async def measure_events(folder: Path, rounds: int) -> list[Figure]:
    """Measure rounds, each with its parts right before it; the median of the rounds counts.

    Args:
        folder: is made for the stores.
    """
    parts: list[tuple[Parts, Parts]] = []
    halves, tails = [], []
    async with _way(folder) as way:
        await _round(way, WARM_UP)
        for _ in range(rounds):
            parts.append(await _parts(folder))
            times = await _round(way, MESSAGES)
            halves.append(percentile(times, 0.50))
            tails.append(percentile(times, 0.99))
    sums = [paced.sum for paced, _ in parts]
    p50 = median(time / whole for time, whole in zip(halves, sums, strict=True))
    p99 = median(time / whole for time, whole in zip(tails, sums, strict=True))
    hot = median(time / back.sum for time, (_, back) in zip(halves, parts, strict=True))
    return [
        Figure(
            f"from send to event at the recipient, {PER_SECOND} messages/s, p50",
            f"{median(halves) * 1e3:.2f} ms",
            f"{p50:.2f} × the sum of its parts, {median(sums) * 1e3:.2f} ms",
            f"at most {P50_TIMES:g}",
            p50 <= P50_TIMES,
        ),
        Figure(
            "    p99",
            f"{median(tails) * 1e3:.2f} ms",
            f"{p99:.2f} × that",
            f"at most {P99_TIMES:g}",
            p99 <= P99_TIMES,
        ),
        Figure("    its parts, at this rate", _tell([paced for paced, _ in parts])),
        Figure("    its parts, back to back", _tell([back for _, back in parts]), f"p50 is {hot:.2f} × their sum"),
    ]


def _tell(parts: Sequence[Parts]) -> str:
    hop, check, commit = (median(values) * 1e6 for values in zip(*parts, strict=True))
    return f"{HOPS} hops of {hop:.0f} µs, {CHECKS} checks of {check:.0f} µs, {COMMITS} commits of {commit:.0f} µs"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="medians of so many rounds are shown")
    parser.add_argument("--dir", type=Path, help="where the stores lie for the time of the run: the disk to measure")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="shine-bench-", dir=options.dir) as name:
        print_figures("An online recipient", uvloop.run(measure_events(Path(name), options.rounds)))


if __name__ == "__main__":
    main()
