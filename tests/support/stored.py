"""What a server answers that has stored what another server sent it (PROTOCOL.md §5.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shine_node.protocol.container import parse_container
from shine_node.protocol.encoding import decode_base64

_KEYS = {
    "ReceiveIncomingMessage": ("incomingBlobB64", "incomingKey"),
    "ReceiveOutcomingMessage": ("outgoingBlobB64", "outgoingKey"),
}


def stored(op: str, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the payload of the success of a request; an empty one for other operations, and without a copy."""
    blob_field, key_field = _KEYS.get(op, ("", ""))
    if blob_field not in payload:
        return {}
    blob = decode_base64(payload[blob_field], blob_field)
    return {key_field: str(parse_container(blob, max_body_bytes=len(blob)).key)}
