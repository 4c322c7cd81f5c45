"""Access records by themselves: whether one can be read, and whether its root key has signed it; pure."""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable

from shine_node.protocol.access import (
    AccessRecord,
    is_server_url,
    parse_identity,
    record_order,
    record_payload,
    signed_text,
)
from shine_node.protocol.errors import ShineError
from shine_node.protocol.logins import is_login
from shine_node.protocol.signatures import is_signed_by
from shine_node.store.layout import pack_number
from shine_node.store.users import Registration, decode_registration

__all__ = ["UNREADABLE", "find_forged", "is_signed", "needs_no_signature", "read_record"]

UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, IndexError, struct.error, ShineError)
"""What the decoding of a row raises where its bytes are not those that were written."""


@functools.lru_cache(maxsize=1024)
def read_record(value: bytes) -> Registration | None:
    """Return what a value in ``users`` or ``access_records`` holds, ``None`` where it is not one that can be used."""
    try:
        registration = decode_registration(value)
        record = registration.record
        signed_text(record)
        record_order(record)
        pack_number(record.time_ms)
        pack_number(registration.bch_limit or 0)
        usable = is_login(record.login) and all(
            isinstance(text, str) for pair in record.access_servers for text in pair
        )
        if needs_no_signature(registration):  # there is nothing but its form to tell what is damaged
            parse_identity(record_payload(record))
            usable = usable and all(
                is_login(name) and is_server_url(url, allow_insecure=True) for name, url in record.access_servers
            )
    except UNREADABLE:
        return None
    return registration if usable and isinstance(registration.local, bool) else None


def needs_no_signature(registration: Registration) -> bool:
    """Say whether it is of a user of this server alone, who was registered without a signed record."""
    return registration.local and not registration.record.signature


@functools.lru_cache(maxsize=1024)
def is_signed(record: AccessRecord) -> bool:
    """Say whether its root key has signed a record (PROTOCOL.md §3)."""
    return is_signed_by(record.solana_key, signed_text(record), record.signature)


def find_forged(values: Iterable[bytes]) -> list[bytes]:
    """Return those of several values in ``access_records`` that can be read, and should be signed and are not."""
    forged: list[bytes] = []
    for value in values:
        registration = read_record(value)
        if registration is not None and not needs_no_signature(registration) and not is_signed(registration.record):
            forged.append(value)
    return forged
