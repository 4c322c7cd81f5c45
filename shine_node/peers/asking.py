"""What the rooms above need of the links to other servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from shine_node.protocol.access import AccessServer

__all__ = ["Peers"]


class Peers(Protocol):
    """Asks peers; ``pool.Pool`` is it."""

    async def request(
        self, server: AccessServer, op: str, payload: Mapping[str, object], *, timeout: float | None = None
    ) -> dict[str, Any]:
        """Send one request and return the payload of its success; raises ``LinkError``."""
