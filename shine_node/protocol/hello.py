"""``ServerHello``: the first request on every link between servers (seed 003 §1, PROTOCOL.md §7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from shine_node.protocol.encoding import read_list, read_login, read_number
from shine_node.protocol.errors import UnsupportedProtocol

__all__ = ["CAPABILITIES", "PROTOCOL_VERSION", "Hello", "hello_payload", "parse_hello"]

PROTOCOL_VERSION = 1

CAPABILITIES: tuple[str, ...] = ("dm-sync", "settings-sync", "connection-pool")
"""What this version can do; a capability is in force on a link where both sides name it."""


class Hello(NamedTuple):
    """What a server said of itself: its login as it spells it, and all of its capabilities."""

    server_login: str
    protocol_version: int
    capabilities: frozenset[str]

    def in_force(self, capability: str) -> bool:
        """Say whether both this server and that one name a capability."""
        return capability in self.capabilities and capability in CAPABILITIES


def hello_payload(server_login: str) -> dict[str, object]:
    """Return the payload of this server's ``ServerHello``; the answer adds ``accepted: true``."""
    return {
        "serverLogin": server_login,
        "protocolVersion": PROTOCOL_VERSION,
        "capabilities": list(CAPABILITIES),
    }


def parse_hello(payload: Mapping[str, Any]) -> Hello:
    """Read the payload of a ``ServerHello`` or of its answer; capabilities that are no texts are passed over.

    Raises:
        BadFields, BadLogin, BadRequestFormat.
        UnsupportedProtocol: a version other than ``PROTOCOL_VERSION``.
    """
    server_login = read_login(payload, "serverLogin")
    version = read_number(payload, "protocolVersion")
    if version != PROTOCOL_VERSION:
        raise UnsupportedProtocol(f"this server speaks protocolVersion {PROTOCOL_VERSION}")
    names = frozenset(name for name in read_list(payload, "capabilities") if isinstance(name, str))
    return Hello(server_login, version, names)
