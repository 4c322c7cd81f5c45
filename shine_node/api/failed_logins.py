"""Log-ins that fail: whoever tries too many is made to wait, and nobody else is (PROTOCOL.md §8.1, §10)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shine_node.api.connection import Connection, Handler
from shine_node.api.sockets import is_loopback, origin_of
from shine_node.clock import Clock
from shine_node.config import LimitsConfig
from shine_node.delivery.rates import Rates
from shine_node.protocol.errors import RateLimited, Refusal

__all__ = ["FailedLogins"]

SECONDS = 600.0
SHARE_OF_ONE = 4
"""Of one user only every so-manieth may fail: a user who has forgotten a key leaves the others of a home some tries."""
MAX_REMEMBERED = 10_000
NOT_PROVEN = 422
MAX_NAME_CHARACTERS = 64


class FailedLogins:
    """Counts them by address, and by address and user: a stranger locks nobody out who is elsewhere.

    This machine itself is not counted: it may be a proxy that does not say whose its connections are.

    Args:
        limits: ``[limits]`` of the configuration.
    """

    def __init__(self, limits: LimitsConfig, clock: Clock) -> None:
        self.limits = limits
        """In force now."""
        self._clock = clock
        self._of_addresses: Rates[str] = Rates(MAX_REMEMBERED)
        self._of_users: Rates[tuple[str, str]] = Rates(MAX_REMEMBERED)

    def guard(self, handler: Handler, field: str) -> Handler:
        """Return a handler of a step of a log-in that is only called while not too many have failed.

        It raises ``RateLimited`` otherwise, with ``retryAfterMs``.

        Args:
            field: the member of the payload that names the user or the session.
        """

        async def guarded(connection: Connection, payload: dict[str, Any]) -> Mapping[str, object]:
            most = self.limits.failed_logins
            if not most or is_loopback(connection.address):
                return await handler(connection, payload)
            origin = origin_of(connection.address)
            user = origin, str(payload.get(field)).lower()[:MAX_NAME_CHARACTERS]
            self._check(origin, user, most)
            try:
                return await handler(connection, payload)
            except Refusal as refusal:
                if refusal.status == NOT_PROVEN:
                    now = self._clock.monotonic()
                    self._of_addresses.note(origin, now, most=most, seconds=SECONDS)
                    self._of_users.note(user, now, most=_of_one(most), seconds=SECONDS)
                raise

        return guarded

    def _check(self, origin: str, user: tuple[str, str], most: int) -> None:
        now = self._clock.monotonic()
        wait = max(
            self._of_addresses.wait(origin, now, most=most, seconds=SECONDS),
            self._of_users.wait(user, now, most=_of_one(most), seconds=SECONDS),
        )
        if wait:
            text = "too many log-ins have failed from this address: try again later"
            raise RateLimited(text, {"retryAfterMs": int(wait * 1000) + 1})


def _of_one(most: int) -> int:
    return max(1, most // SHARE_OF_ONE)
