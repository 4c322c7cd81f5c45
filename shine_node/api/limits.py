"""Rates and counts that keep one client from slowing the others (PROTOCOL.md §10, ``[limits]``)."""

from __future__ import annotations

from collections import Counter

__all__ = ["AddressCount", "TokenBucket"]


class TokenBucket:
    """Lets through ``rate`` requests a second, and a burst of one second's worth.

    Args:
        rate: requests a second.
        now: the monotonic clock, seconds.
    """

    __slots__ = ("_rate", "_tokens", "_updated")

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._tokens = rate
        self._updated = now

    def change_rate(self, rate: float) -> None:
        """Go on with another rate."""
        self._rate = rate

    def take(self, now: float) -> int:
        """Take one token; return 0, or for how many milliseconds there is none."""
        self._tokens = min(self._rate, self._tokens + (now - self._updated) * self._rate)
        self._updated = now
        if self._tokens >= 1:
            self._tokens -= 1
            return 0
        return int((1 - self._tokens) / self._rate * 1000) + 1


class AddressCount:
    """Counts connections, in all and by address.

    Args:
        greatest: connections in all, ``limits.maxConnections``.
        greatest_per_address: ``limits.maxConnectionsPerAddress``.
    """

    def __init__(self, *, greatest: int, greatest_per_address: int) -> None:
        self._greatest = greatest
        self._greatest_per_address = greatest_per_address
        self._by_address: Counter[str] = Counter()
        self.total = 0
        """Connections that are open."""

    def change(self, *, greatest: int, greatest_per_address: int) -> None:
        """Go on with other bounds; who is connected stays."""
        self._greatest = greatest
        self._greatest_per_address = greatest_per_address

    def refusal(self, address: str) -> str | None:
        """Say why one more connection of an address is too many, or ``None`` if it is not."""
        if self.total >= self._greatest:
            return "This server has too many connections. Try again later.\n"
        if self._by_address[address] >= self._greatest_per_address:
            return "Too many connections from this address. Close some first.\n"
        return None

    def add(self, address: str) -> None:
        """Count a connection."""
        self._by_address[address] += 1
        self.total += 1

    def remove(self, address: str) -> None:
        """Take a connection out of the count."""
        self._by_address[address] -= 1
        self.total -= 1
        if self._by_address[address] <= 0:
            del self._by_address[address]
