"""What the benchmarks share: cores, percentiles, the memory and time of a process, and one table of figures."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = [
    "Figure",
    "Memory",
    "cores",
    "cpu_seconds",
    "median",
    "memory",
    "percentile",
    "pin",
    "print_figures",
    "unpin",
]

_USABLE = sorted(os.sched_getaffinity(0))  # read before this process pins itself


class Figure(NamedTuple):
    """One line of the table: what was measured, beside what, and whether that is what was asked for."""

    what: str
    value: str = ""
    beside: str = ""
    target: str = ""
    met: bool | None = None


class Memory(NamedTuple):
    """The resident memory of a process, KiB; ``mapped`` is mostly pages of the store's file, which the system owns."""

    total: int
    own: int
    mapped: int


def cores() -> tuple[int, int]:
    """Return the core for the server and the one for the load; the same one where there is only one."""
    return _USABLE[0], _USABLE[-1]


def pin(core: int) -> None:
    """Keep this process, with the threads that it starts later, on one core."""
    os.sched_setaffinity(0, {core})


def unpin() -> None:
    """Let this process use all the cores again that it had at its start."""
    os.sched_setaffinity(0, _USABLE)


def median(values: Iterable[float]) -> float:
    """Return the median."""
    return statistics.median(values)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that a share (0–1) of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def memory(pid: int) -> Memory:
    """Return the resident memory of a process."""
    found = {"VmRSS": 0, "RssAnon": 0, "RssFile": 0}
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name in found:
            found[name] = int(value.split()[0])
    return Memory(found["VmRSS"], found["RssAnon"], found["RssFile"])


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used, all its threads together."""
    # By thread and to the nanosecond: the process's own figure comes in steps of 10 ms.
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text(encoding="ascii").split()[0]) for thread in threads) / 1e9


def print_figures(title: str, figures: Iterable[Figure]) -> None:
    """Print one table."""
    rows = [("", "measured", "beside the ceiling", "asked for", "")]
    for figure in figures:
        verdict = "" if figure.met is None else "met" if figure.met else "MISSED"
        rows.append((figure.what, figure.value, figure.beside, figure.target, verdict))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    print(f"\n{title}")
    for row in rows:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
