"""Operations that this server does not offer, but whose asker must have introduced itself first (PROTOCOL.md §7).

Without them here, a stranger would be told that there is no such operation, and would not learn that it may not ask.
A group of operations that comes to be offered takes the place of its entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shine_node.api.connection import Connection, Handler
from shine_node.protocol.errors import NotAuthenticated, UnknownOp

__all__ = ["gate_handlers"]

_PEERS_AND_SESSIONS = ("GetBlockchainHeads", "GetBlocks")


def gate_handlers() -> dict[str, Handler]:
    """Return the operations by name; each is refused, and the reason is the asker's own where it is one.

    The handlers raise ``NotAuthenticated`` without a ``ServerHello`` or a session on the connection, else
    ``UnknownOp``: no capability of this server names them.
    """
    return dict.fromkeys(_PEERS_AND_SESSIONS, _for_peers_and_sessions)


async def _for_peers_and_sessions(connection: Connection, payload: dict[str, Any]) -> Mapping[str, object]:
    if connection.hello is None and connection.session is None:
        raise NotAuthenticated("this needs a session, or a ServerHello")
    raise UnknownOp("this server does not offer this operation; the capabilities of its ServerHello do not name it")
