"""What the configuration says about links: ``[server.pool]`` and the frame limit (PROTOCOL.md §10)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["PoolSettings"]


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """The settings of the pool; times are seconds, ``ca_file`` is ``None`` where no own authority is named."""

    ping_idle_seconds: float = 120
    pong_timeout_seconds: float = 15
    request_timeout_seconds: float = 12
    connect_timeout_seconds: float = 15
    caller_timeout_seconds: float = 35
    max_queue_per_peer: int = 2000
    refresh_seconds: float = 30
    idle_close_seconds: float = 600
    max_connections: int = 256
    snapshot_seconds: float = 300
    allow_insecure_peers: bool = False
    allow_private_peers: bool = False
    ca_file: Path | None = None
    max_frame_bytes: int = 1_048_576
