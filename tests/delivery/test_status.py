"""What is said of a delivery (PROTOCOL.md §5.4, ``GetDmDeliveryStatus``)."""

from __future__ import annotations

from pathlib import Path

import pytest

from shine_node.protocol.keys import MessageKey
from shine_node.protocol.pair import Pair
from shine_node.protocol.schedule import DeliveryState
from shine_node.store.layout import Kind, Table
from tests.delivery.rooms import Rooms, down, run
from tests.store.rooms import NOW, OWN, make_pair, tombstone_of

UNKNOWN = (False, False)


async def two_users(rooms: Rooms, *routes: str) -> None:
    await rooms.know("alice", OWN)
    await rooms.know("bob", *routes)


def of(rooms: Rooms, pair: Pair, revision_ms: int | None = None) -> tuple[bool, bool]:
    return rooms.status.look_up(pair.outgoing.key, revision_ms)


def test_accepted_then_delivered(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await two_users(rooms, "r1")
            pair = make_pair("alice", "bob")
            assert of(rooms, pair) == UNKNOWN
            accepted = await rooms.accept(pair)
            assert of(rooms, pair) == (True, False)
            assert rooms.status.state(pair.outgoing.key) is DeliveryState.ACCEPTED
            assert await rooms.deliverer.send(accepted) is DeliveryState.DELIVERED
            assert rooms.status.state(pair.outgoing.key) is DeliveryState.DELIVERED
            assert of(rooms, pair) == (True, True)

    run(story())


def test_failed_is_known_and_not_delivered(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path, schedule=(0,)) as rooms:
            await two_users(rooms, "r1")
            rooms.peers.on("r1", "ReceiveIncomingMessage", down)
            pair = make_pair("alice", "bob")
            assert await rooms.deliverer.send(await rooms.accept(pair)) is DeliveryState.FAILED
            assert of(rooms, pair) == (True, False)

    run(story())


@pytest.mark.parametrize("kind", list(Kind))
def test_the_copy_of_the_recipient_has_no_delivery_of_its_own(tmp_path: Path, kind: Kind) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await two_users(rooms, OWN)
            message = make_pair("alice", "bob") if kind is not Kind.RECEIPT else make_pair("bob", "alice")
            reference = b"hello" if kind is Kind.MESSAGE else message.incoming.message.base_key.encode()
            pair = make_pair("alice", "bob", kind, nonce=3, body=reference)
            await rooms.accept(pair)
            assert rooms.recipients_row(pair) is not None
            assert rooms.status.look_up(pair.outgoing.key, None) == (True, True)
            assert rooms.status.look_up(pair.incoming.key, None) == UNKNOWN
            assert rooms.status.look_up(MessageKey(pair.outgoing.message, kind + 1), None) == (True, True)

    run(story())


def test_a_revision_that_is_greater_than_the_known_one_is_not_known(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await two_users(rooms, "r1")
            original, edit = make_pair("alice", "bob"), make_pair("alice", "bob", revision_ms=NOW + 5, body=b"new")
            await rooms.deliverer.send(await rooms.accept(original))
            assert of(rooms, original, 0) == (True, True)
            assert of(rooms, original, NOW + 5) == UNKNOWN
            await rooms.accept(edit)
            assert of(rooms, original) == (True, False), "the state belongs to the newest revision"
            assert of(rooms, original, NOW + 5) == (True, False)
            assert of(rooms, original, NOW + 4) == (True, False)
            assert of(rooms, original, NOW + 6) == UNKNOWN

    run(story())


def test_a_message_that_was_removed_before_it_came_is_not_known(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await two_users(rooms, "r1")
            pair = make_pair("alice", "bob")
            await rooms.accept(tombstone_of(pair.incoming.message))
            assert rooms.row(pair) is not None
            assert of(rooms, pair) == UNKNOWN

    run(story())


def test_it_only_reads(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await two_users(rooms, "r1")
            pair = make_pair("alice", "bob")
            await rooms.accept(pair)
            before = rooms.row(pair), rooms.count(Table.HISTORY)
            rooms.store.busy = True
            for revision_ms in (None, 0, NOW + 5):
                of(rooms, pair, revision_ms)
            rooms.status.look_up(make_pair("alice", "bob", nonce=99).outgoing.key, None)
            assert (rooms.row(pair), rooms.count(Table.HISTORY)) == before
            rooms.store.busy = False

    run(story())
