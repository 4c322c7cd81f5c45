"""Makes the parts of a node from its configuration: what lies below its operations and its endpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from shine_node.api.pages import WEB_FOLDER, PageSet, load_pages
from shine_node.clock import Clock
from shine_node.config import Config
from shine_node.control.recovery import STORE_FILE
from shine_node.crypto.pool import CryptoPool
from shine_node.delivery.catch_up import CatchUp
from shine_node.delivery.deliverer import Deliverer
from shine_node.delivery.intake import Intake
from shine_node.delivery.quotas import Quotas
from shine_node.delivery.worker import Worker
from shine_node.directory.lookup import Lookup
from shine_node.directory.peers import PeerDirectory
from shine_node.directory.pushing import AccessPush
from shine_node.directory.settings import Settings
from shine_node.directory.sharing import AccessPull
from shine_node.directory.users import Users
from shine_node.peers.pool import Pool, PoolSettings
from shine_node.protocol.access import AccessServer
from shine_node.protocol.errors import Refusal, ShineError
from shine_node.protocol.schedule import Schedule
from shine_node.store.environment import Store
from shine_node.store.files import needs_owner
from shine_node.store.guard import DiskGuard
from shine_node.store.readers import Readers
from shine_node.tls import Certificate

__all__ = [
    "STORE_FILE",
    "Ground",
    "StartError",
    "StartMistake",
    "lay_ground",
    "make_access_pull",
    "make_access_push",
    "make_catch_up",
    "make_deliverer",
    "make_intake",
    "make_lookup",
    "make_pool",
    "make_settings",
    "make_worker",
    "own_certificate",
    "own_pages",
    "sync_servers",
]


class StartError(ShineError):
    """The node cannot start; the text says what to do."""


class StartMistake(StartError):
    """The configuration names what the node cannot use: to start again does not help before its owner has mended it."""


class Ground(NamedTuple):
    """What all other parts stand on."""

    config: Config
    clock: Clock
    store: Store
    crypto: CryptoPool
    users: Users
    readers: Readers
    directory: PeerDirectory
    quotas: Quotas
    guard: DiskGuard


def lay_ground(config: Config, clock: Clock, *, on_fatal: Callable[[], None]) -> Ground:
    """Open the store and make what stands on it alone; nothing runs yet.

    Args:
        on_fatal: called when the store can no longer be written.

    Raises:
        StartError: the data folder cannot be made.
        StoreError: the store cannot be opened.
    """
    map_size = config.storage.map_size_mib * 2**20
    store = Store(
        _store_path(config),
        map_size=map_size,
        now_ms=clock.now_ms(),
        on_fatal=on_fatal,
        monotonic=clock.monotonic,
        migrates=True,
    )
    crypto = CryptoPool(threads=config.crypto.threads, max_queue=config.crypto.max_queue)
    readers = Readers(store)
    directory = PeerDirectory(
        readers=readers,
        clock=clock,
        own_login=config.server.login,
        sync_servers=sync_servers(config),
        refresh_seconds=config.server.pool.refresh_seconds,
    )
    users = Users(store=store, crypto=crypto, clock=clock, own_login=config.server.login)
    quotas = Quotas(limits=config.limits, store=store, clock=clock)
    guard = DiskGuard(store, min_free_mib=config.storage.min_free_mib, clock=clock)
    return Ground(config, clock, store, crypto, users, readers, directory, quotas, guard)


def own_certificate(config: Config) -> Certificate | None:
    """Read the node's own certificate; ``None`` where a proxy has it.

    Raises:
        ShineError: it cannot be read or used.
    """
    server = config.server
    if server.tls_cert is None or server.tls_key is None:  # the configuration has both or none
        return None
    return Certificate(server.tls_cert, server.tls_key)


def own_pages(config: Config) -> PageSet:
    """Read the files of the chat page; none where it is switched off.

    Raises:
        StartError: they cannot be read.
    """
    if not config.server.chat_page:
        return PageSet()
    try:
        return load_pages(WEB_FOLDER)
    except OSError as error:
        text = f"the files of the chat page cannot be read: {error}. Install this program again"
        raise StartError(f"{text}, or set server.chatPage = false") from None


def sync_servers(config: Config) -> tuple[AccessServer, ...]:
    """Return the peers that the operator configured."""
    return tuple(AccessServer(server.login, server.url) for server in config.sync_servers)


def make_pool(ground: Ground, *, on_connected: Callable[[str], None]) -> Pool:
    """Make the links to other servers."""
    server, pool = ground.config.server, ground.config.server.pool
    settings = PoolSettings(
        ping_idle_seconds=pool.ping_idle_seconds,
        pong_timeout_seconds=pool.pong_timeout_seconds,
        request_timeout_seconds=pool.request_timeout_seconds,
        connect_timeout_seconds=pool.connect_timeout_seconds,
        caller_timeout_seconds=pool.caller_timeout_seconds,
        max_queue_per_peer=pool.max_queue_per_peer,
        refresh_seconds=pool.refresh_seconds,
        idle_close_seconds=pool.idle_close_seconds,
        max_connections=pool.max_connections,
        snapshot_seconds=pool.snapshot_seconds,
        allow_insecure_peers=pool.allow_insecure_peers,
        allow_private_peers=pool.allow_private_peers,
        ca_file=pool.ca_file,
        max_frame_bytes=ground.config.limits.max_frame_bytes,
    )
    return Pool(
        own_login=server.login,
        own_url=server.url,
        settings=settings,
        clock=ground.clock,
        known_peers=ground.directory.known,
        on_connected=on_connected,
        blocked=ground.config.limits.blocked_peers,
    )


def make_lookup(ground: Ground, pool: Pool, *, takes_anyone: Callable[[], bool]) -> Lookup:
    """Make what looks users up at other servers."""
    return Lookup(
        peers=pool,
        users=ground.users,
        clock=ground.clock,
        connected=lambda: [AccessServer(peer.server_login, peer.url) for peer in pool.connected()],
        sync_servers=lambda: ground.directory.sync_servers,
        allow_insecure=ground.config.server.pool.allow_insecure_peers,
        takes_anyone=takes_anyone,
    )


def make_access_pull(ground: Ground, pool: Pool, *, takes_anyone: Callable[[], bool]) -> AccessPull:
    """Make what asks other servers for the records of users."""
    config = ground.config
    return AccessPull(
        store=ground.store,
        users=ground.users,
        peers=pool,
        vouches=ground.directory.vouches,
        takes_anyone=takes_anyone,
        allow_insecure=config.server.pool.allow_insecure_peers,
        page_limit=config.sync.page_limit,
        max_frame_bytes=config.limits.max_frame_bytes,
        clock=ground.clock,
        interval_seconds=config.sync.access_interval_seconds,
    )


def make_access_push(ground: Ground, pool: Pool) -> AccessPush:
    """Make what tells the other servers of this server's users their newest records."""
    return AccessPush(
        readers=ground.readers,
        users=ground.users,
        peers=pool,
        clock=ground.clock,
        interval_seconds=ground.config.sync.access_interval_seconds,
    )


def make_intake(ground: Ground, lookup: Lookup) -> Intake:
    """Make what takes pairs in."""
    delivery = ground.config.delivery
    return Intake(
        store=ground.store,
        crypto=ground.crypto,
        users=ground.users,
        lookup=lookup,
        clock=ground.clock,
        schedule=Schedule(delivery.schedule_seconds),
        lease_ms=delivery.lease_ms,
        max_body_bytes=ground.config.limits.max_body_bytes,
        quotas=ground.quotas,
    )


def make_catch_up(ground: Ground, lookup: Lookup, *, defect: Callable[[str], Refusal]) -> CatchUp:
    """Make what takes in what catches up."""
    return CatchUp(
        store=ground.store,
        crypto=ground.crypto,
        users=ground.users,
        lookup=lookup,
        clock=ground.clock,
        schedule=Schedule(ground.config.delivery.schedule_seconds),
        max_body_bytes=ground.config.limits.max_body_bytes,
        quotas=ground.quotas,
        defect=defect,
    )


def make_settings(ground: Ground, lookup: Lookup) -> Settings:
    """Make what takes users' settings in."""
    return Settings(
        store=ground.store,
        crypto=ground.crypto,
        users=ground.users,
        lookup=lookup,
        clock=ground.clock,
        max_value_bytes=ground.config.limits.max_body_bytes,
    )


def make_deliverer(ground: Ground, pool: Pool, lookup: Lookup) -> Deliverer:
    """Make what delivers pairs."""
    delivery = ground.config.delivery
    return Deliverer(
        store=ground.store,
        users=ground.users,
        peers=pool,
        lookup=lookup,
        clock=ground.clock,
        schedule=Schedule(delivery.schedule_seconds),
        first_attempt_timeout_ms=delivery.first_attempt_timeout_ms,
        lease_ms=delivery.lease_ms,
        quotas=ground.quotas,
    )


def make_worker(ground: Ground, deliverer: Deliverer) -> Worker:
    """Make what tries again when it is time."""
    delivery = ground.config.delivery
    return Worker(
        store=ground.store,
        deliverer=deliverer,
        clock=ground.clock,
        schedule=Schedule(delivery.schedule_seconds),
        interval_ms=delivery.worker_interval_ms,
        lease_ms=delivery.lease_ms,
        max_concurrent=delivery.max_concurrent,
    )


def _store_path(config: Config) -> Path:
    try:
        config.server.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        text = f"{config.server.data_dir} cannot be made: {error.strerror}. Fix server.dataDir"
        raise (StartMistake if needs_owner(error) else StartError)(text) from None
    return config.server.data_dir / STORE_FILE
