"""The worker: wakes on its interval, takes only due rows, and has their attempts made (PROTOCOL.md §5.3)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from shine_node.clock import Clock
from shine_node.delivery.background import Background
from shine_node.delivery.deliverer import Deliverer
from shine_node.delivery.slow import Room, SlowRoutes
from shine_node.protocol.errors import Refusal
from shine_node.protocol.schedule import DeliveryState, Schedule
from shine_node.store.deliveries import Claim, claim_due, due_keys, reschedule
from shine_node.store.environment import Store
from shine_node.store.layout import Table

__all__ = ["Worker"]

log = logging.getLogger(__name__)

SETTLING_AT_ONCE = 32
"""Messages whose fate is asked for together; there may be very many after a first synchronisation."""
SETTLING_PAUSE = 2.0
"""Seconds after the last arrival until it is asked for: questions would hold up the pages that are yet to come."""
STRETCH = 500
"""Open rows that one transaction puts at their times."""
JUMP_MS = 1000
"""A wall clock that has gone this much further than the monotonic one, or less far, has jumped."""


class Worker:
    """Retries open deliveries.

    Args:
        interval_ms: ``delivery.workerIntervalMs``.
        lease_ms: ``delivery.leaseMs``.
        max_concurrent: attempts of the worker under way at once, ``delivery.maxConcurrent``, beside those that wait for
            servers which are slow.
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
        self._slow = SlowRoutes(max_concurrent)
        self._attempts = Background()
        self._settling = Background()
        self._arrived_at = float("-inf")
        self._woken = asyncio.Event()
        self._free = asyncio.Event()
        self._held_up = False
        """Whether the last look may have left rows that wait for attempts under way: as it stood then, not later."""

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
        while (room := self._slow.room(self._clock.monotonic())).attempts:
            self._held_up = not room.slow_attempts
            claims = await self._claim(Table.DUE_ATTEMPTS, room)
            if not claims:
                break
            for claim in claims:
                self._slow.begin(claim, self._clock.monotonic())
                self._attempts.spawn(self._attempt(self._retry(claim)))
        else:
            self._held_up = True
        if not self._settling and self._clock.monotonic() - self._arrived_at >= SETTLING_PAUSE:
            claims = await self._claim(Table.DUE_SETTLING, Room(SETTLING_AT_ONCE, 0, frozenset()))
            if claims:
                self._settling.spawn(self._attempt(self._deliverer.settle(claims)))

    def arrived(self) -> None:
        """Take note that pairs came by synchronisation: the next look is at once, for those that are to be sent now."""
        self._arrived_at = self._clock.monotonic()
        self._woken.set()

    async def close(self) -> None:
        """End the attempts under way; their rows become due again by themselves."""
        await self._attempts.close()
        await self._settling.close()

    async def _claim(self, table: Table, room: Room) -> list[Claim]:
        """Claim due rows as far as there is room; none if nothing is due, which takes no write to find out."""
        before = None
        while True:
            now_ms = self._clock.now_ms()
            with self._store.read() as txn:
                first = due_keys(txn, now_ms, 1, table)
            if not first or first == before:  # nothing is due, or nothing that may be begun now
                return []
            before = first
            claims, failed = await self._store.write(
                lambda txn, now=now_ms: claim_due(  # type: ignore[misc]
                    txn,
                    self._schedule,
                    now_ms=now,
                    lease_ms=self._lease_ms,
                    limit=room.attempts,
                    table=table,
                    slow=room.slow,
                    slow_limit=room.slow_attempts,
                )
            )
            if failed:
                log.info("%d deliveries failed: the schedule in force is over for them", len(failed))
            if claims:
                return claims

    async def _retry(self, claim: Claim) -> None:
        state = None
        try:
            state = await self._deliverer.retry(claim)
        finally:
            self._slow.end(claim, self._clock.monotonic(), delivered=state is DeliveryState.DELIVERED)

    async def _attempt(self, work: Coroutine[Any, Any, object]) -> None:
        try:
            await work
        finally:
            self._free.set()

    async def _pause(self) -> None:
        """Wait for the next look: the interval, or earlier if rows may be left that wait for those under way."""
        waiting = {
            asyncio.ensure_future(self._clock.sleep(self._interval)),
            asyncio.ensure_future(_happened(self._woken)),
        }
        if self._held_up or self._settling:
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
