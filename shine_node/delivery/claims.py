"""The claims that attempts of this process hold, and the renewal of their leases (PROTOCOL.md §5.3)."""

from __future__ import annotations

import logging

from shine_node.clock import Clock
from shine_node.protocol.errors import Refusal
from shine_node.store.deliveries import Claim, renew_claims
from shine_node.store.environment import Store

__all__ = ["Claims"]

log = logging.getLogger(__name__)

SOON_SECONDS = 0.1
"""Attempts come to their results one after the other, on one link: after so long without one, the rest hang."""


class Claims:
    """Holds claims while their attempts run, and renews those that run long.

    Args:
        lease_ms: ``delivery.leaseMs``.
    """

    def __init__(self, *, store: Store, clock: Clock, lease_ms: int) -> None:
        self._store = store
        self._clock = clock
        self._lease_ms = lease_ms
        self._held: dict[tuple[int, int], tuple[Claim, float]] = {}
        self._undecided: dict[tuple[int, int], float] = {}
        """When each attempt that has no result yet began, the latest last."""
        self._decided_at = float("-inf")

    def __len__(self) -> int:
        return len(self._held)

    @property
    def held(self) -> frozenset[tuple[int, int]]:
        """``seq`` and ``version`` of each claim that is held."""
        return frozenset(self._held)

    def hold(self, claim: Claim) -> None:
        """Begin to keep a claim alive."""
        self._held[claim.seq, claim.version] = claim, self._clock.monotonic()
        self._undecided[claim.seq, claim.version] = self._clock.monotonic()

    def decide(self, claim: Claim) -> bool:
        """Take note that an attempt has its result, and say whether another one is about to have one too."""
        self._undecided.pop((claim.seq, claim.version), None)
        now, before = self._clock.monotonic(), self._decided_at
        self._decided_at = now
        begun = next(reversed(self._undecided.values()), None)
        return begun is not None and now - max(begun, before) <= SOON_SECONDS

    def release(self, claim: Claim) -> None:
        """Stop keeping a claim alive: its result is written, or it is lost."""
        self._held.pop((claim.seq, claim.version), None)
        self._undecided.pop((claim.seq, claim.version), None)

    async def renew_forever(self) -> None:
        """Renew, three times a lease, the claims that have been held for a third of one."""
        third = self._lease_ms / 3000
        while True:
            await self._clock.sleep(third)
            await self._renew(
                [claim for claim, since in self._held.values() if self._clock.monotonic() - since >= third]
            )

    async def renew_now(self) -> None:
        """Renew all claims that are held; for when the wall clock went forward and their leases are over too early."""
        await self._renew([claim for claim, _ in self._held.values()])

    async def _renew(self, claims: list[Claim]) -> None:
        if not claims:
            return
        now_ms = self._clock.now_ms()
        try:
            await self._store.write(lambda txn: renew_claims(txn, claims, now_ms=now_ms, lease_ms=self._lease_ms))
        except Refusal as refusal:
            log.warning("leases were not renewed, some attempts may be made twice: %s", refusal)
