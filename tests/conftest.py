"""What the tests of more than one room share: a process that is as it was."""

from __future__ import annotations

import gc
import logging
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Below this folder, in the order in which they begin; the browser takes longest, and types are checked in one piece.
LONG = ("test_house.py", "faults", "web", "scenarios", "bench", "cli")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than there are processors for ``-n auto``: half of the suite's time is waiting for other processes."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the files that take long begin first: those of a moment are shared best among the processes at the end."""
    below = len(Path(__file__).parent.parts)
    order = {name: number for number, name in enumerate(LONG)}
    items.sort(key=lambda item: order.get(item.path.parts[below], len(LONG)))


@pytest.fixture
def process_of_before() -> Iterator[None]:
    """Put back what a node sets for its whole process."""
    root, wire = logging.getLogger(), logging.getLogger("websockets")
    before = root.level, list(root.handlers), wire.level, sys.getswitchinterval(), gc.get_threshold()
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    root.handlers.clear()
    yield
    root.handlers[:] = before[1]
    root.setLevel(before[0])
    wire.setLevel(before[2])
    sys.setswitchinterval(before[3])
    gc.set_threshold(*before[4])
    gc.unfreeze()
    resource.setrlimit(resource.RLIMIT_NOFILE, files)
