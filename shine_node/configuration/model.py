"""The configuration as the program reads it: frozen, checked, with one attribute for each option of the table.

What each option means, its default and its range stand in ``options.py`` and nowhere else.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

__all__ = [
    "Config",
    "CryptoConfig",
    "DeliveryConfig",
    "InfoConfig",
    "LimitsConfig",
    "ListenAddress",
    "LogConfig",
    "Network",
    "PoolConfig",
    "RegistrationConfig",
    "ServerConfig",
    "StorageConfig",
    "SyncConfig",
    "SyncServer",
]

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """An address to listen on; an empty host is every address of both families, port 0 a free port."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect there."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class InfoConfig:
    """``[server.info]``: what ``GetServerInfo`` tells."""

    physical_region: str
    description: str
    origin: str
    extra_info: str


@dataclass(frozen=True, slots=True)
class PoolConfig:
    """``[server.pool]``: the links to other servers (§7)."""

    ping_idle_seconds: int
    pong_timeout_seconds: int
    request_timeout_seconds: int
    connect_timeout_seconds: int
    caller_timeout_seconds: int
    max_queue_per_peer: int
    refresh_seconds: int
    idle_close_seconds: int
    max_connections: int
    snapshot_seconds: int
    allow_insecure_peers: bool
    allow_private_peers: bool
    ca_file: Path | None


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """``[server]``: who this server is and where it listens; paths are absolute."""

    login: str
    url: str
    listen: tuple[ListenAddress, ...]
    data_dir: Path
    tls_cert: Path | None
    tls_key: Path | None
    chat_page: bool
    info: InfoConfig
    pool: PoolConfig


@dataclass(frozen=True, slots=True)
class SyncServer:
    """One entry of ``[[sync_servers]]``: a peer that the operator configured (§3)."""

    login: str
    url: str


@dataclass(frozen=True, slots=True)
class DeliveryConfig:
    """``[delivery]``: attempts and their times (§5.3)."""

    schedule_seconds: tuple[int, ...]
    worker_interval_ms: int
    lease_ms: int
    first_attempt_timeout_ms: int
    max_concurrent: int


@dataclass(frozen=True, slots=True)
class SyncConfig:
    """``[sync]``: the catch-up with other servers (§6)."""

    interval_seconds: int
    access_interval_seconds: int
    page_limit: int


@dataclass(frozen=True, slots=True)
class CryptoConfig:
    """``[crypto]``: the pool that checks signatures."""

    threads: int
    max_queue: int


@dataclass(frozen=True, slots=True)
class StorageConfig:
    """``[storage]``: the store's file, and its disk."""

    map_size_mib: int
    min_free_mib: int
    when_damaged: str
    """``backup``, ``refill`` or ``stop``."""
    backup_dir: Path | None
    """``None``: the folder ``backups`` in the data folder."""


@dataclass(frozen=True, slots=True)
class RegistrationConfig:
    """``[registration]``: who may become a user here (§3); ``mode`` is ``open``, ``token`` or ``closed``."""

    mode: str
    token: str = field(repr=False)  # no log or traceback that prints a Config may show it
    allow_unsigned: bool


@dataclass(frozen=True, slots=True)
class LimitsConfig:
    """``[limits]``: what one client, peer, user or message may take; 0 is no limit, logins are in lower case."""

    max_body_bytes: int
    max_block_bytes: int
    max_frame_bytes: int
    max_connections: int
    max_connections_per_address: int
    requests_per_second: int
    peer_requests_per_second: int
    max_outbound_bytes: int
    requests_per_second_per_address: int
    failed_logins: int
    max_stored_mib_per_user: int
    max_messages_per_day: int
    messages_per_minute_per_sender: int
    blocked_peers: frozenset[str]
    blocked_addresses: tuple[Network, ...]


@dataclass(frozen=True, slots=True)
class LogConfig:
    """``[log]``: ``level`` is ``debug``, ``info``, ``warning`` or ``error``, ``format`` is ``text`` or ``json``."""

    level: str
    format: str


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration (§10)."""

    server: ServerConfig
    sync_servers: tuple[SyncServer, ...]
    delivery: DeliveryConfig
    sync: SyncConfig
    crypto: CryptoConfig
    storage: StorageConfig
    registration: RegistrationConfig
    limits: LimitsConfig
    log: LogConfig
