"""What waits for the store's writer: first come, first served, with bounds on how much may wait."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

from shine_node.protocol.errors import ServerBusy
from shine_node.store.jobs import Job

__all__ = ["MAX_WAITING_BYTES", "MAX_WAITING_JOBS", "JobQueue"]

MAX_WAITING_JOBS = 65536
MAX_WAITING_BYTES = 64 * 2**20


class JobQueue:
    """Jobs for one thread, from any thread.

    A job that is larger than all that may wait is taken where nothing else waits.
    """

    def __init__(self) -> None:
        self._waiting: deque[Job[Any]] = deque()
        self._wake = threading.Condition()
        self._closed = False
        self.waiting_bytes = 0
        """Of what waits and of what is being written, as far as jobs say it."""

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, jobs: Sequence[Job[Any]]) -> None:
        """Have jobs wait.

        Raises:
            ServerBusy: they would be more than ``MAX_WAITING_JOBS`` or ``MAX_WAITING_BYTES``, or it is closed.
        """
        size = sum(job.size for job in jobs)
        with self._wake:
            too_large = self.waiting_bytes and self.waiting_bytes + size > MAX_WAITING_BYTES
            if self._closed or too_large or len(self._waiting) + len(jobs) > MAX_WAITING_JOBS:
                raise ServerBusy("the store has too much to write", {"retryAfterMs": 1000})
            self._waiting.extend(jobs)
            self.waiting_bytes += size
            self._wake.notify()

    def take(self, most: int) -> list[Job[Any]]:
        """Wait for jobs and return at most so many of them; none once it is closed and empty."""
        with self._wake:
            while not self._waiting and not self._closed:
                self._wake.wait()
            return [self._waiting.popleft() for _ in range(min(len(self._waiting), most))]

    def done(self, jobs: Sequence[Job[Any]]) -> None:
        """Take note that jobs were written, so that others may wait in their place."""
        with self._wake:
            self.waiting_bytes -= sum(job.size for job in jobs)

    def close(self) -> None:
        """Take nothing more; what waits is still given."""
        with self._wake:
            self._closed = True
            self._wake.notify()
