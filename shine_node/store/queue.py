"""What waits for the store's writer: first come, first served, with bounds on how much may wait."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

from shine_node.protocol.errors import ServerBusy
from shine_node.store.jobs import Job

__all__ = ["LATER_SECONDS", "MAX_WAITING_BYTES", "MAX_WAITING_JOBS", "JobQueue"]

MAX_WAITING_JOBS = 65536
MAX_WAITING_BYTES = 64 * 2**20
LATER_SECONDS = 0.2
"""How long what can wait does so for a commit that is made for something else, or for more of its kind."""


class JobQueue:
    """Jobs for one thread, from any thread.

    A job that is larger than all that may wait is taken where nothing else waits.
    """

    def __init__(self) -> None:
        self._waiting: deque[Job[Any]] = deque()
        self._later: deque[Job[Any]] = deque()
        self._wake = threading.Condition()
        self._closed = False
        self.waiting_bytes = 0
        """Of what waits and of what is being written, as far as jobs say it."""

    def __len__(self) -> int:
        return len(self._waiting) + len(self._later)

    def put(self, jobs: Sequence[Job[Any]], *, later: bool = False) -> None:
        """Have jobs wait.

        Args:
            later: they can wait up to ``LATER_SECONDS`` for others to be taken with.

        Raises:
            ServerBusy: they would be more than ``MAX_WAITING_JOBS`` or ``MAX_WAITING_BYTES``, or it is closed.
        """
        size = sum(job.size for job in jobs)
        with self._wake:
            too_large = self.waiting_bytes and self.waiting_bytes + size > MAX_WAITING_BYTES
            if self._closed or too_large or len(self) + len(jobs) > MAX_WAITING_JOBS:
                raise ServerBusy("the store has too much to write", {"retryAfterMs": 1000})
            self.waiting_bytes += size
            if later:
                waits_already = bool(self._later)
                self._later.extend(jobs)
                if waits_already:
                    return  # the thread counts from the first of them: it must not begin anew with each
            else:
                self._waiting.extend(jobs)
            self._wake.notify()

    def take(self, most: int) -> list[Job[Any]]:
        """Wait for jobs and return at most so many of them, first what has waited; none once it is closed and empty."""
        with self._wake:
            while not self._waiting and not self._closed:
                if not self._later:
                    self._wake.wait()
                elif not self._wake.wait(LATER_SECONDS):
                    break
            batch: list[Job[Any]] = []
            for queue in (self._later, self._waiting):
                batch += [queue.popleft() for _ in range(min(len(queue), most - len(batch)))]
            return batch

    def done(self, jobs: Sequence[Job[Any]]) -> None:
        """Take note that jobs were written, so that others may wait in their place."""
        with self._wake:
            self.waiting_bytes -= sum(job.size for job in jobs)

    def close(self) -> None:
        """Take nothing more; what waits is still given."""
        with self._wake:
            self._closed = True
            self._wake.notify()
