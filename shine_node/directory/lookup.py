"""Finds records of users at peers: of a login that is not known here, and anew of one that cannot be reached (§3)."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from shine_node.clock import Clock
from shine_node.directory.users import Users
from shine_node.peers.asking import Peers
from shine_node.protocol.access import AccessServer, User, parse_record
from shine_node.protocol.encoding import read_list
from shine_node.protocol.errors import LinkError, Refusal

__all__ = ["Lookup"]

log = logging.getLogger(__name__)

MAX_PEERS = 3
"""Peers that are asked for one unknown login."""
MISS_SECONDS = 30
"""For how long nobody is asked again for a login that nobody knew."""
MAX_MISSES = 10_000
MAX_UNDER_WAY = 64
"""Look-ups at one time; above it a login that is not known here is not known at all."""
TIMEOUT_SECONDS = 5.0


class Lookup:
    """Asks peers with ``GetUserAccess`` and stores what they answer, if it is rightly signed.

    Args:
        connected: the peers whose links are up, the best ones to ask first.
        sync_servers: the peers that the operator configured.
        allow_insecure: whether records may name ``ws://``.
    """

    def __init__(
        self,
        *,
        peers: Peers,
        users: Users,
        clock: Clock,
        connected: Callable[[], Iterable[AccessServer]],
        sync_servers: Callable[[], Iterable[AccessServer]],
        allow_insecure: bool,
    ) -> None:
        self._peers = peers
        self._users = users
        self._clock = clock
        self._connected = connected
        self._sync_servers = sync_servers
        self._allow_insecure = allow_insecure
        self._missed: dict[str, float] = {}
        self._under_way: dict[str, asyncio.Task[User | None]] = {}
        self._refreshing: dict[str, asyncio.Task[None]] = {}

    async def find(self, login: str) -> User | None:
        """Return a user, asking up to three connected peers if nobody of that login is known here.

        A login that nobody knew is not asked for again within ``MISS_SECONDS``; requests for one login share a look-up.

        Args:
            login: in lower case.
        """
        user = self._users.get(login)
        if user is not None:
            return user
        missed_at = self._missed.get(login)
        if missed_at is not None and self._clock.monotonic() - missed_at < MISS_SECONDS:
            return None
        task = self._under_way.get(login)
        if task is None:
            if len(self._under_way) >= MAX_UNDER_WAY:
                return None
            task = asyncio.get_running_loop().create_task(self._find(login))
            self._under_way[login] = task
            task.add_done_callback(lambda _: self._under_way.pop(login))
        return await asyncio.shield(task)

    def refresh_soon(self, login: str) -> None:
        """Begin to look for newer records of a user who cannot be reached; does not wait (§3).

        The user's last known servers and the configured peers are asked. While that goes on, nothing more is begun for
        the same user.
        """
        if login not in self._refreshing and len(self._refreshing) < MAX_UNDER_WAY:
            task = asyncio.get_running_loop().create_task(self._refresh(login))
            self._refreshing[login] = task
            task.add_done_callback(lambda _: self._refreshing.pop(login))

    async def close(self) -> None:
        """End the look-ups that are under way."""
        tasks = [*self._under_way.values(), *self._refreshing.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _refresh(self, login: str) -> None:
        own = self._users.own_login
        servers = {s.server_login.lower(): s for s in (*self._users.routes(login), *self._sync_servers())}
        await asyncio.gather(*(self._ask(server, login) for key, server in servers.items() if key != own))

    async def _find(self, login: str) -> User | None:
        for server in itertools.islice(self._connected(), MAX_PEERS):
            await self._ask(server, login)
            user = self._users.get(login)
            if user is not None:
                return user
        self._missed.pop(login, None)  # so that the oldest miss stands first
        if len(self._missed) >= MAX_MISSES:
            del self._missed[next(iter(self._missed))]
        self._missed[login] = self._clock.monotonic()
        return None

    async def _ask(self, server: AccessServer, login: str) -> None:
        try:
            answer = await self._peers.request(server, "GetUserAccess", {"login": login}, timeout=TIMEOUT_SECONDS)
            if answer.get("exists") is True:
                await self._take(login, answer)
        except (LinkError, Refusal) as error:
            log.info("no records of %s from %s: %s", login, server.server_login, error)

    async def _take(self, login: str, answer: Mapping[str, Any]) -> None:
        """Store the records of an answer, oldest first; the first that is wrong ends it."""
        for payload in [*read_list(answer, "history"), answer]:
            if not isinstance(payload, dict):
                break
            record = parse_record(payload, allow_insecure=self._allow_insecure)
            if record.key != login:
                break
            await self._users.add(record)
