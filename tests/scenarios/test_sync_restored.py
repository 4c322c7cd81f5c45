"""A server that was restored from a backup becomes equal to its user's other one again, by itself (PROTOCOL.md §6)."""

from __future__ import annotations

from pathlib import Path

import pytest

from shine_node.client.messages import SignedPair
from shine_node.client.settings import make_setting
from shine_node.protocol.settings import setting_payload
from shine_node.store.settings import list_settings
from tests.scenarios.sync_world import alice_at_two, equal, history, keep_copy, restore_copy, session, unsynced
from tests.scenarios.world import HOUR, Home, Person, World, tell


async def write(world: World, home: Home, author: Person, *texts: str, to_login: str = "bob") -> list[SignedPair]:
    """Send some messages, a second after each other."""
    pairs = []
    for text in texts:
        pair = author.writes(to_login, text)
        await world.send(home, pair)
        pairs.append(pair)
        await world.passes(1)
    return pairs


async def set_params(world: World, home: Home, owner: Person, **params: str) -> None:
    """Set some of a person's settings."""
    for param, value in params.items():
        setting = make_setting(owner.identity, param, value, time_ms=world.clock.now_ms())
        await home.request("UpsertUserParam", setting_payload(setting))


async def restored(world: World, home: Home) -> None:
    """Stop a server, put its backup in the place of its store, and start it."""
    await home.stop()
    restore_copy(home)
    await home.start()


@pytest.mark.parametrize("sent_at", ["a1", "a2"])
@pytest.mark.parametrize("later", [0, 60])
def test_it_gets_back_what_it_had_acknowledged_since(tmp_path: Path, sent_at: str, later: int) -> None:
    """Also what it acknowledged a moment before it was lost, by taking a pair that was handed over."""

    async def story(world: World) -> None:
        a1, a2, r1, alice = await alice_at_two(world)
        sender = {"a1": a1, "a2": a2}[sent_at]
        [old] = await write(world, sender, alice, "before the backup")
        await session(world)
        await a2.stop()
        keep_copy(a2)
        await a2.start()
        await session(world)
        pairs = await write(world, sender, alice, "one", "two", "three")
        edit = alice.edits(old, "edited since")
        await world.send(sender, edit)
        await world.send(a1, alice.removes(pairs[2]))
        await world.passes(later)
        assert equal(a1, a2)
        kept = history(a1)
        called = len(r1.times())

        await restored(world, a2)
        assert history(a2) != kept
        await session(world, 3)
        assert equal(a1, a2)
        assert history(a2) == kept
        assert a2.blobs(old.outgoing_key) == (edit.incoming, edit.outgoing)
        assert a2.blobs(pairs[2].outgoing_key) == (b"", b"")
        await world.passes(2 * HOUR)
        assert equal(a1, a2)
        again = [payload["incomingBlobB64"] for _, _, payload in r1.calls[called:]]
        assert len(again) <= 4, "young ones join the schedule of the server that has lost them"
        assert {a2.state(pair) for pair in (old, *pairs)} == {"delivered"}

    tell(tmp_path, story)


def test_what_it_took_meanwhile_goes_to_the_other_one(tmp_path: Path) -> None:
    """Restored, it was a while alone: its commits have passed the number that the other server remembers."""

    async def story(world: World) -> None:
        a1, a2, _, alice = await alice_at_two(world)
        await write(world, a1, alice, "before the backup")
        await session(world)
        await a2.stop()
        keep_copy(a2)
        await a2.start()
        await session(world)
        lost = await write(world, a1, alice, "lost at a2")
        await session(world)
        await a1.stop()
        await restored(world, a2)
        alone = await write(world, a2, alice, *(f"alone {number}" for number in range(12)))
        await a1.start()
        await session(world, 3)
        assert equal(a1, a2)
        for home in (a1, a2):
            for pair in (*lost, *alone):
                assert home.blobs(pair.outgoing_key) == (pair.incoming, pair.outgoing)

    tell(tmp_path, story)


def test_both_restored_from_different_days(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, a2, _, alice = await alice_at_two(world)
        await write(world, a1, alice, "day one")
        await session(world)
        await a1.stop()
        keep_copy(a1)
        await a1.start()
        day_two = await write(world, a2, alice, "day two")
        await session(world)
        await a2.stop()
        keep_copy(a2)
        await a2.start()
        await session(world)
        day_three = await write(world, a1, alice, "day three")
        await session(world)
        await a2.stop()
        restore_copy(a2)
        await restored(world, a1)
        await a2.start()
        await session(world, 4)
        assert equal(a1, a2)
        [pair] = day_two
        assert a1.blobs(pair.outgoing_key) == (pair.incoming, pair.outgoing)
        [pair] = day_three
        assert a1.row(pair.outgoing_key) is None, "nobody has it any more"

    tell(tmp_path, story)


def test_a_restart_alone_sends_nothing_anew(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, a2, _, alice = await alice_at_two(world)
        await write(world, a1, alice, "one", "two")
        await session(world, 2)
        for _ in range(3):
            await a2.restart()
            await world.passes(5)
            assert unsynced(a1) == 0
            await session(world)
            assert equal(a1, a2)
        await a1.restart()
        await session(world)
        assert unsynced(a1) == unsynced(a2) == 0

    tell(tmp_path, story)


@pytest.mark.parametrize("way", ["handed over to it", "brought by it", "fetched from it"])
def test_both_start_anew_before_the_next_session(tmp_path: Path, way: str) -> None:
    """A power cut takes both; the disk of one does not come back, and its backup lacks what the other never sent it."""

    async def story(world: World) -> None:
        a1, a2, _, alice = await alice_at_two(world)
        await write(world, a1, alice, "before the backup")
        await session(world, 3)
        await a2.stop()
        keep_copy(a2)
        await a2.start()
        await session(world, 3)
        if way == "fetched from it":
            await a1.stop()
            [pair] = await write(world, a2, alice, "the last words")
            await a1.start()
            await world.passes(1)
        else:
            [pair] = await write(world, a1 if way == "handed over to it" else a2, alice, "the last words")
        assert a1.row(pair.outgoing_key) is not None
        assert a2.row(pair.outgoing_key) is not None
        await a2.stop()
        restore_copy(a2)
        await a1.restart()
        await a2.start()
        assert a2.row(pair.outgoing_key) is None
        await session(world, 3)
        assert equal(a1, a2)
        assert a2.blobs(pair.outgoing_key) == (pair.incoming, pair.outgoing)

    tell(tmp_path, story)


def test_what_a_restored_server_learns_anew_reaches_those_who_asked_before(tmp_path: Path) -> None:
    """Its records are numbered on from where others have read."""

    async def story(world: World) -> None:
        a1, a2, _, _ = await alice_at_two(world)
        await a2.stop()
        keep_copy(a2)
        await a2.start()
        for name in ("carol", "dora", "erin"):
            await world.person(name, a2)
        await session(world, 12)
        await restored(world, a2)
        await world.person("frank", a2)
        await session(world, 12)
        assert a1.node.users.get("frank") is not None

    tell(tmp_path, story)


def test_restored_twice_in_a_few_minutes(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, a2, _, alice = await alice_at_two(world)
        await write(world, a1, alice, "before the backup")
        await session(world, 2)
        await a2.stop()
        keep_copy(a2)
        await a2.start()
        await session(world, 2)
        lost = await write(world, a1, alice, *(f"lost {number}" for number in range(5)))
        await session(world, 3)
        await restored(world, a2)
        await session(world, 3)
        assert equal(a1, a2)
        await restored(world, a2)
        await session(world, 2)
        await write(world, a1, alice, "life goes on")
        await session(world, 30)
        assert equal(a1, a2)
        assert all(a2.blobs(pair.outgoing_key) == (pair.incoming, pair.outgoing) for pair in lost)

    tell(tmp_path, story)


def test_a_setting_that_it_had_brought_comes_back(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, a2, _, alice = await alice_at_two(world)
        await set_params(world, a2, alice, old="1")
        await session(world, 3)
        await a2.stop()
        keep_copy(a2)
        await a2.start()
        await session(world, 3)
        await set_params(world, a2, alice, theme="dark", old="2")
        await session(world)
        await restored(world, a2)
        await session(world, 3)
        for home in (a1, a2):
            with home.node.store.read() as txn:
                found = {setting.param: setting.value for setting in list_settings(txn, "alice")}
            assert found == {"theme": "dark", "old": "2"}

    tell(tmp_path, story)


@pytest.mark.parametrize("delivered", [False, True])
def test_its_own_user_gets_back_what_was_delivered_and_nothing_that_had_failed(tmp_path: Path, delivered: bool) -> None:
    """Bob is at ``a2`` alone, the other server of alice, who writes to him at ``a1``."""

    async def story(world: World) -> None:
        a1, a2 = await world.homes("a1", "a2")
        alice = await world.person("alice", a1, a2)
        await world.person("bob", a2, known_at=(a1,))
        await session(world, 2)
        await a2.stop()
        keep_copy(a2)
        if delivered:
            await a2.start()
            await session(world)
        [pair] = await write(world, a1, alice, "yesterday")
        await world.passes(HOUR + 60)
        assert a1.state(pair) == ("delivered" if delivered else "failed")
        if delivered:
            await a2.stop()
            restore_copy(a2)
        world.clock.jump(24 * 3600 * 1000)
        await a2.start()
        assert not a2.has(pair)
        await session(world, 3)
        await world.passes(2 * HOUR)
        assert equal(a1, a2)
        assert a2.state(pair) == a1.state(pair) == ("delivered" if delivered else "failed")
        assert a2.has(pair) is delivered

    tell(tmp_path, story)


@pytest.mark.parametrize("backup", ["before she came", "before she took another server"])
def test_restored_to_before_the_move_it_is_told_of_it_by_the_other_one(tmp_path: Path, backup: str) -> None:
    """It does not know whom to ask; what her devices of before have signed, it can check again too."""

    async def story(world: World) -> None:
        a1, a2 = await world.homes("a1", "a2")
        r1 = await world.scripted("r1")
        if backup == "before she came":
            await a1.stop()
            keep_copy(a1)
            await a1.start()
        alice = await world.person("alice", a1)
        await world.person("bob", r1, known_at=(a1, a2))
        await write(world, a1, alice, "before the move")
        if backup != "before she came":
            await a1.stop()
            keep_copy(a1)
            await a1.start()
        for text in ("with another phone", "and with one more"):
            await world.passes(100)  # a record of the world is a minute old when it is signed
            alice.takes_a_new_device()
            await world.moves(alice, a1)
            await write(world, a1, alice, text)
        await world.passes(100)
        alice.takes_a_new_device()
        await world.moves(alice, a1, a2)
        await write(world, a1, alice, "after the move")
        await session(world, 12)
        assert equal(a1, a2)
        kept, records = history(a1), a1.node.users.records("alice")
        assert a2.node.users.records("alice") == records
        assert len(records) == 4

        await restored(world, a1)
        assert history(a1) != kept
        await session(world, 14)
        assert a1.node.users.records("alice") == records
        assert equal(a1, a2)
        assert history(a1) == kept
        await write(world, a2, alice, "and she goes on")
        await write(world, a1, alice, "at both")
        await session(world, 2)
        assert equal(a1, a2)

    tell(tmp_path, story)


def test_what_it_took_before_it_was_told_of_the_move_goes_to_the_other_one(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, a2 = await world.homes("a1", "a2")
        r1 = await world.scripted("r1")
        alice = await world.person("alice", a1)
        await world.person("bob", r1, known_at=(a1, a2))
        await a1.stop()
        keep_copy(a1)
        await a1.start()
        await world.moves(alice, a1, a2)
        await write(world, a2, alice, "after the move")
        await session(world, 3)
        await a2.stop()
        await restored(world, a1)
        [alone] = await write(world, a1, alice, "alone")
        await a2.start()
        await session(world, 14)
        assert equal(a1, a2)
        assert a2.blobs(alone.outgoing_key) == (alone.incoming, alone.outgoing)

    tell(tmp_path, story)
