"""Puts the parts of a node together, and starts and stops them in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from pathlib import Path

from shine_node.api.endpoint import Endpoint
from shine_node.api.events import Events
from shine_node.api.failed_logins import FailedLogins
from shine_node.api.gate import gate_handlers
from shine_node.api.live import Live
from shine_node.api.messages import MessageOperations
from shine_node.api.pages import PATH
from shine_node.api.reading import ReadingOperations
from shine_node.api.service import ServiceOperations
from shine_node.api.sessions import SessionOperations
from shine_node.api.settings import SettingsOperations
from shine_node.api.sync import SyncOperations
from shine_node.api.users import UserOperations
from shine_node.clock import Clock, SystemClock
from shine_node.config import Config
from shine_node.control.place import Place, own_path
from shine_node.control.reload import Reloader
from shine_node.control.server import ControlServer, Operation
from shine_node.control.sessions import EndSessions
from shine_node.control.status import Gauges, Status
from shine_node.control.unsynced import MarkUnsynced
from shine_node.control.users import AddUser
from shine_node.delivery.status import DeliveryStatus
from shine_node.logs import set_up_logging
from shine_node.parts import (
    STORE_FILE,
    StartError,
    StartMistake,
    lay_ground,
    make_access_pull,
    make_access_push,
    make_catch_up,
    make_deliverer,
    make_intake,
    make_lookup,
    make_pool,
    make_settings,
    make_worker,
    own_certificate,
    own_pages,
    sync_servers,
)
from shine_node.peers.dial import DialFailed
from shine_node.store.lineage import Lineage, begin_lineage
from shine_node.store.owner import note_owner
from shine_node.store.recovery.start import recovery_notice
from shine_node.store.refill import list_refilling
from shine_node.sync.defects import Defects
from shine_node.sync.messages import MessageApply, MessageFeed
from shine_node.sync.pulling import Puller
from shine_node.sync.resync import Resync
from shine_node.sync.serving import Feed, SyncServing
from shine_node.sync.sessions import Sessions, Step
from shine_node.sync.settings import SettingsApply, SettingsFeed
from shine_node.sync.stores import PeerStores

__all__ = ["STORE_FILE", "Node", "StartError", "StartMistake"]

log = logging.getLogger(__name__)

GRACE_SECONDS = 1.0
"""What is under way when the node is told to stop has this long; who then waits for an attempt is answered at once."""
CLOSE_SECONDS = 0.5
"""Each of the few steps has this long by which connections, readers and the store are closed then."""


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
        self._certificate = own_certificate(config)  # before the store, which takes a lock
        pages = own_pages(config)
        ground = lay_ground(config, self._clock, on_fatal=self.fatal.set)
        self.store, self._crypto, self.users = ground.store, ground.crypto, ground.users
        self._readers, self._directory = ground.readers, ground.directory
        self._quotas, self._disk_guard = ground.quotas, ground.guard
        self.pool = make_pool(ground, on_connected=lambda server_login: self._sessions.start(server_login))
        self._lookup = lookup = make_lookup(ground, self.pool, takes_anyone=self._takes_anyone)
        access_pull = make_access_pull(ground, self.pool, takes_anyone=self._takes_anyone)
        peer_stores = PeerStores(
            store=self.store, readers=self._readers, clock=self._clock, own_login=self.users.own_login
        )
        intake = make_intake(ground, lookup)
        self._deliverer = make_deliverer(ground, self.pool, lookup)
        self._worker = make_worker(ground, self._deliverer)
        self._live = Live()
        self.store.watch = Events(live=self._live, users=self.users).tell
        settings = make_settings(ground, lookup)
        settings_pull = Puller(
            op="SettingsSyncBatch",
            peers=self.pool,
            clock=self._clock,
            apply=SettingsApply(settings.learn, self._clock),
            shares=self.users.shares,
            page_limit=config.sync.page_limit,
            max_frame_bytes=config.limits.max_frame_bytes,
            offered=lambda server_login: self.pool.capability(server_login, "settings-sync"),
            lineage=lambda: self._lineage,
        )
        message_pull = Puller(
            op="DmSyncBatch",
            peers=self.pool,
            clock=self._clock,
            apply=MessageApply(make_catch_up(ground, lookup, defect=Defects(self._clock).refusal)),
            shares=self.users.shares,
            page_limit=config.sync.page_limit,
            max_frame_bytes=config.limits.max_frame_bytes,
            offered=lambda server_login: self.pool.capability(server_login, "dm-sync"),
            lineage=lambda: self._lineage,
            on_stored=self._worker.arrived,
        )
        self._sessions = Sessions(
            steps=[
                Step("access records", access_pull.step),
                Step("settings", settings_pull.step),
                Step("messages", message_pull.step),
                # Last: a peer that does not answer it must not keep what went before from its turn.
                Step("records told", make_access_push(ground, self.pool).step),
            ],
            clock=self._clock,
            interval_seconds=config.sync.interval_seconds,
            connected=self.pool.connected_peer,
        )
        self._service = ServiceOperations(config=config, clock=self._clock, peer_arrived=self.pool.peer_arrived)
        messages = MessageOperations(
            intake=intake,
            deliverer=self._deliverer,
            status=DeliveryStatus(self.store),
            users=self.users,
            blocked_peers=lambda: self.config.limits.blocked_peers,
        )
        reading = ReadingOperations(readers=self._readers, max_frame_bytes=config.limits.max_frame_bytes)
        self._resync = Resync(
            store=self.store, readers=self._readers, clock=self._clock, own_login=self.users.own_login
        )
        feeds: dict[str, Feed] = {
            "SettingsSyncBatch": SettingsFeed(self.users.own_login),
            "DmSyncBatch": MessageFeed(self.users.own_login),
        }
        max_frame_bytes = config.limits.max_frame_bytes
        sync = SyncOperations(
            readers=self._readers,
            feeds={
                op: SyncServing(
                    feed=feed,
                    store=self.store,
                    readers=self._readers,
                    clock=self._clock,
                    max_frame_bytes=max_frame_bytes,
                    stores=peer_stores,
                )
                for op, feed in feeds.items()
            },
            max_frame_bytes=max_frame_bytes,
        )
        params = SettingsOperations(
            settings=settings, readers=self._readers, resync=self._resync, max_frame_bytes=max_frame_bytes
        )
        self._failed_logins = FailedLogins(config.limits, self._clock)
        self._user_operations = UserOperations(
            config=config,
            users=self.users,
            lookup=lookup,
            vouches=self._directory.vouches,
            failed=self._failed_logins,
        )
        sessions = SessionOperations(
            store=self.store,
            users=self.users,
            clock=self._clock,
            live=self._live,
            verify=self._crypto.verify,
            failed=self._failed_logins,
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
                **params.handlers,
            },
            limits=config.limits,
            clock=self._clock,
            tls=self._certificate.context if self._certificate is not None else None,
            pages=pages,
        )
        self.reloader = Reloader(
            path=config_path,
            running=lambda: self.config,
            read_certificate=self._certificate.load if self._certificate is not None else None,
            read_authorities=self.pool.read_authorities,
            apply=self._apply,
        )
        self._status = Status(config=config, clock=self._clock, store=self.store, gauges=self._gauges())
        self._control_path = control_path or own_path(config.server.data_dir, {})
        self._control = ControlServer(
            operations={
                "Status": Operation(self._status.status),
                "AddUser": Operation(AddUser(config=config, users=self.users).add_user),
                "MarkUnsynced": Operation(MarkUnsynced(settings=settings, resync=self._resync).mark_unsynced),
                "Reload": Operation(self.reloader.reload),
                "SignOut": Operation(EndSessions(store=self.store).end_sessions),
            }
        )
        self._lineage: Lineage | None = None
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

    async def status(self) -> dict[str, object]:
        """Return how the node is, as the operation ``Status`` answers."""
        return await self._status.status({})

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
        await self._disk_guard.look()
        await note_owner(self.store, self.users.own_login)
        self._lineage = await begin_lineage(self.store)
        self._crypto.start()
        await self._directory.refresh()
        try:
            await self.pool.start()
        except DialFailed as error:
            raise StartMistake(str(error)) from None
        await self._control.start(Place(self._control_path, self.config.server.data_dir))
        self._tasks = [
            asyncio.create_task(self._guard(self._worker.run()), name="worker"),
            asyncio.create_task(self._guard(self._deliverer.claims.renew_forever()), name="leases"),
            asyncio.create_task(self._guard(self._status.watch()), name="store watch"),
            asyncio.create_task(self._guard(self._disk_guard.watch()), name="disk watch"),
            asyncio.create_task(self._guard(self._resync.run()), name="resync"),
            asyncio.create_task(self._guard(self._directory.refresh_forever(self.pool.refresh)), name="directory"),
        ]
        if self._certificate is not None:
            watching = self._guard(self._certificate.watch(self._clock))
            self._tasks.append(asyncio.create_task(watching, name="certificate"))
        try:
            await self._endpoint.start(self.config.server.listen)
        except OSError as error:
            text = f"cannot listen: {error}. Choose another server.listen, or stop what uses it"
            # An address that is taken, or not there yet, may be free soon; a port below 1024 will not.
            raise (StartMistake if isinstance(error, PermissionError) else StartError)(text) from None

    async def stop(self) -> None:
        """Stop all parts in order: no new requests, then what is under way, then what is waiting for the disk.

        Each step has a bound, and they come to less than 5 s. Whatever was answered is on disk before the first one.
        """
        await self._control.close()
        await self._endpoint.settle(GRACE_SECONDS)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._sessions.close()
        await self._worker.close()
        await self._deliverer.close()  # requests that still wait for a first attempt are answered now
        await asyncio.gather(self._endpoint.close(CLOSE_SECONDS), self.pool.close())
        await self._deliverer.close()
        await self._lookup.close()
        await asyncio.to_thread(lambda: self._crypto.close(abandon=True))
        if await asyncio.to_thread(self._readers.close, CLOSE_SECONDS):
            await asyncio.to_thread(self.store.close, CLOSE_SECONDS)
        else:
            log.warning("a long reading of the store is given up; it stays open until the process ends")

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
            configured=lambda: {peer.login.lower() for peer in self.config.sync_servers},
            config=lambda: self.config,
            certificate=lambda: certificate.not_after_ms if certificate is not None else None,
            sessions=self._sessions.outcomes.of,
            problems=self._problems,
            since_start=self._counted,
            refused_news=self._quotas.refused.news,
        )

    def _counted(self) -> dict[str, object]:
        return {
            "registrations": self.users.registrations,
            "failedLogins": self._failed_logins.failed,
            "refusedLogins": self._failed_logins.refused,
            "wrongTokens": self._failed_logins.wrong_tokens,
            "refusedByLimits": self._quotas.refused.counts,
        }

    def _problems(self) -> list[str]:
        with self.store.read() as txn:
            refilling = list_refilling(txn)
        problems = [recovery_notice(self.store.path), self.store.unreadable.problem, self._disk_guard.problem]
        if refilling:
            problems.append(f"the store began empty: {', '.join(refilling)} must yet tell who the users here are")
        if self._certificate is not None:
            problems.append(self._certificate.problem)
        return [problem for problem in problems if problem]

    def _apply(self, config: Config) -> None:
        """Bring a configuration into force, of which only differs what can change while the node runs."""
        if config.log != self.config.log:
            set_up_logging(config.log)
        self.config = self._service.config = self._user_operations.config = config
        self._directory.sync_servers = sync_servers(config)
        self._failed_logins.limits = self._quotas.limits = config.limits
        self._disk_guard.change(config.storage.min_free_mib)
        self._endpoint.change_limits(config.limits)
        self.pool.block(config.limits.blocked_peers)
