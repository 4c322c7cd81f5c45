"""Events on the devices of people with two servers, over hours and through every way in (PROTOCOL.md §8.2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.talk import Talk
from tests.scenarios.sync_world import alice_at_two, session
from tests.scenarios.test_sync import a_day_goes_by, arrives
from tests.scenarios.world import HOUR, Home, Person, World, tell
from tests.support.devices import Device, make_session
from tests.support.events import changed, incoming, outgoing
from tests.support.nodes import STORY_SECONDS

INCOMING = "ReceiveIncomingMessage"


def device(world: World, home: Home, person: Person) -> Device:
    return Device(home, person.identity, world.clock)


def test_both_servers_of_both_people_tell_their_devices(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, a2, b1, b2 = await world.homes("a1", "a2", "b1", "b2")
        alice = await world.person("alice", a1, a2, known_at=(b1, b2))
        bob = await world.person("Bob", b1, b2, known_at=(a1, a2))
        async with (
            device(world, a1, alice) as phone,
            device(world, a2, alice) as desk,
            device(world, b1, bob) as bobs_phone,
            device(world, b2, bob) as bobs_desk,
        ):
            pair = alice.writes("bob", "hello, everywhere")
            edit, tombstone = alice.edits(pair, "edited"), alice.removes(pair)
            receipt = bob.has_read(pair)
            for mine in (pair, edit, tombstone):
                assert await phone.send(mine) == "delivered"
                await world.rest()
            assert await bobs_desk.send(receipt) == "delivered"
            await world.rest()
            assert await desk.events(7) == [
                outgoing(pair, "Bob", "accepted"),
                changed(pair, "delivered"),
                outgoing(edit, "Bob", "accepted"),
                changed(edit, "accepted"),
                changed(edit, "delivered"),
                outgoing(tombstone, "Bob", "accepted"),
                changed(tombstone, "delivered"),
            ]
            assert await desk.events(1) == [incoming(receipt, "Bob")]
            for one in (bobs_phone, bobs_desk):
                assert await one.events(3) == [incoming(mine, "alice") for mine in (pair, edit, tombstone)]
            assert await bobs_phone.events(2) == [outgoing(receipt, "alice", "accepted"), changed(receipt, "delivered")]
            assert await phone.events(5) == [
                changed(pair, "delivered"),
                changed(edit, "accepted"),
                changed(edit, "delivered"),
                changed(tombstone, "delivered"),
                incoming(receipt, "Bob"),
            ]
            assert await bobs_desk.events(1) == [changed(receipt, "delivered")]
            for one in (phone, desk, bobs_phone, bobs_desk):
                assert await one.silent()

    tell(tmp_path, story)


@pytest.mark.parametrize("end", ["delivered", "failed"])
def test_a_state_that_changes_an_hour_later_is_told(tmp_path: Path, end: str) -> None:
    async def story(world: World) -> None:
        a1 = await world.home("a1")
        r1 = await world.scripted("r1")
        alice = await world.person("alice", a1)
        await world.person("bob", r1, known_at=(a1,))
        r1.refuses(INCOMING)
        async with device(world, a1, alice) as phone, device(world, a1, alice) as desk:
            pair = alice.writes("bob", "some day")
            assert await phone.send(pair) == "accepted"
            await world.passes(HOUR - 1)
            assert await desk.events(1) == [outgoing(pair, "bob", "accepted")]
            assert await phone.silent()
            assert await desk.silent()
            if end == "delivered":
                r1.says(INCOMING)
            await world.passes(10)
            for one in (phone, desk):
                assert await one.events(1) == [changed(pair, end)]
            await world.passes(HOUR)
            assert await phone.silent()

    tell(tmp_path, story)


def test_an_edit_that_begins_a_new_schedule_ends_with_an_event_of_its_own(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1 = await world.home("a1")
        r1 = await world.scripted("r1")
        alice = await world.person("alice", a1)
        await world.person("bob", r1, known_at=(a1,))
        async with device(world, a1, alice) as phone:
            pair = alice.writes("bob", "first")
            assert await phone.send(pair) == "delivered"
            r1.refuses(INCOMING)
            assert await phone.send(alice.edits(pair, "second")) == "accepted"
            await world.passes(2 * HOUR)
            assert await phone.events(3) == [changed(pair, state) for state in ("delivered", "accepted", "failed")]
            assert await phone.silent()

    tell(tmp_path, story)


def test_an_answer_that_came_too_early_is_followed_by_the_state(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1 = await world.home("a1", delivery={"firstAttemptTimeoutMs": 0})
        r1 = await world.scripted("r1")
        alice = await world.person("alice", a1)
        await world.person("bob", r1, known_at=(a1,))
        gate = r1.keeps(INCOMING)
        async with device(world, a1, alice) as phone:
            pair = alice.writes("bob", "slowly")
            assert await phone.send(pair) == "accepted"
            assert await phone.silent()
            gate.set()
            assert await phone.events(1) == [changed(pair, "delivered")]

    tell(tmp_path, story)


def test_what_a_young_synchronisation_brings_is_told_and_so_is_what_becomes_of_it(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, a2, r1, alice = await alice_at_two(world)
        bob = world.people["bob"]
        await a2.stop()
        r1.refuses(INCOMING)
        sent, came = alice.writes("bob", "to bob"), bob.writes("alice", "to alice")
        await world.send(a1, sent)
        await arrives(a1, came)
        await world.passes(10)
        await a1.stop()
        await a2.start()
        async with device(world, a2, alice) as desk:
            await a1.start()
            await session(world, 2)
            await world.passes(60)
            told = await desk.events(2)
            assert sorted(told) == sorted([outgoing(sent, "bob", "accepted"), incoming(came, "bob")])
            assert await desk.silent()
            r1.says(INCOMING)
            await world.passes(HOUR)
            assert await desk.events(1) == [changed(sent, "delivered")]
            assert await desk.silent()

    tell(tmp_path, story)


@pytest.mark.parametrize("end", ["delivered", "failed"])
def test_what_an_old_synchronisation_brings_is_told_and_its_end_after_it_is_settled(tmp_path: Path, end: str) -> None:
    async def story(world: World) -> None:
        a1, a2, r1, alice = await alice_at_two(world)
        if end == "failed":
            r1.refuses(INCOMING)
        await a2.stop()
        sent = alice.writes("bob", "to bob")
        await world.send(a1, sent)
        await a_day_goes_by(world)
        await world.passes(2 * HOUR)
        assert a1.state(sent) == end
        await a1.stop()
        await a2.start()
        async with device(world, a2, alice) as desk:
            await a1.start()
            await session(world, 2)
            await world.passes(2 * HOUR)
            assert await desk.events(2) == [outgoing(sent, "bob", "accepted"), changed(sent, end)]
            assert await desk.silent()

    tell(tmp_path, story)


def test_a_removal_that_comes_by_synchronisation_ends_what_was_accepted(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, a2, r1, alice = await alice_at_two(world)
        r1.refuses(INCOMING)
        sent = alice.writes("bob", "to bob")
        await world.send(a1, sent)
        await world.rest()
        assert a2.state(sent) == "accepted"
        await a2.stop()
        tombstone = alice.removes(sent)
        await world.send(a1, tombstone)
        await world.rest()
        await a1.stop()
        await a2.start()
        async with device(world, a2, alice) as desk:
            await a1.start()
            await session(world, 2)
            assert await desk.events(2) == [outgoing(tombstone, "bob", "accepted"), changed(sent, "delivered")]
            assert await desk.silent()

    tell(tmp_path, story)


LARGE = "x" * 60_000
MANY = 300


def test_a_session_that_cannot_keep_up_with_a_catch_up_is_cut_and_finds_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It hears why it was cut when it reads again, and on a busy machine the other one has not been told of all before.
    monkeypatch.setattr("shine_node.api.outbound.PARTING_SECONDS", STORY_SECONDS)
    monkeypatch.setattr("shine_node.api.endpoint.CLOSE_SECONDS", STORY_SECONDS)

    async def story(world: World) -> None:
        limits = {"maxOutboundBytes": 2**21}
        a1, a2 = await world.homes("a1", "a2", limits=limits)
        alice = await world.person("alice", a1, a2)
        await world.person("bob", known_at=(a1, a2))
        await a2.stop()
        pairs = [alice.writes("bob", f"{number} {LARGE}") for number in range(MANY)]
        for pair in pairs:
            await world.clock.advance(0.5)  # large requests count for more than one
            await world.send(a1, pair)
        await a1.stop()
        await a2.start()
        async with await Talk.open(a2.url, max_queue=1) as slow, device(world, a2, alice) as quick:
            await make_session(slow.succeed, alice.identity, world.clock.now_ms())
            slow.stop_reading()
            await a1.start()
            await session(world, 2)
            told = [payload["baseKey"] for _, payload in await quick.events(MANY)]
            assert sorted(told) == sorted(pair.base_key for pair in pairs), "who reads is told of each, once"
            slow.resume_reading()
            assert await slow.end() == 1013
        async with device(world, a2, alice) as again:
            found = await again.chat("bob")
            assert {message["baseKey"] for message in found} == {pair.base_key for pair in pairs}

    tell(tmp_path, story)
