"""Pairs a second and their latency, over 1 and 4 connections, pipelined and one at a time, beside the ceilings.

The server runs as a process of its own on one core, the load on another. In one scenario both users are served by this
server, so that no network to other servers is measured; in the other the recipient has no route. ``--memory N`` watches
the server's memory under a stream of N pairs instead.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import uvloop

from shine_node.client.identity import Identity
from tests.bench.ceilings import check_pairs, commit_seconds, round_trip_seconds
from tests.bench.load import Outcome, drive, sign_pairs
from tests.bench.measure import Figure, cores, cpu_seconds, median, memory, pin, print_figures
from tests.bench.server import pinned_server
from tests.support.nodes import ServerProcess, register

__all__ = ["main"]

ALICE, BOB, CAROL = (Identity.generate(login) for login in ("alice", "bob", "carol"))
WINDOW = 256
THROUGHPUT_SHARE = 0.5
LATENCY_TIMES = 3.0
MEMORY_CHUNK = 5_000
MEMORY_GROWTH_KIB = 8 * 1024


class Scenario(NamedTuple):
    """One way to send, and what is asked of it."""

    name: str
    to: Identity
    state: str
    connections: int
    window: int
    pairs: int


class Ceilings(NamedTuple):
    """What the machine did in one round."""

    pairs_checked: float
    check_busy: float
    """Seconds of processor time that the checks of one pair take."""

    commit: float
    round_trip: float

    @property
    def one_pair_seconds(self) -> float:
        """One pair of checks, one commit and one round trip, one after the other."""
        return 1 / self.pairs_checked + self.commit + self.round_trip


SCENARIOS = (
    Scenario("1 connection, one at a time", BOB, "delivered", 1, 1, 1_000),
    Scenario("4 connections, one at a time", BOB, "delivered", 4, 1, 2_000),
    Scenario(f"1 connection, {WINDOW} under way", BOB, "delivered", 1, WINDOW, 8_000),
    Scenario(f"4 connections, {WINDOW} under way", BOB, "delivered", 4, WINDOW, 8_000),
    Scenario("1 connection, one at a time, no route", CAROL, "accepted", 1, 1, 1_000),
    Scenario(f"4 connections, {WINDOW} under way, no route", CAROL, "accepted", 4, WINDOW, 8_000),
)


async def _start_users(server: ServerProcess) -> None:
    await register(ALICE, [server])
    await register(BOB, [server])
    await register(CAROL, [], known_at=[server])


async def measure_pairs(folder: Path, rounds: int) -> list[Figure]:
    """Run all scenarios some rounds, the ceilings before each round, and return the medians."""
    server_core, load_core = cores()
    pin(load_core)
    outcomes: dict[Scenario, list[tuple[Outcome, float]]] = {scenario: [] for scenario in SCENARIOS}
    ceilings: list[Ceilings] = []
    async with pinned_server(folder, server_core) as server:
        await _start_users(server)
        for _ in range(rounds):
            ceilings.append(
                Ceilings(
                    *check_pairs(server_core),
                    commit_seconds(server_core, folder),
                    await round_trip_seconds(server_core, sign_pairs(ALICE, BOB.login, 1)[0]),
                )
            )
            for scenario in SCENARIOS:
                frames = sign_pairs(ALICE, scenario.to.login, scenario.pairs)
                before = cpu_seconds(server.process.pid)
                outcome = await drive(
                    server.url,
                    frames,
                    connections=scenario.connections,
                    window=scenario.window,
                    state=scenario.state,
                )
                used = (cpu_seconds(server.process.pid) - before) / scenario.pairs
                outcomes[scenario].append((outcome, used))
    return _figures(ceilings, outcomes)


def _figures(ceilings: Sequence[Ceilings], outcomes: dict[Scenario, list[tuple[Outcome, float]]]) -> list[Figure]:
    checked = median(c.pairs_checked for c in ceilings)
    one_pair = median(c.one_pair_seconds for c in ceilings)
    figures = [
        Figure("ceiling: pairs of signatures one core checks", f"{checked:,.0f} /s"),
        Figure("    processor time", f"{median(c.check_busy for c in ceilings) * 1e6:,.0f} µs a pair"),
        Figure("ceiling: one commit on disk", f"{median(c.commit for c in ceilings) * 1e6:,.0f} µs"),
        Figure("ceiling: round trip to an echo server", f"{median(c.round_trip for c in ceilings) * 1e6:,.0f} µs"),
        Figure("one pair of checks + one commit + one round trip", f"{one_pair * 1e3:.2f} ms"),
    ]
    for scenario, runs in outcomes.items():
        # Each round is set beside its own ceilings: the machine may be faster in one round than in another.
        shares = [run.per_second / c.pairs_checked for (run, _), c in zip(runs, ceilings, strict=True)]
        times = [run.p50 / c.one_pair_seconds for (run, _), c in zip(runs, ceilings, strict=True)]
        share, latency = median(shares), median(times)
        checks = median(c.check_busy / used for (_, used), c in zip(runs, ceilings, strict=True))
        piped = scenario.window > 1 and scenario.connections > 1
        # Without a route the end of the first attempt is a second commit: the bound of one commit is not its own.
        alone = scenario.window * scenario.connections == 1 and scenario.state == "delivered"
        busy = median(run.load_busy for run, _ in runs)
        figures += [
            Figure(
                scenario.name,
                f"{median(run.per_second for run, _ in runs):,.0f} pairs/s",
                f"{share:.2f} of the signatures",
                f"at least {THROUGHPUT_SHARE}" if piped else "",
                share >= THROUGHPUT_SHARE if piped else None,
            ),
            Figure(
                "    latency p50, p99",
                f"{median(run.p50 for run, _ in runs) * 1e3:.2f} ms, {median(run.p99 for run, _ in runs) * 1e3:.2f} ms",
                f"{latency:.1f} × one pair",
                f"at most {LATENCY_TIMES:g}" if alone else "",
                latency <= LATENCY_TIMES if alone else None,
            ),
            Figure(
                "    server's processor time",
                f"{median(used for _, used in runs) * 1e6:,.0f} µs a pair",
                f"{checks:.2f} of it the checks; the load's core {busy:.0%} busy",
            ),
        ]
    return figures


async def measure_memory(folder: Path, pairs: int) -> list[Figure]:
    """Send a stream of pairs and return what the server's memory was on the way."""
    server_core, load_core = cores()
    pin(load_core)
    figures: list[Figure] = []
    async with pinned_server(folder, server_core) as server:
        await _start_users(server)
        own: list[int] = []
        sent = 0
        marks = sorted({0, pairs // 10, pairs // 4, pairs // 2, pairs})
        while True:
            if sent >= marks[len(own)]:
                found = memory(server.process.pid)
                own.append(found.own)
                figures.append(
                    Figure(
                        f"resident after {sent:,} pairs",
                        f"{found.own / 1024:.1f} MiB of its own",
                        f"and {found.mapped / 1024:.1f} MiB of mapped files",
                    )
                )
                if len(own) == len(marks):
                    break
            count = min(MEMORY_CHUNK, marks[len(own)] - sent)
            await drive(
                server.url, sign_pairs(ALICE, BOB.login, count), connections=4, window=WINDOW, state="delivered"
            )
            sent += count
    growth = own[-1] - own[1]
    figures.append(
        Figure(
            "growth after the first tenth",
            f"{growth / 1024:.1f} MiB",
            "",
            f"flat (at most {MEMORY_GROWTH_KIB // 1024} MiB)",
            growth <= MEMORY_GROWTH_KIB,
        )
    )
    return figures


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="how often everything is measured; medians are shown")
    parser.add_argument("--memory", type=int, metavar="N", help="watch the memory under a stream of N pairs instead")
    parser.add_argument("--dir", type=Path, help="where the stores lie for the time of the run: the disk to measure")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="shine-bench-", dir=options.dir) as folder:
        if options.memory:
            print_figures("Memory under a stream of pairs", uvloop.run(measure_memory(Path(folder), options.memory)))
        else:
            print_figures("Pairs", uvloop.run(measure_pairs(Path(folder), options.rounds)))


if __name__ == "__main__":
    main()
