"""One attempt: ask the sender's other server if it is time to, then call the recipient's servers (PROTOCOL.md §5)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import NamedTuple

from shine_node.clock import Clock
from shine_node.delivery.background import Background
from shine_node.delivery.tellings import Tellings
from shine_node.directory.users import Users
from shine_node.peers.asking import Peers
from shine_node.protocol.access import AccessServer
from shine_node.protocol.encoding import encode_base64
from shine_node.protocol.errors import LinkError, PeerRefused
from shine_node.protocol.keys import MessageId, MessageKey

__all__ = ["Attempts", "Copies"]

log = logging.getLogger(__name__)

MAX_COMPLAINTS = 1000
"""Servers of which it is remembered that the log has been told of them."""

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


class Attempts:
    """Makes the calls of an attempt; it neither reads nor writes delivery states.

    Args:
        clock: paces what servers are told.
        background: where a call goes on whose attempt is decided already.
    """

    def __init__(self, *, peers: Peers, users: Users, clock: Clock, own_login: str, background: Background) -> None:
        self._peers = peers
        self._users = users
        self._own_login = own_login
        self._background = background
        self._tellings = Tellings(peers=peers, users=users, clock=clock, background=background)
        self._complaints: set[tuple[str, str]] = set()

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
        if len(routes) == 1:
            return await self._deliver(routes[0], copies)  # there is no other call to be faster than this one
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
        """Make one call; where the peer does not know the sender's present key, tell it and repeat once (§3).

        Only an answer that names the copy says that it is stored there (§5.4): no tick may come of anything less.
        """
        since = self._tellings.ended
        try:
            try:
                answer = await self._peers.request(server, op, payload)
            except PeerRefused as refused:
                if (refused.status, refused.code) not in _WANTS_RECORDS:
                    raise
                if not await self._tellings.tell(server, copies.message.from_login, since=since):
                    raise
                answer = await self._peers.request(server, op, payload)
        except LinkError as error:
            log.debug("not stored there: %s", error)  # the link itself says, once, that it is down
            return False
        if answer.get(field) != key:
            self._complain(server.server_login, op, field)
            return False
        return True

    def _complain(self, server_login: str, op: str, field: str) -> None:
        """Log that a server's successes say nothing: once for each server, for as many as can be remembered."""
        complaint = (server_login.lower(), op)
        told = complaint in self._complaints or len(self._complaints) >= MAX_COMPLAINTS
        text = "%s answers %s without the %s of the copy that was sent; that is not taken as stored"
        log.log(logging.DEBUG if told else logging.WARNING, text, server_login, op, field)
        if not told:
            self._complaints.add(complaint)
