"""What every way in asks of a pair or a copy before its signatures are checked, and says where they do not hold."""

from __future__ import annotations

from collections.abc import Sequence

from shine_node.directory.users import Users
from shine_node.protocol.access import User
from shine_node.protocol.container import Container, check_clock
from shine_node.protocol.errors import BadSignature, NotAccessServer, UserNotFound
from shine_node.protocol.pair import Pair, check_pair, parse_pair
from shine_node.store.environment import Store
from shine_node.store.layout import ItemKey, Row
from shine_node.store.messages import identical

__all__ = ["bad_signature", "find_stored", "known_user", "must_be_here", "parse_timely_pair"]


def parse_timely_pair(
    incoming_blob: bytes, outgoing_blob: bytes, *, max_body_bytes: int, now_ms: int, ahead_ms: int
) -> Pair:
    """Parse a pair: the format comes before the clock, and the clock before the pair (§5.2).

    Args:
        max_body_bytes: ``limits.maxBodyBytes``.
        now_ms, ahead_ms: as ``check_clock`` takes them.

    Raises:
        BadContainer, TooLarge, BadFields, PairMismatch.
    """
    copies = parse_pair(incoming_blob, outgoing_blob, max_body_bytes=max_body_bytes)
    for copy in copies:
        check_clock(copy, now_ms=now_ms, ahead_ms=ahead_ms)
    return check_pair(*copies)


def known_user(users: Users, login: str, who: str) -> User:
    """Return a user who must be known here.

    Args:
        login: in lower case.
        who: what the user is in the message, for the error.

    Raises:
        UserNotFound: nobody of that login is.
    """
    user = users.get(login)
    if user is None:
        raise UserNotFound(f"{who} is not known here")
    return user


def must_be_here(users: Users, user: User) -> None:
    """Refuse a user of whom this server is no access server.

    Raises:
        NotAccessServer: it is none.
    """
    if not users.is_here(user):
        raise NotAccessServer(f"this server is not an access server of {user.record.login}")


def bad_signature(failed: int) -> BadSignature:
    """Return what to say of copies of which one is not signed as it must be: the incoming one, 0, or the other, 1."""
    copy = ("incoming", "outgoing")[failed]
    return BadSignature(f"the {copy} copy is not signed by the sender's device key")


def find_stored(store: Store, copies: Sequence[Container]) -> Row | None:
    """Return the row if exactly these copies are stored: they are a success then, whatever the keys are now (§5.2).

    Transactions find them by themselves; this is for where a signature does not hold.

    Args:
        copies: a pair, or a recipient's copy alone.

    Raises:
        ServerBusy: the store is read by too many at once.
    """
    blobs = [copy.blob for copy in copies] + [b""]
    with store.read() as txn:
        return identical(txn, ItemKey.of(copies[-1]), blobs[0], blobs[1])
