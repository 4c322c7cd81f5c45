"""Backups, exports and imports of a store of many messages, beside the same bytes read and written plainly."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from shine_node.client.identity import Identity
from shine_node.client.messages import make_message
from shine_node.clock import SystemClock
from shine_node.protocol.access import AccessServer
from shine_node.protocol.pair import check_pair, parse_pair
from shine_node.store.environment import Store, Transaction
from shine_node.store.messages import store_pair
from shine_node.store.users import add_record
from tests.bench.ceilings import check_pairs
from tests.bench.fill import MAX_BODY_BYTES, PAIRS_A_COMMIT
from tests.bench.load import BODY
from tests.bench.measure import Figure, cores, memory, print_figures
from tests.cli.program import LAUNCHER
from tests.support.nodes import node_settings, toml_text

__all__ = ["main", "measure_portable"]

LOGIN = "home"
FEW, MANY = 10_000, 100_000
CHATS = 1000
LOOK_SECONDS = 0.02
CHUNK = 2**20
GROWTH_MIB = 8
"""By how much a command's own memory may grow with ten times the messages."""


class Run(NamedTuple):
    """How long a command took, and the most memory of its own that it had, KiB; pages of files are not its own."""

    seconds: float
    own: int


def measure_portable(folder: Path, few: int = FEW, many: int = MANY) -> list[Figure]:
    """Measure all three with few and with many messages."""
    small = _measure(folder / "few", few)
    figures, large = [], _measure(folder / "many", many)
    sizes = {name: path.stat().st_size / 2**20 for name, path in _files(folder / "many").items()}
    plain = {name: _plain_copy(path) for name, path in _files(folder / "many").items()}
    ceiling, _ = check_pairs(cores()[0])
    for name, run in large.items():
        kind = "backup" if name == "backup" else "lines"
        beside = f"{run.seconds / plain[kind]:.1f} × as long as to copy its {sizes[kind]:.0f} MiB and sync them"
        if name == "import":
            beside += f"; {many / run.seconds / ceiling:.2f} of what one core checks in signatures"
        figures.append(Figure(f"{name} of {many:,} messages", f"{run.seconds:.1f} s", beside))
        growth = (run.own - small[name].own) / 1024
        figures.append(
            Figure(
                f"its own memory, beside {few:,} messages",
                f"{run.own / 1024:.0f} MiB",
                f"{growth:+.1f} MiB",
                f"at most {GROWTH_MIB} MiB more",
                growth <= GROWTH_MIB,
            )
        )
    return figures


def _measure(folder: Path, count: int) -> dict[str, Run]:
    with _store(folder / LOGIN) as store:
        _fill(store, count)
    files = _files(folder)
    return {
        "backup": _run(folder / LOGIN, "backup", files["backup"]),
        "export": _run(folder / LOGIN, "export", files["lines"]),
        "import": _run(folder / "other", "import", files["lines"]),
    }


def _files(folder: Path) -> dict[str, Path]:
    return {"backup": folder / "copy.mdb", "lines": folder / "store.jsonl"}


@contextmanager
def _store(folder: Path) -> Iterator[Store]:
    (folder / "data").mkdir(parents=True)
    store = Store(folder / "data" / "shine.mdb", map_size=2**32)
    try:
        yield store
    finally:
        store.close()


def _fill(store: Store, count: int) -> None:
    """Add messages of one user to many, all signed, delivered, and known to the other server."""
    alice, now_ms = Identity.generate("alice"), SystemClock().now_ms()
    own = [AccessServer(LOGIN, "wss://home.example/ws"), AccessServer("other", "wss://other.example/ws")]
    record = alice.access_record(own, time_ms=now_ms - 10**9)
    store.write_now(lambda txn: add_record(txn, record))
    for first in range(0, count, PAIRS_A_COMMIT):
        pairs = [
            make_message(alice, f"user{number % CHATS:04d}", BODY, time_ms=now_ms - count + number)
            for number in range(first, min(first + PAIRS_A_COMMIT, count))
        ]
        checked = [check_pair(*parse_pair(p.incoming, p.outgoing, max_body_bytes=MAX_BODY_BYTES)) for p in pairs]

        def write(txn: Transaction, checked: Sequence = checked) -> None:  # type: ignore[type-arg]
            for pair in checked:
                store_pair(
                    txn,
                    pair,
                    now_ms=now_ms,
                    from_client=False,
                    delivery=None,
                    own_login=LOGIN,
                    from_server="other",
                )

        store.write_now(write)


def _run(folder: Path, command: str, file: Path) -> Run:
    """Run a command on the store of a folder, and look at its memory now and then."""
    folder.mkdir(exist_ok=True)
    config = folder / "node.toml"
    config.write_text(toml_text(node_settings(LOGIN, folder, storage={"mapSizeMiB": 4096})))
    words = [sys.executable, str(LAUNCHER), command, "--config", str(config), str(file)]
    begin, own = time.perf_counter(), 0
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as program:
        while program.poll() is None:
            own = max(own, memory(program.pid).own)
            time.sleep(LOOK_SECONDS)
    if program.returncode:
        raise AssertionError(f"{command} has ended with {program.returncode}")
    return Run(time.perf_counter() - begin, own)


def _plain_copy(path: Path) -> float:
    """Return how long it takes to read a file and write it beside itself, synced."""
    begin = time.perf_counter()
    target = path.with_suffix(".plain")
    with path.open("rb") as source, target.open("wb") as copy:
        while data := source.read(CHUNK):
            copy.write(data)
        copy.flush()
        os.fsync(copy.fileno())
    seconds = time.perf_counter() - begin
    target.unlink()
    return seconds


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dir", type=Path, help="where the stores lie for the time of the run: the disk to measure")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="shine-bench-", dir=options.dir) as name:
        print_figures("Backup, export, import", measure_portable(Path(name)))


if __name__ == "__main__":
    main()
