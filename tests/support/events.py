"""What devices are told of a pair, as the wire has it (PROTOCOL.md §8.2)."""

from __future__ import annotations

from typing import Any

from shine_node.client.messages import SignedPair
from shine_node.protocol.encoding import encode_base64

__all__ = ["Event", "changed", "incoming", "outgoing"]

Event = tuple[str, dict[str, Any]]


def incoming(pair: SignedPair, spelled: str) -> Event:
    """What a recipient is told of a pair."""
    return "IncomingDirectMessage", {
        "incomingKey": pair.incoming_key,
        "baseKey": pair.base_key,
        "fromLogin": spelled,
        "blobB64": encode_base64(pair.incoming),
    }


def outgoing(pair: SignedPair, spelled: str, state: str) -> Event:
    """What a sender's other devices are told of a pair."""
    return "OutgoingDirectMessage", {
        "outgoingKey": pair.outgoing_key,
        "baseKey": pair.base_key,
        "toLogin": spelled,
        "blobB64": encode_base64(pair.outgoing),
        "deliveryState": state,
    }


def changed(pair: SignedPair, state: str) -> Event:
    """What a sender's devices are told of a delivery."""
    return "DmDeliveryStateChanged", {
        "outgoingKey": pair.outgoing_key,
        "baseKey": pair.base_key,
        "deliveryState": state,
    }
