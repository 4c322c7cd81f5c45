"""Operations that bring messages in, from clients and from servers (PROTOCOL.md §5)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from shine_node.api.connection import Connection, Handler
from shine_node.api.sockets import is_loopback, origin_of
from shine_node.delivery.deliverer import Deliverer
from shine_node.delivery.intake import Intake
from shine_node.delivery.status import DeliveryStatus
from shine_node.directory.users import Users
from shine_node.protocol.encoding import read_base64, read_optional_number, read_optional_text, read_text
from shine_node.protocol.errors import Forbidden
from shine_node.protocol.keys import parse_message_key

__all__ = ["MessageOperations"]


class MessageOperations:
    """Takes pairs and incoming copies, and says whether a message was delivered.

    Args:
        blocked_peers: returns ``limits.blockedPeers`` as it is in force, in lower case.
    """

    def __init__(
        self,
        *,
        intake: Intake,
        deliverer: Deliverer,
        status: DeliveryStatus,
        users: Users,
        blocked_peers: Callable[[], Collection[str]],
    ) -> None:
        self._intake = intake
        self._deliverer = deliverer
        self._status = status
        self._users = users
        self._blocked_peers = blocked_peers

    @property
    def handlers(self) -> dict[str, Handler]:
        """The operations by name."""
        return {
            "SendMessagePair": self.send_message_pair,
            "ReceiveIncomingMessage": self.receive_incoming_message,
            "ReceiveOutcomingMessage": self.receive_outcoming_message,
            "GetDmDeliveryStatus": self.get_dm_delivery_status,
        }

    async def send_message_pair(self, connection: Connection, payload: dict[str, Any]) -> Mapping[str, object]:
        """Take a client's pair; the answer waits for its first attempt, within bounds."""
        accepted = await self._intake.send_pair(
            read_base64(payload, "incomingBlobB64"),
            read_base64(payload, "outgoingBlobB64"),
            origin=connection,
            source=_source(connection),
        )
        state = await self._deliverer.send(accepted)
        incoming, outgoing = accepted.pair
        if connection.session is not None:
            state = self._status.state(outgoing.key)  # an event may have told a later one already
        return {
            "baseKey": incoming.message.base_key,
            "incomingKey": str(incoming.key),
            "outgoingKey": str(outgoing.key),
            "deliveryState": state.wire,
        }

    async def receive_incoming_message(self, connection: Connection, payload: dict[str, Any]) -> Mapping[str, object]:
        """Take a recipient's copy from the sender's server."""
        self._check_source(payload)
        blob = read_base64(payload, "incomingBlobB64")
        container, _ = await self._intake.receive_incoming(blob, source=_source(connection))
        return {"incomingKey": str(container.key)}

    async def receive_outcoming_message(self, connection: Connection, payload: dict[str, Any]) -> Mapping[str, object]:
        """Take a pair from the sender's other server; answered as soon as it is stored."""
        self._check_source(payload)
        peer = connection.hello.server_login if connection.hello is not None else None
        accepted = await self._intake.receive_pair(
            read_base64(payload, "incomingBlobB64"),
            read_base64(payload, "outgoingBlobB64"),
            from_server=peer,
            source=_source(connection),
        )
        self._deliverer.receive(accepted)
        return {"outgoingKey": str(accepted.pair.outgoing.key)}

    async def get_dm_delivery_status(self, connection: Connection, payload: dict[str, Any]) -> Mapping[str, object]:
        """Say what this server knows of a delivery; reads only."""
        text = read_text(payload, "messageKey")
        revision_ms = read_optional_number(payload, "revisionMs")
        known, delivered = self._status.look_up(parse_message_key(text), revision_ms)
        answer: dict[str, object] = {"messageKey": text, "known": known, "delivered": delivered}
        if revision_ms is not None:
            answer["revisionMs"] = revision_ms
        return answer

    def _check_source(self, payload: Mapping[str, Any]) -> None:
        """Refuse what a blocked server brings that says its name here, and need not have said it before (§7).

        Raises:
            Forbidden: it is blocked.
            BadRequestFormat: the name is no text.
        """
        if read_optional_text(payload, "sourceServerLogin").lower() in self._blocked_peers():
            raise Forbidden("the operator of this server has blocked yours")


def _source(connection: Connection) -> str | None:
    """Return what counts as one source; ``None`` for a proxy on this machine that does not say whose it is."""
    return None if is_loopback(connection.address) else origin_of(connection.address)
