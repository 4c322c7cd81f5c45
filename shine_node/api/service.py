"""Operations about the server itself: ``Ping``, ``GetServerInfo``, ``ServerHello`` (PROTOCOL.md §7, §8.4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from shine_node import __version__
from shine_node.api.connection import Connection, Handler
from shine_node.clock import Clock
from shine_node.config import Config
from shine_node.protocol.errors import Forbidden
from shine_node.protocol.hello import hello_payload, parse_hello

__all__ = ["ServiceOperations"]

POLICY_VIOLATION = 1008


class ServiceOperations:
    """Answers what anyone may ask of the server.

    Args:
        peer_arrived: told the login of each peer that introduces itself.
    """

    def __init__(self, *, config: Config, clock: Clock, peer_arrived: Callable[[str], None]) -> None:
        self.config = config
        """In force now."""
        self._clock = clock
        self._peer_arrived = peer_arrived

    @property
    def handlers(self) -> dict[str, Handler]:
        """The operations by name."""
        return {"Ping": self.ping, "GetServerInfo": self.get_server_info, "ServerHello": self.server_hello}

    async def ping(self, connection: Connection, payload: dict[str, Any]) -> Mapping[str, object]:
        """Return the server's time."""
        return {"ts": self._clock.now_ms()}

    async def get_server_info(self, connection: Connection, payload: dict[str, Any]) -> Mapping[str, object]:
        """Return what the operator says of the server, and whether a client may register at it."""
        server = self.config.server
        return {
            "serverLogin": server.login,
            "registration": self.config.registration.mode,
            "url": server.url,
            "version": __version__,
            "physicalRegion": server.info.physical_region,
            "description": server.info.description,
            "origin": server.info.origin,
            "extraInfo": server.info.extra_info,
        }

    async def server_hello(self, connection: Connection, payload: dict[str, Any]) -> Mapping[str, object]:
        """Take note of who the peer says it is; its word is taken on trust for now (seed 003 §1).

        One that the operator has blocked is refused with 403, and its connection ends.
        """
        hello = parse_hello(payload)
        if hello.server_login.lower() in self.config.limits.blocked_peers:
            connection.end_after_answer(POLICY_VIOLATION, "this server is blocked here")
            raise Forbidden("the operator of this server has blocked yours")
        connection.introduce(hello, self.config.limits.peer_requests_per_second)
        self._peer_arrived(hello.server_login)
        return {"accepted": True, **hello_payload(self.config.server.login)}
