"""The keys that identify a logical message and its two copies (PROTOCOL.md §4)."""

from __future__ import annotations

import re
from typing import NamedTuple

from shine_node.protocol.errors import BadFields
from shine_node.protocol.logins import LOGIN_PATTERN

__all__ = ["MessageId", "MessageKey", "parse_base_key", "parse_decimal", "parse_message_key"]

U32 = 2**32 - 1
U64 = 2**64 - 1

_LOWER_LOGIN = re.compile(r"[a-z0-9][a-z0-9_.\-]{0,29}")
_DECIMAL = re.compile(r"0|[1-9][0-9]{0,19}")
_ANY_LOGIN = re.compile(LOGIN_PATTERN)


class MessageId(NamedTuple):
    """What identifies one logical message: both logins in lower case, ``timeMs`` (u64) and ``nonce`` (u32)."""

    from_login: str
    to_login: str
    time_ms: int
    nonce: int

    @property
    def base_key(self) -> str:
        """``from|to|timeMs|nonce``, which binds the two copies of one message (§4)."""
        return f"{self.from_login}|{self.to_login}|{self.time_ms}|{self.nonce}"


class MessageKey(NamedTuple):
    """What identifies one copy: the message and its ``messageType``, odd for the recipient, even for the sender."""

    message: MessageId
    message_type: int

    def __str__(self) -> str:
        return f"{self.message.base_key}|{self.message_type}"


def parse_decimal(text: str, greatest: int) -> int | None:
    """Return a plain decimal (no sign, no leading zero) up to ``greatest``, or ``None``."""
    if _DECIMAL.fullmatch(text) is None:
        return None
    value = int(text)
    return value if value <= greatest else None


def parse_base_key(text: str) -> MessageId | None:
    """Parse a ``baseKey`` as a reference writes it: lower-case logins, plain decimals; ``None`` if it is none (§4)."""
    parts = text.split("|")
    if len(parts) != 4 or not (_LOWER_LOGIN.fullmatch(parts[0]) and _LOWER_LOGIN.fullmatch(parts[1])):
        return None
    time_ms, nonce = parse_decimal(parts[2], U64), parse_decimal(parts[3], U32)
    if time_ms is None or nonce is None:
        return None
    return MessageId(parts[0], parts[1], time_ms, nonce)


def parse_message_key(text: str) -> MessageKey:
    """Parse an ``incomingKey`` or ``outgoingKey`` of a request; logins may come in any case.

    Raises:
        BadFields: not five parts, or a part outside its grammar or range (§4).
    """
    parts = text.split("|")
    if len(parts) == 5 and _ANY_LOGIN.fullmatch(parts[0]) and _ANY_LOGIN.fullmatch(parts[1]):
        time_ms, nonce = parse_decimal(parts[2], U64), parse_decimal(parts[3], U32)
        message_type = parse_decimal(parts[4], 6)
        if time_ms is not None and nonce is not None and message_type:
            return MessageKey(MessageId(parts[0].lower(), parts[1].lower(), time_ms, nonce), message_type)
    raise BadFields("messageKey must be from|to|timeMs|nonce|messageType")
