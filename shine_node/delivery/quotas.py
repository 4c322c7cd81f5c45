"""What one user may store and send here, and what a user takes from whom (PROTOCOL.md §10, ``[limits]``).

Asked in the transaction that would store, where what is counted is exact. Codes are those of §2: 507 for stored bytes
and for a disk without room, 429 for messages a day and for those from one sender, 403 for a sender who is blocked. A
peer tries again by its schedule, whatever the code, and fails in the end: nothing is lost silently.

What comes by synchronisation, or from the sender's other server, was accepted there: as the owner's it is always taken,
or the two would never become equal.
"""

from __future__ import annotations

from typing import NamedTuple

from shine_node.clock import Clock
from shine_node.config import LimitsConfig
from shine_node.delivery.rates import Rates
from shine_node.protocol.errors import Forbidden, RateLimited, StorageFull
from shine_node.store.blocks import blocks
from shine_node.store.environment import Store, Transaction
from shine_node.store.layout import ItemKey, Kind
from shine_node.store.messages import Gate
from shine_node.store.usage import DAY_MS, day_of, read_usage

__all__ = ["Quotas"]

MIB = 2**20
MAX_SENDERS = 20_000
"""Senders to a recipient that are remembered; what is kept of each is small."""
SECONDS = 60.0


class Quotas:
    """Makes the gates that what is to be stored has to pass.

    Args:
        limits: ``[limits]`` of the configuration.
    """

    def __init__(self, *, limits: LimitsConfig, store: Store, clock: Clock) -> None:
        self.limits = limits
        """In force now."""
        self._store = store
        self._clock = clock
        self._rates: Rates[tuple[str, str]] = Rates(MAX_SENDERS)

    def gate(self, *, own: bool, live: bool) -> Gate:
        """Return a gate.

        Args:
            own: whether the sender, too, is bound: not where the sender's other server has accepted the pair.
            live: whether the recipient's copy counts for the rate of its sender: not in synchronisation.
        """
        return _Gate(self, own, live)

    def check_room(self) -> None:
        """Raise ``StorageFull`` while the disk has too little room."""
        self._store.check_room()

    def check_bytes(self, txn: Transaction, key: ItemKey, grows: int) -> None:
        """Refuse what would be more than an owner may store; what removes a message is always taken.

        Raises:
            StorageFull: ``limits.maxStoredMiBPerUser``.
        """
        most = self.limits.max_stored_mib_per_user * MIB
        if not most or grows <= 0 or key.kind is Kind.TOMBSTONE:
            return
        if read_usage(txn, key.owner).stored_bytes + grows > most:
            raise StorageFull(f"the messages of {key.owner} take all the room that one user has here")

    def check_day(self, txn: Transaction, key: ItemKey, now_ms: int) -> None:
        """Refuse one message or edit more than a sender may send on a day.

        Raises:
            RateLimited: ``limits.maxMessagesPerDay``; until midnight.
        """
        most = self.limits.max_messages_per_day
        if not most or key.kind is not Kind.MESSAGE:
            return
        used, today = read_usage(txn, key.owner), day_of(now_ms)
        if used.day == today and used.sent >= most:
            wait_ms = (today + 1) * DAY_MS - now_ms
            raise RateLimited(f"this server takes {most} messages a day from one user", {"retryAfterMs": wait_ms})

    def check_sender(self, txn: Transaction, key: ItemKey) -> None:
        """Refuse a copy of a sender whom its recipient has blocked.

        Raises:
            Forbidden: the recipient's setting ``blocked``.
        """
        if blocks(txn, key.owner, key.peer):
            raise Forbidden(f"{key.owner} takes no messages from {key.peer}")

    def count_message(self, key: ItemKey) -> None:
        """Count a message or edit of a sender to a recipient, or refuse it; notes to oneself are not counted.

        Raises:
            RateLimited: ``limits.messagesPerMinutePerSender``.
        """
        most = self.limits.messages_per_minute_per_sender
        if not most or key.kind is not Kind.MESSAGE or key.peer == key.owner:
            return
        sender, now = (key.peer, key.owner), self._clock.monotonic()
        wait = self._rates.wait(sender, now, most=most, seconds=SECONDS)
        if wait:
            text = f"too many messages from {key.peer} to {key.owner}: send this one later"
            raise RateLimited(text, {"retryAfterMs": int(wait * 1000) + 1})
        self._rates.note(sender, now, most=most, seconds=SECONDS)


class _Gate(NamedTuple):
    """A gate of some quotas."""

    quotas: Quotas
    own: bool
    live: bool

    def sends(self, txn: Transaction, key: ItemKey, *, grows: int, now_ms: int) -> None:
        """Let a sender's pair pass, or not."""
        self.quotas.check_room()
        if self.own:
            self.quotas.check_bytes(txn, key, grows)
            self.quotas.check_day(txn, key, now_ms)

    def receives(self, txn: Transaction, key: ItemKey, *, grows: int) -> None:
        """Let a recipient's copy pass, or not; what is counted is counted last."""
        self.quotas.check_room()
        self.quotas.check_sender(txn, key)
        self.quotas.check_bytes(txn, key, grows)
        if self.live:
            self.quotas.count_message(key)
