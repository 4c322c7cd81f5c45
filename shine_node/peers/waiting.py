"""Waiting: with a bound on the injected clock, and for all of several coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from shine_node.clock import Clock

__all__ = ["all_results", "within"]

T = TypeVar("T")


async def within(clock: Clock, seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of some work that is done within a time; otherwise cancel it and wait for its end.

    Args:
        clock: measures the time.
        seconds: the bound.
        work: must come to an end soon after it is cancelled.

    Raises:
        TimeoutError: the time was over first.
    """
    task = asyncio.ensure_future(work)
    bell = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait((task, bell), return_when=asyncio.FIRST_COMPLETED)
    finally:
        bell.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))
        if not task.cancelled():
            task.exception()  # so that nobody misses it where the caller itself was cancelled
    if task.cancelled():
        raise TimeoutError
    return task.result()


async def all_results(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines side by side and return their results in order, once every one of them has ended.

    A result may be an exception that was returned and not raised.

    Raises:
        Exception: the first of theirs, also only then: nothing goes on behind the caller's back.
    """
    tasks = [asyncio.ensure_future(work) for work in works]
    await asyncio.gather(*tasks, return_exceptions=True)
    return [task.result() for task in tasks]
