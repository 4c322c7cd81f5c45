"""What waits for the store's writer: jobs that cannot wait, those that can for a while, and bounds on all of them."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from shine_node.protocol.errors import ServerBusy
from shine_node.store.jobs import Job

__all__ = ["LATER_SECONDS", "MAX_JOBS_A_COMMIT", "MAX_WAITING_BYTES", "MAX_WAITING_JOBS", "JobQueue"]

MAX_JOBS_A_COMMIT = 256
MAX_WAITING_JOBS = 65536
MAX_WAITING_BYTES = 64 * 2**20
LATER_SECONDS = 0.2
"""How long what can wait does so for a commit that is made for something else, or for more of its kind."""


class JobQueue:
    """Gathers jobs into batches: a batch forms by itself while the one before is being written.

    Jobs are put in from any thread and taken out by one. A job that is larger than all that may wait is taken where
    nothing else waits.
    """

    def __init__(self) -> None:
        self._now: deque[Job[Any]] = deque()
        self._later: deque[Job[Any]] = deque()
        self._wake = threading.Condition()
        self.closed = False
        """Whether no more jobs are taken."""
        self.waiting_bytes = 0
        """Of what waits and of what is being written, as far as jobs say it."""

    def __len__(self) -> int:
        return len(self._now) + len(self._later)

    def put(self, jobs: list[Job[Any]], *, later: bool = False) -> None:
        """Queue jobs; they share a batch where they can.

        Args:
            later: they can wait up to ``LATER_SECONDS`` for others to share a batch with. Each commit writes some
                pages whatever is in it, and an SD card wears out by pages.

        Raises:
            ServerBusy: over ``MAX_WAITING_JOBS`` or ``MAX_WAITING_BYTES`` would wait, or the queue is closed; none of
                these was queued.
        """
        size = sum(job.size for job in jobs)
        with self._wake:
            too_large = self.waiting_bytes and self.waiting_bytes + size > MAX_WAITING_BYTES
            if self.closed or too_large or len(self) + len(jobs) > MAX_WAITING_JOBS:
                raise ServerBusy("the store has too much to write", {"retryAfterMs": 1000})
            self.waiting_bytes += size
            if later:
                waits_already = bool(self._later)
                self._later.extend(jobs)
                if waits_already:
                    return  # the writer counts from the first of them: it must not begin anew with each
            else:
                self._now.extend(jobs)
            self._wake.notify()

    def next_batch(self) -> list[Job[Any]]:
        """Wait for jobs and return at most ``MAX_JOBS_A_COMMIT``, first what has waited; none at the end of all."""
        with self._wake:
            while not self._now and not self.closed:
                if not self._later:
                    self._wake.wait()
                elif not self._wake.wait(LATER_SECONDS):
                    break
            batch: list[Job[Any]] = []
            for queue in (self._later, self._now):
                batch += [queue.popleft() for _ in range(min(len(queue), MAX_JOBS_A_COMMIT - len(batch)))]
            return batch

    def done(self, jobs: list[Job[Any]]) -> None:
        """Take note that jobs were written, so that others may wait in their place."""
        with self._wake:
            self.waiting_bytes -= sum(job.size for job in jobs)

    def close(self) -> None:
        """Take no more jobs; what waits is to be taken out at once."""
        with self._wake:
            self.closed = True
            self._wake.notify()

    def clear(self) -> int:
        """Forget what waits, and return how many jobs that were."""
        with self._wake:
            count = len(self)
            self.waiting_bytes -= sum(job.size for queue in (self._now, self._later) for job in queue)
            self._now.clear()
            self._later.clear()
            return count
