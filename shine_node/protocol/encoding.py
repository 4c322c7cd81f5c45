"""Base64 and typed reading of payload fields (PROTOCOL.md §2)."""

from __future__ import annotations

import binascii
from collections.abc import Mapping
from typing import Any

from shine_node.protocol.errors import BadBase64, BadFields, BadRequestFormat
from shine_node.protocol.logins import check_login

__all__ = [
    "MAX_NUMBER",
    "decode_base64",
    "encode_base64",
    "read_base64",
    "read_limit",
    "read_list",
    "read_login",
    "read_number",
    "read_optional_number",
    "read_optional_text",
    "read_text",
]

MAX_NUMBER = 2**53 - 1
"""The greatest number that a field may hold."""


def decode_base64(text: str, field: str) -> bytes:
    """Decode canonical Base64: the standard alphabet, padded, left-over bits zero.

    Raises:
        BadBase64: anything else; the message names the field.
    """
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
    except ValueError:  # binascii.Error, and text outside ASCII
        raise BadBase64(f"{field} must be Base64 with padding") from None
    # The strict mode still passes left-over bits and, in some versions, a pad after a whole group.
    if encode_base64(data) != text:
        raise BadBase64(f"{field} must be Base64 without left-over bits or pads")
    return data


def encode_base64(data: bytes) -> str:
    """Encode bytes as standard Base64 with padding."""
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def read_text(payload: Mapping[str, Any], field: str) -> str:
    """Return a required text.

    Raises:
        BadFields: missing, null or empty.
        BadRequestFormat: not a text.
    """
    value = payload.get(field)
    if value is None or value == "":
        raise BadFields(f"{field} is missing or empty")
    if not isinstance(value, str):
        raise BadRequestFormat(f"{field} must be a text")
    return value


def read_optional_text(payload: Mapping[str, Any], field: str, default: str = "") -> str:
    """Return a text, or the default where the field is missing or null.

    Raises:
        BadRequestFormat: not a text.
    """
    value = payload.get(field)
    if value is None:
        return default
    if not isinstance(value, str):
        raise BadRequestFormat(f"{field} must be a text")
    return value


def read_login(payload: Mapping[str, Any], field: str = "login") -> str:
    """Return a required login, spelled as it came.

    Raises:
        BadFields, BadRequestFormat, BadLogin.
    """
    return check_login(read_text(payload, field), field=field)


def read_base64(payload: Mapping[str, Any], field: str) -> bytes:
    """Return the bytes of a required Base64 field.

    Raises:
        BadFields, BadRequestFormat, BadBase64.
    """
    return decode_base64(read_text(payload, field), field)


def read_number(payload: Mapping[str, Any], field: str) -> int:
    """Return a required whole number from 0 to 2^53 − 1.

    Raises:
        BadFields: missing, null or outside the range.
        BadRequestFormat: not a whole number.
    """
    value = read_optional_number(payload, field)
    if value is None:
        raise BadFields(f"{field} is missing")
    return value


def read_optional_number(payload: Mapping[str, Any], field: str) -> int | None:
    """Return a whole number from 0 to 2^53 − 1, or ``None`` where the field is missing or null.

    Raises:
        BadFields: outside the range.
        BadRequestFormat: not a whole number.
    """
    value = payload.get(field)
    if value is None:
        return None
    if isinstance(value, float) and abs(value) > MAX_NUMBER:  # JSON readers turn integers over 64 bits into floats
        raise BadFields(f"{field} must be from 0 to 2^53 - 1")
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadRequestFormat(f"{field} must be a whole number")
    if not 0 <= value <= MAX_NUMBER:
        raise BadFields(f"{field} must be from 0 to 2^53 - 1")
    return value


def read_limit(payload: Mapping[str, Any], default: int, greatest: int, field: str = "limit") -> int:
    """Return a page limit, clamped into 1 … ``greatest``; a limit outside its range is not refused (§2).

    Raises:
        BadRequestFormat: not a whole number.
    """
    value = payload.get(field)
    if value is None:
        return default
    beyond = isinstance(value, float) and abs(value) > MAX_NUMBER  # an integer over 64 bits, read as a float
    if isinstance(value, bool) or not (isinstance(value, int) or beyond):
        raise BadRequestFormat(f"{field} must be a whole number")
    return int(max(1, min(value, greatest)))


def read_list(payload: Mapping[str, Any], field: str) -> list[Any]:
    """Return a list; a missing or null one is empty.

    Raises:
        BadRequestFormat: not a list.
    """
    value = payload.get(field)
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadRequestFormat(f"{field} must be a list")
    return value
