"""Puts the parts of a node together, and starts and stops them in order."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
from collections.abc import Coroutine
from functools import partial
from pathlib import Path

import uvloop

from shine_node.api.endpoint import PATH, Endpoint
from shine_node.api.gate import gate_handlers
from shine_node.api.live import Live
from shine_node.api.messages import MessageOperations
from shine_node.api.reading import ReadingOperations
from shine_node.api.service import ServiceOperations
from shine_node.api.sessions import SessionOperations
from shine_node.api.sync import SyncOperations
from shine_node.api.users import UserOperations
from shine_node.clock import Clock, SystemClock
from shine_node.config import Config
from shine_node.control.place import Place, own_path
from shine_node.control.reload import Reloader
from shine_node.control.server import ControlServer, Operation
from shine_node.control.status import Gauges, Status
from shine_node.control.users import AddUser
from shine_node.crypto.pool import CryptoPool
from shine_node.delivery.deliverer import Deliverer
from shine_node.delivery.intake import Intake
from shine_node.delivery.status import DeliveryStatus
from shine_node.delivery.worker import Worker
from shine_node.directory.lookup import Lookup
from shine_node.directory.peers import PeerDirectory
from shine_node.directory.sharing import AccessPull
from shine_node.directory.users import Users
from shine_node.logs import set_up_logging
from shine_node.peers.dial import DialFailed
from shine_node.peers.pool import Pool, PoolSettings
from shine_node.protocol.access import AccessServer
from shine_node.protocol.errors import ShineError
from shine_node.protocol.schedule import Schedule
from shine_node.store.environment import Store
from shine_node.store.readers import Readers
from shine_node.sync.messages import MessageApply, MessageFeed
from shine_node.sync.pulling import Puller
from shine_node.sync.resync import Resync
from shine_node.sync.serving import SyncServing
from shine_node.sync.sessions import Sessions, Step
from shine_node.tls import Certificate

__all__ = ["STORE_FILE", "Node", "run_node"]

log = logging.getLogger(__name__)

STORE_FILE = "shine.mdb"
GRACE_SECONDS = 2
"""What is under way when the node is told to stop has this long; who then waits for an attempt is answered at once."""
THREAD_SWITCH_SECONDS = 0.0005
COLLECTOR_THRESHOLDS = (20_000, 20, 50)
"""Requests make no reference cycles; looking for some after every 700 objects is time lost."""


class StartError(ShineError):
    """The node cannot start; the text says what to do."""


class Node:
    """One SHiNE node.

    Args:
        config: the checked configuration.
        clock: the clock of the whole node.
        config_path: the file that the configuration is read from again when it is told to.
        control_path: where the control socket is to lie; in the data folder where left out.
    """

    def __init__(
        self,
        config: Config,
        clock: Clock | None = None,
        *,
        config_path: Path | None = None,
        control_path: Path | None = None,
    ) -> None:
        self.config = config
        """In force now."""
        self._clock = clock or SystemClock()
        self.fatal = asyncio.Event()
        """Set when the node can go on no longer; its process should end and be started again."""
        self._certificate = _certificate(config)  # before the store, which takes a lock
        delivery = config.delivery
        schedule = Schedule(delivery.schedule_seconds)
        self.store = Store(_store_path(config), map_size=config.storage.map_size_mib * 2**20, on_fatal=self.fatal.set)
        self._crypto = CryptoPool(threads=config.crypto.threads, max_queue=config.crypto.max_queue)
        self.users = Users(store=self.store, crypto=self._crypto, clock=self._clock, own_login=config.server.login)
        self._readers = Readers(self.store)
        self._directory = PeerDirectory(
            readers=self._readers,
            clock=self._clock,
            own_login=config.server.login,
            sync_servers=[AccessServer(server.login, server.url) for server in config.sync_servers],
            refresh_seconds=config.server.pool.refresh_seconds,
        )
        self.pool = Pool(
            own_login=config.server.login,
            own_url=config.server.url,
            settings=_pool_settings(config),
            clock=self._clock,
            known_peers=self._directory.known,
            on_connected=lambda server_login: self._sessions.start(server_login),
        )
        lookup = Lookup(
            peers=self.pool,
            users=self.users,
            clock=self._clock,
            connected=lambda: [AccessServer(peer.server_login, peer.url) for peer in self.pool.connected()],
            sync_servers=lambda: self._directory.sync_servers,
            allow_insecure=config.server.pool.allow_insecure_peers,
            takes_anyone=self._takes_anyone,
        )
        self._lookup = lookup
        access_pull = AccessPull(
            store=self.store,
            users=self.users,
            peers=self.pool,
            vouches=self._directory.vouches,
            takes_anyone=self._takes_anyone,
            allow_insecure=config.server.pool.allow_insecure_peers,
            page_limit=config.sync.page_limit,
            max_frame_bytes=config.limits.max_frame_bytes,
            clock=self._clock,
            interval_seconds=config.sync.access_interval_seconds,
        )
        intake = Intake(
            store=self.store,
            crypto=self._crypto,
            users=self.users,
            lookup=lookup,
            clock=self._clock,
            schedule=schedule,
            lease_ms=delivery.lease_ms,
            max_body_bytes=config.limits.max_body_bytes,
        )
        self._deliverer = Deliverer(
            store=self.store,
            users=self.users,
            peers=self.pool,
            lookup=lookup,
            clock=self._clock,
            schedule=schedule,
            first_attempt_timeout_ms=delivery.first_attempt_timeout_ms,
            lease_ms=delivery.lease_ms,
        )
        self._worker = Worker(
            store=self.store,
            deliverer=self._deliverer,
            clock=self._clock,
            schedule=schedule,
            interval_ms=delivery.worker_interval_ms,
            lease_ms=delivery.lease_ms,
            max_concurrent=delivery.max_concurrent,
        )
        message_pull = Puller(
            op="DmSyncBatch",
            peers=self.pool,
            apply=MessageApply(take_pair=intake.sync_pair, take_incoming=partial(intake.receive_incoming, synced=True)),
            page_limit=config.sync.page_limit,
            offered=lambda server_login: self.pool.capability(server_login, "dm-sync"),
            on_stored=self._worker.wake,
        )
        self._sessions = Sessions(
            steps=[Step("access records", access_pull.step), Step("messages", message_pull.step)],
            clock=self._clock,
            interval_seconds=config.sync.interval_seconds,
            connected=self.pool.connected_peer,
        )
        self._service = ServiceOperations(config=config, clock=self._clock, peer_arrived=self.pool.peer_arrived)
        messages = MessageOperations(
            intake=intake, deliverer=self._deliverer, status=DeliveryStatus(self.store), users=self.users
        )
        reading = ReadingOperations(readers=self._readers, max_frame_bytes=config.limits.max_frame_bytes)
        self._resync = Resync(
            store=self.store, readers=self._readers, clock=self._clock, own_login=self.users.own_login
        )
        message_serving = SyncServing(
            feed=MessageFeed(self.users.own_login),
            store=self.store,
            readers=self._readers,
            max_frame_bytes=config.limits.max_frame_bytes,
        )
        sync = SyncOperations(
            readers=self._readers,
            feeds={"DmSyncBatch": message_serving},
            max_frame_bytes=config.limits.max_frame_bytes,
        )
        self._user_operations = UserOperations(
            config=config, users=self.users, lookup=lookup, vouches=self._directory.vouches
        )
        self._live = Live()
        sessions = SessionOperations(
            store=self.store, users=self.users, clock=self._clock, live=self._live, verify=self._crypto.verify
        )
        self._endpoint = Endpoint(
            handlers={
                **gate_handlers(),
                **self._service.handlers,
                **self._user_operations.handlers,
                **messages.handlers,
                **sessions.handlers,
                **reading.handlers,
                **sync.handlers,
            },
            limits=config.limits,
            clock=self._clock,
            tls=self._certificate.context if self._certificate is not None else None,
        )
        self.reloader = Reloader(
            path=config_path,
            running=lambda: self.config,
            read_certificate=self._certificate.load if self._certificate is not None else None,
            apply=self._apply,
        )
        self._status = Status(config=config, clock=self._clock, store=self.store, gauges=self._gauges())
        self._control_path = control_path or own_path(config.server.data_dir, {})
        self._control = ControlServer(
            operations={
                "Status": Operation(self._status.status),
                "AddUser": Operation(AddUser(config=config, users=self.users).add_user),
                "Reload": Operation(self.reloader.reload),
            }
        )
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of every socket that listens."""
        return self._endpoint.addresses

    @property
    def urls(self) -> list[str]:
        """The URLs under which the node listens."""
        scheme = "wss" if self.config.server.tls_cert else "ws"
        return [
            f"{scheme}://[{host}]:{port}{PATH}" if ":" in host else f"{scheme}://{host}:{port}{PATH}"
            for host, port in self.addresses
        ]

    @property
    def url(self) -> str:
        """The first of ``urls``."""
        return self.urls[0]

    async def start(self) -> None:
        """Start all parts; the endpoint listens last, when everything behind it is ready.

        Raises:
            StartError: an address cannot be listened on, or the authorities for peers cannot be read.
            ControlError: the control socket cannot be made.
        """
        try:
            await self._start()
        except BaseException:
            await self.stop()  # the threads that run already would keep the process alive
            raise

    async def _start(self) -> None:
        self.store.start()
        self._crypto.start()
        await self._directory.refresh()
        try:
            await self.pool.start()
        except DialFailed as error:
            raise StartError(str(error)) from None
        await self._control.start(Place(self._control_path, self.config.server.data_dir))
        self._tasks = [
            asyncio.create_task(self._guard(self._worker.run()), name="worker"),
            asyncio.create_task(self._guard(self._deliverer.claims.renew_forever()), name="leases"),
            asyncio.create_task(self._guard(self._status.watch()), name="store watch"),
            asyncio.create_task(self._guard(self._resync.run()), name="resync"),
            asyncio.create_task(self._guard(self._directory.refresh_forever(self.pool.refresh)), name="directory"),
        ]
        if self._certificate is not None:
            watching = self._guard(self._certificate.watch(self._clock))
            self._tasks.append(asyncio.create_task(watching, name="certificate"))
        try:
            await self._endpoint.start(self.config.server.listen)
        except OSError as error:
            raise StartError(f"cannot listen: {error}. Choose another server.listen, or stop what uses it") from None

    async def stop(self) -> None:
        """Stop all parts in order: no new requests, then what is under way, then what is waiting for the disk."""
        await self._control.close()
        await self._endpoint.settle(GRACE_SECONDS)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._sessions.close()
        await self._worker.close()
        await self._deliverer.close()  # requests that still wait for a first attempt are answered now
        await self._endpoint.close()
        await self._deliverer.close()
        await self._lookup.close()
        await self.pool.close()
        await asyncio.to_thread(self._readers.close)
        await asyncio.to_thread(self._crypto.close)
        await asyncio.to_thread(self.store.close)

    async def _guard(self, work: Coroutine[object, object, None]) -> None:
        """Run a part that must never end; if it does, the node cannot go on."""
        try:
            await work
        except asyncio.CancelledError:
            raise
        except Exception:
            log.critical("a part of the node has failed; the node stops", exc_info=True)
            self.fatal.set()

    def _takes_anyone(self) -> bool:
        return self.config.registration.mode == "open"

    def _gauges(self) -> Gauges:
        certificate = self._certificate
        return Gauges(
            urls=lambda: self.urls,
            connections=lambda: self._endpoint.connections,
            crypto_waiting=lambda: self._crypto.waiting,
            attempts=lambda: len(self._deliverer.claims),
            peers=self.pool.snapshot,
            problems=lambda: [certificate.problem] if certificate is not None and certificate.problem else [],
        )

    def _apply(self, config: Config) -> None:
        """Bring a configuration into force, of which only differs what can change while the node runs."""
        if config.log != self.config.log:
            set_up_logging(config.log)
        self.config = self._service.config = self._user_operations.config = config
        self._directory.sync_servers = tuple(AccessServer(server.login, server.url) for server in config.sync_servers)
        self._endpoint.change_limits(config.limits)
        try:
            self.pool.reload_authorities()
        except DialFailed as error:
            log.error("%s. Until then the authorities of before stay in use", error)


def run_node(config: Config, *, config_path: Path | None = None) -> int:
    """Run a node until SIGTERM or SIGINT, and return the exit status: 0 after a signal, 1 if it could not go on.

    SIGHUP lets it read its certificate and ``config_path`` again.

    It prints ``listening on …`` for each address on standard output once it listens.
    """
    set_up_logging(config.log)
    # A thread that has checked a signature waits this long for the interpreter while the loop is busy. The default
    # of 5 ms would let the loop starve the checks that its own answers wait for.
    sys.setswitchinterval(THREAD_SWITCH_SECONDS)
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(config, config_path))


async def _run(config: Config, config_path: Path | None) -> int:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    hung_up = asyncio.Event()
    loop.add_signal_handler(signal.SIGHUP, hung_up.set)  # one that comes before the node has started is not lost
    try:
        control_path = own_path(config.server.data_dir, os.environ)
        node = Node(config, config_path=config_path, control_path=control_path)
        await node.start()
        gc.collect()
        gc.freeze()  # what lives as long as the node need not be looked through again
    except ShineError as error:
        log.critical("%s", error)
        return 1
    for url in node.urls:
        print(f"listening on {url}", flush=True)
    reloading = asyncio.create_task(_reload_when_told(hung_up, node.reloader))
    waits = [asyncio.create_task(event.wait()) for event in (stopping, node.fatal)]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for task in (reloading, *waits):
        task.cancel()
    log.info("stopping")
    with contextlib.suppress(asyncio.CancelledError):
        await node.stop()
    return 1 if node.fatal.is_set() else 0


async def _reload_when_told(told: asyncio.Event, reloader: Reloader) -> None:
    while True:
        await told.wait()
        told.clear()
        await reloader.reload_logged()


def _store_path(config: Config) -> Path:
    try:
        config.server.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StartError(f"{config.server.data_dir} cannot be made: {error.strerror}. Fix server.dataDir") from None
    return config.server.data_dir / STORE_FILE


def _certificate(config: Config) -> Certificate | None:
    server = config.server
    if server.tls_cert is None or server.tls_key is None:  # the configuration has both or none
        return None
    return Certificate(server.tls_cert, server.tls_key)


def _pool_settings(config: Config) -> PoolSettings:
    pool = config.server.pool
    return PoolSettings(
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
        max_frame_bytes=config.limits.max_frame_bytes,
    )
