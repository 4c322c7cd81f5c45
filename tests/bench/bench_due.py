"""The time to select due work, with few and with a million terminal deliveries in the store."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from shine_node.clock import SystemClock
from shine_node.protocol.schedule import Schedule
from shine_node.store.deliveries import claim_due, due_keys
from shine_node.store.environment import Store, Transaction
from tests.bench.fill import add_delivered, add_due, open_store
from tests.bench.measure import Figure, cores, median, pin, print_figures

__all__ = ["main", "measure_due"]

FEW, MANY = 10_000, 1_000_000
DUE = 64
REPETITIONS = 400
SCHEDULE = Schedule((0, 30, 300, 1500, 3600))
LEASE_MS = 60_000
MOST_TIMES = 1.2


class _UndoError(Exception):
    """Ends a write transaction without a commit, so that the same rows are due again."""


def _select(store: Store) -> None:
    with store.read() as txn:
        found = len(due_keys(txn, SystemClock().now_ms(), DUE))
    if found != DUE:
        raise AssertionError(f"{found} rows were due, not {DUE}")


def _claim(store: Store) -> None:
    def work(txn: Transaction) -> None:
        claims, failed = claim_due(txn, SCHEDULE, now_ms=SystemClock().now_ms(), lease_ms=LEASE_MS, limit=DUE)
        if len(claims) != DUE or failed:
            raise AssertionError(f"{len(claims)} rows were claimed, not {DUE}")
        raise _UndoError

    try:
        store.write_now(work)
    except _UndoError:
        return


def _seconds(work: Callable[[Store], None], store: Store) -> float:
    begin = time.perf_counter()
    work(store)
    return time.perf_counter() - begin


def measure_due(few: Path, many: Path) -> list[Figure]:
    """Compare two stores with the same due work, turn by turn, so that a slow moment of the machine meets both."""
    pin(cores()[0])
    figures: list[Figure] = []
    with open_store(few) as small, open_store(many) as large:
        for store in (small, large):
            add_due(store, DUE)
        for name, work in ((f"select {DUE} due rows", _select), (f"claim {DUE} due rows", _claim)):
            for store in (small, large):
                _seconds(work, store)  # the first one reads the pages from the disk
            times = [(_seconds(work, small), _seconds(work, large)) for _ in range(REPETITIONS)]
            with_few, with_many = median(pair[0] for pair in times), median(pair[1] for pair in times)
            figures.append(
                Figure(
                    f"{name} beside {MANY:,} terminal deliveries",
                    f"{with_many * 1e6:,.0f} µs",
                    f"{with_many / with_few:.2f} × the {with_few * 1e6:,.0f} µs beside {FEW:,}",
                    f"at most {MOST_TIMES:g}",
                    with_many <= MOST_TIMES * with_few,
                )
            )
    return figures


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dir", type=Path, help="where the stores lie for the time of the run: the disk to measure")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="shine-bench-", dir=options.dir) as name:
        folder = Path(name)
        for count, place in ((FEW, folder / "few"), (MANY, folder / "many")):
            with open_store(place) as store:
                add_delivered(store, count)
        print_figures("Selecting due work", measure_due(folder / "few", folder / "many"))


if __name__ == "__main__":
    main()
