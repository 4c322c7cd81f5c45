"""The ``SHiNE_DM`` container, version 1: its bytes, its fields and its rules (PROTOCOL.md §4)."""

from __future__ import annotations

import functools
import struct
from typing import Final, NamedTuple

from shine_node.protocol.errors import BadContainer, BadFields, TooLarge
from shine_node.protocol.keys import MessageId, MessageKey, parse_base_key
from shine_node.protocol.logins import is_login

__all__ = [
    "CLIENT_AHEAD_MS",
    "FORMAT_OPAQUE",
    "FORMAT_REFERENCE",
    "FORMAT_SEALED",
    "FORMAT_TEXT",
    "MESSAGE_IN",
    "MESSAGE_OUT",
    "PEER_AHEAD_MS",
    "RECEIPT_IN",
    "RECEIPT_OUT",
    "SIGNATURE_BYTES",
    "TOMBSTONE_IN",
    "TOMBSTONE_OUT",
    "Container",
    "check_clock",
    "encode_unsigned",
    "parse_container",
]

MAGIC: Final = b"SHiNE_DM"
VERSION: Final = 1
SIGNATURE_BYTES: Final = 64

MESSAGE_IN: Final = 1
MESSAGE_OUT: Final = 2
RECEIPT_IN: Final = 3
RECEIPT_OUT: Final = 4
TOMBSTONE_IN: Final = 5
TOMBSTONE_OUT: Final = 6

FORMAT_OPAQUE: Final = 0
FORMAT_TEXT: Final = 1
FORMAT_SEALED: Final = 2
FORMAT_REFERENCE: Final = 3

CLIENT_AHEAD_MS: Final = 15 * 60 * 1000
"""How far ahead of this server's clock a client's times may be."""

PEER_AHEAD_MS: Final = 24 * 60 * 60 * 1000
"""The same for a peer's request, so that one server's wrong clock does not stop delivery at another (§4)."""

_MESSAGE_FORMATS = frozenset({FORMAT_OPAQUE, FORMAT_TEXT, FORMAT_SEALED})
_REFERENCE_FORMATS = frozenset({FORMAT_REFERENCE})
_U64 = struct.Struct(">Q")
_U32 = struct.Struct(">I")
_U16 = struct.Struct(">H")
_MIDDLE = struct.Struct(">QIHQBI")  # timeMs, nonce, messageType, revisionMs, bodyFormat, bodyLen


class Container(NamedTuple):
    """One signed copy of a message, receipt or tombstone, as parsed from ``blob``; logins are spelled as they came."""

    to_login: str
    from_login: str
    time_ms: int
    nonce: int
    message_type: int
    revision_ms: int
    body_format: int
    body: bytes
    signature: bytes
    blob: bytes
    message: MessageId
    reference: MessageId | None

    @property
    def signed_part(self) -> bytes:
        """Every byte before the signature."""
        return self.blob[:-SIGNATURE_BYTES]

    @property
    def key(self) -> MessageKey:
        """The ``incomingKey`` (odd types) or ``outgoingKey`` (even types) of this copy."""
        return MessageKey(self.message, self.message_type)

    @property
    def incoming(self) -> bool:
        """Whether this is the recipient's copy."""
        return self.message_type % 2 == 1

    @property
    def effective_ms(self) -> int:
        """``max(timeMs, revisionMs)``: the time whose device key counts, and from which the age is taken (§3, §6)."""
        return max(self.time_ms, self.revision_ms)


def parse_container(blob: bytes, *, max_body_bytes: int) -> Container:
    """Parse a container; fields are checked in the order of the table of §4 and the first failure decides.

    The clock (``check_clock``) and the signature are not looked at here.

    Args:
        blob: the bytes of one container and no more.
        max_body_bytes: the limit of the body, ``limits.maxBodyBytes``.

    Raises:
        BadContainer: the bytes break a rule of §4; the message says which.
        TooLarge: the body is longer than the limit, even if bytes are missing.
    """
    if blob[:8] != MAGIC:
        raise BadContainer("missing bytes: magic" if len(blob) < 8 else "the magic is not SHiNE_DM")
    if _byte(blob, 8, "version") != VERSION:
        raise BadContainer("unknown version")
    to_login, offset = _login(blob, 9, "toLogin")
    from_login, offset = _login(blob, offset, "fromLogin")
    time_ms, nonce, message_type, revision_ms, body_format, body_len = _middle(blob, offset)
    if body_len > max_body_bytes:
        raise TooLarge(f"the body is over {max_body_bytes} bytes")

    start = offset + _MIDDLE.size
    end = start + body_len
    body = blob[start:end]
    if len(body) < body_len:
        raise BadContainer("missing bytes: body")
    message = MessageId(from_login.lower(), to_login.lower(), time_ms, nonce)
    reference = None
    if body_format == FORMAT_TEXT:
        _utf8(body)
    elif body_format == FORMAT_REFERENCE:
        reference = _reference(body, message, message_type)
    signature = blob[end:]
    if len(signature) != SIGNATURE_BYTES:
        raise BadContainer("missing bytes: signature" if len(signature) < SIGNATURE_BYTES else "bytes too many")
    return Container(
        to_login,
        from_login,
        time_ms,
        nonce,
        message_type,
        revision_ms,
        body_format,
        body,
        signature,
        blob,
        message,
        reference,
    )


def check_clock(container: Container, *, now_ms: int, ahead_ms: int) -> None:
    """Refuse a container from the future.

    Args:
        now_ms: this server's clock, Unix milliseconds.
        ahead_ms: ``CLIENT_AHEAD_MS`` or ``PEER_AHEAD_MS``.

    Raises:
        BadFields: ``timeMs`` or ``revisionMs`` is more than ``ahead_ms`` ahead (§4), or a reference names a time more
            than ``PEER_AHEAD_MS`` ahead.
    """
    for field, value in (("timeMs", container.time_ms), ("revisionMs", container.revision_ms)):
        if value > now_ms + ahead_ms:
            raise BadFields(f"{field} is ahead of the clock by more than {ahead_ms // 60000} minutes")
    # A message may have come from a server whose clock is ahead, and can be read and removed all the same.
    if container.reference is not None and container.reference.time_ms > now_ms + PEER_AHEAD_MS:
        raise BadFields("the reference names a message from the future")


def encode_unsigned(
    *,
    to_login: str,
    from_login: str,
    time_ms: int,
    nonce: int,
    message_type: int,
    body: bytes,
    body_format: int,
    revision_ms: int = 0,
) -> bytes:
    """Return every byte of a container before its signature, for a client to sign (§4)."""
    to_bytes, from_bytes = to_login.encode("ascii"), from_login.encode("ascii")
    return b"".join(
        (
            MAGIC,
            bytes((VERSION, len(to_bytes))),
            to_bytes,
            bytes((len(from_bytes),)),
            from_bytes,
            _MIDDLE.pack(time_ms, nonce, message_type, revision_ms, body_format, len(body)),
            body,
        )
    )


def _byte(blob: bytes, offset: int, field: str) -> int:
    if len(blob) <= offset:
        raise BadContainer(f"missing bytes: {field}")
    return blob[offset]


def _login(blob: bytes, offset: int, field: str) -> tuple[str, int]:
    length = _byte(blob, offset, field)
    raw = blob[offset + 1 : offset + 1 + length]
    if len(raw) < length:
        raise BadContainer(f"missing bytes: {field}")
    login = _login_text(raw)
    if not login:
        raise BadContainer(f"{field} is not a login")
    return login, offset + 1 + length


@functools.lru_cache(maxsize=1024)  # most containers of a server are of few users
def _login_text(raw: bytes) -> str:
    """Return a login, empty if it is none."""
    try:
        login = raw.decode("ascii")
    except UnicodeDecodeError:
        return ""
    return login if is_login(login) else ""


def _middle(blob: bytes, offset: int) -> tuple[int, int, int, int, int, int]:
    if len(blob) >= offset + _MIDDLE.size:
        middle: tuple[int, int, int, int, int, int] = _MIDDLE.unpack_from(blob, offset)
        time_ms, _, message_type, revision_ms, body_format, _ = middle
        _check_type(message_type)
        _check_revision(message_type, time_ms, revision_ms)
        _check_format(message_type, body_format)
        return middle
    # Bytes are missing: a field that is there and wrong still decides before the first one that is not.
    time_ms, offset = _number(blob, offset, _U64, "timeMs")
    _, offset = _number(blob, offset, _U32, "nonce")
    message_type, offset = _number(blob, offset, _U16, "messageType")
    _check_type(message_type)
    revision_ms, offset = _number(blob, offset, _U64, "revisionMs")
    _check_revision(message_type, time_ms, revision_ms)
    _check_format(message_type, _byte(blob, offset, "bodyFormat"))
    raise BadContainer("missing bytes: bodyLen")


def _number(blob: bytes, offset: int, layout: struct.Struct, field: str) -> tuple[int, int]:
    if len(blob) < offset + layout.size:
        raise BadContainer(f"missing bytes: {field}")
    value: int = layout.unpack_from(blob, offset)[0]
    return value, offset + layout.size


def _check_type(message_type: int) -> None:
    if not MESSAGE_IN <= message_type <= TOMBSTONE_OUT:
        raise BadContainer("unknown messageType")


def _check_revision(message_type: int, time_ms: int, revision_ms: int) -> None:
    if not revision_ms:
        return
    if message_type > MESSAGE_OUT:
        raise BadContainer("a receipt or tombstone cannot be edited")
    if revision_ms <= time_ms:
        raise BadContainer("revisionMs is not after timeMs")


def _check_format(message_type: int, body_format: int) -> None:
    if body_format > FORMAT_REFERENCE:
        raise BadContainer("unknown bodyFormat")
    if body_format not in (_MESSAGE_FORMATS if message_type <= MESSAGE_OUT else _REFERENCE_FORMATS):
        raise BadContainer("this bodyFormat is not allowed for this messageType")


def _utf8(body: bytes) -> str:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        raise BadContainer("the body is not valid UTF-8") from None


def _reference(body: bytes, message: MessageId, message_type: int) -> MessageId:
    reference = parse_base_key(_utf8(body))
    if reference is None:
        raise BadContainer("the reference is not a baseKey")
    author, reader = message.from_login, message.to_login
    if message_type in (RECEIPT_IN, RECEIPT_OUT):
        author, reader = reader, author  # a receipt speaks of a message of the other side
    if (reference.from_login, reference.to_login) != (author, reader):
        raise BadContainer("the reference is not a message of these two users in this direction")
    return reference
