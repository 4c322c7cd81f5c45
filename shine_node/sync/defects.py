"""A defect of this server over one entry of a peer, which must not keep the peer's others from coming."""

from __future__ import annotations

import logging

from shine_node.clock import Clock
from shine_node.peers.repeats import Repeats
from shine_node.protocol.errors import InternalError, Refusal

__all__ = ["Defects"]

log = logging.getLogger(__name__)


class Defects:
    """Tells of defects, not of each: who has found one can send any number of entries that meet it."""

    def __init__(self, clock: Clock) -> None:
        self._repeats = Repeats(clock)

    def refusal(self, server_login: str) -> Refusal:
        """Log what is being raised over an entry of a server, and return why the entry is not stored."""
        level = self._repeats.level(logging.ERROR, server_login)
        log.log(level, "a defect over an entry of %s", server_login, exc_info=True)
        return InternalError("this server could not store it")
