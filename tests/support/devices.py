"""A user's device as a test holds it: one connection with a session, and the chats that it reads."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from shine_node.client.identity import Identity, KeyPair
from shine_node.client.messages import SignedPair
from shine_node.protocol.encoding import decode_base64, encode_base64
from tests.support.nodes import PATIENCE, Server, now_ms

__all__ = ["Device", "copy_of"]


class Device:
    """A connection to one server on which a session of a user has been made; closed at the end of the block."""

    def __init__(self, server: Server, user: Identity) -> None:
        self._server = server
        self._user = user

    async def __aenter__(self) -> Self:
        self._connection = await self._server.connect()
        await self._make_session(KeyPair.from_seed(b"\7" * 32))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._connection.close()

    async def request(self, op: str, **payload: object) -> dict[str, Any]:
        """Make a request on its connection."""
        return await self._connection.request(op, payload, timeout=PATIENCE)

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

    async def _make_session(self, session: KeyPair) -> None:
        login, time_ms = self._user.login, now_ms()
        nonce = (await self.request("AuthChallenge", login=login))["authNonce"]
        key = "ed25519/" + encode_base64(session.public)
        text = f"AUTH_CREATE_SESSION:{login}:{key}:password:{time_ms}:{nonce}"
        await self.request(
            "CreateAuthSession",
            login=login,
            sessionKey=key,
            storagePwd="password",
            timeMs=time_ms,
            authNonce=nonce,
            deviceKey=encode_base64(self._user.device.public),
            signatureB64=encode_base64(self._user.device.sign(text.encode())),
            clientInfo="",
        )


def copy_of(message: dict[str, Any], pairs: dict[str, SignedPair]) -> SignedPair:
    """Return the pair that a listed message is of, and check that its bytes are the owner's copy of it."""
    pair = pairs[message["baseKey"]]
    assert (
        decode_base64(message["blobB64"], "blobB64")
        == {"in": pair.incoming, "out": pair.outgoing}[message["direction"]]
    )
    return pair
