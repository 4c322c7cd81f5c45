"""The storing of one page, in stretches; the peer is asked for more while the last of them is being stored."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from shine_node.protocol.errors import Refusal

__all__ = ["AT_ONCE", "SIDE_BY_SIDE", "Storing"]

AT_ONCE = 50
"""Entries that are checked and committed together: enough to share commits, too few to be in the way of live ones."""
SIDE_BY_SIDE = 2
"""Stretches under way: while one of them is written to the disk, the signatures of the other are checked."""

Store = Callable[[Sequence[Mapping[str, Any]]], Awaitable[list[Refusal | None]]]


class Storing:
    """A page that is being stored from now on.

    Args:
        items: of the page, in their order.
        refusals: by item: why it is not to be stored, ``None`` for those that are.
        store: stores some items and returns for each why it is not stored.
        turns: lets ``SIDE_BY_SIDE`` stretches go on at a time, of this page and of those before and after it.
    """

    def __init__(
        self, items: Sequence[Any], refusals: Sequence[Refusal | None], store: Store, turns: asyncio.Semaphore
    ) -> None:
        self.items = items
        self.refusals = list(refusals)
        """Of the items that are not stored; complete once all have ended."""
        self._store = store
        self._turns = turns
        good = [index for index, refusal in enumerate(refusals) if refusal is None]
        self._left = set(good)
        """The items that are neither stored nor refused yet."""
        self._told: set[int] = set()
        stretches = [good[start : start + AT_ONCE] for start in range(0, len(good), AT_ONCE)]
        self._tasks = [asyncio.ensure_future(self._store_stretch(stretch)) for stretch in stretches]

    @property
    def long(self) -> bool:
        """Whether it has more than one stretch."""
        return len(self._tasks) > 1

    async def most(self) -> list[str]:
        """Wait for all stretches but the last one; as ``rest`` otherwise."""
        return await self._ended(self._tasks[:-1])

    async def rest(self) -> list[str]:
        """Wait for all, and return the ``syncId`` of each item that is stored and was not returned yet, in their order.

        One that stands for an item too that is not stored is not among them: its acknowledgement would be of that one
        as well.

        Raises:
            Refusal: this server cannot store now.
        """
        return await self._ended(self._tasks)

    async def close(self) -> None:
        """End what is under way; what was stored comes again."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _store_stretch(self, stretch: Sequence[int]) -> None:
        async with self._turns:
            found = await self._store([self.items[index] for index in stretch])
        for index, refusal in zip(stretch, found, strict=True):
            self.refusals[index] = refusal
        self._left.difference_update(stretch)

    async def _ended(self, tasks: Sequence[asyncio.Task[None]]) -> list[str]:
        if tasks:
            await asyncio.wait(tasks)
        for task in tasks:
            task.result()
        stored, not_stored = [], set()
        for index, item in enumerate(self.items):
            if self.refusals[index] is None and index not in self._left:
                if index not in self._told:
                    stored.append(index)
            elif isinstance(item, Mapping) and isinstance(item.get("syncId"), str):
                not_stored.add(item["syncId"])
        ready = [index for index in stored if self.items[index]["syncId"] not in not_stored]
        self._told.update(ready)
        return [self.items[index]["syncId"] for index in ready]
