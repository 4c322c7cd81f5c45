"""A fixed number of threads that check signatures, in batches of what is waiting."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Hashable, Sequence
from typing import Protocol

from shine_node.crypto.fairness import FairQueue
from shine_node.protocol.errors import ServerBusy
from shine_node.protocol.signatures import is_signed_by

__all__ = ["Check", "CheckedSink", "CryptoPool", "Submission"]

log = logging.getLogger(__name__)

MAX_BATCH = 64
MAX_BATCH_LATER = 16
"""Of what can wait: few, so that the thread is soon free for what cannot."""
MAX_BATCH_BYTES = 4 * 2**20
"""Signed bytes after which a batch has no more submissions."""
MAX_WAITING_BYTES = 32 * 2**20
"""Signed bytes that may wait; what holds them, and is held with them, takes a few times as much memory."""
TURNS_LATER = 4
"""What can wait has at least one turn in so many: it is slowed down, never stopped."""

Check = tuple[bytes, bytes, bytes]
"""A public key, the bytes that were signed, the signature."""


class Submission:
    """The checks of one request: all must hold. ``failed`` is the index of the first that does not, once checked.

    ``source`` is whoever asks for it, ``None`` where that is not known; sources take turns. ``size`` is that of what is
    signed, in bytes. Subclasses carry what their sink needs.
    """

    __slots__ = ("checks", "failed", "size", "source")

    def __init__(self, checks: Sequence[Check], source: Hashable = None) -> None:
        self.checks = checks
        self.source = source
        self.size = sum(len(message) for _, message, _ in checks)
        self.failed: int | None = None


class CheckedSink(Protocol):
    """Where checked submissions go; called in a thread of the pool, once for a batch."""

    def checked(self, batch: list[Submission]) -> None:
        """Take submissions whose ``failed`` is set."""


class CryptoPool:
    """Checks signatures on a fixed number of threads, with a queue that is bounded, by count and by bytes.

    A thread takes what is waiting, up to ``MAX_BATCH`` submissions, checks it and hands it on as one batch: batches
    form by themselves under load, and a single submission waits for nobody. Sources take turns, and none of them has
    more than half of what may wait, so that a noisy one is in nobody's way but its own. What can wait is checked when
    nothing else is there to be checked, and by one thread at a time: the others, and the processor's time, are for what
    cannot.

    Args:
        threads: how many, ``crypto.threads``.
        max_queue: how many submissions may wait, ``crypto.maxQueue``.
    """

    def __init__(self, *, threads: int, max_queue: int) -> None:
        self._max_queue = max_queue
        self._waiting: FairQueue[tuple[CheckedSink, Submission]] = FairQueue()
        self._later: deque[tuple[CheckedSink, Submission]] = deque()
        self._later_size = 0
        self._later_taken = False
        """Whether a thread checks some of what can wait."""
        self._passed_over = 0
        """Batches that were taken before it since its last turn."""
        self._wake = threading.Condition()
        self._stopping = False
        self._threads = [threading.Thread(target=self._check_forever, name=f"crypto-{n}") for n in range(threads)]

    @property
    def waiting(self) -> int:
        """How many submissions are waiting."""
        return len(self._waiting) + len(self._later)

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def close(self, *, abandon: bool = False) -> None:
        """Check what is waiting, then end the threads.

        Args:
            abandon: do not check it: nobody waits for it any more.
        """
        with self._wake:
            self._stopping = True
            if abandon:
                self._waiting.clear()
                self._later.clear()
                self._later_size = 0
            self._wake.notify_all()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def submit(self, submissions: Sequence[Submission], sink: CheckedSink, *, later: bool = False) -> None:
        """Queue submissions; the sink gets each one checked.

        Args:
            later: they can wait for others that come after them.

        Raises:
            ServerBusy: the queue is full, at once; none of these was queued.
        """
        size = sum(submission.size for submission in submissions)
        with self._wake:
            if self._stopping or self._is_full(len(submissions), size) or self._has_half(submissions):
                raise ServerBusy("too many signatures are waiting to be checked", {"retryAfterMs": 1000})
            if later:
                self._later.extend((sink, submission) for submission in submissions)
                self._later_size += size
            else:
                for submission in submissions:
                    self._waiting.put(submission.source, (sink, submission), submission.size)
            self._wake.notify()

    async def verify(self, checks: Sequence[Check]) -> int | None:
        """Check signatures and return the index of the first one that is wrong, ``None`` if all are right.

        Raises:
            ServerBusy: the queue is full.
        """
        sink = _Waiter()
        self.submit([Submission(checks)], sink)
        return await sink.future

    def _check_forever(self) -> None:
        can_wait = False
        while True:
            with self._wake:
                if can_wait:
                    self._later_taken = False
                while not self._ready and not self._stopping:
                    self._wake.wait()
                if not self._ready:
                    return
                batch, can_wait = self._next_batch()
                if self._ready:
                    self._wake.notify()
            sinks: dict[CheckedSink, list[Submission]] = {}
            for sink, submission in batch:
                submission.failed = first_wrong(submission.checks)
                sinks.setdefault(sink, []).append(submission)
            for sink, checked in sinks.items():
                try:
                    sink.checked(checked)
                except Exception:  # a thread that ends would be missed for good
                    log.exception("checked signatures were not taken")

    def _is_full(self, count: int, size: int) -> bool:
        """Say whether there is no room for so much more; what is larger than all that may wait is taken alone."""
        waiting_size = self._waiting.size + self._later_size
        too_large = waiting_size > 0 and waiting_size + size > MAX_WAITING_BYTES
        return too_large or self.waiting + count > self._max_queue

    def _has_half(self, submissions: Sequence[Submission]) -> bool:
        """Say whether a source has half of what may wait already."""
        sources = {submission.source for submission in submissions} - {None}
        return any(
            self._waiting.waiting_of(source) > self._max_queue // 2
            or self._waiting.size_of(source) > MAX_WAITING_BYTES // 2
            for source in sources
        )

    @property
    def _ready(self) -> bool:
        """Whether there is something for one more thread."""
        return bool(self._waiting) or (bool(self._later) and not self._later_taken)

    def _next_batch(self) -> tuple[list[tuple[CheckedSink, Submission]], bool]:
        """Return what a thread has to check, and whether it is of what can wait."""
        if self._later and not self._later_taken and (not self._waiting or self._passed_over == TURNS_LATER - 1):
            self._passed_over, self._later_taken = 0, True
            return self._take_later(), True
        self._passed_over += bool(self._later) and not self._later_taken
        share = -(-len(self._waiting) // len(self._threads))
        return self._waiting.take(min(share, MAX_BATCH), MAX_BATCH_BYTES), False

    def _take_later(self) -> list[tuple[CheckedSink, Submission]]:
        taken: list[tuple[CheckedSink, Submission]] = []
        before = self._later_size
        while self._later and len(taken) < MAX_BATCH_LATER and before - self._later_size < MAX_BATCH_BYTES:
            taken.append(self._later.popleft())
            self._later_size -= taken[-1][1].size
        return taken


def first_wrong(checks: Sequence[Check]) -> int | None:
    """Return the index of the first signature that does not verify, ``None`` if all do.

    One that cannot be checked at all, because something is not bytes, does not verify.
    """
    for index, (key, message, signature) in enumerate(checks):
        try:
            if not is_signed_by(key, message, signature):
                return index
        except Exception:
            log.exception("a signature could not be checked")
            return index
    return None


class _Waiter:
    """A sink for one submission that a coroutine waits for."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[int | None] = self._loop.create_future()

    def checked(self, batch: list[Submission]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._resolve, batch[0].failed)

    def _resolve(self, failed: int | None) -> None:
        if not self.future.done():
            self.future.set_result(failed)
