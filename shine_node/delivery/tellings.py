"""Tells servers the records of a user whose present key they do not know, no more often than it helps (§3)."""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

from shine_node.clock import Clock
from shine_node.delivery.background import Background
from shine_node.directory.pushing import tell_record
from shine_node.directory.users import Users
from shine_node.peers.asking import Peers
from shine_node.peers.waiting import within
from shine_node.protocol.access import AccessRecord, AccessServer
from shine_node.protocol.errors import LinkError, PeerRefused

__all__ = ["Tellings"]

log = logging.getLogger(__name__)

AGAIN_SECONDS = 10.0
"""A server that has been told a user's records is not told the same ones again so soon."""

TELLING_SECONDS = 60.0
"""How long a telling may take in all: a server that takes its time over each record must not hold attempts up."""

MAX_REMEMBERED = 10_000
"""Tellings of which it is remembered that they were; above it the oldest are forgotten."""

_Key = tuple[str, str, str]
"""The server's login in lower case and its URL, and the user's login."""


class _Ended(NamedTuple):
    at: float
    number: int
    newest: bytes
    """The signature of the newest record that was told."""
    told: bool


class Tellings:
    """One telling at a time of each user's records to each server, for all calls that need it.

    A server that refuses each message of a user, whatever it is told, would otherwise be sent all records of that user,
    some hundreds perhaps, for each of them.

    Args:
        background: where a telling goes on whoever waits for it.
    """

    def __init__(self, *, peers: Peers, users: Users, clock: Clock, background: Background) -> None:
        self._peers = peers
        self._users = users
        self._clock = clock
        self._background = background
        self._under_way: dict[_Key, asyncio.Task[bool]] = {}
        self._ended: dict[_Key, _Ended] = {}  # in the order of their ends
        self.ended = 0
        """How many have ended; a call takes note of it when it begins."""

    def __len__(self) -> int:
        return len(self._ended)

    async def tell(self, server: AccessServer, login: str, *, since: int) -> bool:
        """Have a server told all records of a user, and say whether a call that it refused is worth a repetition.

        Args:
            since: what ``ended`` was when the call began: where a telling has ended since, none is needed.
        """
        key = (server.server_login.lower(), server.url, login)
        telling = self._under_way.get(key)
        if telling is None:
            self._forget_old()
            user, before = self._users.get(login), self._ended.get(key)
            if before is not None and before.number > since:
                return before.told
            if user is None or (before is not None and before.newest == user.record.signature):
                return False
            telling = self._background.spawn(self._tell_in_time(key, server, user.record.signature))
            self._under_way[key] = telling
        return await asyncio.shield(telling)

    def _forget_old(self) -> None:
        old = self._clock.monotonic() - AGAIN_SECONDS
        while self._ended:
            first = next(iter(self._ended))
            if self._ended[first].at > old and len(self._ended) <= MAX_REMEMBERED:
                break
            del self._ended[first]

    async def _tell_in_time(self, key: _Key, server: AccessServer, newest: bytes) -> bool:
        told = False
        try:
            told = await within(self._clock, TELLING_SECONDS, self._tell_all(server, key[2]))
        except (LinkError, TimeoutError) as error:
            reason = "it takes too long" if isinstance(error, TimeoutError) else error
            log.info("%s could not be told the records of %s: %s", server.server_login, key[2], reason)
        finally:
            del self._under_way[key]
            self.ended += 1
            self._ended.pop(key, None)
            self._ended[key] = _Ended(self._clock.monotonic(), self.ended, newest, told)
        return told

    async def _tell_all(self, server: AccessServer, login: str) -> bool:
        """Tell a server all records of a user, oldest first; one that it refuses does not keep the others from it.

        A server that has never heard of the user takes the first record only from a server that the record names. Of
        a user who has moved here the older ones do not, so they get a second chance after the newest.

        Returns:
            Whether there was anything to tell.
        """
        records = self._users.records(login)
        refused = [record for record in records if not await self._tell(server, record)]
        if len(refused) < len(records):
            for record in refused:
                await self._tell(server, record)
        return bool(records)

    async def _tell(self, server: AccessServer, record: AccessRecord) -> bool:
        try:
            await tell_record(self._peers, server, record)
        except PeerRefused as refused:
            log.info("a record of %s was not taken: %s", record.login, refused)
            return False
        return True
