"""An idle node: its memory, and how long it takes to start, with an empty store and with a million messages."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import uvloop

from tests.bench.fill import add_delivered, open_store
from tests.bench.measure import Figure, cores, median, memory, pin, print_figures
from tests.bench.server import pinned_server

__all__ = ["MESSAGES", "main", "measure_idle"]

MESSAGES = 1_000_000
STARTS = 7
IDLE_MIB = 40
MOST_TIMES = 2.0


async def _start_once(folder: Path, core: int) -> tuple[float, float]:
    """Return the seconds from the process to the first answer, and the resident memory after it, MiB."""
    begin = time.perf_counter()
    async with pinned_server(folder, core) as server:
        await server.request("Ping", {})
        elapsed = time.perf_counter() - begin
        return elapsed, memory(server.process.pid).total / 1024


async def measure_idle(empty: Path, full: Path) -> list[Figure]:
    """Start nodes on an empty store and on a full one, turn by turn."""
    server_core, load_core = cores()
    pin(load_core)
    for folder in (empty, full):
        await _start_once(folder, server_core)  # the first one makes the store, or reads its pages from the disk
    starts = [(await _start_once(empty, server_core), await _start_once(full, server_core)) for _ in range(STARTS)]
    with_none, with_all = median(e[0] for e, _ in starts), median(f[0] for _, f in starts)
    resident, resident_full = median(e[1] for e, _ in starts), median(f[1] for _, f in starts)
    return [
        Figure("resident, idle", f"{resident:.1f} MiB", "", f"at most {IDLE_MIB} MiB", resident <= IDLE_MIB),
        Figure(
            f"resident, idle, {MESSAGES:,} messages stored",
            f"{resident_full:.1f} MiB",
            "",
            f"at most {IDLE_MIB} MiB",
            resident_full <= IDLE_MIB,
        ),
        Figure("start to first answer, empty store", f"{with_none * 1e3:,.0f} ms"),
        Figure(
            f"start to first answer, {MESSAGES:,} messages",
            f"{with_all * 1e3:,.0f} ms",
            f"{with_all / with_none:.2f} × the empty store",
            f"at most {MOST_TIMES:g}",
            with_all <= MOST_TIMES * with_none,
        ),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dir", type=Path, help="where the stores lie for the time of the run: the disk to measure")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="shine-bench-", dir=options.dir) as name:
        folder = Path(name)
        with open_store(folder / "full") as store:
            add_delivered(store, MESSAGES)
        print_figures("An idle node", uvloop.run(measure_idle(folder / "empty", folder / "full")))


if __name__ == "__main__":
    main()
