"""When what happened on a link: pings and idleness go by it, and the snapshot shows it; no I/O."""

from __future__ import annotations

from shine_node.clock import Clock

__all__ = ["Vitals"]


class Vitals:
    """The times of one link, monotonic seconds, ``None`` for never.

    Args:
        clock: turns them into times of the wall clock where they are shown.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.used_at = clock.monotonic()
        """The last request or answer: an idle link on demand is closed by it."""
        self.tried_at: float | None = None
        """When it last began to be opened."""
        self.connects = 0
        self.connected_at: float | None = None
        self.active_at: float | None = None
        """The last useful traffic, in either direction."""
        self.pinged_at: float | None = None
        self.ponged_at: float | None = None
        self.next_try_at: float | None = None
        self._quiet_since = self.used_at

    def connected(self, now: float) -> None:
        """Note that the link came up."""
        self.connects += 1
        self.connected_at = self.active_at = self.used_at = self._quiet_since = now
        self.pinged_at = self.ponged_at = None

    def heard(self, now: float) -> None:
        """Note a frame of the peer."""
        self.active_at = self._quiet_since = now

    def pinged(self, now: float) -> None:
        """Note a ping that is sent."""
        self.pinged_at = self._quiet_since = now

    def ping_due(self, idle_seconds: float) -> float:
        """Return when the next ping is due.

        What this server sends does not put it off: it proves nothing about the peer, and a connection that died right
        after the last sign of life is to be found in time.
        """
        return self._quiet_since + idle_seconds

    def wall(self, at: float | None) -> int | None:
        """Return the time of the wall clock, Unix milliseconds, that lies as far back as a monotonic one."""
        if at is None:
            return None
        return round(self._clock.now_ms() - (self._clock.monotonic() - at) * 1000)
