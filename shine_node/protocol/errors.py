"""One tree of everything that SHiNE node raises on purpose.

``ShineError`` is the root. Below it stand ``Refusal`` (the answer to a request, with a status and a code of
PROTOCOL.md §2) and ``LinkError`` (a request to a peer that came to no answer). Exceptions carry data and build their
text from it; whether a retry is worth while is a property of the code, never of the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

__all__ = [
    "RETRYABLE_CODES",
    "BadBase64",
    "BadBlockchainName",
    "BadContainer",
    "BadFields",
    "BadJson",
    "BadKeyFormat",
    "BadLogin",
    "BadPayload",
    "BadRequestFormat",
    "BadSignature",
    "CallerTimeout",
    "EmptyJson",
    "Forbidden",
    "InternalError",
    "KeyConflict",
    "LeftAlone",
    "LinkDown",
    "LinkError",
    "LinkLost",
    "NoOp",
    "NoPayload",
    "NotAccessServer",
    "NotAuthenticated",
    "PairMismatch",
    "PeerRefused",
    "QueueFull",
    "RateLimited",
    "Refusal",
    "RegistrationClosed",
    "RequestTimeout",
    "RootKeyMismatch",
    "ServerBusy",
    "ShineError",
    "StaleRevision",
    "StorageFull",
    "TooLarge",
    "UnknownOp",
    "UnknownUser",
    "UnsupportedProtocol",
    "UserAlreadyExists",
    "UserNotFound",
]

RETRYABLE_CODES = frozenset({"RATE_LIMITED", "SERVER_BUSY", "STORAGE_FULL", "INTERNAL_ERROR"})
"""The codes of §2 after which the same request may succeed later: 429, 503, 507 and 500."""


class ShineError(Exception):
    """The root of the tree; catch it to catch all that this program raises on purpose."""


class Refusal(ShineError):
    """A request that is answered with an error envelope (§2).

    Args:
        detail: a sentence for a person; it names no internals and holds no message bodies.
        payload: members of the answer's payload, such as ``retryAfterMs``.
    """

    status: ClassVar[int]
    code: ClassVar[str]

    def __init__(self, detail: str, payload: Mapping[str, object] | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.payload: Mapping[str, object] = payload or {}

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later (§2)."""
        return self.code in RETRYABLE_CODES

    def __str__(self) -> str:
        return f"{self.code}: {self.detail}"


class EmptyJson(Refusal):
    """The frame is blank."""

    status, code = 400, "EMPTY_JSON"


class BadJson(Refusal):
    """The frame holds no JSON object, or one nested over 64 levels."""

    status, code = 400, "BAD_JSON"


class NoOp(Refusal):
    """``op`` is missing, null or empty."""

    status, code = 400, "NO_OP"


class UnknownOp(Refusal):
    """No operation has this name here."""

    status, code = 400, "UNKNOWN_OP"


class NoPayload(Refusal):
    """``payload`` is missing or null."""

    status, code = 400, "NO_PAYLOAD"


class BadPayload(Refusal):
    """``payload`` is no object."""

    status, code = 400, "BAD_PAYLOAD"


class BadRequestFormat(Refusal):
    """A field has the wrong JSON type."""

    status, code = 400, "BAD_REQUEST_FORMAT"


class BadFields(Refusal):
    """A required field is missing, or a value is outside its range."""

    status, code = 400, "BAD_FIELDS"


class BadBase64(Refusal):
    """A value is not the canonical Base64 of RFC 4648 §4."""

    status, code = 400, "BAD_BASE64"


class BadContainer(Refusal):
    """The bytes are no ``SHiNE_DM`` container (§4)."""

    status, code = 400, "BAD_CONTAINER"


class PairMismatch(Refusal):
    """Two containers are not the two copies of one message (§5.2)."""

    status, code = 400, "PAIR_MISMATCH"


class BadLogin(Refusal):
    """A login is outside the grammar of §1."""

    status, code = 400, "BAD_LOGIN"


class BadBlockchainName(Refusal):
    """A blockchain name is not ``<login>-NNN`` (§3)."""

    status, code = 400, "BAD_BLOCKCHAIN_NAME"


class BadKeyFormat(Refusal):
    """A key is not the Base64 of a usable Ed25519 public key."""

    status, code = 400, "BAD_KEY_FORMAT"


class UserNotFound(Refusal):
    """No such user is known here."""

    status, code = 404, "USER_NOT_FOUND"


class KeyConflict(Refusal):
    """Other bytes are stored under the same key and revision."""

    status, code = 409, "KEY_CONFLICT"


class StaleRevision(Refusal):
    """A later revision is stored."""

    status, code = 409, "STALE_REVISION"


class RootKeyMismatch(Refusal):
    """The record is signed by another root key than the first one seen for the login."""

    status, code = 409, "ROOT_KEY_MISMATCH"


class UserAlreadyExists(Refusal):
    """The login is taken."""

    status, code = 409, "USER_ALREADY_EXISTS"


class TooLarge(Refusal):
    """Over a size limit of the configuration."""

    status, code = 413, "TOO_LARGE"


class NotAccessServer(Refusal):
    """This server is not an access server of that user."""

    status, code = 421, "NOT_ACCESS_SERVER"


class BadSignature(Refusal):
    """A signature does not verify under the key that counts."""

    status, code = 422, "BAD_SIGNATURE"


class UnknownUser(Refusal):
    """A session was asked for by a login that is not registered."""

    status, code = 422, "UNKNOWN_USER"


class NotAuthenticated(Refusal):
    """The operation needs a session, or a ``ServerHello``, on this connection."""

    status, code = 422, "NOT_AUTHENTICATED"


class UnsupportedProtocol(Refusal):
    """The peer speaks a protocol version that this server does not (§7)."""

    status, code = 426, "UNSUPPORTED_PROTOCOL"


class Forbidden(Refusal):
    """Proven, and not allowed."""

    status, code = 403, "FORBIDDEN"


class RegistrationClosed(Refusal):
    """This server takes no new users, or not without its token (§3)."""

    status, code = 403, "REGISTRATION_CLOSED"


class RateLimited(Refusal):
    """Over a rate; ``payload.retryAfterMs`` says when to come again."""

    status, code = 429, "RATE_LIMITED"


class ServerBusy(Refusal):
    """A bounded queue is full; ``payload.retryAfterMs`` says when to come again."""

    status, code = 503, "SERVER_BUSY"


class StorageFull(Refusal):
    """Neither the map nor the disk has room; nothing was stored."""

    status, code = 507, "STORAGE_FULL"


class InternalError(Refusal):
    """A defect of this server; the log has the cause, the answer does not."""

    status, code = 500, "INTERNAL_ERROR"


class LinkError(ShineError):
    """A request to a peer that came to no success; ``server`` is the peer's login."""

    reason: ClassVar[str] = "failed"

    def __init__(self, server: str, op: str, detail: str = "") -> None:
        super().__init__(server, op, detail)
        self.server = server
        self.op = op
        self.detail = detail

    def __str__(self) -> str:
        text = f"{self.op} at {self.server}: {self.reason}"
        return f"{text} ({self.detail})" if self.detail else text


class QueueFull(LinkError):
    """``maxQueuePerPeer`` requests are waiting for this peer already."""

    reason = "queue full"


class CallerTimeout(LinkError):
    """The caller's time was over, waiting included."""

    reason = "caller time-out"


class RequestTimeout(LinkError):
    """The request was sent, and its own time was over without an answer."""

    reason = "request time-out"


class LinkLost(LinkError):
    """The connection was lost while the request was waiting or under way."""

    reason = "link lost"


class LinkDown(LinkError):
    """There is no connection, and the pause before the next try is on."""

    reason = "link down"


class LeftAlone(LinkError):
    """Nothing was asked for: for a while the peer is not asked for this, because it did not come again and again."""

    reason = "left alone"


class PeerRefused(LinkError):
    """The peer answered with an error; ``status``, ``code`` and ``payload`` are the peer's, and may be anything."""

    reason = "refused"

    def __init__(
        self,
        server: str,
        op: str,
        status: int,
        code: str,
        message: str = "",
        payload: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(server, op, f"{status} {code}: {message}"[:300])
        self.status = status
        self.code = code
        self.payload: Mapping[str, Any] = payload or {}

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later (§2)."""
        return self.code in RETRYABLE_CODES
