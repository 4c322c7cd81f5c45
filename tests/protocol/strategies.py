"""What the properties are drawn from: logins, fields of containers, and signed containers with their mutations."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from shine_node.protocol.container import (
    FORMAT_REFERENCE,
    FORMAT_TEXT,
    MESSAGE_IN,
    MESSAGE_OUT,
    RECEIPT_IN,
    RECEIPT_OUT,
    TOMBSTONE_IN,
    TOMBSTONE_OUT,
    encode_unsigned,
)
from shine_node.protocol.signatures import key_pair, sign

U32 = 2**32 - 1
U64 = 2**64 - 1
PUBLIC_KEY, SECRET_KEY = key_pair(b"a seed for the protocol's tests!")

FIRST = "ABCXYZabcxyz0189"
REST = FIRST + "_.-"
logins = st.builds(str.__add__, st.sampled_from(FIRST), st.text(REST, max_size=29))


@st.composite
def container_fields(draw: st.DrawFn, *, message_types: tuple[int, ...] = (1, 2, 3, 4, 5, 6)) -> dict[str, Any]:
    """The arguments of ``encode_unsigned`` for a container that follows every rule of §4."""
    message_type = draw(st.sampled_from(message_types))
    to_login, from_login = draw(logins), draw(logins)
    time_ms = draw(st.integers(0, U64))
    revision_ms = 0
    if message_type in (MESSAGE_IN, MESSAGE_OUT):
        if time_ms < U64 and draw(st.booleans()):
            revision_ms = draw(st.integers(time_ms + 1, U64))
        body_format = draw(st.integers(0, 2))
        body = draw(st.text(max_size=40)).encode() if body_format == FORMAT_TEXT else draw(st.binary(max_size=60))
    else:
        body_format = FORMAT_REFERENCE
        author, reader = (to_login, from_login) if message_type in (RECEIPT_IN, RECEIPT_OUT) else (from_login, to_login)
        assert message_type in (RECEIPT_IN, RECEIPT_OUT, TOMBSTONE_IN, TOMBSTONE_OUT)
        numbers = f"{draw(st.integers(0, U64))}|{draw(st.integers(0, U32))}"
        body = f"{author.lower()}|{reader.lower()}|{numbers}".encode()
    return {
        "to_login": to_login,
        "from_login": from_login,
        "time_ms": time_ms,
        "nonce": draw(st.integers(0, U32)),
        "message_type": message_type,
        "revision_ms": revision_ms,
        "body_format": body_format,
        "body": body,
    }


def signed(fields: dict[str, Any]) -> bytes:
    """The container of these fields, signed with ``SECRET_KEY``."""
    unsigned = encode_unsigned(**fields)
    return unsigned + sign(SECRET_KEY, unsigned)


containers = container_fields().map(signed)


@st.composite
def mutated_containers(draw: st.DrawFn) -> bytes:
    """A valid container with a few bytes set, dropped, put in, or cut off."""
    blob = bytearray(draw(containers))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(blob)))
        match draw(st.sampled_from(("set", "set", "drop", "put", "cut"))):
            case "set" if at < len(blob):
                blob[at] = draw(st.integers(0, 255))
            case "drop":
                del blob[at : at + draw(st.integers(1, 9))]
            case "put":
                blob[at:at] = draw(st.binary(min_size=1, max_size=9))
            case "cut":
                del blob[at:]
    return bytes(blob)
