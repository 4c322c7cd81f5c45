"""Opens stores in processes of their own, so that one that is ended by a signal is noticed and ends nothing else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PROGRAM = """
import os, sys
from pathlib import Path
from shine_node.store.environment import Store
from shine_node.store.files import StoreDamaged, StoreError

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        try:
            Store(Path(line.rstrip("\\n")), map_size=64 * 2**20).close()
        except StoreDamaged:
            os._exit(10)
        except StoreError:
            os._exit(11)
        except BaseException:
            os._exit(12)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
_NAMES = {0: "opened", 10: "damaged", 11: "refused", 12: "another error"}


class Opener:
    """Opens one store after the other."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def __call__(self, path: Path) -> str:
        """Open and close a store, and return what came of it: ``opened``, ``damaged``, ``refused``, or ``signal N``."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(path, file=self._process.stdin, flush=True)
        status = int(self._process.stdout.readline())
        return _NAMES.get(status, f"signal {-status}")


@contextmanager
def opener() -> Iterator[Opener]:
    """Have stores opened for the length of a block."""
    command = [sys.executable, "-c", _PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Opener(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
