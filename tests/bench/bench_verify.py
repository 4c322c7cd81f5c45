"""``verify``: signatures a second beside what all cores can check, and its memory, with few messages and with many."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from shine_node.client.identity import Identity
from shine_node.client.messages import make_message
from shine_node.protocol.access import AccessServer
from shine_node.protocol.container import SIGNATURE_BYTES
from shine_node.protocol.pair import check_pair, parse_pair
from shine_node.protocol.signatures import is_signed_by
from shine_node.store.environment import Store, Transaction
from shine_node.store.messages import store_pair
from shine_node.store.users import add_record
from shine_node.store.verifying.verify import verify_file
from tests.bench.fill import MAX_BODY_BYTES
from tests.bench.measure import Figure, median, memory, print_figures, unpin

__all__ = ["main", "measure_verify"]

LOGIN = "bench"
FEW, MANY = 10_000, 100_000
ROUNDS = 3
CEILING_SECONDS = 2.0
LEAST_SHARE = 0.5
MOST_GROWTH_KIB = 8 * 1024
PAIRS_A_COMMIT = 2_000
SECONDS = 900
NOW_MS = 1_774_700_000_000


def fill(path: Path, count: int) -> None:
    """Make a store of so many pairs, signed as they must be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    alice, bob = Identity.generate("alice"), Identity.generate("bob")
    servers = [AccessServer(LOGIN, "wss://bench.example/ws"), AccessServer("other", "wss://other.example/ws")]
    store = Store(path, map_size=2**32)
    try:

        def register(txn: Transaction) -> None:
            add_record(txn, alice.access_record(servers, time_ms=NOW_MS - 1))
            add_record(txn, bob.access_record(servers[1:], time_ms=NOW_MS - 1))

        store.write_now(register)
        for first in range(0, count, PAIRS_A_COMMIT):

            def write(txn: Transaction, numbers: range = range(first, min(first + PAIRS_A_COMMIT, count))) -> None:
                for number in numbers:
                    made = make_message(alice, "bob", f"message {number} " * 8, time_ms=NOW_MS + number)
                    pair = check_pair(*parse_pair(made.incoming, made.outgoing, max_body_bytes=MAX_BODY_BYTES))
                    store_pair(txn, pair, now_ms=NOW_MS, from_client=True, delivery=None, own_login=LOGIN)

            store.write_now(write)
    finally:
        store.close()


def ceiling() -> float:
    """Return how many signatures all cores check a second, each on its own and nothing else being done."""
    alice = Identity.generate("alice")
    copy = make_message(alice, "bob", "message 12345 " * 8, time_ms=NOW_MS).incoming
    text, signature = copy[:-SIGNATURE_BYTES], copy[-SIGNATURE_BYTES:]
    threads = os.cpu_count() or 1
    end = time.perf_counter() + CEILING_SECONDS

    def check(_: int) -> int:
        done = 0
        while time.perf_counter() < end:
            if not is_signed_by(alice.device.public, text, signature):
                raise AssertionError("a good signature was refused")
            done += 1
        return done

    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(check, range(threads))) / CEILING_SECONDS


def run_verify(path: Path) -> tuple[float, int]:
    """Verify a store in this process; return the signatures a second, and the most memory of its own, KiB."""
    most = 0

    def look(done: int, total: int) -> None:
        nonlocal most
        most = max(most, memory(os.getpid()).own)

    sys.setswitchinterval(0.0005)
    begin = time.perf_counter()
    report = verify_file(path, LOGIN, progress=look, lock=False)
    elapsed = time.perf_counter() - begin
    if not report.clean or report.counts:
        raise AssertionError(f"something was found in a sound store: {report.first}")
    return report.signatures / elapsed, most


def measure_verify(folder: Path, *, few: int = FEW, many: int = MANY) -> list[Figure]:
    """Verify a small and a large store, each in a process of its own, turn by turn with the ceiling."""
    unpin()
    paths = folder / "few" / "shine.mdb", folder / "many" / "shine.mdb"
    for path, count in zip(paths, (few, many), strict=True):
        fill(path, count)
    shares, rates, small, large = [], [], [], []
    for _ in range(ROUNDS):
        before = ceiling()
        rate, memory_of_many = _in_process(paths[1])
        _, memory_of_few = _in_process(paths[0])
        shares.append(rate / ((before + ceiling()) / 2))
        rates.append(rate)
        small.append(memory_of_few)
        large.append(memory_of_many)
    growth = median(large) - median(small)
    return [
        Figure(
            f"verify of {many:,} messages, both copies",
            f"{median(rates):,.0f} signatures/s",
            f"{median(shares):.2f} of what {os.cpu_count()} cores check",
            f"at least {LEAST_SHARE:g}",
            median(shares) >= LEAST_SHARE,
        ),
        Figure(
            f"    its own memory, beside that with {few:,}",
            f"{median(large) / 1024:.1f} MiB",
            f"{growth / 1024:+.1f} MiB",
            f"at most {MOST_GROWTH_KIB // 1024} MiB more",
            growth <= MOST_GROWTH_KIB,
        ),
    ]


def _in_process(path: Path) -> tuple[float, int]:
    command = [sys.executable, "-m", "tests.bench.bench_verify", "--store", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    rate, most = done.stdout.split()
    return float(rate), int(most)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dir", type=Path, help="where the stores lie for the time of the run: the disk to measure")
    parser.add_argument("--store", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.store is not None:
        print(*run_verify(options.store))
        return
    with tempfile.TemporaryDirectory(prefix="shine-bench-", dir=options.dir) as name:
        print_figures("Verifying a store", measure_verify(Path(name)))


if __name__ == "__main__":
    main()
