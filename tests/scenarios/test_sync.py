"""Two real servers of one user become equal by themselves, whatever each of them has missed (PROTOCOL.md §6)."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from shine_node.client.messages import SignedPair
from shine_node.sync import sessions as sessions_module
from tests.scenarios.sync_world import alice_at_two, equal, history, session, unsynced
from tests.scenarios.world import HOUR, Home, Person, Scripted, World, tell

DAY = 24 * HOUR
INCOMING, OUTCOMING, STATUS = "ReceiveIncomingMessage", "ReceiveOutcomingMessage", "GetDmDeliveryStatus"


async def arrives(home: Home, pair: SignedPair) -> None:
    """Bring a recipient's copy as its sender's server does."""
    answer = await home.request(
        INCOMING, {"incomingBlobB64": base64.b64encode(pair.incoming).decode(), "sourceServerLogin": "r1"}
    )
    assert answer == {"incomingKey": pair.incoming_key}


async def a_day_goes_by(world: World) -> None:
    """Let a day pass at once."""
    world.clock.jump(round(DAY * 1000))
    await world.passes(10)


async def some_life(world: World, home: Home, alice: Person, bob: Person) -> list[SignedPair]:
    """At one server: three messages, an edit, a removal, three that come in, one read, one edited, one removed.

    Returns:
        The messages that alice has sent.
    """
    sent, came = [], []
    for number in range(3):
        pair = alice.writes("bob", f"message {number} at {home.login}")
        await world.send(home, pair)
        sent.append(pair)
        came.append(bob.writes("alice", f"answer {number} at {home.login}"))
        await arrives(home, came[-1])
        await world.passes(60)
    await world.send(home, alice.edits(sent[0], "edited"))
    await world.send(home, alice.removes(sent[1]))
    await world.send(home, alice.has_read(came[1]))
    await arrives(home, bob.has_read(sent[2]))
    await arrives(home, bob.edits(came[0], "edited too"))
    await arrives(home, bob.removes(came[2]))
    await world.passes(60)
    return sent


def sent_by(r1: Scripted, *logins: str) -> list[str]:
    """What servers have sent to bob's server, in Base64, in order."""
    return [p["incomingBlobB64"] for op, _, p in r1.calls if op == INCOMING and p["sourceServerLogin"] in logins]


def test_a_server_that_was_off_for_a_day_catches_up_and_bob_hears_nothing_twice(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, a2, r1, alice = await alice_at_two(world)
        bob = world.people["bob"]
        await some_life(world, a1, alice, bob)
        assert equal(a1, a2)
        await a2.stop()
        sent = await some_life(world, a1, alice, bob)
        await a_day_goes_by(world)
        before = list(r1.calls)
        assert unsynced(a1)
        await a2.start()
        await session(world, 2)
        assert equal(a1, a2)
        assert [a2.state(pair) for pair in sent] == ["delivered"] * 3
        await world.passes(2 * HOUR)
        assert r1.calls == before, "they are too old to be sent, and their fate is known from a1"

    tell(tmp_path, story)


def test_each_was_off_while_the_other_was_used_and_both_become_equal(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, a2, r1, alice = await alice_at_two(world)
        bob = world.people["bob"]
        await a2.stop()
        at_a1 = await some_life(world, a1, alice, bob)
        await a_day_goes_by(world)
        await a1.stop()
        await a2.start()
        assert history(a2).items == {}
        at_a2 = await some_life(world, a2, alice, bob)
        await a_day_goes_by(world)
        calls = len(r1.calls)
        await a1.start()
        await session(world, 3)
        assert equal(a1, a2)
        assert len(history(a1).items) == 20, "of each: six messages, two receipts, two removals"
        assert {a1.state(pair) for pair in at_a2} == {a2.state(pair) for pair in at_a1} == {"delivered"}
        await world.passes(2 * HOUR)
        assert len(r1.calls) == calls

    tell(tmp_path, story)


def test_what_both_were_given_by_others_is_exchanged_once_and_is_in_no_outbox_any_more(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, a2, _, alice = await alice_at_two(world)
        pair, copy = alice.writes("bob", "to both"), world.people["bob"].writes("alice", "to both as well")
        for home in (a1, a2):
            await arrives(home, copy)
            await world.send(home, pair)
        await session(world, 2)
        assert equal(a1, a2)

    tell(tmp_path, story)


def test_an_edit_that_is_made_at_each_server_in_one_moment_comes_to_the_same_end(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, a2, _, alice = await alice_at_two(world)
        pair = alice.writes("bob", "first")
        await world.send(a1, pair)
        await world.rest()
        one, two = alice.edits(pair, "second"), alice.edits(pair, "2nd")
        assert one.revision_ms == two.revision_ms
        for home, stays, edit in ((a1, a2, one), (a2, a1, two)):
            await stays.stop()
            await world.send(home, edit)
            await home.stop()
            await stays.start()
        await a2.start()
        await session(world, 3)
        assert equal(a1, a2)
        winner = max(one, two, key=lambda edit: edit.incoming[-64:])
        assert a1.blobs(pair.outgoing_key) == (winner.incoming, winner.outgoing)

    tell(tmp_path, story)


def test_young_pairs_join_the_schedule_and_the_other_server_is_asked_first_where_it_is_time_to(tmp_path: Path) -> None:
    """Ten minutes old: the attempt that is due is the third, which asks; a minute old: the second, which does not."""

    async def story(world: World) -> None:
        a1, a2, r1, alice = await alice_at_two(world)
        await a2.stop()
        older = alice.writes("bob", "ten minutes old")
        await world.send(a1, older)
        await world.passes(540)
        younger = alice.writes("bob", "a minute old")
        await world.send(a1, younger)
        await world.passes(60)
        assert len(r1.calls) == 2
        await a2.start()
        await session(world)
        assert equal(a1, a2)
        assert a2.state(older) == a2.state(younger) == "delivered"
        assert sent_by(r1, "a2") == [base64.b64encode(younger.incoming).decode()]

    tell(tmp_path, story)


def test_what_failed_there_fails_here_after_an_hour_of_asking_and_is_never_sent(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, a2, r1, alice = await alice_at_two(world)
        await a2.stop()
        r1.refuses(INCOMING)
        pair = alice.writes("bob", "in vain")
        await world.send(a1, pair)
        await world.passes(2 * HOUR)
        assert a1.state(pair) == "failed"
        calls = len(r1.calls)
        await a2.start()
        await session(world)
        assert a2.state(pair) == "accepted", "the other server may still be trying, for all that is known"
        await world.passes(HOUR)
        assert a2.state(pair) == "failed"
        await world.passes(2 * HOUR)
        assert len(r1.calls) == calls
        assert equal(a1, a2)

    tell(tmp_path, story)


def test_a_server_that_is_new_gets_the_whole_history_by_itself_and_the_former_one_nothing_more(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, a2, r1, alice = await alice_at_two(world)
        bob = world.people["bob"]
        sent = await some_life(world, a1, alice, bob)
        await a_day_goes_by(world)
        await a2.stop()
        await some_life(world, a1, alice, bob)  # what a2 was to get yet
        a3 = await world.home("a3")
        await world.moves(alice, a1, a3)
        await world.send(a1, alice.edits(sent[0], "edited while all of it moves"))
        await world.send(a1, alice.removes(sent[2]))
        await a2.start()
        former, calls = history(a2), len(r1.calls)
        await session(world, 4)
        assert equal(a1, a3)
        assert history(a2) == former
        await world.send(a1, alice.writes("bob", "a2 is history"))
        await session(world, 2)
        assert equal(a1, a3)
        assert history(a2) == former
        await world.passes(2 * HOUR)
        old = sent_by(r1, "a3")
        young = set(sent_by(r1, "a1"))
        assert set(old) <= young
        assert all(a3.state(pair) == "delivered" for pair in sent)
        assert len(r1.calls) - calls <= 2 * 4, "only what is younger than an hour"

    tell(tmp_path, story)


def test_who_comes_back_to_the_former_server_finds_both_equal(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, a2, _, alice = await alice_at_two(world)
        bob = world.people["bob"]
        sent = await some_life(world, a1, alice, bob)
        a3 = await world.home("a3")
        await world.moves(alice, a1, a3)
        await world.send(a1, alice.edits(sent[0], "at a1 and a3"))
        await world.moves(alice, a1, a2)
        await world.moves(alice, a2, known_at=(a3,))
        await world.moves(alice, a1, a2)
        await world.send(a1, alice.removes(sent[2]))
        await session(world, 4)
        assert equal(a1, a2)

    tell(tmp_path, story)


def test_a_message_of_a_user_who_is_known_at_one_server_only_comes_with_the_users_records(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, a2, r1, _ = await alice_at_two(world)
        await a2.stop()
        carol = await world.person("carol", r1, known_at=(a1,))
        copy = carol.writes("alice", "we have not met")
        await arrives(a1, copy)
        await world.passes(120)
        carol.takes_a_new_device()
        await world.moves(carol, r1, known_at=(a1,))
        second = carol.writes("alice", "from another device")
        await arrives(a1, second)
        await a2.start()
        await session(world, 2)
        assert equal(a1, a2)
        assert a2.has(copy)
        assert a2.has(second)

    tell(tmp_path, story)


def test_only_the_owners_who_have_both_servers_are_exchanged(tmp_path: Path) -> None:
    """dora has a1 and another server; erin has a1 alone."""

    async def story(world: World) -> None:
        a1, a2, r1, alice = await alice_at_two(world)
        dora = await world.person("dora", a1, r1, known_at=(a2,))
        erin = await world.person("erin", a1, known_at=(a2,))
        await a2.stop()
        for author in (alice, dora, erin):
            await world.send(a1, author.writes("bob", "hello"))
        await a2.start()
        await session(world, 2)
        assert equal(a1, a2)
        for owner in ("dora", "erin"):
            assert history(a2, owner).items == {}

    tell(tmp_path, story)


def test_a_note_to_oneself_and_a_message_between_two_users_of_both_servers(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, a2, r1, alice = await alice_at_two(world)
        fred = await world.person("fred", a1, a2)
        await a2.stop()
        note, letter = alice.writes("alice", "buy milk"), alice.writes("fred", "have you milk?")
        await world.send(a1, note)
        await world.send(a1, letter)
        await world.send(a1, fred.has_read(letter))
        await a2.start()
        await session(world, 3)
        assert equal(a1, a2)
        assert equal(a1, a2, owner="fred")
        assert len(history(a2).items) == 4
        assert len(history(a2, "fred").items) == 2
        assert r1.calls == []

    tell(tmp_path, story)


@pytest.mark.parametrize("turns", ["all in one turn", "a turn for each page"])
def test_a_history_of_more_than_one_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turns: str) -> None:
    if turns == "a turn for each page":
        monkeypatch.setattr(sessions_module, "LONE_PART_SECONDS", 0)

    async def story(world: World) -> None:
        a1, a2 = await world.homes("a1", "a2", sync={"pageLimit": 7})
        alice = await world.person("alice", a1, a2)
        await a2.stop()
        bob = await world.person("bob", a1)
        for number in range(60):
            await world.send(a1, (alice if number % 3 else bob).writes("bob" if number % 3 else "alice", f"{number}"))
        await a2.start()
        await session(world, 2)
        assert equal(a1, a2)
        assert len(history(a2).items) == 60

    tell(tmp_path, story)
