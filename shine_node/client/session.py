"""A session on a connection: the one of the last time, or a new one where that is gone (PROTOCOL.md §8.1)."""

from __future__ import annotations

import secrets

from shine_node.client.connection import Connection, RequestRefused
from shine_node.client.identity import SEED_BYTES, Identity, KeyPair
from shine_node.client.keyfile import SavedSession
from shine_node.clock import Clock
from shine_node.protocol.encoding import encode_base64, read_text

__all__ = ["begin_session"]

GONE = frozenset({"SESSION_NOT_FOUND", "SESSION_KEY_NOT_ACTUAL"})
"""What a server says of a session that was closed there, or that it never had."""


async def begin_session(
    connection: Connection, user: Identity, saved: SavedSession | None, *, clock: Clock, client_info: str
) -> SavedSession:
    """Give a connection a session, and return it for the next time: ``saved`` itself where that still is one.

    Args:
        saved: what this returned at the same server before.
        client_info: what ``ListSessions`` is to say of this client, at most 512 bytes of UTF-8.

    Raises:
        RequestRefused, RequestTimedOut, ConnectionLost.
        Refusal: the answer lacks what it must have.
    """
    if saved is not None:
        try:
            await _log_in(connection, saved, clock, client_info)
        except RequestRefused as refused:
            if refused.code not in GONE:
                raise
        else:
            return saved
    return await _create(connection, user, clock, client_info)


async def _log_in(connection: Connection, saved: SavedSession, clock: Clock, client_info: str) -> None:
    key = KeyPair.from_seed(saved.seed)
    challenge = await connection.request("SessionChallenge", {"sessionId": saved.session_id})
    time_ms = clock.now_ms()
    text = f"SESSION_LOGIN:{saved.session_id}:{time_ms}:{read_text(challenge, 'nonce')}"
    await connection.request(
        "SessionLogin",
        {
            "sessionId": saved.session_id,
            "sessionKey": _session_key(key),
            "timeMs": time_ms,
            "signatureB64": encode_base64(key.sign(text.encode())),
            "clientInfo": client_info,
        },
    )


async def _create(connection: Connection, user: Identity, clock: Clock, client_info: str) -> SavedSession:
    seed = secrets.token_bytes(SEED_BYTES)
    session_key = _session_key(KeyPair.from_seed(seed))
    challenge = await connection.request("AuthChallenge", {"login": user.login})
    nonce, time_ms = read_text(challenge, "authNonce"), clock.now_ms()
    text = f"AUTH_CREATE_SESSION:{user.login}:{session_key}::{time_ms}:{nonce}"  # an empty storagePwd in the middle
    answer = await connection.request(
        "CreateAuthSession",
        {
            "login": user.login,
            "sessionKey": session_key,
            "storagePwd": "",
            "timeMs": time_ms,
            "authNonce": nonce,
            "deviceKey": encode_base64(user.device.public),
            "signatureB64": encode_base64(user.device.sign(text.encode())),
            "clientInfo": client_info,
        },
    )
    return SavedSession(read_text(answer, "sessionId"), seed)


def _session_key(key: KeyPair) -> str:
    return "ed25519/" + encode_base64(key.public)
