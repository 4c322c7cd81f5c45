"""What every way in asks of a pair or a copy, and what it says of signatures (PROTOCOL.md §5.2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from shine_node.delivery.admission import bad_signature, find_stored, known_user, must_be_here, parse_timely_pair
from shine_node.protocol.errors import BadContainer, BadFields, NotAccessServer, PairMismatch, UserNotFound
from tests.delivery.rooms import Rooms, alice_and_bob, run
from tests.store.rooms import MAX_BODY, NOW, OWN, make_copy, make_pair

LATE = make_pair("alice", "bob", time_ms=NOW + 2)


@pytest.mark.parametrize(
    ("incoming", "outgoing", "refusal"),
    [
        (b"", LATE.outgoing.blob, BadContainer),
        (make_pair("alice", "bob").incoming.blob, LATE.outgoing.blob, BadFields),
        (make_pair("alice", "bob").incoming.blob, make_pair("alice", "bob", nonce=2).outgoing.blob, PairMismatch),
    ],
)
def test_the_format_comes_before_the_clock_and_the_clock_before_the_pair(
    incoming: bytes, outgoing: bytes, refusal: type[Exception]
) -> None:
    with pytest.raises(refusal):
        parse_timely_pair(incoming, outgoing, max_body_bytes=MAX_BODY, now_ms=NOW, ahead_ms=1)
    parsed = parse_timely_pair(LATE.incoming.blob, LATE.outgoing.blob, max_body_bytes=MAX_BODY, now_ms=NOW, ahead_ms=2)
    assert parsed == LATE


def test_who_must_be_known_and_who_must_be_here(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            with pytest.raises(UserNotFound, match="the sender"):
                known_user(rooms.users, "alice", "the sender")
            await alice_and_bob(rooms, alice=(OWN,), bob=("r1",))
            must_be_here(rooms.users, known_user(rooms.users, "alice", "the sender"))
            with pytest.raises(NotAccessServer, match="of bob"):
                must_be_here(rooms.users, known_user(rooms.users, "bob", "the recipient"))

    run(story())


def test_which_copy_is_not_signed_as_it_must_be() -> None:
    assert "the incoming copy" in bad_signature(0).detail
    assert "the outgoing copy" in bad_signature(1).detail


def test_exactly_these_bytes_are_looked_for(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms, bob=(OWN,))
            pair, copy = make_pair("alice", "bob"), make_copy("alice", "bob", 1, nonce=2)
            assert find_stored(rooms.store, pair) is None
            await rooms.accept(pair)
            assert find_stored(rooms.store, pair) == rooms.row(pair)
            assert find_stored(rooms.store, make_pair("alice", "bob", body=b"other")) is None
            assert find_stored(rooms.store, (copy,)) is None
            _, stored = await rooms.intake.receive_incoming(copy.blob)
            assert find_stored(rooms.store, (copy,)) == stored.row

    run(story())
