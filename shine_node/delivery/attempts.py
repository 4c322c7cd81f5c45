"""One attempt: ask the sender's other server if it is time to, then call the recipient's servers (PROTOCOL.md §5)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from typing import Any, NamedTuple

from shine_node.directory.users import Users
from shine_node.peers.asking import Peers
from shine_node.protocol.access import AccessRecord, AccessServer, record_payload
from shine_node.protocol.encoding import encode_base64
from shine_node.protocol.errors import LinkError, PeerRefused
from shine_node.protocol.keys import MessageId, MessageKey

__all__ = ["Attempts", "Background", "Copies"]

log = logging.getLogger(__name__)

_WANTS_RECORDS = frozenset({(404, "USER_NOT_FOUND"), (422, "BAD_SIGNATURE")})


class Copies(NamedTuple):
    """What an attempt carries: the message, the revision, and both copies as they are stored."""

    message: MessageId
    message_type: int
    """The odd one of the two."""
    revision_ms: int
    incoming: bytes
    outgoing: bytes

    @property
    def incoming_key(self) -> str:
        """The key of the recipient's copy."""
        return str(MessageKey(self.message, self.message_type))

    @property
    def outgoing_key(self) -> str:
        """The key of the sender's copy, also called ``messageKey``."""
        return str(MessageKey(self.message, self.message_type + 1))


class Background:
    """Work that goes on by itself: kept from being collected, its defects logged, ended in one go."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a coroutine as a task of its own."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("background work failed", exc_info=task.exception())

    async def close(self) -> None:
        """Cancel what still runs and wait for its end."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Attempts:
    """Makes the calls of an attempt; it neither reads nor writes delivery states.

    Args:
        background: where a call goes on whose attempt is decided already.
    """

    def __init__(self, *, peers: Peers, users: Users, own_login: str, background: Background) -> None:
        self._peers = peers
        self._users = users
        self._own_login = own_login
        self._background = background

    async def ask_other_server(self, copies: Copies) -> bool:
        """Ask the sender's other server whether it has delivered this revision; an error is a no (§5.3)."""
        other = self._users.other_server(copies.message.from_login)
        if other is None:
            return False
        try:
            return await self.ask(other, copies.message, copies.message_type, copies.revision_ms)
        except LinkError as error:
            log.debug("delivery status not known: %s", error)
            return False

    async def ask(self, other: AccessServer, message: MessageId, message_type: int, revision_ms: int) -> bool:
        """Ask a server whether it has delivered a revision; ``message_type`` is the odd one.

        Raises:
            LinkError: it gave no answer.
        """
        key = str(MessageKey(message, message_type + 1))
        payload: dict[str, object] = {"messageKey": key}
        if revision_ms:
            payload["revisionMs"] = revision_ms
        answer = await self._peers.request(other, "GetDmDeliveryStatus", payload)
        if answer.get("messageKey") != key:
            return False  # it speaks of another message, or of none
        if revision_ms and answer.get("revisionMs") != revision_ms:
            return False  # an older peer speaks of some revision, not of this one
        return answer.get("delivered") is True

    async def call_recipient(self, copies: Copies) -> bool:
        """Call the recipient's current servers in parallel and return at the first success or the last failure.

        This server itself is passed over: what it stores for the recipient it stores in a transaction. The slower call
        goes on by itself.
        """
        routes = [r for r in self._users.routes(copies.message.to_login) if r.server_login.lower() != self._own_login]
        calls = [self._background.spawn(self._deliver(route, copies)) for route in routes]
        for call in asyncio.as_completed(calls):
            if await call:
                return True
        return False

    async def hand_over(self, other: AccessServer, copies: Copies) -> bool:
        """Hand the pair to the sender's other server (§5.2, step 4) and say whether that one has stored it."""
        payload = {
            "incomingBlobB64": encode_base64(copies.incoming),
            "outgoingBlobB64": encode_base64(copies.outgoing),
            "sourceServerLogin": self._own_login,
        }
        return await self._call(other, "ReceiveOutcomingMessage", payload, copies, "outgoingKey", copies.outgoing_key)

    async def _deliver(self, route: AccessServer, copies: Copies) -> bool:
        payload = {"incomingBlobB64": encode_base64(copies.incoming), "sourceServerLogin": self._own_login}
        return await self._call(route, "ReceiveIncomingMessage", payload, copies, "incomingKey", copies.incoming_key)

    async def _call(
        self, server: AccessServer, op: str, payload: Mapping[str, object], copies: Copies, field: str, key: str
    ) -> bool:
        """Make one call; where the peer does not know the sender's present key, tell it and repeat once (§3)."""
        try:
            try:
                answer = await self._peers.request(server, op, payload)
            except PeerRefused as refused:
                if (refused.status, refused.code) not in _WANTS_RECORDS:
                    raise
                await self._tell_records(server, copies.message.from_login)
                answer = await self._peers.request(server, op, payload)
        except LinkError as error:
            log.debug("not stored there: %s", error)  # the link itself says, once, that it is down
            return False
        if answer.get(field, key) != key:
            log.warning("%s answered %s about another message; not taken as stored", server.server_login, op)
            return False
        return True

    async def _tell_records(self, server: AccessServer, login: str) -> None:
        """Tell a server all records of a user, oldest first; one that it refuses does not keep the others from it.

        A server that has never heard of the user takes the first record only from a server that the record names. Of
        a user who has moved here the older ones do not, so they get a second chance after the newest.
        """
        records = self._users.records(login)
        refused = [record for record in records if not await self._tell(server, record)]
        if len(refused) < len(records):
            for record in refused:
                await self._tell(server, record)

    async def _tell(self, server: AccessServer, record: AccessRecord) -> bool:
        try:
            await self._peers.request(server, "SetUserAccess", record_payload(record))
        except PeerRefused as refused:
            log.info("a record of %s was not taken: %s", record.login, refused)
            return False
        return True
