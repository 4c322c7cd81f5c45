"""Threads that read pages of the store, so that a scan never holds up the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from shine_node.store.environment import Store, Transaction

__all__ = ["Readers"]

T = TypeVar("T")

THREADS = 2


class Readers:
    """Runs functions of a read transaction on a fixed number of threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="reading")

    async def run(self, work: Callable[[Transaction], T]) -> T:
        """Run a function in a thread, with a snapshot of the last commit, and return its result."""
        return await self.begin(work)

    def begin(self, work: Callable[[Transaction], T]) -> asyncio.Future[T]:
        """Do as ``run`` does, yet do not wait for the result, which nobody need ask for."""
        future = asyncio.get_running_loop().run_in_executor(self._threads, self._in_thread, work)
        future.add_done_callback(_look_at_error)
        return future

    def close(self) -> None:
        """Wait for what is being read, and end the threads; the store may be closed afterwards."""
        self._threads.shutdown(cancel_futures=True)

    def _in_thread(self, work: Callable[[Transaction], T]) -> T:
        with self._store.read() as txn:
            return work(txn)


def _look_at_error(future: asyncio.Future[T]) -> None:
    """Nobody is told of an error that nobody waited for."""
    if not future.cancelled():
        future.exception()
