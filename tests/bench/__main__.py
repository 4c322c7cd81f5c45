"""Runs all benchmarks and prints one table; 17 minutes. A single one: ``python -m tests.bench.bench_pairs``."""

from __future__ import annotations

import argparse
import logging
import platform
import tempfile
from pathlib import Path

import uvloop

from tests.bench.bench_due import FEW, measure_due
from tests.bench.bench_events import measure_events
from tests.bench.bench_idle import MESSAGES, measure_idle
from tests.bench.bench_noisy import measure_noisy
from tests.bench.bench_page import measure_page
from tests.bench.bench_pairs import measure_memory, measure_pairs
from tests.bench.bench_people import measure_people
from tests.bench.bench_pool import measure_dead_peers, measure_pool
from tests.bench.bench_portable import measure_portable
from tests.bench.bench_sync import MESSAGES as TO_CATCH_UP
from tests.bench.bench_sync import measure_catch_up, measure_nothing_new
from tests.bench.bench_verify import measure_verify
from tests.bench.bench_wear import MESSAGES as WORN
from tests.bench.bench_wear import SMALL, measure_wear
from tests.bench.fill import add_delivered, open_store
from tests.bench.measure import Figure, cores, print_figures, unpin

STREAM = 200_000
POOL_ROUNDS, POOL_OPERATIONS = 60, 300
DEAD_PEERS, DEAD_SECONDS = 200, 60


def main() -> None:
    """Run them one after the other; where there is load, the server has one core and the load another."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="rounds of the pairs; medians are shown")
    parser.add_argument("--dir", type=Path, help="where the stores lie for the time of the run: the disk to measure")
    options = parser.parse_args()
    server_core, load_core = cores()
    figures = [Figure("— pairs —")]
    with tempfile.TemporaryDirectory(prefix="shine-bench-", dir=options.dir) as name:
        folder = Path(name)
        figures += uvloop.run(measure_pairs(folder / "pairs", options.rounds))
        figures += [Figure("— memory under a stream —"), *uvloop.run(measure_memory(folder / "stream", STREAM))]
        for count, place in ((FEW, folder / "few"), (MESSAGES, folder / "full")):
            with open_store(place) as store:
                add_delivered(store, count)
        figures += [Figure("— idle —"), *uvloop.run(measure_idle(folder / "empty", folder / "full"))]
        figures += [Figure("— due work —"), *measure_due(folder / "few", folder / "full")]
        figures += [Figure("— catch-up —"), *uvloop.run(measure_catch_up(folder / "sync", TO_CATCH_UP))]
        figures += uvloop.run(measure_nothing_new(folder / "few", folder / "full"))
        figures += [Figure("— people —"), *uvloop.run(measure_people(folder / "people"))]
        figures += [Figure("— a quiet one beside a noisy one —"), *uvloop.run(measure_noisy(folder / "noisy"))]
        unpin()
        with open_store(folder / "wear") as store:
            add_delivered(store, WORN, pairs_a_commit=SMALL)
        figures += [Figure("— wear —"), *uvloop.run(measure_wear(folder / "wear"))]
        figures += [Figure("— verify —"), *measure_verify(folder / "verify")]
        figures += uvloop.run(measure_events(folder / "events", options.rounds))
        figures += [Figure("— backup, export, import —"), *measure_portable(folder / "portable")]
    with tempfile.TemporaryDirectory(prefix="shine-bench-", dir=options.dir) as name:
        figures += [Figure("— the chat page in headless Chromium —"), *measure_page(Path(name))]
    logging.disable()  # of each dead peer there is one line
    figures += [Figure("— links to other servers —"), *uvloop.run(measure_pool(POOL_ROUNDS, POOL_OPERATIONS))]
    figures += uvloop.run(measure_dead_peers(DEAD_PEERS, DEAD_SECONDS))
    machine = f"Python {platform.python_version()}, {platform.machine()}"
    print_figures(f"{machine}, server on core {server_core}, load on core {load_core}", figures)


if __name__ == "__main__":
    main()
