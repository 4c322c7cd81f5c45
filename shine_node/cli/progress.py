"""How far a long piece of work has come, for a person who looks at a terminal."""

from __future__ import annotations

import sys

from shine_node.clock import Clock, SystemClock

__all__ = ["Progress"]

PAUSE_SECONDS = 0.2
STEPS_A_LOOK = 1000
"""Small steps between two looks at the clock."""


class Progress:
    """One line on standard error that is written again and again, and nothing where that is no terminal.

    Args:
        what: is done, such as ``copying``.
        total: how much there is to do, at least about.
    """

    def __init__(self, what: str, total: int, *, clock: Clock | None = None) -> None:
        self._what = what
        self._total = max(1, total)
        self._done = 0
        self._steps = 0
        self._clock = clock or SystemClock()
        self._next = self._clock.monotonic() + PAUSE_SECONDS
        self._shown = False
        self._terminal = sys.stderr.isatty()

    def step(self) -> None:
        """Take note that one more of very many has been done."""
        self._steps += 1
        if self._steps == STEPS_A_LOOK:
            self._steps = 0
            self.add(STEPS_A_LOOK)

    def add(self, amount: int) -> None:
        """Take note that so much more has been done."""
        self._done += amount
        if self._terminal and self._clock.monotonic() >= self._next:
            self._next = self._clock.monotonic() + PAUSE_SECONDS
            self._shown = True
            share = min(99, 100 * self._done // self._total)
            print(f"\r{self._what}: {share:>2} %", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Take the line away."""
        if self._shown:
            print(f"\r{' ' * (len(self._what) + 6)}\r", end="", file=sys.stderr, flush=True)
