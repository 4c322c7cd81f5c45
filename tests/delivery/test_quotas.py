"""What users may store and send, and take from whom: each bound by itself, at every way in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shine_node.directory.settings import Settings
from shine_node.protocol.encoding import encode_base64
from shine_node.protocol.errors import Forbidden, RateLimited, Refusal, StorageFull
from shine_node.protocol.pair import Pair
from shine_node.protocol.schedule import DeliveryState
from shine_node.store.layout import ItemKey
from shine_node.store.usage import DAY_MS, read_usage
from tests.delivery.rooms import NO_LIMITS, RECEIVE_INCOMING, Rooms, refuses, run
from tests.store.rooms import NOW, OWN, identity, make_copy, make_pair, receipt_of, tombstone_of

MIB = 2**20
HALF = bytes(250_000)
"""A pair of such bodies is about half a MiB."""
ACCEPTED, DELIVERED, FAILED = DeliveryState.ACCEPTED, DeliveryState.DELIVERED, DeliveryState.FAILED


def limit(rooms: Rooms, **limits: Any) -> None:
    rooms.quotas.limits = replace(NO_LIMITS, **limits)


async def people(rooms: Rooms) -> None:
    """alice, bob and mallory are here; alice has another server, carol is elsewhere."""
    await rooms.know("alice", OWN, "a2")
    for login in ("bob", "mallory"):
        await rooms.know(login, OWN)
    await rooms.know("carol", "r1")


async def block(rooms: Rooms, login: str, *others: str) -> None:
    """Store the setting of a user, signed, as a client does."""
    settings = Settings(
        store=rooms.store,
        crypto=rooms.crypto,
        users=rooms.users,
        lookup=rooms.lookup,  # type: ignore[arg-type]
        clock=rooms.clock,
        max_value_bytes=10_000,
    )
    device, time_ms, value = identity(login).device, rooms.clock.now_ms(), "\n".join(others)
    text = f"SHiNe/UserParameter:{login}blocked{time_ms}{value}"
    payload = {
        "login": login,
        "param": "blocked",
        "time_ms": time_ms,
        "value": value,
        "device_key": encode_base64(device.public),
        "signature": encode_base64(device.sign(text.encode())),
    }
    assert await settings.submit(payload, ask_peers=False)


async def refused(rooms: Rooms, error: type[Refusal], pair: Pair) -> Refusal:
    """A client is refused, and nothing is stored of either copy."""
    with pytest.raises(error) as caught:
        await rooms.accept(pair)
    assert rooms.row(pair) is None
    assert rooms.recipients_row(pair) is None
    return caught.value


def used(rooms: Rooms, login: str) -> int:
    with rooms.store.read() as txn:
        return read_usage(txn, login).stored_bytes


# Messages a day


def test_so_many_messages_and_edits_a_day_and_then_it_is_said_when_the_next_begins(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await people(rooms)
            limit(rooms, max_messages_per_day=3)
            for nonce in (1, 2):
                await rooms.accept(make_pair("alice", "carol", nonce=nonce))
            await rooms.accept(make_pair("alice", "carol", nonce=2, revision_ms=NOW + 1))
            late = make_pair("alice", "carol", nonce=3)
            wait_ms = (await refused(rooms, RateLimited, late)).payload["retryAfterMs"]
            assert wait_ms == DAY_MS - NOW % DAY_MS
            with pytest.raises(RateLimited):
                await rooms.accept(make_pair("alice", "carol", nonce=2, revision_ms=NOW + 2))
            await rooms.accept(make_pair("alice", "carol", nonce=1))  # what is stored is a success
            await rooms.accept(make_pair("bob", "carol"))  # nobody else waits
            await rooms.accept(receipt_of(make_pair("carol", "alice").incoming.message))
            await rooms.accept(tombstone_of(make_pair("alice", "carol", nonce=1).incoming.message))
            assert isinstance(wait_ms, int)
            await rooms.clock.advance(wait_ms / 1000)
            await rooms.accept(late)

    run(story())


def test_what_is_refused_is_counted_by_its_bound(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await people(rooms)
            limit(rooms, max_messages_per_day=1)
            await rooms.accept(make_pair("alice", "carol", nonce=1))
            await refused(rooms, RateLimited, make_pair("alice", "carol", nonce=2))
            for nonce in range(4):
                await rooms.accept(
                    receipt_of(make_pair("carol", "alice", nonce=nonce).incoming.message, nonce=9 + nonce)
                )
            await refused(rooms, RateLimited, receipt_of(make_pair("carol", "alice", nonce=5).incoming.message))
            limit(rooms, max_stored_mib_per_user=1)
            await refused(rooms, StorageFull, make_pair("alice", "carol", nonce=3, body=bytes(MIB // 2)))
            limit(rooms, messages_per_minute_per_sender=1)
            await rooms.accept(make_pair("bob", "alice", nonce=1))
            await refused(rooms, RateLimited, make_pair("bob", "alice", nonce=2))
            counts = {"maxStoredMiBPerUser": 1, "maxMessagesPerDay": 2, "messagesPerMinutePerSender": 1}
            assert rooms.quotas.refused.counts == counts
            assert rooms.quotas.refused.news() == (
                "1 by limits.maxStoredMiBPerUser (the last one about alice), 2 by limits.maxMessagesPerDay (the last"
                " one about alice), 1 by limits.messagesPerMinutePerSender (the last one about bob)"
            )

    run(story())


def test_receipts_and_tombstones_of_nothing_have_a_larger_bound_a_day_and_what_removes_has_none(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await people(rooms)
            limit(rooms, max_messages_per_day=2)
            mine = [make_pair("alice", "carol", nonce=nonce) for nonce in (1, 2)]
            for pair in mine:
                await rooms.accept(pair)
            never = [make_pair("alice", "carol", nonce=nonce).incoming.message for nonce in range(100, 110)]
            for number in range(4):
                await rooms.accept(tombstone_of(never[number], nonce=200 + number))
                read = make_pair("carol", "alice", nonce=number).incoming.message
                await rooms.accept(receipt_of(read, nonce=300 + number))
            for pair in (tombstone_of(never[9], nonce=400), receipt_of(make_pair("carol", "alice").incoming.message)):
                wait_ms = (await refused(rooms, RateLimited, pair)).payload["retryAfterMs"]
                assert wait_ms == DAY_MS // 8 + 1
            await rooms.accept(tombstone_of(mine[0].incoming.message, nonce=401))  # frees room
            again = tombstone_of(mine[0].incoming.message, nonce=402)
            await refused(rooms, RateLimited, again)  # there is nothing left that it could remove
            await rooms.accept(receipt_of(make_pair("alice", "bob").incoming.message))  # bob's, who has sent nothing
            stone = tombstone_of(never[8], nonce=403)
            await rooms.sync(*(copy.blob for copy in stone), owner="alice", from_server="a2")
            await rooms.intake.receive_pair(*(copy.blob for copy in again), from_server="a2")
            await rooms.clock.advance(DAY_MS / 8 / 1000 + 1)
            await rooms.accept(tombstone_of(never[9], nonce=404))

    run(story())


def test_what_the_minute_refuses_is_not_counted_for_the_day(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await people(rooms)
            await rooms.know("dora", OWN)
            limit(rooms, max_messages_per_day=5, messages_per_minute_per_sender=1)
            never = [make_pair("alice", "bob", nonce=100 + n).incoming.message for n in range(5)]
            for number in range(4):
                await rooms.accept(tombstone_of(never[number], nonce=200 + number))
            late = tombstone_of(never[4], nonce=204)
            for _ in range(16):
                await refused(rooms, RateLimited, late)
            assert rooms.quotas.refused.counts["messagesPerMinutePerSender"] == 16
            await rooms.clock.advance(60)
            await rooms.accept(tombstone_of(make_pair("alice", "dora", nonce=300).incoming.message, nonce=301))
            for number in range(15):  # with these it is 20
                stone = tombstone_of(
                    make_pair("alice", "carol", nonce=400 + number).incoming.message, nonce=500 + number
                )
                await rooms.accept(stone)
            await refused(rooms, RateLimited, late)
            assert rooms.quotas.refused.counts["maxMessagesPerDay"] == 1

    run(story())


def test_tombstones_of_what_never_was_do_not_fill_the_store(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await people(rooms)
            limit(rooms, max_stored_mib_per_user=1)
            early = make_pair("alice", "carol", nonce=1)
            await rooms.accept(tombstone_of(early.incoming.message, nonce=9))  # before its message: kept
            assert (await rooms.accept(early)).stored.row.removed
            large = make_pair("alice", "carol", nonce=2, body=bytes(MIB // 2 - 2000))
            await rooms.accept(large)
            never = [make_pair("alice", "carol", nonce=nonce).incoming.message for nonce in range(100, 150)]
            stones = [tombstone_of(message, nonce=message.nonce) for message in never]
            with pytest.raises(StorageFull):
                for stone in stones:
                    await rooms.accept(stone)
            assert rooms.row(stones[0]) is not None
            assert rooms.row(stones[-1]) is None
            assert used(rooms, "alice") <= MIB
            await refused(rooms, StorageFull, receipt_of(make_pair("carol", "alice").incoming.message, nonce=9))
            await rooms.accept(tombstone_of(large.incoming.message, nonce=20_000))

    run(story())


def test_the_day_goes_on_over_a_restart(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await people(rooms)
            await rooms.accept(make_pair("alice", "carol", nonce=1))
        async with Rooms(tmp_path) as rooms:
            limit(rooms, max_messages_per_day=2)
            await rooms.accept(make_pair("alice", "carol", nonce=2))
            await refused(rooms, RateLimited, make_pair("alice", "carol", nonce=3))

    run(story())


def test_what_the_other_server_has_accepted_is_never_refused_for_the_day_nor_counted(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await people(rooms)
            limit(rooms, max_messages_per_day=1, max_stored_mib_per_user=1)
            for nonce in range(1, 4):
                pair = make_pair("alice", "carol", nonce=nonce, body=HALF)
                await rooms.sync(pair.incoming.blob, pair.outgoing.blob, owner="alice", from_server="a2")
            for nonce in range(4, 7):
                pair = make_pair("alice", "carol", nonce=nonce, body=HALF)
                await rooms.intake.receive_pair(pair.incoming.blob, pair.outgoing.blob, from_server="A2")
            limit(rooms, max_messages_per_day=1)
            await rooms.accept(make_pair("alice", "carol", nonce=8))
            await refused(rooms, RateLimited, make_pair("alice", "carol", nonce=9))

    run(story())


def test_the_way_in_for_servers_is_no_way_around_the_day(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await people(rooms)
            limit(rooms, max_messages_per_day=1)
            for from_server, nonce in ((None, 1), ("r1", 2)):
                pair = make_pair("alice", "carol", nonce=nonce)
                if nonce == 1:
                    await rooms.intake.receive_pair(pair.incoming.blob, pair.outgoing.blob, from_server=from_server)
                else:
                    with pytest.raises(RateLimited):
                        await rooms.intake.receive_pair(pair.incoming.blob, pair.outgoing.blob, from_server=from_server)

    run(story())


# Stored bytes


def test_a_user_whose_room_is_taken_sends_nothing_more_until_something_is_removed(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await people(rooms)
            limit(rooms, max_stored_mib_per_user=1)
            pairs = [make_pair("alice", "carol", nonce=nonce, body=HALF) for nonce in range(3)]
            for pair in pairs[:2]:
                await rooms.accept(pair)
            assert "room" in (await refused(rooms, StorageFull, pairs[2])).detail
            assert used(rooms, "alice") < MIB
            smaller = make_pair("alice", "carol", nonce=1, revision_ms=NOW + 1, body=b"short")
            await rooms.accept(smaller)  # an edit may make it smaller
            await rooms.accept(pairs[2])
            another = make_pair("alice", "carol", nonce=9, body=HALF)
            await refused(rooms, StorageFull, another)
            await rooms.accept(tombstone_of(pairs[0].incoming.message))
            await rooms.accept(another)
            await rooms.accept(make_pair("bob", "carol", body=HALF))

    run(story())


def test_a_recipient_whose_room_is_taken_is_507_to_peers_and_a_delivery_that_fails_to_clients(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await people(rooms)
            limit(rooms, max_stored_mib_per_user=1)
            for nonce in range(4):
                await rooms.intake.receive_incoming(make_copy("carol", "bob", 1, nonce=nonce, body=HALF).blob)
            late = make_copy("carol", "bob", 1, nonce=9, body=HALF)
            with pytest.raises(StorageFull):
                await rooms.intake.receive_incoming(late.blob)
            assert rooms.row_of(ItemKey.of(late)) is None
            pair = make_pair("alice", "bob", body=HALF)
            accepted = await rooms.accept(pair)
            assert accepted.stored.state is ACCEPTED
            assert rooms.recipients_row(pair) is None
            assert await rooms.deliverer.send(accepted) is ACCEPTED
            await rooms.intake.receive_incoming(make_copy("carol", "bob", 1, nonce=10, body=b"small").blob)

    run(story())


# One sender to one recipient


def test_so_many_a_minute_from_one_sender_to_one_recipient_by_any_way_in(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await people(rooms)
            limit(rooms, messages_per_minute_per_sender=2)
            await rooms.accept(make_pair("alice", "bob", nonce=1))
            await rooms.intake.receive_incoming(make_copy("alice", "bob", 1, nonce=2).blob)
            late = make_pair("alice", "bob", nonce=3)
            assert (await refused(rooms, RateLimited, late)).payload["retryAfterMs"] == 30_001
            with pytest.raises(RateLimited):
                await rooms.intake.receive_incoming(late.incoming.blob)
            await rooms.accept(make_pair("alice", "bob", nonce=1))  # a repetition
            await rooms.accept(make_pair("mallory", "bob", nonce=4))
            await rooms.accept(make_pair("alice", "mallory", nonce=5))
            await rooms.accept(receipt_of(make_pair("bob", "alice").incoming.message))
            stones = [tombstone_of(make_pair("alice", "bob", nonce=90 + n).incoming.message, nonce=n) for n in range(8)]
            for stone in stones[:3]:
                await rooms.accept(stone)
            for number in range(4):
                await rooms.intake.receive_incoming(stones[3 + number].incoming.blob)
            with pytest.raises(RateLimited, match="receipts and tombstones"):
                await rooms.intake.receive_incoming(stones[7].incoming.blob)
            await refused(rooms, RateLimited, stones[7])
            removed = make_pair("alice", "bob", nonce=1)
            await rooms.accept(tombstone_of(removed.incoming.message, nonce=99))  # takes away what is here
            for nonce in range(10, 15):
                await rooms.accept(make_pair("alice", "carol", nonce=nonce))  # that is for carol's servers to say
                await rooms.accept(make_pair("bob", "bob", nonce=nonce))
            await rooms.clock.advance(30.1)
            await rooms.accept(late)

    run(story())


def test_what_comes_from_the_senders_other_server_too_fast_is_tried_again_by_the_schedule(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await people(rooms)
            limit(rooms, messages_per_minute_per_sender=1)
            await rooms.accept(make_pair("alice", "bob", nonce=1))
            pair = make_pair("alice", "bob", nonce=2)
            accepted = await rooms.intake.receive_pair(pair.incoming.blob, pair.outgoing.blob, from_server="a2")
            assert accepted.stored.state is ACCEPTED
            again = await rooms.accept(pair)
            assert again.stored.state is ACCEPTED, "a repetition is a success, also while it is too fast"
            rooms.deliverer.receive(accepted)
            await rooms.clock.advance(100)
            for _ in range(2):
                await rooms.worker.look()
                await rooms.clock.advance(1)
            await rooms.until_delivered(pair)
            assert rooms.recipients_row(pair) is not None

    run(story())


def test_synchronisation_is_not_counted(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await people(rooms)
            limit(rooms, messages_per_minute_per_sender=1)
            for nonce in range(5):
                pair = make_pair("alice", "bob", nonce=nonce)
                await rooms.sync(pair.incoming.blob, pair.outgoing.blob, owner="alice", from_server="a2")
                assert rooms.recipients_row(pair) is not None

    run(story())


# Block lists


def test_a_sender_who_is_blocked_is_refused_at_every_way_in_and_what_is_stored_stays(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await people(rooms)
            await rooms.know("alice", OWN, time_ms=NOW - 500)
            before = make_pair("mallory", "alice", nonce=1)
            await rooms.accept(before)
            mine = make_pair("alice", "mallory", nonce=5)
            await rooms.accept(mine)
            await block(rooms, "alice", "MALLORY", "eve")
            assert rooms.recipients_row(before) is not None
            pair = make_pair("mallory", "alice", nonce=2)
            with pytest.raises(Forbidden) as caught:
                await rooms.intake.receive_incoming(pair.incoming.blob)
            assert caught.value.status == 403
            with pytest.raises(Forbidden):
                await rooms.intake.receive_incoming(receipt_of(mine.incoming.message).incoming.blob)
            with pytest.raises(Forbidden):
                await rooms.intake.receive_incoming(tombstone_of(before.incoming.message).incoming.blob)
            accepted = await rooms.accept(pair)
            assert accepted.stored.state is ACCEPTED
            assert await rooms.deliverer.send(accepted) is ACCEPTED
            assert rooms.recipients_row(pair) is None
            await rooms.accept(make_pair("mallory", "bob", nonce=3))
            await rooms.accept(make_pair("bob", "alice", nonce=4))
            copy = make_copy("mallory", "alice", 1, nonce=7)
            await rooms.sync(copy.blob, owner="alice", from_server="a2")  # accepted there before
            for _ in range(6):
                await rooms.clock.advance(1000)
                await rooms.worker.look()
                await rooms.rest()
            row = rooms.row(pair)
            assert row is not None
            assert row.state is FAILED
            assert rooms.recipients_row(pair) is None

    run(story())


def test_a_blocked_sender_reaches_the_recipient_again_when_unblocked(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await people(rooms)
            await block(rooms, "bob", "mallory")
            pair = make_pair("mallory", "bob")
            assert await rooms.deliverer.send(await rooms.accept(pair)) is ACCEPTED
            await rooms.clock.advance(31)
            await block(rooms, "bob")
            await rooms.worker.look()
            await rooms.until_delivered(pair)
            assert rooms.recipients_row(pair) is not None

    run(story())


def test_where_one_server_of_the_recipient_refuses_the_other_one_is_called(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await people(rooms)
            await rooms.know("bob", OWN, "r2", time_ms=NOW - 500)
            rooms.peers.on("r2", RECEIVE_INCOMING, refuses(403, "FORBIDDEN"))
            await block(rooms, "bob", "mallory")
            pair = make_pair("mallory", "bob")
            assert await rooms.deliverer.send(await rooms.accept(pair)) is ACCEPTED
            await rooms.clock.advance(31)
            await rooms.worker.look()
            await rooms.rest()
            assert rooms.peers.count("r2", RECEIVE_INCOMING) == 2

    run(story())


# The disk


def test_a_disk_without_room_refuses_what_is_new_and_nothing_else(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await people(rooms)
            stored = make_pair("alice", "bob", nonce=1)
            await rooms.accept(stored)
            waiting = make_pair("alice", "carol", nonce=2)
            rooms.peers.on("r1", RECEIVE_INCOMING, refuses(503, "SERVER_BUSY"))
            assert await rooms.deliverer.send(await rooms.accept(waiting)) is ACCEPTED
            rooms.store.no_room = "the server's disk has too little room for new messages"
            pair = make_pair("alice", "carol", nonce=3)
            await refused(rooms, StorageFull, pair)
            with pytest.raises(StorageFull):
                await rooms.intake.receive_pair(pair.incoming.blob, pair.outgoing.blob, from_server="a2")
            with pytest.raises(StorageFull):
                await rooms.intake.receive_incoming(make_copy("carol", "bob", 1).blob)
            with pytest.raises(StorageFull):
                await rooms.sync(pair.incoming.blob, pair.outgoing.blob, owner="alice", from_server="a2")
            with pytest.raises(StorageFull):
                await rooms.know("dave", OWN)
            with pytest.raises(StorageFull):
                await block(rooms, "bob", "mallory")
            assert (await rooms.accept(stored)).stored.state is DELIVERED
            rooms.peers.on("r1", RECEIVE_INCOMING, refuses(503, "SERVER_BUSY"))
            for _ in range(6):
                await rooms.clock.advance(1000)
                await rooms.worker.look()
                await rooms.rest()
            row = rooms.row(waiting)
            assert row is not None
            assert row.state is FAILED, "the states of deliveries are written"
            rooms.store.no_room = ""
            await rooms.accept(pair)

    run(story())
