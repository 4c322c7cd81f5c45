"""What happens within the request: both routes at once, one success is enough (PROTOCOL.md §5.1, §5.2)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shine_node.client.connection import RequestRefused
from shine_node.protocol.encoding import encode_base64
from tests.scenarios.world import HOUR, World, submit, tell

INCOMING, OUTCOMING = "ReceiveIncomingMessage", "ReceiveOutcomingMessage"


def test_alice_writes_to_bob_and_all_four_servers_have_it(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, a2, b1, b2 = await world.homes("a1", "a2", "b1", "b2")
        alice = await world.person("Alice", a1, a2, known_at=(b1, b2))
        await world.person("Bob", b1, b2, known_at=(a1, a2))
        pair = alice.writes("Bob", "Will you be there at seven?")
        assert await world.send(a1, pair) == "delivered"
        await world.rest()
        assert b1.has(pair)
        assert b2.has(pair)
        for home in (a1, a2):
            assert home.blobs(pair.outgoing_key) == (pair.incoming, pair.outgoing)
            assert home.state(pair) == "delivered"
            assert await home.status(pair) == (True, True)
        assert await b1.status(pair) == (False, False), "a recipient's copy has no delivery"

    tell(tmp_path, story)


def test_one_server_of_bob_is_off_and_the_other_one_is_enough(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, b1, b2 = await world.homes("a1", "b1", "b2")
        alice = await world.person("alice", a1, known_at=(b1, b2))
        await world.person("bob", b1, b2, known_at=(a1,))
        await b1.stop()
        pair = alice.writes("bob", "one")
        assert await world.send(a1, pair) == "delivered"
        assert b2.has(pair)
        await b1.start()
        await world.passes(HOUR + 60)
        assert a1.state(pair) == "delivered", "the second server is the recipient's own business"

    tell(tmp_path, story)


def test_both_servers_of_bob_are_off_and_alice_is_told_so_without_waiting(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, a2, b1, b2 = await world.homes("a1", "a2", "b1", "b2")
        alice = await world.person("alice", a1, a2, known_at=(b1, b2))
        await world.person("bob", b1, b2, known_at=(a1, a2))
        await b1.stop()
        await b2.stop()
        began = world.clock.now_ms()
        pair = alice.writes("bob", "nobody is there")
        assert await world.send(a1, pair) == "accepted"
        assert world.clock.now_ms() == began, "known as soon as the last failure is in"
        await world.rest()
        assert await a1.status(pair) == (True, False)
        assert await a2.status(pair) == (True, False), "handed over all the same, with a delivery of its own"

    tell(tmp_path, story)


def test_both_routes_are_called_in_parallel_and_the_slow_one_goes_on_by_itself(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1 = await world.home("a1")
        r1, r2 = await world.scripted("r1"), await world.scripted("r2")
        alice = await world.person("alice", a1)
        await world.person("bob", r1, r2, known_at=(a1,))
        first, second = r1.keeps(INCOMING), r2.keeps(INCOMING)
        pair = alice.writes("bob", "both at once")
        sending = asyncio.create_task(world.send(a1, pair))
        await r1.until_called(INCOMING)
        await r2.until_called(INCOMING)
        assert not sending.done()
        row = a1.row(pair.outgoing_key)
        assert row is not None
        assert row.delivery is not None
        assert row.delivery.lease_until_ms == world.clock.now_ms() + 60_000, "on disk before anything is sent"
        second.set()
        assert await sending == "delivered"
        assert not a1.at_rest
        first.set()
        await world.rest()
        expected = {"incomingBlobB64": encode_base64(pair.incoming), "sourceServerLogin": "a1"}
        assert [call[2] for call in r1.calls + r2.calls] == [expected, expected]

    tell(tmp_path, story)


def test_the_pair_is_handed_over_after_the_attempt_and_nobody_waits_for_that(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1 = await world.home("a1")
        a2, r1 = await world.scripted("a2"), await world.scripted("r1")
        alice = await world.person("alice", a1, a2)
        await world.person("bob", r1, known_at=(a1,))
        recipient, other = r1.keeps(INCOMING), a2.keeps(OUTCOMING)
        pair = alice.writes("bob", "then to my other server")
        sending = asyncio.create_task(world.send(a1, pair))
        await r1.until_called(INCOMING)
        assert a2.calls == []
        recipient.set()
        assert await sending == "delivered"
        await a2.until_called(OUTCOMING)
        other.set()
        await world.rest()
        [(_, _, payload)] = a2.calls
        assert payload == {
            "incomingBlobB64": encode_base64(pair.incoming),
            "outgoingBlobB64": encode_base64(pair.outgoing),
            "sourceServerLogin": "a1",
        }

    tell(tmp_path, story)


def test_alices_other_server_is_off_and_that_changes_nothing(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, a2, b1 = await world.homes("a1", "a2", "b1")
        alice = await world.person("alice", a1, a2, known_at=(b1,))
        await world.person("bob", b1, known_at=(a1,))
        await a2.stop()
        pair = alice.writes("bob", "without a2")
        assert await world.send(a1, pair) == "delivered"
        await world.rest()
        assert a1.state(pair) == "delivered"

    tell(tmp_path, story)


@pytest.mark.parametrize("ends_well", [True, False])
def test_a_slow_recipient_the_answer_comes_in_time_and_the_state_follows(tmp_path: Path, ends_well: bool) -> None:
    async def story(world: World) -> None:
        a1 = await world.home("a1", delivery={"firstAttemptTimeoutMs": 3000})
        r1 = await world.scripted("r1")
        alice = await world.person("alice", a1)
        await world.person("bob", r1, known_at=(a1,))
        gate = r1.keeps(INCOMING)
        pair = alice.writes("bob", "take your time")
        sending = asyncio.create_task(world.send(a1, pair))
        await r1.until_called(INCOMING)
        await world.clock.advance(2.999)
        assert not sending.done()
        await world.clock.advance(0.001)
        assert await sending == "accepted"
        assert a1.state(pair) == "accepted"
        await world.clock.advance(6)
        if ends_well:
            gate.set()
        else:
            await world.clock.advance(6)  # requestTimeoutSeconds is 12
        await world.rest()
        assert a1.state(pair) == ("delivered" if ends_well else "accepted")
        assert len(r1.calls) == 1

    tell(tmp_path, story)


def test_alice_writes_to_herself_and_both_of_her_servers_have_both_copies(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, a2 = await world.homes("a1", "a2")
        alice = await world.person("alice", a1, a2)
        note = alice.writes("alice", "milk, bread")
        assert await world.send(a1, note) == "delivered"
        await world.rest()
        for home in (a1, a2):
            assert home.has(note)
            assert home.blobs(note.outgoing_key) == (note.incoming, note.outgoing)
            assert home.state(note) == "delivered"

    tell(tmp_path, story)


def test_bob_is_at_alices_server_too_and_his_other_server_is_called_once(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        shared = await world.home("shared")
        r2, a2 = await world.scripted("r2"), await world.scripted("a2")
        alice = await world.person("alice", shared, a2)
        await world.person("bob", r2, shared)
        r2.refuses(INCOMING)
        gate = a2.keeps(OUTCOMING)
        pair = alice.writes("bob", "next door")
        assert await world.send(shared, pair) == "delivered", "without any network"
        assert shared.has(pair)
        await a2.until_called(OUTCOMING)
        gate.set()
        await world.passes(HOUR + 60)
        assert r2.ops.count(INCOMING) == 1, "in the first attempt, and its result changes nothing"
        assert set(r2.ops) == {INCOMING, "SetUserAccess"}
        assert a2.ops.count(OUTCOMING) == 1
        assert set(a2.ops) == {OUTCOMING, "SetUserAccess"}
        assert shared.state(pair) == "delivered"

    tell(tmp_path, story)


def test_two_neighbours_on_one_server_need_nobody_else(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        home = await world.home("home")
        alice = await world.person("alice", home)
        bob = await world.person("bob", home)
        to_bob, to_alice = alice.writes("bob", "hello"), bob.writes("alice", "hello")
        assert await world.send(home, to_bob) == "delivered"
        assert await world.send(home, to_alice) == "delivered"
        assert home.has(to_bob)
        assert home.has(to_alice)

    tell(tmp_path, story)


def test_receipts_and_tombstones_are_delivered_like_any_pair(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, b1 = await world.homes("a1", "b1")
        alice = await world.person("alice", a1, known_at=(b1,))
        bob = await world.person("bob", b1, known_at=(a1,))
        pair = alice.writes("bob", "read this")
        await world.send(a1, pair)
        receipt = bob.has_read(pair)
        assert await world.send(b1, receipt) == "delivered"
        assert a1.has(receipt)
        tombstone = alice.removes(pair)
        assert await world.send(a1, tombstone) == "delivered"
        await world.rest()
        assert b1.has(tombstone)
        for home, key in ((a1, pair.outgoing_key), (b1, pair.incoming_key)):
            assert home.blobs(key) == (b"", b"")
        row = b1.row(receipt.outgoing_key)
        assert row is not None
        assert row.state.wire == "delivered"

    tell(tmp_path, story)


def test_what_a_server_refuses_it_does_not_store(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, b1 = await world.homes("a1", "b1")
        alice = await world.person("alice", a1, known_at=(b1,))
        bob = await world.person("bob", b1, known_at=(a1,))
        to_nobody, from_elsewhere = alice.writes("carol", "who?"), bob.writes("alice", "the wrong door")
        async with await a1.connect() as client:
            for pair, code in ((to_nobody, "USER_NOT_FOUND"), (from_elsewhere, "NOT_ACCESS_SERVER")):
                with pytest.raises(RequestRefused) as refused:
                    await submit(client, pair)
                assert refused.value.code == code
                assert a1.row(pair.outgoing_key) is None
            assert await submit(client, alice.writes("bob", "and the connection goes on")) == "delivered"

    tell(tmp_path, story)
