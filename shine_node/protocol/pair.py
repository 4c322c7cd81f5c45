"""The two copies of one message, and whether they belong together (PROTOCOL.md §5.2, step 1)."""

from __future__ import annotations

from typing import NamedTuple

from shine_node.protocol.container import MESSAGE_OUT, Container, parse_container
from shine_node.protocol.errors import BadContainer, PairMismatch

__all__ = ["Pair", "check_pair", "parse_incoming", "parse_pair"]


class Pair(NamedTuple):
    """An incoming copy and the outgoing copy of the same message; made by ``parse_pair`` or ``check_pair`` only."""

    incoming: Container
    outgoing: Container


def parse_pair(incoming_blob: bytes, outgoing_blob: bytes, *, max_body_bytes: int) -> tuple[Container, Container]:
    """Parse both copies, the incoming one first; whether they are a pair is ``check_pair``'s to say, after the clock.

    Raises:
        BadContainer, TooLarge: as ``parse_container``; the message says which copy.
    """
    return (
        parse_container(incoming_blob, max_body_bytes=max_body_bytes),
        parse_container(outgoing_blob, max_body_bytes=max_body_bytes),
    )


def check_pair(incoming: Container, outgoing: Container) -> Pair:
    """Return the two copies as a pair.

    Bodies of messages, their ``bodyFormat`` and the spelling of logins may differ: the copies can be sealed for
    different readers.

    Raises:
        PairMismatch: they are not the two copies of one message; the message says why (§5.2).
    """
    if not incoming.incoming or outgoing.message_type != incoming.message_type + 1:
        raise PairMismatch("the copies must be of types 1 and 2, 3 and 4, or 5 and 6, the incoming one first")
    if incoming.message != outgoing.message:
        raise PairMismatch("the copies must have the same logins, timeMs and nonce")
    if incoming.revision_ms != outgoing.revision_ms:
        raise PairMismatch("the copies must have the same revisionMs")
    if outgoing.message_type > MESSAGE_OUT and incoming.body != outgoing.body:
        raise PairMismatch("the copies must name the same message")
    return Pair(incoming, outgoing)


def parse_incoming(blob: bytes, *, max_body_bytes: int) -> Container:
    """Parse a copy that must be a recipient's one (an odd type), as ``ReceiveIncomingMessage`` takes it (§5.4).

    Raises:
        BadContainer, TooLarge: as ``parse_container``, or the copy is a sender's one.
    """
    container = parse_container(blob, max_body_bytes=max_body_bytes)
    if not container.incoming:
        raise BadContainer("this is the sender's copy; the recipient's one is wanted")
    return container
