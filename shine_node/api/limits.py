"""Rates and counts that keep one client from slowing the others (PROTOCOL.md §10, ``[limits]``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from shine_node.config import LimitsConfig

__all__ = ["LARGE_FRAME", "AddressBuckets", "AddressCount", "AddressShares", "Share", "TokenBucket", "decoding_cost"]

LARGE_FRAME = 16384
"""Characters; what a frame costs more than this is counted in the same portions."""
MARKS_OF_A_TOKEN = 512
FEWEST_TO_SWEEP = 1000


def decoding_cost(frame: str) -> int:
    """Say how many requests' worth of time a frame costs beside being one request; 0 for what a client usually sends.

    Its length counts, and its commas and brackets, for decoding makes an object of what is between any two of them:
    a MiB of ``[],`` takes a hundred times as long as a MiB of Base64. No request that is of use has many.
    """
    marks = frame.count(",") + frame.count("[") + frame.count("{")
    return len(frame) // LARGE_FRAME + marks // MARKS_OF_A_TOKEN


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

    def wait_ms(self, now: float) -> int:
        """Return 0 where there is a token, or else for how many milliseconds there is none."""
        self._tokens = min(self._rate, self._tokens + (now - self._updated) * self._rate)
        self._updated = now
        return 0 if self._tokens >= 1 else int((1 - self._tokens) / self._rate * 1000) + 1

    def take(self, now: float, cost: int = 1) -> int:
        """Take tokens; return 0, or for how many milliseconds nothing can be taken.

        Where there is one, more may be taken than there are: any request can be made, and what is then owed is waited
        for afterwards.
        """
        wait_ms = self.wait_ms(now)
        if not wait_ms:
            self._tokens -= cost
        return wait_ms

    def is_full(self, now: float) -> bool:
        """Say whether it is as good as a new one."""
        self.wait_ms(now)
        return self._tokens >= self._rate


class AddressBuckets:
    """One bucket for all connections of an address. What is owed stays owed when the connections have gone."""

    def __init__(self) -> None:
        self._buckets: dict[str, TokenBucket] = {}
        self._users: Counter[str] = Counter()
        self._sweep_at = FEWEST_TO_SWEEP

    def join(self, address: str, rate: float, now: float) -> TokenBucket:
        """Return the bucket for one more connection; one that is there already keeps its rate."""
        if len(self._buckets) >= self._sweep_at:
            for other in [other for other in self._buckets if other not in self._users]:
                self._forget(other, now)
            self._sweep_at = max(FEWEST_TO_SWEEP, 2 * len(self._buckets))
        self._users[address] += 1
        return self._buckets.setdefault(address, TokenBucket(rate, now))

    def change_rate(self, rate: float) -> None:
        """Go on with another rate for all addresses."""
        for bucket in self._buckets.values():
            bucket.change_rate(rate)

    def leave(self, address: str, now: float) -> None:
        """Take note that one of the connections has gone."""
        self._users[address] -= 1
        if not self._users[address]:
            del self._users[address]
            self._forget(address, now)

    def _forget(self, address: str, now: float) -> None:
        if self._buckets[address].is_full(now):
            del self._buckets[address]


class Share(NamedTuple):
    """What all connections of an address take their requests from, beside what each has for itself.

    ``heavy`` is for what decoding takes; ``clients`` and ``peers`` are for requests, as long as a connection has not
    introduced itself and from then on; ``refusals`` is for what one is told who does not heed refusals. Without a
    bucket nothing is counted together.
    """

    heavy: TokenBucket
    clients: TokenBucket | None = None
    peers: TokenBucket | None = None
    refusals: TokenBucket | None = None


class AddressShares:
    """The shares of all addresses that have connections, or owe something yet."""

    def __init__(self) -> None:
        self._heavy = AddressBuckets()
        self._requests = (AddressBuckets(), AddressBuckets(), AddressBuckets())

    def join(self, origin: str, limits: LimitsConfig, now: float, *, counted: bool) -> Share:
        """Return the share of an address for one more connection.

        Args:
            origin: what counts as one address.
            counted: whether its requests count together; not those of a proxy that does not say whose they are.
        """
        heavy = self._heavy.join(origin, limits.peer_requests_per_second, now)
        if not counted:
            return Share(heavy)
        return Share(heavy, *(buckets.join(origin, rate, now) for buckets, rate in self._rates(limits)))

    def change_limits(self, limits: LimitsConfig) -> None:
        """Go on with other limits, also for those who are connected."""
        self._heavy.change_rate(limits.peer_requests_per_second)
        for buckets, rate in self._rates(limits):
            buckets.change_rate(rate)

    def leave(self, origin: str, now: float, *, counted: bool) -> None:
        """Take note that one of the connections has gone; ``counted`` as when it came."""
        self._heavy.leave(origin, now)
        if counted:
            for buckets in self._requests:
                buckets.leave(origin, now)

    def _rates(self, limits: LimitsConfig) -> Iterator[tuple[AddressBuckets, int]]:
        clients, peers = limits.requests_per_second_per_address, limits.peer_requests_per_second
        return zip(self._requests, (clients, peers, clients), strict=True)


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

    def refusal(self, address: str | None) -> str | None:
        """Say why one more connection of an address is too many, or ``None`` if it is not.

        Args:
            address: ``None`` for one of which only the connections in all count.
        """
        if self.total >= self._greatest:
            return "This server has too many connections. Try again later.\n"
        if address is not None and self._by_address[address] >= self._greatest_per_address:
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
