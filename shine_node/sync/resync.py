"""The task that makes an owner's entries unsynced again, a bounded step at a time (PROTOCOL.md §6)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from weakref import WeakValueDictionary

from shine_node.clock import Clock
from shine_node.protocol.errors import Refusal
from shine_node.store.environment import Store, Transaction
from shine_node.store.readers import Readers
from shine_node.store.resync import (
    FIRST,
    Counts,
    Place,
    begin_resync,
    count_entries,
    has_entries,
    list_owners,
    next_resync,
    step_resync,
)

__all__ = ["Resync"]

log = logging.getLogger(__name__)

STEP_ROWS = 500
OWNERS_AT_ONCE = 100
COUNT_ROWS = 2000
"""Rows that are counted at a time: others who read wait no longer than that takes."""
PAUSE_SECONDS = 0.02
"""Between steps, so that the writer is free for others most of the time."""
LOOK_SECONDS = 10.0
"""How often unfinished work is looked for: a change of an access record leaves it in its own transaction."""


class Resync:
    """Finishes the work that ``store.resync`` keeps, also what an earlier process left.

    Args:
        own_login: this server's login, in lower case.
    """

    def __init__(self, *, store: Store, readers: Readers, clock: Clock, own_login: str) -> None:
        self._store = store
        self._readers = readers
        self._clock = clock
        self._own_login = own_login
        self._woken = asyncio.Event()
        self._last = ""
        """Whose work was gone on with last."""
        self._counting = asyncio.Lock()
        self._owners: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Of each owner whose entries are being counted, so that more of one owner's calls take no more of the time."""

    async def begin(self, owner: str) -> Counts:
        """Have all settings and messages of an owner made unsynced; it goes on by itself, also over a restart.

        An owner who does not have both this server and another one has nothing to be sent.

        Args:
            owner: in lower case.

        Returns:
            How many entries the owner has; exact where none come or go meanwhile.

        Raises:
            ServerBusy, StorageFull: not now.
        """
        turn = self._owners.setdefault(owner, asyncio.Lock())
        async with turn:
            await self._begin([owner])
            return await self._count([owner])

    async def begin_all(self) -> Counts:
        """Do as ``begin`` does for every owner who has this server and another one.

        Raises:
            ServerBusy, StorageFull: not now; the first hundreds may have begun.
        """
        owners = await self._readers.run(lambda txn: list_owners(txn, self._own_login))
        for start in range(0, len(owners), OWNERS_AT_ONCE):
            await self._begin(owners[start : start + OWNERS_AT_ONCE])
        return await self._count(owners)

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            self._woken.clear()
            try:
                await self._finish_all()
            except Refusal as refusal:
                log.warning("entries were not made unsynced, it is tried again: %s", refusal)
            await self._pause()

    async def _begin(self, owners: Sequence[str]) -> None:
        def work(txn: Transaction) -> None:
            for owner in owners:
                if has_entries(txn, owner, self._own_login):
                    begin_resync(txn, owner)

        await self._store.write(work)
        self._woken.set()

    async def _count(self, owners: Sequence[str]) -> Counts:
        settings, messages = 0, 0
        place: Place | None = FIRST
        while place is not None:
            async with self._counting:  # one step at a time, in the order of asking: a long count is in nobody's way
                found, place = await self._readers.run(partial(self._count_some, owners, place))
            settings, messages = settings + found.settings, messages + found.messages
        return Counts(settings, messages)

    def _count_some(self, owners: Sequence[str], place: Place, txn: Transaction) -> tuple[Counts, Place | None]:
        return count_entries(txn, owners, self._own_login, place=place, limit=COUNT_ROWS)

    async def _finish_all(self) -> None:
        while True:
            with self._store.read() as txn:
                if next_resync(txn) is None:
                    return
            done = await self._store.write(
                lambda txn: step_resync(txn, self._own_login, limit=STEP_ROWS, after=self._last)
            )
            self._last = done[0] if done is not None else ""
            await self._clock.sleep(PAUSE_SECONDS)

    async def _pause(self) -> None:
        timer = asyncio.ensure_future(self._clock.sleep(LOOK_SECONDS))
        woken = asyncio.ensure_future(self._woken.wait())
        try:
            await asyncio.wait((timer, woken), return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            woken.cancel()
