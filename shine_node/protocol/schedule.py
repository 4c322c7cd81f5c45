"""When the next attempt of a delivery is due: a pure function of (accepted, attempts made, now) (PROTOCOL.md §5.3)."""

from __future__ import annotations

import enum
from typing import NamedTuple

__all__ = ["ASK_FIRST_FROM", "Decision", "DeliveryState", "Schedule", "lease_is_over"]

ASK_FIRST_FROM = 3
"""From this attempt on the sender's other server is asked first, whatever the schedule."""


class DeliveryState(enum.IntEnum):
    """The state of a delivery; the two greater ones are terminal: nothing reopens them (§5.1)."""

    ACCEPTED = 0
    DELIVERED = 1
    FAILED = 2

    @property
    def wire(self) -> str:
        """The state as ``deliveryState`` names it."""
        return self.name.lower()


class Decision(NamedTuple):
    """What to do with a row that is looked at now.

    ``attempt`` is the number of the attempt to make now, or ``None``. ``next_at_ms`` is the next time if that attempt
    fails, or if there is none to make now; ``None`` if no further time is left. ``accepted_at_ms`` is the acceptance to
    keep: it moves where the clock went back.
    """

    attempt: int | None
    ask_first: bool
    next_at_ms: int | None
    accepted_at_ms: int

    @property
    def final(self) -> bool:
        """Whether no attempt is left after this one."""
        return self.next_at_ms is None

    @property
    def state_if_unsuccessful(self) -> DeliveryState:
        """The state to write if the attempt fails."""
        return DeliveryState.FAILED if self.final else DeliveryState.ACCEPTED


class Schedule:
    """The times of the attempts of one delivery.

    Args:
        offsets_seconds: seconds since acceptance, the first 0, strictly rising, 1–16 of them
            (``delivery.scheduleSeconds``).
    """

    def __init__(self, offsets_seconds: tuple[int, ...]) -> None:
        self.offsets_ms = tuple(seconds * 1000 for seconds in offsets_seconds)

    @property
    def last_offset_ms(self) -> int:
        """The offset of the last attempt, which stands for "the hour" everywhere."""
        return self.offsets_ms[-1]

    def decide(self, *, accepted_at_ms: int, last_attempt: int, now_ms: int) -> Decision:
        """Say which attempt to make now, and when to look again (§5.3).

        Missed times collapse into the latest attempt whose time has passed. Where the clock went back to before the
        latest attempt, acceptance moves so that this attempt is now.

        Args:
            accepted_at_ms: when the pair was accepted, Unix milliseconds.
            last_attempt: the number of the latest attempt made, 0 for none.
            now_ms: the clock, Unix milliseconds.
        """
        offsets = self.offsets_ms
        if last_attempt >= len(offsets):
            return Decision(None, False, None, accepted_at_ms)
        made_offset = offsets[last_attempt - 1] if last_attempt else 0
        if now_ms < accepted_at_ms + made_offset:
            accepted_at_ms = now_ms - made_offset
        age = now_ms - accepted_at_ms
        due = last_attempt
        while due < len(offsets) and offsets[due] <= age:
            due += 1
        next_at_ms = accepted_at_ms + offsets[due] if due < len(offsets) else None
        if due == last_attempt:
            return Decision(None, False, next_at_ms, accepted_at_ms)
        return Decision(due, due >= ASK_FIRST_FROM, next_at_ms, accepted_at_ms)

    def adopt(self, *, effective_ms: int, now_ms: int) -> Decision | None:
        """Say how a pair that came by ``DmSyncBatch`` joins the schedule, or ``None`` if it is too old to be sent (§6).

        Args:
            effective_ms: ``max(timeMs, revisionMs)``; it counts as the acceptance. Ages are never negative.
            now_ms: the clock, Unix milliseconds.
        """
        accepted_at_ms = min(effective_ms, now_ms)
        if now_ms - accepted_at_ms >= self.last_offset_ms:
            return None
        return self.decide(accepted_at_ms=accepted_at_ms, last_attempt=0, now_ms=now_ms)


def lease_is_over(*, lease_until_ms: int, now_ms: int, lease_ms: int) -> bool:
    """Say whether a claim has ended: its time is over, or the clock went back under it (§5.3).

    Args:
        lease_until_ms: the end that was written with the claim; 0 for no claim.
        lease_ms: ``delivery.leaseMs``; no true claim ends further ahead than this.
    """
    return lease_until_ms <= now_ms or lease_until_ms > now_ms + lease_ms
