"""The task that makes an owner's entries unsynced again, a bounded step at a time (PROTOCOL.md §6)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from shine_node.clock import Clock
from shine_node.protocol.errors import Refusal
from shine_node.store.environment import Store, Transaction
from shine_node.store.readers import Readers
from shine_node.store.resync import Counts, begin_resync, count_entries, list_owners, next_resync, step_resync

__all__ = ["Resync"]

log = logging.getLogger(__name__)

STEP_ROWS = 500
OWNERS_AT_ONCE = 100
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

    async def begin(self, *owners: str) -> Counts:
        """Have all settings and messages of owners made unsynced; it goes on by itself, also over a restart.

        An owner who does not have both this server and another one has nothing to be sent.

        Args:
            owners: in lower case.

        Returns:
            How many entries the owners have.

        Raises:
            ServerBusy, StorageFull: not now; of many owners, the first hundreds may have begun.
        """
        settings, messages = 0, 0
        for start in range(0, len(owners), OWNERS_AT_ONCE):
            found = await self._begin_some(owners[start : start + OWNERS_AT_ONCE])
            settings, messages = settings + found.settings, messages + found.messages
        return Counts(settings, messages)

    async def begin_all(self) -> Counts:
        """Do as ``begin`` does for every owner who has this server and another one."""
        return await self.begin(*await self._readers.run(lambda txn: list_owners(txn, self._own_login)))

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            self._woken.clear()
            try:
                await self._finish_all()
            except Refusal as refusal:
                log.warning("entries were not made unsynced, it is tried again: %s", refusal)
            await self._pause()

    async def _begin_some(self, owners: Sequence[str]) -> Counts:
        def count(txn: Transaction) -> dict[str, Counts]:
            return {owner: count_entries(txn, owner, self._own_login) for owner in owners}

        counts = await self._readers.run(count)
        some = [owner for owner, found in counts.items() if any(found)]

        def work(txn: Transaction) -> None:
            for owner in some:
                begin_resync(txn, owner)

        await self._store.write(work)
        self._woken.set()
        return Counts(
            sum(found.settings for found in counts.values()), sum(found.messages for found in counts.values())
        )

    async def _finish_all(self) -> None:
        while True:
            with self._store.read() as txn:
                if next_resync(txn) is None:
                    return
            await self._store.write(lambda txn: step_resync(txn, self._own_login, limit=STEP_ROWS))
            await self._clock.sleep(PAUSE_SECONDS)

    async def _pause(self) -> None:
        timer = asyncio.ensure_future(self._clock.sleep(LOOK_SECONDS))
        woken = asyncio.ensure_future(self._woken.wait())
        try:
            await asyncio.wait((timer, woken), return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            woken.cancel()
