"""Which of two revisions of one message stays, and what a submission meets (PROTOCOL.md §4, §5.2).

Pure decisions: the same ones on every server, whatever the order of arrival.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from shine_node.protocol.errors import KeyConflict, StaleRevision

__all__ = ["Arrival", "Known", "judge", "refuse_conflict"]


class Known(NamedTuple):
    """What is stored of a message: its revision, its incoming copy's signature, its digest, and whether it is removed.

    ``digest`` is SHA-256 over the stored copies, incoming first; ``b""`` where a tombstone came before the message.
    """

    revision_ms: int
    signature: bytes
    digest: bytes
    removed: bool


class Arrival(enum.Enum):
    """What an arriving revision is beside the one that is known."""

    FIRST = "nothing is stored yet: store it"
    SAME = "these bytes are stored already"
    NEWER = "it replaces what is stored"
    OLDER = "a later revision is stored"
    CONFLICT_WINS = "other bytes of the same revision, and these win"
    CONFLICT_LOSES = "other bytes of the same revision, and the stored ones win"
    REMOVED = "the message is removed for good: acknowledge it and keep nothing"


def judge(known: Known | None, *, revision_ms: int, signature: bytes, digest: bytes) -> Arrival:
    """Compare an arriving revision with what is known.

    The greater ``revisionMs`` wins, of two equal ones with different bytes the greater signature of the incoming
    copies, in byte order (§4).

    Args:
        revision_ms: the arriving ``revisionMs``.
        signature: the signature of the arriving incoming copy.
        digest: SHA-256 over the arriving copies, incoming first.
    """
    if known is None:
        return Arrival.FIRST
    if known.digest == digest and known.revision_ms == revision_ms:
        return Arrival.SAME
    if known.removed and (not known.digest or revision_ms != known.revision_ms):
        return Arrival.REMOVED
    if revision_ms != known.revision_ms:
        return Arrival.NEWER if revision_ms > known.revision_ms else Arrival.OLDER
    # The incoming signatures can be equal where only the outgoing copies differ; the digests then decide.
    wins = (signature, digest) > (known.signature, known.digest)
    return Arrival.CONFLICT_WINS if wins else Arrival.CONFLICT_LOSES


def refuse_conflict(arrival: Arrival) -> None:
    """Refuse what a client may not submit: an older revision, or other bytes under one revision (§5.2).

    Raises:
        StaleRevision, KeyConflict.
    """
    if arrival is Arrival.OLDER:
        raise StaleRevision("a later revision of this message is stored")
    if arrival in (Arrival.CONFLICT_WINS, Arrival.CONFLICT_LOSES):
        raise KeyConflict("other bytes are stored under this key and revision")
