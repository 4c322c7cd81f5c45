"""The way in: the checks of §5.2 in their order, and one transaction for what passes (PROTOCOL.md §4, §5.2, §5.4)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from shine_node.client.identity import Identity, KeyPair
from shine_node.delivery.intake import _Checked
from shine_node.protocol.container import encode_unsigned, parse_container
from shine_node.protocol.errors import (
    BadContainer,
    BadFields,
    BadSignature,
    KeyConflict,
    NotAccessServer,
    PairMismatch,
    Refusal,
    ServerBusy,
    StaleRevision,
    TooLarge,
    UserNotFound,
)
from shine_node.protocol.pair import Pair, check_pair
from shine_node.protocol.revisions import Arrival
from shine_node.protocol.schedule import DeliveryState
from shine_node.store.environment import Job, Transaction
from shine_node.store.layout import Direction, Flag, OpenDelivery, Table
from tests.delivery.rooms import Rooms, alice_and_bob, broken, counts, run, until
from tests.store.rooms import MAX_BODY, NOW, OWN, identity, make_copy, make_pair, servers, tombstone_of
from tests.support.clock import ManualClock, settle
from tests.support.vectors import cases, load_vectors

DAY = 86_400_000
MINUTE = 60_000
LEASE = 60_000


async def is_refused(rooms: Rooms, error: type[Refusal], incoming: bytes, outgoing: bytes) -> str:
    """Both ways in refuse it, and nothing is stored."""
    before = counts(rooms)
    with pytest.raises(error) as by_client:
        await rooms.intake.send_pair(incoming, outgoing)
    with pytest.raises(error):
        await rooms.intake.receive_pair(incoming, outgoing, from_server=None)
    assert counts(rooms) == before
    return by_client.value.detail


# What is stored


def test_a_pair_its_delivery_its_first_lease_and_its_outbox_entry_are_one_transaction(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms)
            pair = make_pair("alice", "bob", body=b"for bob", own_body=b"for alice")
            accepted = await rooms.accept(pair)
            assert accepted.pair == pair
            assert accepted.stored.changed
            assert accepted.stored.remote
            row = rooms.row(pair)
            assert row is not None
            assert row == accepted.stored.row
            assert row.state is DeliveryState.ACCEPTED
            assert row.delivery == OpenDelivery(NOW, 0, NOW, NOW + LEASE), "nobody else makes the first attempt"
            assert row.flags == Flag.UNSYNCED | Flag.SENT_HERE
            assert rooms.count(Table.OUTBOX_UNSYNCED) == 1
            assert rooms.blobs(pair) == (pair.incoming.blob, pair.outgoing.blob)
            assert rooms.recipients_row(pair) is None

    run(story())


def test_a_recipient_without_a_server_no_route_is_an_attempt_that_has_failed(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms, bob=())
            row = (await rooms.accept(make_pair("alice", "bob"))).stored.row
            assert (row.state, row.delivery) == (DeliveryState.ACCEPTED, OpenDelivery(NOW, 1, NOW + 30_000, 0))

    run(story())


def test_without_a_route_a_schedule_of_one_attempt_is_left_to_that_attempt(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path, schedule=(0,)) as rooms:
            await alice_and_bob(rooms, bob=())
            row = (await rooms.accept(make_pair("alice", "bob"))).stored.row
            assert (row.state, row.delivery) == (DeliveryState.ACCEPTED, OpenDelivery(NOW, 0, NOW, NOW + LEASE))

    run(story())


def test_a_recipient_of_this_server_has_it_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms, bob=("r1", OWN))
            pair = make_pair("alice", "bob")
            accepted = await rooms.accept(pair)
            assert accepted.stored.state is DeliveryState.DELIVERED
            assert rooms.count(Table.DUE_ATTEMPTS) == 0
            assert rooms.blobs(pair, Direction.IN) == (pair.incoming.blob, b"")

    run(story())


def test_writing_to_oneself(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await rooms.know("alice", OWN)
            pair = make_pair("alice", "alice")
            assert (await rooms.accept(pair)).stored.state is DeliveryState.DELIVERED
            assert rooms.blobs(pair) == (pair.incoming.blob, pair.outgoing.blob)
            assert rooms.blobs(pair, Direction.IN) == (pair.incoming.blob, b"")

    run(story())


def test_a_pair_from_the_other_server_is_synced_and_from_anybody_else_is_not(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms)
            for nonce, (from_server, unsynced) in enumerate([("A2", False), ("r1", True), (None, True), (OWN, True)]):
                pair = make_pair("alice", "bob", nonce=nonce)
                accepted = await rooms.intake.receive_pair(
                    pair.incoming.blob, pair.outgoing.blob, from_server=from_server
                )
                assert accepted.stored.state is DeliveryState.ACCEPTED, "a delivery of its own"
                assert accepted.stored.row.delivery == OpenDelivery(NOW, 0, NOW, NOW + LEASE), "from now"
                assert bool(accepted.stored.row.flags & Flag.UNSYNCED) is unsynced, from_server
            await rooms.know("carol", OWN)
            pair = make_pair("carol", "bob")
            accepted = await rooms.intake.receive_pair(pair.incoming.blob, pair.outgoing.blob, from_server="a2")
            assert accepted.stored.row.flags is Flag.SENT_HERE, "there is no other server to learn it"

    run(story())


def test_the_recipient_of_a_pair_from_a_server_may_be_unknown_here(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await rooms.know("alice", OWN, "a2")
            pair = make_pair("alice", "bob")
            accepted = await rooms.intake.receive_pair(pair.incoming.blob, pair.outgoing.blob, from_server="a2")
            assert accepted.stored.state is DeliveryState.ACCEPTED
            with pytest.raises(UserNotFound):
                await rooms.accept(make_pair("alice", "bob", nonce=2))

    run(story())


def test_a_copy_for_a_recipient_of_this_server(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms, alice=("a1",), bob=(OWN, "r2"))
            copy = make_copy("alice", "bob", 1)
            container, first = await rooms.intake.receive_incoming(copy.blob)
            assert container == copy
            assert first.arrival is Arrival.FIRST
            assert first.row.flags is Flag.UNSYNCED, "the recipient's other server has to learn it"
            _, again = await rooms.intake.receive_incoming(copy.blob)
            assert again.arrival is Arrival.SAME
            edit = make_copy("alice", "bob", 1, revision_ms=NOW + 1, body=b"new")
            assert (await rooms.intake.receive_incoming(edit.blob))[1].arrival is Arrival.NEWER
            assert (await rooms.intake.receive_incoming(copy.blob))[1].arrival is Arrival.OLDER, "a success too"
            pair = make_pair("alice", "bob")
            assert rooms.blobs(pair, Direction.IN) == (edit.blob, b"")
            assert rooms.row(pair) is None

    run(story())


# The order of the checks of a pair


def test_format_comes_before_the_clock_and_the_clock_before_the_pair(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path, max_body_bytes=100) as rooms:
            late = make_pair("alice", "bob", time_ms=NOW + 2 * DAY)
            other = make_pair("alice", "bob", nonce=2)
            long = make_copy("alice", "bob", 2, body=bytes(101))
            assert "magic" in await is_refused(rooms, BadContainer, b"", late.outgoing.blob)
            await is_refused(rooms, BadContainer, late.incoming.blob, late.outgoing.blob + b"x")
            await is_refused(rooms, TooLarge, late.incoming.blob, long.blob)
            assert "timeMs" in await is_refused(rooms, BadFields, late.incoming.blob, other.outgoing.blob)
            assert "timeMs" in await is_refused(rooms, BadFields, other.incoming.blob, late.outgoing.blob)
            edited = make_copy("alice", "bob", 2, revision_ms=NOW + 2 * DAY)
            assert "revisionMs" in await is_refused(rooms, BadFields, other.incoming.blob, edited.blob)

    run(story())


def test_the_pair_comes_before_the_users_the_users_before_the_server_the_server_before_the_signatures(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            one, two = make_pair("alice", "bob"), make_pair("alice", "bob", nonce=2)
            await is_refused(rooms, PairMismatch, one.incoming.blob, two.outgoing.blob)
            await is_refused(rooms, PairMismatch, one.outgoing.blob, one.incoming.blob)
            forged = broken(one.incoming), broken(one.outgoing)
            assert "sender" in await is_refused(rooms, UserNotFound, *forged)
            await rooms.know("alice", "a1", "a2")
            with pytest.raises(UserNotFound, match="recipient"):
                await rooms.intake.send_pair(*forged)
            await rooms.know("bob", OWN)
            assert "alice" in await is_refused(rooms, NotAccessServer, *forged)
            await rooms.know("alice", OWN, time_ms=NOW - 1)
            assert "incoming" in await is_refused(rooms, BadSignature, *forged)
            assert "outgoing" in await is_refused(rooms, BadSignature, one.incoming.blob, forged[1])
            assert "incoming" in await is_refused(rooms, BadSignature, forged[0], one.outgoing.blob)
            assert (await rooms.accept(one)).stored.changed

    run(story())


def test_whom_a_client_names_is_looked_up_at_peers_and_whom_a_server_names_is_not(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            pair = make_pair("alice", "bob")
            await is_refused(rooms, UserNotFound, pair.incoming.blob, pair.outgoing.blob)
            with pytest.raises(UserNotFound):
                await rooms.intake.receive_incoming(pair.incoming.blob)
            assert rooms.lookup.looked_for == ["alice"], "by the client, and the first unknown one ends it"

            rooms.lookup.found.append(identity("Alice").access_record(servers(OWN), time_ms=NOW - 1))
            with pytest.raises(UserNotFound):
                await rooms.accept(pair)
            assert rooms.lookup.looked_for == ["alice", "alice", "bob"]

            rooms.lookup.found.append(identity("bob").access_record(servers("r1"), time_ms=NOW - 1))
            assert (await rooms.accept(pair)).stored.changed
            assert (await rooms.accept(make_pair("alice", "bob", nonce=2))).stored.changed
            assert rooms.lookup.looked_for == ["alice", "alice", "bob", "bob"], "known from then on"

    run(story())


def test_another_users_signature_is_none(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms)
            pair = make_pair("alice", "bob")
            signed_by_bob = [
                copy.signed_part + identity("bob").device.sign(copy.signed_part)
                for copy in (pair.incoming, pair.outgoing)
            ]
            await is_refused(rooms, BadSignature, *signed_by_bob)

    run(story())


@pytest.mark.parametrize(("way", "ahead_ms"), [("client", 15 * MINUTE), ("server", DAY), ("incoming", DAY)])
def test_how_far_ahead_a_time_may_be(tmp_path: Path, way: str, ahead_ms: int) -> None:
    """Between servers the limit is 24 hours, so that a wrong clock of one does not stop delivery at another (§4)."""

    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms, bob=(OWN,))

            async def submit(pair: Pair) -> object:
                incoming, outgoing = pair.incoming.blob, pair.outgoing.blob
                if way == "client":
                    return await rooms.intake.send_pair(incoming, outgoing)
                if way == "server":
                    return await rooms.intake.receive_pair(incoming, outgoing, from_server="a2")
                return await rooms.intake.receive_incoming(incoming)

            assert await submit(make_pair("alice", "bob", time_ms=NOW + ahead_ms))
            assert await submit(make_pair("alice", "bob", revision_ms=NOW + ahead_ms))
            assert await submit(make_pair("alice", "bob", time_ms=0, nonce=0, body=b""))
            before = counts(rooms)
            for late in (
                make_pair("alice", "bob", time_ms=NOW + ahead_ms + 1),
                make_pair("alice", "bob", revision_ms=NOW + ahead_ms + 1),
            ):
                with pytest.raises(BadFields):
                    await submit(late)
            assert counts(rooms) == before

    run(story())


def test_what_a_copy_for_the_recipient_is_refused_for_in_order(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            copy = make_copy("alice", "bob", 1)
            forged = broken(copy)
            late = make_copy("alice", "bob", 1, time_ms=NOW + 2 * DAY)

            async def refused(error: type[Refusal], blob: bytes, text: str) -> None:
                before = counts(rooms)
                with pytest.raises(error, match=text):
                    await rooms.intake.receive_incoming(blob)
                assert counts(rooms) == before

            await refused(BadContainer, b"SHiNE_DM", "version")
            await refused(BadContainer, make_copy("alice", "bob", 2).blob, "sender's copy")
            await refused(BadFields, late.blob, "timeMs")
            await refused(UserNotFound, forged, "sender")
            await rooms.know("alice", OWN)
            await refused(UserNotFound, forged, "recipient")
            await rooms.know("bob", "r1")
            await refused(NotAccessServer, forged, "bob")
            await rooms.know("bob", OWN, time_ms=NOW)
            await refused(BadSignature, forged, "incoming")
            assert (await rooms.intake.receive_incoming(copy.blob))[1].changed

    run(story())


@pytest.mark.parametrize("case", cases("pairs"))
def test_a_pair_of_the_vectors(tmp_path: Path, case: dict[str, Any]) -> None:
    document = load_vectors("pairs")

    async def story() -> None:
        clock = ManualClock(case.get("nowMs", document["nowMs"]))
        async with Rooms(
            tmp_path, clock=clock, max_body_bytes=document["maxBodyBytes"], own_login=case["server"]
        ) as rooms:
            for login, logins in document["accessServers"].items():
                seeds = document["keys"][login]
                who = Identity.from_seeds(
                    login,
                    root=bytes.fromhex(seeds["rootSeedHex"]),
                    blockchain=bytes.fromhex(seeds["blockchainSeedHex"]),
                    device=bytes.fromhex(seeds["deviceSeedHex"]),
                )
                await rooms.users.add(who.access_record(servers(*logins), time_ms=0))
            blobs = bytes.fromhex(case["incomingHex"]), bytes.fromhex(case["outgoingHex"])
            if case["error"] is None:
                incoming, outgoing = (await rooms.intake.send_pair(*blobs)).pair
                assert incoming.message.base_key == case["baseKey"]
                assert (str(incoming.key), str(outgoing.key)) == (case["incomingKey"], case["outgoingKey"])
                return
            before = counts(rooms)
            with pytest.raises(Refusal) as found:
                await rooms.intake.send_pair(*blobs)
            assert (found.value.status, found.value.code) == (case["status"], case["error"]), case["reason"]
            assert counts(rooms) == before

    run(story())


@pytest.mark.parametrize("case", cases("revisions", kind="sendMessagePair"))
def test_revisions_of_the_vectors(tmp_path: Path, case: dict[str, Any]) -> None:
    document = load_vectors("revisions")

    async def story() -> None:
        async with Rooms(tmp_path, clock=ManualClock(case.get("nowMs", document["nowMs"]))) as rooms:
            for login, seeds in document["keys"].items():
                who = Identity.from_seeds(
                    login,
                    root=bytes.fromhex(seeds["rootSeedHex"]),
                    blockchain=bytes.fromhex(seeds["blockchainSeedHex"]),
                    device=bytes.fromhex(seeds["deviceSeedHex"]),
                )
                await rooms.users.add(who.access_record(servers(OWN), time_ms=0))
            pairs = {
                name: (bytes.fromhex(blobs["incomingHex"]), bytes.fromhex(blobs["outgoingHex"]))
                for name, blobs in case["pairs"].items()
            }
            for step in case["steps"]:
                try:
                    await rooms.intake.send_pair(*pairs[step["pair"]])
                    answer = 200, None
                except Refusal as refusal:
                    answer = refusal.status, refusal.code
                assert answer == (step["status"], step["error"]), step
            blobs = pairs[case["storedAfter"]]
            copies = [parse_container(blob, max_body_bytes=MAX_BODY) for blob in blobs]
            assert rooms.blobs(check_pair(*copies)) == blobs

    run(story())


# Again, other bytes, revisions


def test_the_same_bytes_again_change_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms)
            pair = make_pair("alice", "bob")
            first = await rooms.accept(pair)
            before = counts(rooms), rooms.row(pair)
            await rooms.clock.advance(5)
            again = await rooms.accept(pair)
            assert again.stored.arrival is Arrival.SAME
            assert not again.stored.changed
            assert again.stored.row == first.stored.row
            by_server = await rooms.intake.receive_pair(pair.incoming.blob, pair.outgoing.blob, from_server=None)
            assert not by_server.stored.changed
            assert (counts(rooms), rooms.row(pair)) == before

    run(story())


def test_other_bytes_and_older_revisions_are_refused_to_clients_and_settled_between_servers(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms)
            original = make_pair("alice", "bob")
            one, two = (make_pair("alice", "bob", revision_ms=NOW + 9, body=body) for body in (b"one", b"two"))
            loser, winner = sorted((one, two), key=lambda pair: pair.incoming.signature)
            await rooms.accept(original)
            await rooms.accept(loser)
            for pair, error in ((original, StaleRevision), (winner, KeyConflict)):
                with pytest.raises(error):
                    await rooms.accept(pair)
                assert rooms.blobs(original) == (loser.incoming.blob, loser.outgoing.blob)
            for pair, arrival in (
                (original, Arrival.OLDER),
                (winner, Arrival.CONFLICT_WINS),
                (loser, Arrival.CONFLICT_LOSES),
            ):
                accepted = await rooms.intake.receive_pair(pair.incoming.blob, pair.outgoing.blob, from_server="a2")
                assert accepted.stored.arrival is arrival
            assert rooms.blobs(original) == (winner.incoming.blob, winner.outgoing.blob)

    run(story())


def test_an_edit_begins_a_delivery_of_its_own(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms)
            original, edit = make_pair("alice", "bob"), make_pair("alice", "bob", revision_ms=NOW + 9, body=b"new")
            accepted = await rooms.accept(original)
            assert await rooms.deliverer.send(accepted) is DeliveryState.DELIVERED
            await rooms.clock.advance(7)
            edited = (await rooms.accept(edit)).stored
            assert edited.state is DeliveryState.ACCEPTED
            assert edited.row.delivery == OpenDelivery(NOW + 7000, 0, NOW + 7000, NOW + 7000 + LEASE)
            assert edited.row.version > accepted.stored.row.version

    run(story())


def test_a_removed_message_takes_no_edit_and_is_acknowledged_when_it_comes_late(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms)
            pair, late = make_pair("alice", "bob"), make_pair("alice", "bob", nonce=2)
            await rooms.accept(pair)
            for removed in (pair, late):
                await rooms.accept(tombstone_of(removed.incoming.message, nonce=removed.incoming.nonce + 50))
            due = rooms.count(Table.DUE_ATTEMPTS)
            for submitted in (
                pair,
                late,
                make_pair("alice", "bob", revision_ms=NOW + 9),
                make_pair("alice", "bob", nonce=2, revision_ms=NOW + 9),
            ):
                accepted = await rooms.accept(submitted)
                assert not accepted.stored.changed
                assert accepted.stored.state is DeliveryState.DELIVERED
                assert rooms.blobs(submitted) == (b"", b"")
            assert rooms.count(Table.DUE_ATTEMPTS) == due
            with pytest.raises(KeyConflict):
                await rooms.accept(make_pair("alice", "bob", body=b"other bytes"))

    run(story())


# Keys


def signed(author: Identity, *, time_ms: int, nonce: int = 1, revision_ms: int = 0) -> tuple[bytes, bytes]:
    """A pair to bob as an author of a certain time signs it."""
    blobs = []
    for message_type in (1, 2):
        unsigned = encode_unsigned(
            to_login="bob",
            from_login=author.login,
            time_ms=time_ms,
            nonce=nonce,
            message_type=message_type,
            body=b"hello",
            body_format=1,
            revision_ms=revision_ms,
        )
        blobs.append(unsigned + author.device.sign(unsigned))
    return blobs[0], blobs[1]


def test_the_key_of_its_time_must_be_the_newest_one_for_a_client_and_not_for_a_server(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms, bob=(OWN,))
            old = identity("alice")
            new = old.with_device(KeyPair.from_seed(bytes(31) + b"\1"))
            before = signed(old, time_ms=NOW - 10)
            known = await rooms.intake.send_pair(*before)
            await rooms.users.add(new.access_record(servers(OWN, "a2"), time_ms=NOW))

            again = await rooms.intake.send_pair(*before)
            assert again.stored.arrival is Arrival.SAME, "what is stored is answered before keys are checked"
            assert again.stored.row == known.stored.row

            history = signed(old, time_ms=NOW - 10, nonce=2)
            with pytest.raises(BadSignature, match="replaced"):
                await rooms.intake.send_pair(*history)
            by_server = await rooms.intake.receive_pair(*history, from_server="a2")
            assert by_server.stored.changed, "history stays signed by the keys of its time"
            assert (await rooms.intake.receive_incoming(signed(old, time_ms=NOW - 9)[0]))[1].changed

            for blobs in (signed(old, time_ms=NOW), signed(old, time_ms=NOW - 20, revision_ms=NOW)):
                with pytest.raises(BadSignature):
                    await rooms.intake.send_pair(*blobs)
                with pytest.raises(BadSignature):
                    await rooms.intake.receive_pair(*blobs, from_server="a2")
                with pytest.raises(BadSignature):
                    await rooms.intake.receive_incoming(blobs[0])
            assert (await rooms.intake.send_pair(*signed(new, time_ms=NOW, nonce=3))).stored.changed
            with pytest.raises(BadSignature):
                await rooms.intake.receive_pair(*signed(new, time_ms=NOW - 10, nonce=4), from_server="a2")

    run(story())


def test_identical_bytes_of_a_recipient_are_a_success_whatever_the_keys_are_now(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms, bob=(OWN,))
            copy = make_copy("alice", "bob", 1)
            await rooms.intake.receive_incoming(copy.blob)
            rekeyed = identity("alice").with_device(KeyPair.from_seed(bytes(31) + b"\2"))
            await rooms.users.add(rekeyed.access_record(servers(OWN), time_ms=NOW - 5))
            assert (await rooms.intake.receive_incoming(copy.blob))[1].arrival is Arrival.SAME
            with pytest.raises(BadSignature):
                await rooms.intake.receive_incoming(make_copy("alice", "bob", 1, nonce=2).blob)

    run(story())


# Together


def test_one_that_is_refused_does_no_harm_to_the_others_of_the_moment(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms)
            good = [make_pair("alice", "bob", nonce=nonce) for nonce in range(200)]
            submissions = []
            for pair in good:
                incoming = pair.incoming.blob if pair.incoming.nonce % 3 else broken(pair.incoming)
                submissions.append(rooms.intake.send_pair(incoming, pair.outgoing.blob))
            results = await asyncio.gather(*submissions, return_exceptions=True)
            for pair, result in zip(good, results, strict=True):
                if pair.incoming.nonce % 3:
                    assert not isinstance(result, BaseException)
                    assert rooms.blobs(pair) == (pair.incoming.blob, pair.outgoing.blob)
                else:
                    assert isinstance(result, BadSignature)
                    assert rooms.row(pair) is None
            assert rooms.count(Table.HISTORY) == sum(1 for pair in good if pair.incoming.nonce % 3)

    run(story())


def test_what_comes_together_shares_a_commit_however_many_threads_check_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path, crypto_threads=3) as rooms:
            await alice_and_bob(rooms)
            pairs = [make_pair("alice", "bob", nonce=nonce) for nonce in range(16)]
            before = rooms.store.position
            forged = make_pair("alice", "bob", nonce=99)
            results = await asyncio.gather(
                rooms.intake.send_pair(broken(forged.incoming), forged.outgoing.blob),
                *(rooms.accept(pair) for pair in pairs),
                return_exceptions=True,
            )
            assert isinstance(results[0], BadSignature)
            assert all(rooms.row(pair) is not None for pair in pairs)
            assert rooms.store.position == before + 1

    run(story())


def test_where_not_all_fit_into_the_queue_those_that_do_pass_and_the_rest_is_refused_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path, max_queue=2, start_crypto=False) as rooms:
            rooms.crypto.start()
            await alice_and_bob(rooms)
            rooms.crypto.close()
        async with Rooms(tmp_path, max_queue=2, start_crypto=False) as rooms:  # its threads do not run yet
            pairs = [make_pair("alice", "bob", nonce=nonce) for nonce in range(5)]
            submissions = [asyncio.ensure_future(rooms.accept(pair)) for pair in pairs]
            await settle()
            pending = submissions[:2]
            assert [submission.done() for submission in submissions] == [False, False, True, True, True]
            for submission in submissions[2:]:
                refusal = submission.exception()
                assert isinstance(refusal, ServerBusy)
                assert refusal.retryable
                assert refusal.payload["retryAfterMs"]
            rooms.crypto.start()
            assert all(accepted.stored.changed for accepted in await asyncio.gather(*pending))
            assert [rooms.row(pair) is not None for pair in pairs] == [True, True, False, False, False]

    run(story())


def test_a_store_that_has_too_much_to_write_refuses_what_was_checked(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms)
            rooms.store.busy = True
            good, forged = make_pair("alice", "bob"), make_pair("alice", "bob", nonce=2)
            results = await asyncio.gather(
                rooms.accept(good),
                rooms.intake.send_pair(broken(forged.incoming), forged.outgoing.blob),
                return_exceptions=True,
            )
            assert [type(result) for result in results] == [ServerBusy, BadSignature]
            rooms.store.busy = False
            assert (await rooms.accept(good)).stored.changed

    run(story())


def test_a_caller_that_goes_away_is_missed_by_nobody_and_what_it_sent_may_be_stored(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms)
            good, forged = make_pair("alice", "bob"), make_pair("alice", "bob", nonce=2)
            gone = [
                asyncio.ensure_future(rooms.accept(good)),
                asyncio.ensure_future(rooms.intake.send_pair(broken(forged.incoming), forged.outgoing.blob)),
            ]
            await asyncio.sleep(0)
            for task in gone:
                task.cancel()
            await asyncio.wait(gone)
            await until(lambda: rooms.row(good) is not None)
            assert rooms.row(forged) is None
            assert not (await rooms.accept(good)).stored.changed
            await rooms.crypto.verify([])  # and what was refused has been told to nobody

    run(story())


def test_a_loop_that_has_ended_is_told_nothing(tmp_path: Path) -> None:
    other_loop = asyncio.new_event_loop()
    future: asyncio.Future[object] = other_loop.create_future()
    other_loop.close()

    def never(txn: Transaction) -> object:
        raise AssertionError("what is not signed is not stored")

    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            submission = _Checked([], Job(never, future))
            submission.failed = 0
            rooms.intake.checked([submission])
            assert not future.done()

    run(story())


def test_a_stranger_with_many_wrong_signatures_takes_nothing_from_the_others(tmp_path: Path) -> None:
    """About 130 of them once took all readers' places of the store, and then the node."""

    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await rooms.know("alice", OWN)
            await rooms.know("bob", OWN)
            for nonce in range(300):
                pair = make_pair("alice", "bob", nonce=nonce)
                forged = bytes(pair.incoming.blob[:-1]) + bytes((pair.incoming.blob[-1] ^ 1,))
                with pytest.raises(BadSignature):
                    await rooms.intake.send_pair(forged, pair.outgoing.blob)
            good = make_pair("alice", "bob", nonce=300)
            assert (await rooms.intake.send_pair(good.incoming.blob, good.outgoing.blob)).stored.changed

    run(story())
