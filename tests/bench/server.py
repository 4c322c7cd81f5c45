"""The node under test: a process of its own on the server's core, with limits out of the way."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.nodes import ServerProcess

__all__ = ["LOGIN", "SETTINGS", "pinned_server"]

LOGIN = "bench"

SETTINGS: dict[str, Any] = {
    "storage": {"mapSizeMiB": 16384},
    "limits": {"requestsPerSecond": 1_000_000, "peerRequestsPerSecond": 1_000_000, "messagesPerMinutePerSender": 0},
    "crypto": {"maxQueue": 8192},
    "delivery": {"scheduleSeconds": [0, 86_400, 604_800]},  # no attempt of one round in the middle of another
    "log": {"level": "warning"},
}


@asynccontextmanager
async def pinned_server(folder: Path, core: int) -> AsyncIterator[ServerProcess]:
    """Start a node whose data lie in ``<folder>/bench/data``, and stop it at the end."""
    server = ServerProcess(LOGIN, folder, core=core, **SETTINGS)
    try:
        await server.start()
        yield server
    finally:
        await server.discard()
