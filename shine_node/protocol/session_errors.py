"""The refusals that only sessions know (PROTOCOL.md §8.1): 400 for an empty field, 422 otherwise."""

from __future__ import annotations

from shine_node.protocol.errors import Refusal

__all__ = [
    "AuthNonceMismatch",
    "DeviceKeyNotActual",
    "EmptyLogin",
    "EmptySessionId",
    "LoginMismatch",
    "NoChallenge",
    "NoStep1Context",
    "SessionIdMismatch",
    "SessionKeyNotActual",
    "SessionNotFound",
    "SessionOfAnotherUser",
    "TimeSkew",
    "UnsupportedKeyAlgorithm",
]


class EmptyLogin(Refusal):
    """``login`` is missing, null or empty."""

    status, code = 400, "EMPTY_LOGIN"


class EmptySessionId(Refusal):
    """``sessionId`` is missing, null or empty."""

    status, code = 400, "EMPTY_SESSION_ID"


class NoStep1Context(Refusal):
    """This connection has no ``AuthChallenge`` that may still be answered."""

    status, code = 422, "NO_STEP1_CONTEXT"


class NoChallenge(Refusal):
    """This connection has no ``SessionChallenge`` that may still be answered."""

    status, code = 422, "NO_CHALLENGE"


class LoginMismatch(Refusal):
    """The challenge was given for another login."""

    status, code = 422, "LOGIN_MISMATCH"


class SessionIdMismatch(Refusal):
    """The challenge was given for another session."""

    status, code = 422, "SESSION_ID_MISMATCH"


class SessionNotFound(Refusal):
    """There is no such session, or it has been closed."""

    status, code = 422, "SESSION_NOT_FOUND"


class SessionOfAnotherUser(Refusal):
    """The session belongs to another user."""

    status, code = 422, "SESSION_OF_ANOTHER_USER"


class AuthNonceMismatch(Refusal):
    """The nonce is not the one of the challenge."""

    status, code = 422, "AUTH_NONCE_MISMATCH"


class TimeSkew(Refusal):
    """``timeMs`` is off by more than 30 seconds."""

    status, code = 422, "TIME_SKEW"


class UnsupportedKeyAlgorithm(Refusal):
    """``sessionKey`` does not begin with ``ed25519/``."""

    status, code = 422, "UNSUPPORTED_KEY_ALGORITHM"


class DeviceKeyNotActual(Refusal):
    """``deviceKey`` is not the user's newest one."""

    status, code = 422, "DEVICE_KEY_NOT_ACTUAL"


class SessionKeyNotActual(Refusal):
    """``sessionKey`` is not that of the session."""

    status, code = 422, "SESSION_KEY_NOT_ACTUAL"
