"""What the tests of a whole node and those of its process share."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from shine_node.cli.node_process import NodeProcess
from shine_node.client.connection import Connection
from shine_node.client.identity import Identity
from shine_node.clock import SystemClock
from shine_node.config import Config, config_from_mapping
from shine_node.protocol.access import AccessServer, record_payload
from tests.support.nodes import LocalServer, node_settings
from tests.support.scripted_peer import PeerConnection, ScriptedPeer

__all__ = [
    "ALICE",
    "BOB",
    "FAILING",
    "FailingClock",
    "add_users",
    "config",
    "silence",
    "threads_of_a_node",
    "was_brought_a_message",
]

ALICE, BOB = Identity.generate("alice"), Identity.generate("bob")


def config(folder: Path, **sections: Any) -> Config:
    """Return the configuration of a node on a free port."""
    return config_from_mapping(node_settings("server1", folder, **({"storage": {"mapSizeMiB": 16}} | sections)))


def threads_of_a_node() -> list[str]:
    """Return the names of the threads that a node has and this process has them now."""
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name == "store-writer" or name.startswith("crypto-")]


async def silence(connection: PeerConnection, request: dict[str, Any]) -> None:
    """Do not answer."""


class FailingClock(SystemClock):
    """A clock that stands for any defect of a part that must never end: the renewal of leases cannot wait by it."""

    async def sleep(self, seconds: float) -> None:
        """Wait, or fail where a lease's third is waited for."""
        if seconds == 259.0:
            raise RuntimeError("the cause")
        await super().sleep(seconds)


FAILING = {"leaseMs": 777_000}


def was_brought_a_message(peer: ScriptedPeer) -> bool:
    return any(request["op"] == "ReceiveIncomingMessage" for request in peer.requests)


async def add_users(server: LocalServer | NodeProcess, peer: ScriptedPeer) -> None:
    """Register a user of this server, and one whose server is the peer."""
    async with await Connection.open(server.url) as client:
        for user, access in ((ALICE, AccessServer("server1", server.url)), (BOB, AccessServer("server2", peer.url))):
            await client.request("AddUser", record_payload(user.access_record([access], time_ms=1)))
