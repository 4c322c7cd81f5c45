"""Finds records of users at peers: of a login that is not known here, and anew of one that cannot be reached (§3)."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from shine_node.clock import Clock
from shine_node.directory.users import Users
from shine_node.peers.asking import Peers
from shine_node.protocol.access import AccessServer, User, parse_record
from shine_node.protocol.encoding import read_list
from shine_node.protocol.errors import LinkError, PeerRefused, Refusal, ServerBusy
from shine_node.store.unreadable import UnreadableRow

__all__ = ["Lookup"]

log = logging.getLogger(__name__)

MAX_PEERS = 3
"""Peers that are asked for one unknown login."""
MISS_SECONDS = 30
"""For how long nobody is asked again for a login that nobody knew."""
MAX_MISSES = 10_000
MAX_UNDER_WAY = 64
"""Look-ups of unknown logins at one time, and users at one time whose records are looked up anew."""
MAX_WAITING = 10_000
"""Users who wait for their records to be looked up anew."""
TIMEOUT_SECONDS = 5.0


class Lookup:
    """Asks peers with ``GetUserAccess`` and stores what they answer, if it is rightly signed.

    Args:
        connected: the peers whose links are up, the best ones to ask first.
        sync_servers: the peers that the operator configured.
        allow_insecure: whether records may name ``ws://``.
        takes_anyone: whether this server registers whoever asks (``registration.mode`` is ``open``): only then does a
            record that was found make somebody a user of this server.
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
        takes_anyone: Callable[[], bool],
    ) -> None:
        self._peers = peers
        self._users = users
        self._clock = clock
        self._connected = connected
        self._sync_servers = sync_servers
        self._allow_insecure = allow_insecure
        self._takes_anyone = takes_anyone
        self._missed: dict[str, float] = {}
        self._under_way: dict[str, asyncio.Task[User | None]] = {}
        self._refreshing: dict[str, asyncio.Task[None]] = {}
        self._turns = asyncio.Semaphore(MAX_UNDER_WAY)

    async def find(self, login: str) -> User | None:
        """Return a user, asking up to three connected peers if nobody of that login is known here.

        A login that nobody knew is not asked for again within ``MISS_SECONDS``; where no peer answered at all, it may
        be known the next time. Requests for one login share a look-up.

        Args:
            login: in lower case.

        Raises:
            ServerBusy: too many look-ups are under way.
            ServerBusy, StorageFull: the user was found, and could not be stored now.
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
                raise ServerBusy("too many users are being looked up at other servers", {"retryAfterMs": 1000})
            task = asyncio.get_running_loop().create_task(self._find(login))
            self._under_way[login] = task
            task.add_done_callback(lambda _: self._under_way.pop(login))
        return await asyncio.shield(task)

    async def find_at(self, login: str, server_login: str) -> User | None:
        """Return a user, asking one connected peer, who must know, if nobody of that login is known here.

        Args:
            login: in lower case.
            server_login: the peer; how many it is asked for at once is the caller's to bound.

        Raises:
            ServerBusy, StorageFull: the user was found, and could not be stored now.
        """
        if self._users.get(login) is None:
            for server in self._connected():
                if server.server_login.lower() == server_login.lower():
                    await self._ask(server, login)
        return self._users.get(login)

    def refresh_soon(self, login: str) -> None:
        """Begin to look for newer records of a user who cannot be reached; does not wait (§3).

        The user's last known servers and the configured peers are asked. While that goes on, nothing more is begun for
        the same user.
        """
        if login not in self._refreshing and len(self._refreshing) < MAX_WAITING:
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
        async with self._turns:
            servers = {s.server_login.lower(): s for s in (*self._routes(login), *self._sync_servers())}
            await asyncio.gather(*(self._ask_again(server, login) for key, server in servers.items() if key != own))

    def _routes(self, login: str) -> Sequence[AccessServer]:
        try:
            return self._users.routes(login)
        except UnreadableRow:  # the store has told of it; a peer may know them
            return ()

    async def _ask_again(self, server: AccessServer, login: str) -> None:
        with contextlib.suppress(Refusal):  # it is in the log; the next attempt that fails looks again
            await self._ask(server, login)

    async def _find(self, login: str) -> User | None:
        answered = False
        for server in itertools.islice(self._connected(), MAX_PEERS):
            answered = await self._ask(server, login) or answered
            user = self._users.get(login)
            if user is not None:
                return user
        if answered:
            self._remember_miss(login)
        return None

    def _remember_miss(self, login: str) -> None:
        self._missed.pop(login, None)  # so that the oldest miss stands first
        if len(self._missed) >= MAX_MISSES:
            del self._missed[next(iter(self._missed))]
        self._missed[login] = self._clock.monotonic()

    async def _ask(self, server: AccessServer, login: str) -> bool:
        """Ask a server, store what it answers, and say whether it gave an answer that would be the same again.

        Raises:
            RateLimited, ServerBusy, StorageFull: the answer could not be stored now.
        """
        try:
            answer = await self._peers.request(server, "GetUserAccess", {"login": login}, timeout=TIMEOUT_SECONDS)
            if answer.get("exists") is True:
                await self._take(login, answer)
        except LinkError as error:
            log.info("no records of %s from %s: %s", login, server.server_login, error)
            return isinstance(error, PeerRefused) and not error.retryable
        except Refusal as refusal:
            log.info("the records of %s from %s were not taken: %s", login, server.server_login, refusal)
            if refusal.retryable:
                raise
        return True

    async def _take(self, login: str, answer: Mapping[str, Any]) -> None:
        """Store the records of an answer, oldest first; the first that is wrong ends it.

        One that would make somebody a user of this server who is not registered here is passed over.
        """
        for payload in [*read_list(answer, "history"), answer]:
            if not isinstance(payload, dict):
                break
            record = parse_record(payload, allow_insecure=self._allow_insecure)
            if record.key != login:
                break
            if self._users.comes_here(record) and not self._takes_anyone():
                log.info("a record names this server for %s, who is not registered here: it is not taken", login)
                continue
            await self._users.add(record)
