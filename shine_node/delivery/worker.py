"""The worker: wakes on its interval, takes only due rows, and has their attempts made (PROTOCOL.md §5.3)."""

from __future__ import annotations

import asyncio
import logging

from shine_node.clock import Clock
from shine_node.delivery.attempts import Background
from shine_node.delivery.deliverer import Deliverer
from shine_node.protocol.errors import Refusal
from shine_node.protocol.schedule import Schedule
from shine_node.store.deliveries import Claim, claim_due, due_keys, reschedule
from shine_node.store.environment import Store
from shine_node.store.layout import Table

__all__ = ["Worker"]

log = logging.getLogger(__name__)

SETTLING_AT_ONCE = 16
"""Messages whose fate is asked for at once; there may be very many after a first synchronisation."""
STRETCH = 500
"""Open rows that one transaction puts at their times."""
JUMP_MS = 1000
"""A wall clock that has gone this much further than the monotonic one, or less far, has jumped."""


class Worker:
    """Retries open deliveries.

    Args:
        interval_ms: ``delivery.workerIntervalMs``.
        lease_ms: ``delivery.leaseMs``.
        max_concurrent: attempts of the worker under way at once, ``delivery.maxConcurrent``.
    """

    def __init__(
        self,
        *,
        store: Store,
        deliverer: Deliverer,
        clock: Clock,
        schedule: Schedule,
        interval_ms: int,
        lease_ms: int,
        max_concurrent: int,
    ) -> None:
        self._store = store
        self._deliverer = deliverer
        self._clock = clock
        self._schedule = schedule
        self._interval = interval_ms / 1000
        self._lease_ms = lease_ms
        self._max_concurrent = max_concurrent
        self._attempts = Background()
        self._settling = Background()
        self._woken = asyncio.Event()
        self._free = asyncio.Event()

    async def run(self) -> None:
        """Work until cancelled. The first look, with all claims of an earlier process void, is made at once."""
        in_time = await self._put_in_time()
        reference = self._clock.now_ms(), self._clock.monotonic()
        while True:
            try:
                await self.look()
            except Refusal as refusal:
                log.warning("due deliveries were not taken, the next look will be in time: %s", refusal)
            await self._pause()
            now = self._clock.now_ms(), self._clock.monotonic()
            jump_ms = (now[0] - reference[0]) - (now[1] - reference[1]) * 1000
            reference = now
            if jump_ms > JUMP_MS:
                log.warning("the clock went forward: the leases of the attempts under way are renewed")
                await self._deliverer.claims.renew_now()
            elif jump_ms < -JUMP_MS:
                log.warning("the clock went back: open deliveries are put at their new times")
                in_time = False
            if not in_time:
                in_time = await self._put_in_time()

    async def look(self) -> None:
        """Take due rows as far as attempts are free, and start an attempt for each."""
        self._free.clear()
        self._woken.clear()
        await self._start_due(Table.DUE_ATTEMPTS, self._attempts, self._max_concurrent)
        await self._start_due(Table.DUE_SETTLING, self._settling, SETTLING_AT_ONCE)

    def wake(self) -> None:
        """Have the next look at once: something has become due now."""
        self._woken.set()

    async def close(self) -> None:
        """End the attempts under way; their rows become due again by themselves."""
        await self._attempts.close()
        await self._settling.close()

    async def _start_due(self, table: Table, attempts: Background, greatest: int) -> None:
        while (room := greatest - len(attempts)) > 0:
            now_ms = self._clock.now_ms()
            with self._store.read() as txn:
                if not due_keys(txn, now_ms, 1, table):
                    return
            for claim in await self._claim(table, now_ms, room):
                attempts.spawn(self._attempt(claim))

    async def _claim(self, table: Table, now_ms: int, room: int) -> list[Claim]:
        claims, failed = await self._store.write(
            lambda txn: claim_due(txn, self._schedule, now_ms=now_ms, lease_ms=self._lease_ms, limit=room, table=table)
        )
        if failed:
            log.info("%d deliveries failed: the schedule in force is over for them", len(failed))
        return claims

    async def _attempt(self, claim: Claim) -> None:
        try:
            await self._deliverer.retry(claim)
        finally:
            self._free.set()

    async def _pause(self) -> None:
        """Wait for the next look: the interval, or earlier if rows were left because no attempt was free."""
        waiting = {
            asyncio.ensure_future(self._clock.sleep(self._interval)),
            asyncio.ensure_future(_happened(self._woken)),
        }
        if len(self._attempts) >= self._max_concurrent or len(self._settling) >= SETTLING_AT_ONCE:
            waiting.add(asyncio.ensure_future(_happened(self._free)))
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()

    async def _put_in_time(self) -> bool:
        """Put every open row at its right time; ``False`` where the store refuses it now."""
        return await self._put_table_in_time(Table.DUE_ATTEMPTS) and await self._put_table_in_time(Table.DUE_SETTLING)

    async def _put_table_in_time(self, table: Table) -> bool:
        after: bytes | None = b""
        while after is not None:
            start, now_ms = after, self._clock.now_ms()
            held = self._deliverer.claims.held
            try:
                after = await self._store.write(
                    lambda txn, start=start, now=now_ms, held=held: reschedule(  # type: ignore[misc]
                        txn, self._schedule, now_ms=now, held=held, after=start, limit=STRETCH, table=table
                    )
                )
            except Refusal as refusal:
                log.warning("open deliveries were not put in time, the next look tries again: %s", refusal)
                return False
        return True


async def _happened(event: asyncio.Event) -> None:
    await event.wait()
