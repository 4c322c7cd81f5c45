"""What one user may store and send here, and what a user takes from whom (PROTOCOL.md §10, ``[limits]``).

Asked in the transaction that would store, where what is counted is exact. Codes are those of §2: 507 for stored bytes
and for a disk without room, 429 for messages a day and for those from one sender, 403 for a sender who is blocked. A
peer tries again by its schedule, whatever the code, and fails in the end: nothing is lost silently.

A tombstone that removes what is here is always taken: it frees room, and there is one for each message. Receipts and
other tombstones can be made without end: they take room as messages do, and have their own bounds of day and minute.

What comes by synchronisation, or from the sender's other server, was accepted there: as the owner's it is always taken,
or the two would never become equal.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple, TypeVar

from shine_node.clock import Clock
from shine_node.config import LimitsConfig
from shine_node.delivery.rates import Rates
from shine_node.delivery.refused import Refused
from shine_node.protocol.errors import Forbidden, RateLimited, StorageFull
from shine_node.store.blocks import blocks
from shine_node.store.environment import Store, Transaction
from shine_node.store.gate import Gate
from shine_node.store.layout import ItemKey, Kind
from shine_node.store.usage import DAY_MS, day_of, read_usage

__all__ = ["Quotas"]

K = TypeVar("K", bound=Hashable)

MIB = 2**20
MAX_SENDERS = 20_000
"""Senders to a recipient that are remembered; what is kept of each is small."""
SECONDS = 60.0
MAX_OWNERS = 20_000
"""Users whose receipts and tombstones of a day are remembered."""
REFERENCES_A_MESSAGE = 4
"""Receipts and tombstones that may be sent for each message that may be: people read more than they write."""


class Quotas:
    """Makes the gates that what is to be stored has to pass.

    Args:
        limits: ``[limits]`` of the configuration.
    """

    def __init__(self, *, limits: LimitsConfig, store: Store, clock: Clock) -> None:
        self.limits = limits
        """In force now."""
        self.refused = Refused()
        self._store = store
        self._clock = clock
        self._messages: Rates[tuple[str, str]] = Rates(MAX_SENDERS)
        self._references: Rates[tuple[str, str]] = Rates(MAX_SENDERS)
        self._references_of_day: Rates[str] = Rates(MAX_OWNERS)

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
        """Refuse what would be more than an owner may store.

        Raises:
            StorageFull: ``limits.maxStoredMiBPerUser``.
        """
        most = self.limits.max_stored_mib_per_user * MIB
        if not most or grows <= 0:
            return
        if read_usage(txn, key.owner).stored_bytes + grows > most:
            self.refused.count("maxStoredMiBPerUser", key.owner)
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
            self.refused.count("maxMessagesPerDay", key.owner)
            wait_ms = (today + 1) * DAY_MS - now_ms
            raise RateLimited(f"this server takes {most} messages a day from one user", {"retryAfterMs": wait_ms})

    def check_sender(self, txn: Transaction, key: ItemKey) -> None:
        """Refuse a copy of a sender whom its recipient has blocked.

        Raises:
            Forbidden: the recipient's setting ``blocked``.
        """
        if blocks(txn, key.owner, key.peer):
            raise Forbidden(f"{key.owner} takes no messages from {key.peer}")

    def check_sent(self, key: ItemKey) -> None:
        """Refuse one receipt or tombstone more than a sender may send on a day.

        Raises:
            RateLimited: ``REFERENCES_A_MESSAGE`` times ``limits.maxMessagesPerDay``.
        """
        most = self._references_a_day(key)
        if most:
            text = f"this server takes {most} receipts and tombstones a day from one user"
            try:
                self._check(self._references_of_day, key.owner, most, DAY_MS / 1000, text)
            except RateLimited:
                self.refused.count("maxMessagesPerDay", key.owner)
                raise

    def note_sent(self, key: ItemKey) -> None:
        """Count a receipt or tombstone of a sender; messages are counted where they are stored."""
        most = self._references_a_day(key)
        if most:
            now = self._clock.monotonic()
            self._references_of_day.note(key.owner, now, most=most, seconds=DAY_MS / 1000)

    def count_received(self, key: ItemKey) -> None:
        """Count what a sender has for a recipient, or refuse it; notes to oneself are not counted.

        Raises:
            RateLimited: ``limits.messagesPerMinutePerSender``, for receipts and tombstones ``REFERENCES_A_MESSAGE``
                times as many.
        """
        most = self.limits.messages_per_minute_per_sender
        if not most or key.peer == key.owner:
            return
        rates, what = self._messages, "messages"
        if key.kind is not Kind.MESSAGE:
            rates, what, most = self._references, "receipts and tombstones", most * REFERENCES_A_MESSAGE
        text = f"too many {what} from {key.peer} to {key.owner}: send this one later"
        try:
            self._check(rates, (key.peer, key.owner), most, SECONDS, text)
        except RateLimited:
            self.refused.count("messagesPerMinutePerSender", key.peer)
            raise
        rates.note((key.peer, key.owner), self._clock.monotonic(), most=most, seconds=SECONDS)

    def _references_a_day(self, key: ItemKey) -> int:
        """Return how many of its kind an item's owner may send, 0 for any number and for messages."""
        return 0 if key.kind is Kind.MESSAGE else self.limits.max_messages_per_day * REFERENCES_A_MESSAGE

    def _check(self, rates: Rates[K], who: K, most: int, seconds: float, text: str) -> None:
        now = self._clock.monotonic()
        wait = rates.wait(who, now, most=most, seconds=seconds)
        if wait:
            raise RateLimited(text, {"retryAfterMs": int(wait * 1000) + 1})


class _Gate(NamedTuple):
    """A gate of some quotas; what is counted is counted last, when nothing can refuse it any more."""

    quotas: Quotas
    own: bool
    live: bool

    def sends(self, txn: Transaction, key: ItemKey, *, grows: int, removes: bool, now_ms: int) -> None:
        """Let a sender's pair pass, or not."""
        self.quotas.check_room()
        if self.own and not removes:
            self.quotas.check_bytes(txn, key, grows)
            self.quotas.check_day(txn, key, now_ms)
            self.quotas.check_sent(key)

    def sent(self, key: ItemKey, *, removes: bool) -> None:
        """Count a pair that nothing has refused."""
        if self.own and not removes:
            self.quotas.note_sent(key)

    def receives(self, txn: Transaction, key: ItemKey, *, grows: int, removes: bool) -> None:
        """Let a recipient's copy pass, or not."""
        self.quotas.check_room()
        self.quotas.check_sender(txn, key)
        if removes:
            return
        self.quotas.check_bytes(txn, key, grows)
        if self.live:
            self.quotas.count_received(key)
