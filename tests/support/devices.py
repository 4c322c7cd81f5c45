"""A user's device as a test holds it: one connection with a session, and the chats that it reads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

from shine_node.client.connection import ConnectionLost
from shine_node.client.identity import Identity, KeyPair
from shine_node.client.messages import SignedPair
from shine_node.clock import Clock, SystemClock
from shine_node.protocol.encoding import decode_base64, encode_base64
from tests.support.nodes import PATIENCE, Server

__all__ = ["Device", "copy_of", "make_session"]

Ask = Callable[[str, dict[str, object]], Awaitable[dict[str, Any]]]
"""Makes a request of an operation and a payload, and returns the payload of its success."""


class Device:
    """A connection to one server on which a session of a user has been made; closed at the end of the block.

    Args:
        clock: that of the server, where it is not the machine's.
    """

    def __init__(self, server: Server, user: Identity, clock: Clock | None = None) -> None:
        self._server = server
        self._user = user
        self._clock = clock or SystemClock()

    async def __aenter__(self) -> Self:
        self._connection = await self._server.connect()
        await make_session(self._connection.request, self._user, self._clock.now_ms())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._connection.close()

    async def request(self, op: str, **payload: object) -> dict[str, Any]:
        """Make a request on its connection."""
        return await self._connection.request(op, payload, timeout=PATIENCE)

    async def send(self, pair: SignedPair) -> str:
        """Submit a pair on its connection and return the delivery state that is answered."""
        return str((await self.request("SendMessagePair", **pair.payload))["deliveryState"])

    async def events(self, count: int) -> list[tuple[str, dict[str, Any]]]:
        """Return the next events, each an operation and a payload; a test that waits in vain fails."""
        found = [await self._connection.next_event(timeout=PATIENCE) for _ in range(count)]
        return [(event.op, event.payload) for event in found]

    async def silent(self) -> bool:
        """Whether no event has come that was pushed before now."""
        await self.request("Ping")
        return not self._connection.waiting_events

    async def loss(self) -> str:
        """Wait until the server ends the connection, and return what it says; events on the way are dropped."""
        while True:
            try:
                await self._connection.next_event(timeout=PATIENCE)
            except ConnectionLost as lost:
                return str(lost)

    async def chat(self, peer_login: str) -> list[dict[str, Any]]:
        """Return all messages of a chat, the newest first, as ``GetDirectMessages`` lists them."""
        messages: list[dict[str, Any]] = []
        place: dict[str, object] = {}
        while True:
            answer = await self.request("GetDirectMessages", peerLogin=peer_login, **place)
            messages += answer["messages"]
            if not answer["hasMore"]:
                return messages
            place = {"cursor": answer["cursor"]}


async def make_session(request: Ask, user: Identity, time_ms: int) -> None:
    """Make a session of a user on the connection that requests go over.

    Args:
        time_ms: what the clock says, Unix milliseconds.
    """
    session = KeyPair.from_seed(b"\7" * 32)
    nonce = (await request("AuthChallenge", {"login": user.login}))["authNonce"]
    key = "ed25519/" + encode_base64(session.public)
    text = f"AUTH_CREATE_SESSION:{user.login}:{key}:password:{time_ms}:{nonce}"
    payload = {
        "login": user.login,
        "sessionKey": key,
        "storagePwd": "password",
        "timeMs": time_ms,
        "authNonce": nonce,
        "deviceKey": encode_base64(user.device.public),
        "signatureB64": encode_base64(user.device.sign(text.encode())),
        "clientInfo": "a test",
    }
    await request("CreateAuthSession", payload)


def copy_of(message: dict[str, Any], pairs: dict[str, SignedPair]) -> SignedPair:
    """Return the pair that a listed message is of, and check that its bytes are the owner's copy of it."""
    pair = pairs[message["baseKey"]]
    assert (
        decode_base64(message["blobB64"], "blobB64")
        == {"in": pair.incoming, "out": pair.outgoing}[message["direction"]]
    )
    return pair
