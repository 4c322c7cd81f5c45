"""A user's settings: the signed record, its checks, and which of two counts (PROTOCOL.md §8.4)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson

from shine_node.protocol.encoding import (
    encode_base64,
    read_base64,
    read_login,
    read_number,
    read_optional_text,
    read_text,
)
from shine_node.protocol.errors import BadFields, Refusal, TooLarge

__all__ = [
    "DeviceKeyMismatch",
    "Setting",
    "SignatureInvalid",
    "check_setting_clock",
    "check_setting_key",
    "is_newer_setting",
    "parse_setting",
    "read_param",
    "setting_payload",
    "setting_text",
    "signature_invalid",
]

MOST_ESCAPED: Final = 4
"""A frame holds four times ``maxBodyBytes`` (§2); JSON writes some characters with six bytes."""
_PARAM = re.compile(r"(?![0-9])[A-Za-z0-9_.:\-]{1,64}(?<![0-9])")


class SignatureInvalid(Refusal):
    """A setting is not signed by the device key that it names."""

    status, code = 403, "SIGNATURE_INVALID"


class DeviceKeyMismatch(Refusal):
    """``device_key`` is not the user's key of that time, or no longer the newest one."""

    status, code = 403, "DEVICE_KEY_MISMATCH"


class Setting(NamedTuple):
    """One setting as its user signed it; the login is spelled as it was signed."""

    login: str
    param: str
    time_ms: int
    value: str
    device_key: bytes
    signature: bytes

    @property
    def key(self) -> str:
        """The login in lower case."""
        return self.login.lower()

    @property
    def order(self) -> tuple[int, bytes]:
        """What orders the settings of one name: the time, then the signature."""
        return self.time_ms, self.signature


def read_param(payload: Mapping[str, Any], field: str = "param") -> str:
    """Return the name of a setting: 1–64 of ``A-Z a-z 0-9 _ . : -``, no digit first or last.

    The signed text has no separators: with a digit at an end, ``time_ms`` could lend it one.

    Raises:
        BadFields: missing, null, empty, or another text.
        BadRequestFormat: not a text.
    """
    param = read_text(payload, field)
    if _PARAM.fullmatch(param) is None:
        raise BadFields(f"{field} must be 1 to 64 of A-Z a-z 0-9 _ . : - without a digit at either end")
    return param


def parse_setting(payload: Mapping[str, Any], *, max_value_bytes: int) -> Setting:
    """Read a setting from a payload and check its fields; the value may be empty, yet must be there.

    Args:
        payload: the setting as it travels; other members are ignored.
        max_value_bytes: of the value in UTF-8 (``limits.maxBodyBytes``); as JSON it may take four times as many.

    Raises:
        BadFields, BadRequestFormat, BadLogin, BadBase64, TooLarge.
    """
    login, param = read_login(payload), read_param(payload)
    time_ms = read_number(payload, "time_ms")
    if payload.get("value") is None:
        raise BadFields("value is missing")
    value = read_optional_text(payload, "value")
    if len(value.encode()) > max_value_bytes or len(orjson.dumps(value)) - 2 > MOST_ESCAPED * max_value_bytes:
        raise TooLarge(f"value must be at most {max_value_bytes} bytes, and {MOST_ESCAPED} times that in JSON")
    return Setting(login, param, time_ms, value, read_base64(payload, "device_key"), read_base64(payload, "signature"))


def setting_text(setting: Setting) -> bytes:
    """Return the text that ``signature`` covers."""
    return f"SHiNe/UserParameter:{setting.login}{setting.param}{setting.time_ms}{setting.value}".encode()


def check_setting_clock(setting: Setting, *, now_ms: int, ahead_ms: int) -> None:
    """Check that a setting is not of the future.

    Args:
        now_ms: the clock, Unix milliseconds.
        ahead_ms: how far ahead it may be: 15 minutes from clients; between servers 24 hours, as for messages (§4).

    Raises:
        BadFields: it is further ahead.
    """
    if setting.time_ms > now_ms + ahead_ms:
        raise BadFields(f"time_ms is ahead of the clock by more than {ahead_ms // 60_000} minutes")


def check_setting_key(setting: Setting, key: bytes | None) -> None:
    """Check that a setting names the key that has to have signed it.

    Args:
        key: the device key that counts, ``None`` where that of the time has been replaced (§3).

    Raises:
        DeviceKeyMismatch: it names another one.
    """
    if key is None:
        raise DeviceKeyMismatch("the device key of that time has been replaced: sign with the newest one")
    if setting.device_key != key:
        raise DeviceKeyMismatch(f"device_key is not the one of {setting.login} at that time")


def signature_invalid(setting: Setting) -> SignatureInvalid:
    """Return the refusal of a setting whose signature does not hold."""
    return SignatureInvalid(f"{setting.param} of {setting.login} is not signed by device_key")


def is_newer_setting(setting: Setting, known: Setting) -> bool:
    """Say whether a setting replaces another of its name: later, or as late with the greater signature."""
    return setting.order > known.order


def setting_payload(setting: Setting) -> dict[str, object]:
    """Return a setting as it travels."""
    return {
        "login": setting.login,
        "param": setting.param,
        "time_ms": setting.time_ms,
        "value": setting.value,
        "device_key": encode_base64(setting.device_key),
        "signature": encode_base64(setting.signature),
    }
