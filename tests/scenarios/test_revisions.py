"""Again, edited, removed: what a pair that is known already does to its delivery (PROTOCOL.md §4, §5.1, §5.2)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shine_node.client.connection import RequestRefused
from shine_node.client.messages import SignedPair
from shine_node.protocol.encoding import encode_base64
from tests.scenarios.world import HOUR, Home, Person, Scripted, World, submit, tell, until

INCOMING, OUTCOMING = "ReceiveIncomingMessage", "ReceiveOutcomingMessage"


async def alice_and_the_door_of_bob(world: World) -> tuple[Home, Scripted, Person]:
    a1, r1 = await world.home("a1"), await world.scripted("r1")
    alice = await world.person("alice", a1)
    await world.person("bob", r1, known_at=(a1,))
    return a1, r1, alice


async def refused(home: Home, pair: SignedPair) -> str:
    async with await home.connect() as client:
        with pytest.raises(RequestRefused) as refusal:
            await submit(client, pair)
    assert refusal.value.status == 409
    return refusal.value.code


def times_of(r1: Scripted, pair: SignedPair) -> list[float]:
    """When the recipient got exactly this revision."""
    wanted = encode_base64(pair.incoming)
    return [at for _, at, payload in r1.calls if payload.get("incomingBlobB64") == wanted]


def test_a_repetition_is_answered_with_the_present_state_and_starts_no_attempt(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, r1, alice = await alice_and_the_door_of_bob(world)
        r1.refuses(INCOMING)
        lost, found = alice.writes("bob", "one"), alice.writes("bob", "two")
        for pair in (lost, found):
            assert await world.send(a1, pair) == "accepted"
        for _ in range(5):
            assert await world.send(a1, lost) == "accepted"
            await world.passes(1)
        assert times_of(r1, lost) == [0]
        await world.passes(20)
        r1.says(INCOMING)
        await world.passes(10)
        assert await world.send(a1, found) == "delivered"
        assert times_of(r1, found) == [0, 30]

        r1.refuses(INCOMING)
        hopeless = alice.writes("bob", "three")
        assert await world.send(a1, hopeless) == "accepted"
        await world.passes(HOUR)
        calls = len(r1.calls)
        assert await world.send(a1, hopeless) == "failed"
        await world.passes(HOUR)
        assert len(r1.calls) == calls

    tell(tmp_path, story)


def test_other_bytes_and_older_revisions_are_refused_and_change_nothing(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, r1, alice = await alice_and_the_door_of_bob(world)
        pair = alice.writes("bob", "first")
        await world.send(a1, pair)
        edit, rival = alice.edits(pair, "second"), alice.edits(pair, "another second")
        await world.send(a1, edit)
        await world.rest()
        calls, row = len(r1.calls), a1.row(pair.outgoing_key)
        assert await refused(a1, rival) == "KEY_CONFLICT"
        assert await refused(a1, pair) == "STALE_REVISION"
        mixed = pair._replace(outgoing=edit.outgoing)
        async with await a1.connect() as client:
            with pytest.raises(RequestRefused) as refusal:
                await submit(client, mixed)
        assert refusal.value.code == "PAIR_MISMATCH"
        await world.passes(60)
        assert len(r1.calls) == calls
        assert a1.row(pair.outgoing_key) == row
        assert a1.blobs(pair.outgoing_key) == (edit.incoming, edit.outgoing)

    tell(tmp_path, story)


def test_an_edit_has_a_delivery_of_its_own(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, r1, alice = await alice_and_the_door_of_bob(world)
        pair = alice.writes("bob", "first")
        assert await world.send(a1, pair) == "delivered"
        await world.passes(100)
        r1.refuses(INCOMING)
        edit = alice.edits(pair, "second")
        assert await world.send(a1, edit) == "accepted"
        assert a1.state(pair) == "accepted", "the state belongs to the newest revision"
        assert await a1.status(pair, edit.revision_ms) == (True, False)
        assert await a1.status(pair, edit.revision_ms + 1) == (False, False)
        await world.passes(299)
        r1.says(INCOMING)
        await world.passes(1)
        assert times_of(r1, edit) == [100, 130, 400], "an hour of its own, from its own acceptance"
        assert times_of(r1, pair) == [0]
        assert await a1.status(pair, edit.revision_ms) == (True, True)

    tell(tmp_path, story)


def test_an_edit_of_a_failed_message_gets_its_chance(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, r1, alice = await alice_and_the_door_of_bob(world)
        r1.refuses(INCOMING)
        pair = alice.writes("bob", "first")
        await world.send(a1, pair)
        await world.passes(HOUR)
        assert a1.state(pair) == "failed"
        r1.says(INCOMING)
        edit = alice.edits(pair, "second")
        assert await world.send(a1, edit) == "delivered"
        assert len(times_of(r1, pair)) == 5, "the old revision stays where it is"

    tell(tmp_path, story)


def test_the_late_answer_of_the_old_attempt_says_nothing_of_the_edit(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, r1, alice = await alice_and_the_door_of_bob(world)
        gate = r1.keeps(INCOMING)
        pair = alice.writes("bob", "first")
        sending = asyncio.create_task(world.send(a1, pair))
        await r1.until_called(INCOMING)
        edit = alice.edits(pair, "second")
        editing = asyncio.create_task(world.send(a1, edit))
        await until(lambda: a1.blobs(pair.outgoing_key) == (edit.incoming, edit.outgoing))
        r1.refuses(INCOMING)  # the next one, which waits on the link
        gate.set()
        assert await sending == "accepted", "the first revision has arrived; the newest has not"
        assert await editing == "accepted"
        await world.rest()
        assert a1.state(pair) == "accepted"
        r1.says(INCOMING)
        await world.passes(30)
        assert a1.state(pair) == "delivered"
        assert times_of(r1, pair) == [0]
        assert times_of(r1, edit) == [0, 30]

    tell(tmp_path, story)


def test_edits_arrive_in_any_order_and_the_last_one_stays(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, b1 = await world.homes("a1", "b1")
        alice = await world.person("alice", a1, known_at=(b1,))
        await world.person("bob", b1, known_at=(a1,))
        pair = alice.writes("bob", "first")
        second = alice.edits(pair, "second")
        third = alice.edits(second, "third")
        for revision in (second, third, pair, second):
            answer = await b1.request(
                INCOMING, {"incomingBlobB64": encode_base64(revision.incoming), "sourceServerLogin": "a1"}
            )
            assert answer == {"incomingKey": pair.incoming_key}, "an older revision is a success"
        assert b1.has(third)

    tell(tmp_path, story)


def test_a_tombstone_ends_the_delivery_and_only_the_tombstone_arrives(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, a2, b1 = await world.homes("a1", "a2", "b1")
        alice = await world.person("alice", a1, a2, known_at=(b1,))
        await world.person("bob", b1, known_at=(a1, a2))
        await b1.stop()
        pair = alice.writes("bob", "forget it")
        assert await world.send(a1, pair) == "accepted"
        await world.passes(10)
        tombstone = alice.removes(pair)
        assert await world.send(a1, tombstone) == "accepted"
        await world.rest()
        for home in (a1, a2):
            assert home.blobs(pair.outgoing_key) == (b"", b"")
            assert home.state(pair) == "delivered", "ended"
        await b1.start()
        await world.passes(HOUR)
        assert a1.state(tombstone) == "delivered"
        assert b1.has(tombstone)
        assert b1.blobs(pair.incoming_key) == (b"", b"")

        late = {"incomingBlobB64": encode_base64(pair.incoming)}
        assert await b1.request(INCOMING, late) == {"incomingKey": pair.incoming_key}, "acknowledged"
        assert b1.blobs(pair.incoming_key) == (b"", b""), "and it stays removed"
        assert await world.send(a1, pair) == "delivered"
        assert await world.send(a1, alice.edits(pair, "or not")) == "delivered"
        await world.passes(HOUR)
        assert a1.blobs(pair.outgoing_key) == (b"", b"")

    tell(tmp_path, story)


def test_a_tombstone_comes_while_the_message_is_being_sent(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, r1, alice = await alice_and_the_door_of_bob(world)
        gate = r1.keeps(INCOMING)
        pair = alice.writes("bob", "oh no")
        sending = asyncio.create_task(world.send(a1, pair))
        await r1.until_called(INCOMING)
        removing = asyncio.create_task(world.send(a1, alice.removes(pair)))
        await until(lambda: a1.blobs(pair.outgoing_key) == (b"", b""))
        r1.refuses(INCOMING)
        gate.set()
        assert await removing == "accepted"
        assert await sending == "delivered"
        calls = len(times_of(r1, pair))
        await world.passes(HOUR)
        assert len(times_of(r1, pair)) == calls == 1
        assert a1.blobs(pair.outgoing_key) == (b"", b"")

    tell(tmp_path, story)


def test_a_failed_message_that_is_removed_stays_failed(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, r1, alice = await alice_and_the_door_of_bob(world)
        r1.refuses(INCOMING)
        pair = alice.writes("bob", "lost")
        await world.send(a1, pair)
        await world.passes(HOUR)
        assert a1.state(pair) == "failed"
        r1.says(INCOMING)
        assert await world.send(a1, alice.removes(pair)) == "delivered"
        assert a1.state(pair) == "failed", "terminal"
        assert await world.send(a1, pair) == "failed"

    tell(tmp_path, story)
