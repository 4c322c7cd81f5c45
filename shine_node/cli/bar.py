"""A bar on the terminal that shows how much of a long piece of work is done; nothing where there is no terminal."""

from __future__ import annotations

import sys
from types import TracebackType

__all__ = ["Bar"]

WIDTH = 30


class Bar:
    """One line on standard error, for the length of a block.

    Args:
        what: is being done, such as ``verifying``.
        total: how much there is to do, at least about, for those who use ``add``.
    """

    def __init__(self, what: str, total: int = 0) -> None:
        self._what = what
        self._total = total
        self._done = 0
        self._terminal = sys.stderr.isatty()
        self._shown = -1

    def __enter__(self) -> Bar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown >= 0:
            print(f"\r{' ' * (len(self._what) + WIDTH + 10)}\r", end="", file=sys.stderr, flush=True)

    def add(self, amount: int = 1) -> None:
        """Show that so much more is done; where the total was an estimate it may be passed."""
        self._done += amount
        self.show(self._done, self._total)

    def show(self, done: int, total: int) -> None:
        """Show how much is done, where that is another percent than before."""
        percent = 100 if total <= 0 else min(100, 100 * done // total)
        if self._terminal and percent != self._shown:
            self._shown = percent
            bar = ("#" * (WIDTH * percent // 100)).ljust(WIDTH)
            print(f"\r{self._what} [{bar}] {percent:>3} %", end="", file=sys.stderr, flush=True)
