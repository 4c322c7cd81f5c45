"""Work of delivery that goes on by itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from shine_node.protocol.errors import Refusal

__all__ = ["Background"]

log = logging.getLogger(__name__)


class Background:
    """Work that goes on by itself: kept from being collected, its defects logged, ended in one go."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a coroutine as a task of its own."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Refusal):  # of this server's own store
            log.warning("background work came to no end: %s", error)
        elif error is not None:
            log.error("background work failed", exc_info=error)

    async def close(self) -> None:
        """Cancel what still runs and wait for its end."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
