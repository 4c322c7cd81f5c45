"""Threads that read pages of the store, so that a scan never holds up the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from shine_node.store.environment import Store, Transaction

__all__ = ["Readers"]

T = TypeVar("T")

THREADS = 2


class Readers:
    """Runs functions of a read transaction on a fixed number of threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="reading")
        self._running: set[Future[Any]] = set()

    async def run(self, work: Callable[[Transaction], T]) -> T:
        """Run a function in a thread, with a snapshot of the last commit, and return its result."""
        return await self.begin(work)

    def begin(self, work: Callable[[Transaction], T]) -> asyncio.Future[T]:
        """Do as ``run`` does, yet do not wait for the result, which nobody need ask for."""
        running = self._threads.submit(self._in_thread, work)
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        future = asyncio.wrap_future(running)
        future.add_done_callback(_look_at_error)
        return future

    def close(self, seconds: float | None = None) -> bool:
        """Wait for what is being read, and end the threads; the store may be closed afterwards.

        Args:
            seconds: how long to wait at most.

        Returns:
            Whether all has ended; if not, the store must stay open.
        """
        self._threads.shutdown(wait=False, cancel_futures=True)
        if wait(set(self._running), seconds).not_done:
            return False
        self._threads.shutdown()  # they have nothing to do any more, and end at once
        return True

    def _in_thread(self, work: Callable[[Transaction], T]) -> T:
        with self._store.read() as txn:
            return work(txn)


def _look_at_error(future: asyncio.Future[T]) -> None:
    """Nobody is told of an error that nobody waited for."""
    if not future.cancelled():
        future.exception()
