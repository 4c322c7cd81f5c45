"""Log-ins that fail: whoever tries too many is made to wait, and nobody else is (PROTOCOL.md §8.1, §10)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from shine_node.api.connection import Connection, Handler
from shine_node.api.sockets import is_loopback, origin_of
from shine_node.clock import Clock
from shine_node.config import LimitsConfig
from shine_node.delivery.rates import Rates
from shine_node.protocol.errors import RateLimited, Refusal

__all__ = ["FailedLogins"]

log = logging.getLogger(__name__)

SECONDS = 600.0
SHARE_OF_ONE = 4
"""Of one user only every so-manieth may fail: a user who has forgotten a key leaves the others of a home some tries."""
MAX_REMEMBERED = 10_000
NOT_PROVEN = 422
MAX_NAME_CHARACTERS = 64
LINE_SECONDS = 60.0
MAX_LINES = 30
"""Lines within ``LINE_SECONDS``, and one of one address: who has many addresses does not fill the log with them."""


class FailedLogins:
    """Counts them by address, and by address and user: a stranger locks nobody out who is elsewhere.

    This machine itself is not made to wait: it may be a proxy that does not say whose its connections are. Tokens of
    registration that are wrong count for the address too: they could be guessed as well.

    The log has the address of each who is shut out, and of each who has guessed at the token.

    Args:
        limits: ``[limits]`` of the configuration.
    """

    def __init__(self, limits: LimitsConfig, clock: Clock) -> None:
        self.limits = limits
        """In force now."""
        self.failed = 0
        """Log-ins that have failed since the start."""
        self.refused = 0
        """Steps of log-ins, and tokens, that were not looked at since the start, because too many had failed."""
        self.wrong_tokens = 0
        """Wrong tokens of registration since the start."""
        self._clock = clock
        self._of_addresses: Rates[str] = Rates(MAX_REMEMBERED)
        self._of_users: Rates[tuple[str, str]] = Rates(MAX_REMEMBERED)
        self._lines: Rates[tuple[str, str]] = Rates(MAX_REMEMBERED)
        self._all_lines: Rates[str] = Rates(1)

    def guard(self, handler: Handler, field: str) -> Handler:
        """Return a handler of a step of a log-in that is only called while not too many have failed.

        It raises ``RateLimited`` otherwise, with ``retryAfterMs``.

        Args:
            field: the member of the payload that names the user or the session.
        """

        async def guarded(connection: Connection, payload: dict[str, Any]) -> Mapping[str, object]:
            user = str(payload.get(field)).lower()[:MAX_NAME_CHARACTERS]
            self._check(connection.address, user)
            try:
                return await handler(connection, payload)
            except Refusal as refusal:
                if refusal.status == NOT_PROVEN:
                    self.failed += 1
                    self._note(connection.address, user)
                raise

        return guarded

    def check_token(self, address: str, right: bool) -> bool:
        """Return whether a token of registration is right; one that is wrong is counted.

        Raises:
            RateLimited: too much has failed from this address; whether the token is right is not said.
        """
        self._check(address)
        if not right:
            self.wrong_tokens += 1
            if self._may_say("token", address):
                log.warning("a wrong token for a registration came from %s", address)
            self._note(address)
        return right

    def _check(self, address: str, user: str | None = None) -> None:
        wait = self._wait(address, user)
        if wait:
            self.refused += 1
            text = "too many log-ins have failed from this address: try again later"
            raise RateLimited(text, {"retryAfterMs": int(wait * 1000) + 1})

    def _wait(self, address: str, user: str | None) -> float:
        """Return for how many seconds nothing is taken from an address, or not for that user; 0 where something is."""
        most = self.limits.failed_logins
        if not most or is_loopback(address):
            return 0.0
        now, origin = self._clock.monotonic(), origin_of(address)
        wait = self._of_addresses.wait(origin, now, most=most, seconds=SECONDS)
        if user is None:
            return wait
        return max(wait, self._of_users.wait((origin, user), now, most=_of_one(most), seconds=SECONDS))

    def _note(self, address: str, user: str | None = None) -> None:
        most = self.limits.failed_logins
        if not most or is_loopback(address):
            return
        waited, now, origin = self._wait(address, user), self._clock.monotonic(), origin_of(address)
        self._of_addresses.note(origin, now, most=most, seconds=SECONDS)
        if user is not None:
            self._of_users.note((origin, user), now, most=_of_one(most), seconds=SECONDS)
        if self._wait(address, user) > waited == 0.0 and self._may_say("shut out", address):
            # The form that programs such as fail2ban look for; whose log-in it was is the stranger's word.
            log.warning("log-ins from %s are refused for a while: too many have failed (limits.failedLogins)", address)

    def _may_say(self, what: str, address: str) -> bool:
        """Say whether a line may be written about an address, and count it if so."""
        now, key = self._clock.monotonic(), (what, origin_of(address))
        if self._lines.wait(key, now, most=1, seconds=LINE_SECONDS) or self._all_lines.wait(
            "", now, most=MAX_LINES, seconds=LINE_SECONDS
        ):
            return False
        self._lines.note(key, now, most=1, seconds=LINE_SECONDS)
        self._all_lines.note("", now, most=MAX_LINES, seconds=LINE_SECONDS)
        return True


def _of_one(most: int) -> int:
    return max(1, most // SHARE_OF_ONE)
