"""Sessions of clients: the texts that are signed, and the checks in their order (PROTOCOL.md §8.1)."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any, NamedTuple

from shine_node.protocol.access import User
from shine_node.protocol.encoding import (
    encode_base64,
    read_base64,
    read_number,
    read_optional_text,
    read_text,
)
from shine_node.protocol.errors import Refusal, TooLarge, UnknownUser
from shine_node.protocol.logins import check_login
from shine_node.protocol.session_errors import (
    AuthNonceMismatch,
    DeviceKeyNotActual,
    EmptyLogin,
    EmptySessionId,
    LoginMismatch,
    NoChallenge,
    NoStep1Context,
    SessionIdMismatch,
    SessionKeyNotActual,
    SessionNotFound,
    TimeSkew,
    UnsupportedKeyAlgorithm,
)
from shine_node.protocol.signatures import decode_key

__all__ = [
    "MAX_CLIENT_INFO_BYTES",
    "MAX_STORAGE_PWD_BYTES",
    "AuthChallenge",
    "CreateRequest",
    "LoginRequest",
    "Session",
    "SessionChallenge",
    "Signed",
    "check_create",
    "check_session_login",
    "parse_create",
    "parse_session_login",
    "read_named_login",
    "read_session_id",
    "session_not_found",
]

NONCE_LIFE_MS = 60_000
MOST_SKEW_MS = 30_000
MAX_STORAGE_PWD_BYTES = 1024
MAX_CLIENT_INFO_BYTES = 512
_ALGORITHM = "ed25519/"


class AuthChallenge(NamedTuple):
    """What a connection was given by ``AuthChallenge``, and when (Unix milliseconds); the login in lower case."""

    login: str
    nonce: str
    at_ms: int


class SessionChallenge(NamedTuple):
    """What a connection was given by ``SessionChallenge``, and when (Unix milliseconds)."""

    session_id: str
    nonce: str
    at_ms: int


class Session(NamedTuple):
    """A session as it is kept.

    ``login`` is in lower case. ``client_info`` is what the client says of itself, ``request_info`` what its handshake
    says. Times are Unix milliseconds.
    """

    session_id: str
    login: str
    session_key: str
    storage_pwd: str
    client_info: str
    request_info: str
    created_ms: int
    authenticated_ms: int


class CreateRequest(NamedTuple):
    """The fields of ``CreateAuthSession``."""

    login: str
    session_key: str
    storage_pwd: str
    time_ms: int
    auth_nonce: str
    device_key: str
    signature: bytes
    client_info: str

    @property
    def text(self) -> bytes:
        """What the device key signs; the login as it came."""
        fields = (self.login, self.session_key, self.storage_pwd, str(self.time_ms), self.auth_nonce)
        return ":".join(("AUTH_CREATE_SESSION", *fields)).encode()


class LoginRequest(NamedTuple):
    """The fields of ``SessionLogin``; ``client_info`` is ``None`` where the client says nothing new."""

    session_id: str
    session_key: str
    time_ms: int
    signature: bytes
    client_info: str | None

    def text(self, nonce: str) -> bytes:
        """Return what the session key signs."""
        return f"SESSION_LOGIN:{self.session_id}:{self.time_ms}:{nonce}".encode()


class Signed(NamedTuple):
    """The one check that is left, a costly one: this key must have signed this text."""

    key: bytes
    text: bytes
    signature: bytes


def read_named_login(payload: Mapping[str, Any]) -> str:
    """Return the login of a request about sessions, spelled as it came.

    Raises:
        EmptyLogin: missing, null or empty.
        BadRequestFormat, BadLogin.
    """
    login = read_optional_text(payload, "login")
    if not login:
        raise EmptyLogin("login is missing or empty")
    return check_login(login)


def read_session_id(payload: Mapping[str, Any]) -> str:
    """Return the ``sessionId`` of a request; it is opaque.

    Raises:
        EmptySessionId: missing, null or empty.
        BadRequestFormat: not a text.
    """
    session_id = read_optional_text(payload, "sessionId")
    if not session_id:
        raise EmptySessionId("sessionId is missing or empty")
    return session_id


def parse_create(payload: Mapping[str, Any]) -> CreateRequest:
    """Read the fields of ``CreateAuthSession``; ``storagePwd`` and ``clientInfo`` may be empty.

    Raises:
        EmptyLogin, BadLogin, BadFields, BadRequestFormat, BadBase64.
        TooLarge: over ``MAX_STORAGE_PWD_BYTES`` or ``MAX_CLIENT_INFO_BYTES`` of UTF-8.
    """
    return CreateRequest(
        read_named_login(payload),
        read_text(payload, "sessionKey"),
        _read_bounded(payload, "storagePwd", MAX_STORAGE_PWD_BYTES),
        read_number(payload, "timeMs"),
        read_text(payload, "authNonce"),
        read_text(payload, "deviceKey"),
        read_base64(payload, "signatureB64"),
        _read_bounded(payload, "clientInfo", MAX_CLIENT_INFO_BYTES),
    )


def parse_session_login(payload: Mapping[str, Any]) -> LoginRequest:
    """Read the fields of ``SessionLogin``.

    Raises:
        EmptySessionId, BadFields, BadRequestFormat, BadBase64.
        TooLarge: ``clientInfo`` is over ``MAX_CLIENT_INFO_BYTES`` of UTF-8.
    """
    return LoginRequest(
        read_session_id(payload),
        read_text(payload, "sessionKey"),
        read_number(payload, "timeMs"),
        read_base64(payload, "signatureB64"),
        None if payload.get("clientInfo") is None else _read_bounded(payload, "clientInfo", MAX_CLIENT_INFO_BYTES),
    )


def check_create(request: CreateRequest, *, challenge: AuthChallenge | None, user: User | None, now_ms: int) -> Signed:
    """Make the checks of ``CreateAuthSession`` that cost nothing: challenge, login, nonce, time, keys.

    Args:
        challenge: what this connection was given, ``None`` if nothing or if it is spent.
        user: who is registered under the request's login, if anybody.
        now_ms: the clock, Unix milliseconds.

    Returns:
        The signature to check last.

    Raises:
        NoStep1Context, LoginMismatch, UnknownUser, AuthNonceMismatch, TimeSkew, UnsupportedKeyAlgorithm, BadKeyFormat,
        DeviceKeyNotActual: in this order.
    """
    if challenge is None or not _is_alive(challenge.at_ms, now_ms):
        raise NoStep1Context("ask for an AuthChallenge first; it serves once, for 60 seconds")
    if challenge.login != request.login.lower():
        raise LoginMismatch("the AuthChallenge was given for another login")
    if user is None:
        raise UnknownUser("no such user is registered here")
    if not _equal(challenge.nonce, request.auth_nonce):
        raise AuthNonceMismatch("authNonce is not the one of the AuthChallenge")
    _check_time(request.time_ms, now_ms)
    _decode_session_key(request.session_key)
    if not _equal(encode_base64(user.record.device_key), request.device_key):
        raise DeviceKeyNotActual("deviceKey is not the newest one of this user")
    return Signed(user.record.device_key, request.text, request.signature)


def check_session_login(
    request: LoginRequest, *, challenge: SessionChallenge | None, session: Session | None, now_ms: int
) -> Signed:
    """Make the checks of ``SessionLogin`` that cost nothing: challenge, session, time, key.

    Args:
        challenge: what this connection was given, ``None`` if nothing or if it is spent.
        session: what is stored under the request's ``sessionId``, if anything.
        now_ms: the clock, Unix milliseconds.

    Returns:
        The signature to check last; it covers the nonce.

    Raises:
        NoChallenge, SessionIdMismatch, SessionNotFound, TimeSkew, UnsupportedKeyAlgorithm, BadKeyFormat,
        SessionKeyNotActual: in this order.
    """
    if challenge is None or not _is_alive(challenge.at_ms, now_ms):
        raise NoChallenge("ask for a SessionChallenge first; it serves once, for 60 seconds")
    if not _equal(challenge.session_id, request.session_id):
        raise SessionIdMismatch("the SessionChallenge was given for another session")
    if session is None:
        raise session_not_found()
    _check_time(request.time_ms, now_ms)
    key = _decode_session_key(request.session_key)
    if not _equal(session.session_key, request.session_key):
        raise SessionKeyNotActual("sessionKey is not that of the session")
    return Signed(key, request.text(challenge.nonce), request.signature)


def session_not_found() -> Refusal:
    """Return the refusal of a session that does not exist; what to do about it is the same everywhere."""
    return SessionNotFound("there is no such session: create one with AuthChallenge and CreateAuthSession")


def _is_alive(at_ms: int, now_ms: int) -> bool:
    return 0 <= now_ms - at_ms <= NONCE_LIFE_MS


def _check_time(time_ms: int, now_ms: int) -> None:
    if abs(time_ms - now_ms) > MOST_SKEW_MS:
        raise TimeSkew("timeMs is off by more than 30 seconds: set the clock, Ping says the server's time")


def _decode_session_key(text: str) -> bytes:
    if not text.startswith(_ALGORITHM):
        raise UnsupportedKeyAlgorithm("sessionKey must be ed25519/ and the Base64 of the public key")
    return decode_key(text.removeprefix(_ALGORITHM), "sessionKey")


def _equal(one: str, other: str) -> bool:
    """Compare in a time that does not tell where two texts differ."""
    return hmac.compare_digest(one.encode(), other.encode())


def _read_bounded(payload: Mapping[str, Any], field: str, most_bytes: int) -> str:
    text = read_optional_text(payload, field)
    if len(text.encode()) > most_bytes:
        raise TooLarge(f"{field} must be at most {most_bytes} bytes")
    return text
