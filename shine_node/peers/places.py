"""Who holds the places of the pool, and who gives up his for another link (PROTOCOL.md §7); pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

from shine_node.peers.snapshot import LinkState

__all__ = ["Holder", "most_kept", "most_of_one_place", "who_gives_way"]

SHARE = 8
"""One host and port may hold one in so many places with links on demand, and links on demand have one for sure."""

CONNECTING_SECONDS = 1.0
"""A link that has been opened for longer than this gives its place to another where no link is idle."""

ANSWER_SECONDS = 5.0
"""So does one, after those, whose peer has let a request wait for longer than this."""

Key = TypeVar("Key")


class Holder(NamedTuple, Generic[Key]):
    """One link on demand, as it stands now. Times are monotonic seconds."""

    key: Key
    state: LinkState
    busy: bool
    used_at: float
    waits_since: float | None
    """Since when the peer has let this server wait for a connection, or for an answer; ``None`` where it does not."""


def who_gives_way(holders: Iterable[Holder[Key]], now: float) -> Key | None:
    """Return whose place is given to another link; ``None`` where nobody's is.

    An idle link goes first, one that is not connected before one that is, then the one that was used longest ago. Then
    the link that has been opened longest: a route into nothing must not keep a place from a server that would answer.
    Then the one that has been waiting longest for an answer.
    """
    everybody = list(holders)
    idle = [holder for holder in everybody if not holder.busy]
    if idle:
        return min(idle, key=lambda holder: (holder.state is LinkState.CONNECTED, holder.used_at)).key
    for state, seconds in ((LinkState.CONNECTING, CONNECTING_SECONDS), (LinkState.CONNECTED, ANSWER_SECONDS)):
        waiting = [(h.waits_since, h.key) for h in everybody if h.state is state and h.waits_since is not None]
        since, key = min(waiting, key=lambda entry: entry[0], default=(now, None))
        if since + seconds <= now:
            return key
    return None


def most_of_one_place(max_connections: int) -> int:
    """Return how many links on demand may go to one host and port."""
    return max(2, max_connections // SHARE)


def most_kept(max_connections: int) -> int:
    """Return how many links may be kept open: records, which anybody may make up, do not take the last places."""
    return max_connections - max_connections // SHARE
