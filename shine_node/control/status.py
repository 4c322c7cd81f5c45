"""``Status``: what the node is doing, as one JSON object; and the log's warnings of a store that fills up."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import re
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from shine_node import __version__
from shine_node.clock import Clock, is_synchronised
from shine_node.config import Config, is_credential, lacks_credentials
from shine_node.control.backups import NewestBackup, backup_warnings, in_own_thread, read_newest
from shine_node.control.health import (
    DAY_MS,
    LEAST_FREE_MIB,
    StoreReading,
    certificate_expired,
    certificate_warnings,
    clock_warnings,
    comfortable_mib,
    peer_notes,
    peer_warnings,
    plain_warnings,
    queue_warnings,
    store_warnings,
)
from shine_node.control.recovery import store_rules
from shine_node.peers.snapshot import PeerSnapshot, PoolSnapshot
from shine_node.store.deliveries import count_open
from shine_node.store.environment import Store
from shine_node.store.job_queue import MAX_WAITING_JOBS
from shine_node.store.layout import Table
from shine_node.sync.outcomes import Outcome

__all__ = ["Gauges", "Status", "read_store"]

log = logging.getLogger(__name__)

WATCH_SECONDS = 60
BACKUP_SECONDS = 5
"""How long the disk of the backups may take to say which there are."""
REMIND_SECONDS = 86_400.0
"""What stays as it is is told again after so long: a log is kept for some weeks, and read by who looks at its end."""


class Gauges(NamedTuple):
    """What is read of the parts of a running node; none of it waits."""

    urls: Callable[[], Sequence[str]]
    """Where it listens."""
    connections: Callable[[], int]
    """How many clients and servers are connected to it."""
    crypto_waiting: Callable[[], int]
    """How many requests wait for their signatures to be checked."""
    attempts: Callable[[], int]
    """How many attempts of deliveries are under way."""
    peers: Callable[[], PoolSnapshot]
    configured: Callable[[], Collection[str]]
    """The logins of the peers in force, in lower case."""
    config: Callable[[], Config]
    """The configuration in force."""
    certificate: Callable[[], int | None]
    """When the certificate expires, Unix milliseconds; ``None`` for a node that has none."""
    sessions: Callable[[str], Outcome]
    """How the sync sessions with a peer have ended."""
    problems: Callable[[], Sequence[str]]
    """What else is not well, in words that say what to do."""
    since_start: Callable[[], Mapping[str, object]]
    """Counts of what has come to users and strangers since the start."""
    refused_news: Callable[[], str]
    """What the bounds of users have refused since it was called last, empty if nothing."""


class Status:
    """Answers ``Status``, and watches the store.

    Args:
        config: the configuration that the node was started with.
        clock: the node's; it counts the uptime from now on.
    """

    def __init__(self, *, config: Config, clock: Clock, store: Store, gauges: Gauges) -> None:
        self._config = config
        self._clock = clock
        self._store = store
        self._gauges = gauges
        self._started = clock.monotonic()
        self._missing = lacks_credentials(os.environ)
        self._looking: asyncio.Future[NewestBackup] | None = None

    async def status(self, payload: Mapping[str, Any]) -> dict[str, object]:
        """Return the state of the node; ``warnings`` is empty where all is well. No member of the payload counts.

        ``notes`` are what an operator may want to know, and need do nothing about.
        """
        gauges, server = self._gauges, self._config.server
        backup = await self._newest_backup()
        store, peers = read_store(self._store, self._comfortable()), gauges.peers()
        queues = {"crypto": gauges.crypto_waiting(), "writer": self._store.waiting, "attempts": gauges.attempts()}
        nearly_full = queue_warnings(
            crypto=queues["crypto"],
            crypto_bound=self._config.crypto.max_queue,
            writer=queues["writer"],
            writer_bound=MAX_WAITING_JOBS,
        )
        now_ms, configured, not_after_ms = self._clock.now_ms(), gauges.configured(), gauges.certificate()
        synchronised = is_synchronised()
        return {
            "version": __version__,
            "login": server.login,
            "url": server.url,
            "uptimeSeconds": int(self._clock.monotonic() - self._started),
            "listening": list(gauges.urls()),
            "connections": gauges.connections(),
            "queues": {**queues, "openDeliveries": store.open_deliveries},
            "store": {
                "path": str(store.path),
                "fileBytes": store.file_bytes,
                "usedBytes": store.used_bytes,
                "mapBytes": store.map_bytes,
                "usedShare": round(store.used_share, 4),
                "diskFreeBytes": store.disk_free_bytes,
                "users": store.users,
                "messages": store.messages,
                "unreadableRows": self._store.unreadable.count,
            },
            "backup": {
                "folder": str(backup.folder),
                "file": str(backup.path) if backup.path is not None else None,
                "madeAtMs": backup.made_at_ms,
                "fileBytes": backup.size,
            },
            "peers": {
                "atMs": peers.at_ms,
                "known": peers.known_peers,
                "maxConnections": peers.max_connections,
                "links": [_link(peer, gauges.sessions(peer.server_login)) for peer in peers.peers],
            },
            "sinceStart": dict(gauges.since_start()),
            "certificate": None
            if not_after_ms is None
            else {"notAfterMs": not_after_ms, "daysLeft": (not_after_ms - now_ms) // DAY_MS},
            "clock": {"nowMs": now_ms, "synchronised": synchronised},
            "warnings": [
                *store_warnings(store).values(),
                *nearly_full,
                *certificate_warnings(not_after_ms, now_ms, handed_over=self._handed_over()),
                *self._plain(),
                *backup_warnings(backup, wanted=self._config.storage.backup_dir is not None, now_ms=now_ms),
                *peer_warnings(peers, configured),
                *gauges.problems(),
            ],
            "notes": [*peer_notes(peers, configured), *clock_warnings(synchronised)],
        }

    async def _newest_backup(self) -> NewestBackup:
        """Look for it in a thread of its own: its disk may be a slow one, or one that is gone.

        At most one look is under way, for as long as that takes; the threads that others share are not held up by it.
        """
        rules = store_rules(self._config)
        if self._looking is None or self._looking.done():
            self._looking = in_own_thread(lambda: read_newest(rules.backups, rules.own_login), "backups")
        done, _ = await asyncio.wait({self._looking}, timeout=BACKUP_SECONDS)
        if done:
            return self._looking.result()
        return NewestBackup(rules.backups, problem=f"its disk has not answered within {BACKUP_SECONDS} s")

    def _comfortable(self) -> int:
        return comfortable_mib(self._gauges.config().storage.min_free_mib)

    def _handed_over(self) -> bool:
        certificate = self._gauges.config().server.tls_cert
        return certificate is not None and is_credential(certificate)

    def _plain(self) -> list[str]:
        server = self._gauges.config().server
        if server.tls_cert is not None:
            return []
        exposed = [str(address) for address in server.listen if not address.is_loopback]
        return plain_warnings(server.url, exposed, missing=self._missing)

    async def watch(self) -> None:
        """Look at the store and the certificate every ``WATCH_SECONDS``, until cancelled.

        It warns when the store or its disk fills up or the certificate nears its end, and each day while that lasts;
        of a certificate that has ended it says so at the next look. What a command that was killed has kept from being
        used again is let go of. What the bounds of users have refused meanwhile is told in one line.
        """
        told: dict[str, float] = {}
        while True:
            self._store.free_dead_readers()
            now = store_warnings(read_store(self._store, self._comfortable()))
            now.pop("trouble", None)  # the store has logged it
            not_after_ms, now_ms = self._gauges.certificate(), self._clock.now_ms()
            expired = certificate_expired(not_after_ms, now_ms)
            for warning in certificate_warnings(not_after_ms, now_ms, handed_over=self._handed_over()):
                now["certificate expired" if expired else "certificate expires"] = warning
            now.update(("plain", warning) for warning in self._plain())
            at = self._clock.monotonic()
            told = {about: told_at for about, told_at in told.items() if about in now}
            for about, warning in now.items():
                if at - told.get(about, -REMIND_SECONDS) >= REMIND_SECONDS:
                    log.log(logging.ERROR if about == "certificate expired" else logging.WARNING, "%s", warning)
                    told[about] = at
            if refused := self._gauges.refused_news():
                log.warning("bounds of users have refused within the last %d s: %s", WATCH_SECONDS, refused)
            await self._clock.sleep(WATCH_SECONDS)


def read_store(store: Store, comfortable_mib: int = LEAST_FREE_MIB) -> StoreReading:
    """Read the sizes and counts of a store; they stand in its head pages, so nothing is searched.

    Args:
        comfortable_mib: with less free on its disk it will soon take no messages.
    """
    trouble = store.trouble
    file_bytes, disk_free_bytes = 0, None
    try:
        file_bytes = store.path.stat().st_size
        disk_free_bytes = shutil.disk_usage(store.path.parent).free
    except OSError as error:
        trouble = f"{store.path} is gone ({error.strerror}), what is written now is lost: stop, and restore a backup"
    with store.read() as txn:
        return StoreReading(
            path=store.path,
            file_bytes=file_bytes,
            used_bytes=txn.used_bytes(),
            map_bytes=store.map_size,
            disk_free_bytes=disk_free_bytes,
            trouble=trouble,
            users=txn.count(Table.USERS),
            messages=txn.count(Table.CONTAINERS),
            open_deliveries=count_open(txn),
            refusing=bool(store.no_room),
            comfortable_mib=comfortable_mib,
        )


def _link(peer: PeerSnapshot, session: Outcome) -> dict[str, object]:
    described = {_camel(name): value for name, value in dataclasses.asdict(peer).items()}
    synced = {
        "syncedAtMs": session.well_at_ms,
        "notSyncedSinceMs": session.not_since_ms,
        "notSyncedBecause": session.problem,
    }
    return {**described, "state": peer.state.value, "well": peer.well, **synced}


def _camel(name: str) -> str:
    return re.sub("_([a-z])", lambda found: found[1].upper(), name)
