"""What the pool knows of its links, as plain data, and the lines that go to the log (PROTOCOL.md §7)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["LinkState", "PeerSnapshot", "PoolSnapshot", "log_lines", "printable"]

MAX_ERROR_CHARACTERS = 200


class LinkState(StrEnum):
    """What a link is doing."""

    IDLE = "idle"
    """Nobody has asked for it; the first request opens it."""
    CONNECTING = "connecting"
    CONNECTED = "connected"
    PAUSE = "pause"
    """It was lost or could not be opened, and rests before the next try."""
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class PeerSnapshot:
    """One link. Times are Unix milliseconds, ``None`` for never; counts are since the link was made."""

    server_login: str
    url: str
    state: LinkState
    permanent: bool
    capabilities: tuple[str, ...]
    """In force now, in alphabetical order."""
    connected_at_ms: int | None
    last_activity_ms: int | None
    last_ping_ms: int | None
    last_pong_ms: int | None
    next_try_ms: int | None
    """While it rests: when it tries again."""
    reconnects: int
    waiting_realtime: int
    waiting_normal: int
    waiting_bulk: int
    in_flight: str | None
    """The operation under way."""
    succeeded: int
    failed: int
    timed_out: int
    last_error: str

    @property
    def waiting(self) -> int:
        """How many requests wait, of all priorities."""
        return self.waiting_realtime + self.waiting_normal + self.waiting_bulk

    @property
    def well(self) -> bool:
        """Whether the link is as it should be: connected, or not needed."""
        return self.state in (LinkState.CONNECTED, LinkState.IDLE, LinkState.CLOSED)


@dataclass(frozen=True, slots=True)
class PoolSnapshot:
    """All links at one moment."""

    at_ms: int
    known_peers: int
    max_connections: int
    peers: tuple[PeerSnapshot, ...]
    """By login, then URL."""


def log_lines(snapshot: PoolSnapshot) -> list[str]:
    """Return one line of totals, and one for each peer that is not well."""
    peers = snapshot.peers
    states = Counter(peer.state for peer in peers)
    by_state = ", ".join(f"{states[state]} {state}" for state in LinkState if states[state]) or "none"
    totals = (
        f"links: {by_state}; {snapshot.known_peers} peers known; waiting {sum(peer.waiting for peer in peers)}, "
        f"succeeded {sum(peer.succeeded for peer in peers)}, failed {sum(peer.failed for peer in peers)}, "
        f"timed out {sum(peer.timed_out for peer in peers)}, reconnects {sum(peer.reconnects for peer in peers)}"
    )
    return [totals, *(_line(peer, snapshot.at_ms) for peer in peers if not peer.well)]


def _line(peer: PeerSnapshot, at_ms: int) -> str:
    seen = "never seen" if peer.last_activity_ms is None else f"seen {_ago(at_ms - peer.last_activity_ms)} ago"
    return f"link to {peer.server_login} ({peer.url}): {peer.state}, {seen}; {peer.last_error or 'no error'}"


def _ago(milliseconds: int) -> str:
    seconds = max(0, milliseconds // 1000)
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"


def printable(text: str) -> str:
    """Return a text that came from a peer as one short line without control characters."""
    line = "".join(character if character.isprintable() else "?" for character in text)
    return line if len(line) <= MAX_ERROR_CHARACTERS else line[: MAX_ERROR_CHARACTERS - 1] + "…"
