"""Work for the store's writer, and how its results come back to the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from shine_node.store.changes import Change, Watch

if TYPE_CHECKING:
    from shine_node.store.environment import Transaction

__all__ = ["Job", "bring_back"]

T = TypeVar("T")


class Job(Generic[T]):
    """One piece of work for the writer: a function of the transaction, and the future of its result.

    The function may run twice, so that it does nothing but read and write the transaction it is given. A ``Refusal``
    that it raises harms no other job of the batch; whatever it had written before is undone. ``origin`` is whoever
    asked for it, for those who are told of its changes; the store does not look at it. ``size`` is about how many bytes
    it keeps in memory until it is done.
    """

    __slots__ = ("error", "future", "origin", "result", "size", "work")

    def __init__(
        self, work: Callable[[Transaction], T], future: asyncio.Future[T], origin: object = None, *, size: int = 0
    ) -> None:
        self.work = work
        self.future = future
        self.origin = origin
        self.size = size
        self.result: T | None = None
        self.error: BaseException | None = None


def bring_back(batch: Sequence[Job[Any]], changes: Sequence[Change], watch: Watch) -> None:
    """Tell the watch what has changed, and give each job its result; called in the loop, in the order of the commits.

    Whoever waits for a job goes on after this call, so that an answer about a change never leaves before its event.
    """
    try:
        if changes:
            watch(changes)
    finally:
        _resolve(batch)


def _resolve(batch: Sequence[Job[Any]]) -> None:
    for job in batch:
        if job.future.done():
            continue  # its request was cancelled; what it wrote stays, which is what an idempotent retry expects
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.result)
