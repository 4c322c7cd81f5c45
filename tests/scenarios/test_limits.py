"""What people may store and send, and take from whom, between real servers over real sockets (§2, §5, §10)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shine_node.client.blocking import change_blocked
from shine_node.client.connection import RequestRefused
from shine_node.client.messages import SignedPair
from shine_node.client.session import begin_session
from shine_node.store.settings import get_setting
from tests.scenarios.world import HOUR, Home, Person, World, tell, until

HALF = "x" * 60_000


async def refusal(world: World, home: Home, pair: SignedPair) -> tuple[int, str, Mapping[str, object]]:
    with pytest.raises(RequestRefused) as refused:
        await world.send(home, pair)
    return refused.value.status, refused.value.code, refused.value.payload


async def blocks(home: Home, person: Person, login: str, *, blocked: bool = True) -> None:
    """Have a person change the list at one server."""
    async with await home.connect() as client:
        await change_blocked(client, person.identity, login, blocked=blocked, now_ms=person._clock.now_ms())


async def until_so(world: World, condition: Callable[[], bool]) -> None:
    """Let sessions of servers pass until something is so; a few may be needed after a start."""
    for _ in range(10):
        await world.passes(31)
        if condition():
            return
    raise AssertionError("it did not become so")


def blocked(home: Home, login: str) -> str:
    """What the list of a user says at a server."""
    with home.node.store.read() as txn:
        setting = get_setting(txn, login, "blocked")
    return setting.value if setting is not None else ""


def change(home: Home, **limits: Any) -> None:
    """Bring other limits into force, as a reload does."""
    config = home.node.config
    home.node._apply(replace(config, limits=replace(config.limits, **limits)))


def test_a_sender_who_is_too_fast_for_a_recipient_is_told_and_a_server_tries_again(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        home = await world.home("home")
        away = await world.home("away", limits={"messagesPerMinutePerSender": 2})
        alice = await world.person("alice", home, known_at=[away])
        mallory = await world.person("mallory", away)
        bob = await world.person("bob", away, known_at=[home])
        pairs = [alice.writes("bob", f"number {number}") for number in range(4)]
        assert [await world.send(home, pair) for pair in pairs] == ["delivered"] * 2 + ["accepted"] * 2
        assert await world.send(away, mallory.writes("bob", "one of another sender")) == "delivered"
        assert await world.send(away, bob.writes("alice", "one to the sender")) == "delivered"
        await world.passes(31)
        assert sorted(home.state(pair) for pair in pairs[2:]) == ["accepted", "delivered"], "429 is a failed attempt"
        await world.passes(300)
        assert [home.state(pair) for pair in pairs] == ["delivered"] * 4
        assert all(away.has(pair) for pair in pairs)
        for _ in range(2):
            assert await world.send(away, mallory.writes("bob", "again")) == "delivered"
        status, code, payload = await refusal(world, away, mallory.writes("bob", "too fast"))
        assert (status, code) == (429, "RATE_LIMITED")
        assert isinstance(payload["retryAfterMs"], int)
        assert 0 < payload["retryAfterMs"] <= 30_001
        change(away, messages_per_minute_per_sender=0)
        assert await world.send(away, mallory.writes("bob", "no limit any more")) == "delivered"

    tell(tmp_path, story)


def test_who_is_blocked_at_one_server_is_blocked_at_the_other_and_fails_in_the_end(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        one, two = await world.homes("one", "two")
        far = await world.home("far")
        bob = await world.person("bob", one, two, known_at=[far])
        mallory = await world.person("mallory", far, known_at=[one, two])
        alice = await world.person("alice", far, known_at=[one, two])
        before = mallory.writes("bob", "before")
        assert await world.send(far, before) == "delivered"
        await blocks(one, bob, "Mallory")
        await until_so(world, lambda: blocked(two, "bob") == "mallory")
        await until_so(world, lambda: one.has(before) and two.has(before))
        after = mallory.writes("bob", "after")
        edit = mallory.edits(before, "changed")
        assert await world.send(far, after) == "accepted"
        assert await world.send(far, edit) == "accepted"
        assert await world.send(far, alice.writes("bob", "hello")) == "delivered"
        await world.passes(HOUR + 60)
        assert far.state(after) == far.state(edit) == "failed", "never a silent loss"
        for home in (one, two):
            assert not home.has(after)
            assert home.has(before), "what is stored stays as it was"
        await blocks(two, bob, "mallory", blocked=False)
        await until_so(world, lambda: blocked(one, "bob") == "")
        assert await world.send(far, mallory.writes("bob", "again")) == "delivered"

    tell(tmp_path, story)


def test_a_message_that_one_server_took_before_the_block_comes_to_the_other_all_the_same(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        one = await world.home("one")
        two = await world.home("two")
        far = await world.home("far")
        bob = await world.person("bob", one, two, known_at=[far])
        mallory = await world.person("mallory", far, known_at=[one, two])
        await world.passes(40)
        await two.stop()
        taken = mallory.writes("bob", "taken")
        assert await world.send(far, taken) == "delivered"
        await blocks(one, bob, "mallory")
        await two.start()
        await until_so(world, lambda: two.has(taken))
        assert blocked(two, "bob") == "mallory", "settings come before messages"

    tell(tmp_path, story)


def test_a_recipient_without_room_gets_it_when_something_is_removed(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        home = await world.home("home")
        away = await world.home("away", limits={"maxStoredMiBPerUser": 1})
        alice = await world.person("alice", home, known_at=[away])
        bob = await world.person("bob", away, known_at=[home])
        own = [bob.writes("bob", f"{number} {HALF}") for number in range(9)]
        answers = []
        for pair in own:
            try:
                answers.append(await world.send(away, pair))
            except RequestRefused as refused:
                answers.append(f"{refused.status} {refused.code}")
        assert answers[0] == "delivered"
        assert answers[-1] == "507 STORAGE_FULL"
        waiting = alice.writes("bob", HALF)
        assert await world.send(home, waiting) == "accepted"
        assert not away.has(waiting)
        for pair in own[:3]:
            await world.send(away, bob.removes(pair))
        await world.passes(31)
        assert home.state(waiting) == "delivered"
        assert away.has(waiting)

    tell(tmp_path, story)


def test_the_days_messages_count_over_a_restart_and_never_for_the_other_server(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        one = await world.home("one", limits={"maxMessagesPerDay": 3})
        two = await world.home("two")
        alice = await world.person("alice", one, two)
        await world.person("bob", one, two)
        assert await world.send(one, alice.writes("bob", "first")) == "delivered"
        many = [alice.writes("bob", f"at the other one {number}") for number in range(5)]
        for pair in many:
            assert await world.send(two, pair) == "delivered"
        await until_so(world, lambda: all(one.has(pair) for pair in many))  # the two servers are equal
        await one.stop()
        await one.start()
        for number in range(2):
            assert await world.send(one, alice.writes("bob", f"more {number}")) == "delivered"
        late = alice.writes("bob", "one too many")
        status, code, _ = await refusal(world, one, late)
        assert (status, code) == (429, "RATE_LIMITED")
        assert await world.send(two, late) == "delivered"
        await until_so(world, lambda: one.has(late))

    tell(tmp_path, story)


def test_servers_that_the_operator_has_blocked_are_not_spoken_to_until_a_reload(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        home, bad = await world.homes("home", "bad")
        alice = await world.person("alice", home, known_at=[bad])
        eve = await world.person("eve", bad, known_at=[home])
        assert await world.send(home, alice.writes("eve", "before")) == "delivered"
        assert await world.send(bad, eve.writes("alice", "before")) == "delivered"
        change(home, blocked_peers=frozenset({"bad"}))

        def cut() -> bool:
            connections = home.node._endpoint._connections
            return not any(connection.hello is not None for connection in connections)

        await until(cut)
        assert home.node.pool._links == {}
        mine, hers = alice.writes("eve", "into the void"), eve.writes("alice", "from a blocked server")
        assert await world.send(home, mine) == "accepted"
        assert await world.send(bad, hers) == "accepted"
        await world.passes(60)
        assert home.state(mine) == "accepted"
        assert not home.has(hers)
        change(home, blocked_peers=frozenset())
        await world.passes(300)
        assert home.state(mine) == bad.state(hers) == "delivered"

    tell(tmp_path, story)


def test_a_disk_with_too_little_room_takes_nothing_new_and_does_all_else(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        home = await world.home("home")
        away = await world.home("away", storage={"minFreeMiB": NO_DISK_HAS_SO_MUCH})
        alice = await world.person("alice", home)
        with pytest.raises(RequestRefused) as refused:
            await world.person("bob", away)
        assert (refused.value.status, refused.value.code) == (507, "STORAGE_FULL")
        least(away, 0)
        await world.moves(alice, home, known_at=[away])
        bob = await world.person("bob", away, known_at=[home])
        assert await world.send(home, alice.writes("bob", "stored")) == "delivered"
        least(away, NO_DISK_HAS_SO_MUCH)
        new, own = alice.writes("bob", "new"), bob.writes("alice", "own")
        assert await world.send(home, new) == "accepted"
        assert (await refusal(world, away, own))[:2] == (507, "STORAGE_FULL")
        async with await away.connect() as client:
            await begin_session(client, bob.identity, None, clock=world.clock, client_info="")
            page = await client.request("GetDirectMessages", {"peerLogin": "alice"})
            assert len(page["messages"]) == 1, "reading goes on"
        assert await warnings(away) == 1
        least(away, 0)
        assert await warnings(away) == 0
        await world.passes(31)
        assert home.state(new) == "delivered"
        assert await world.send(away, own) == "delivered"

    tell(tmp_path, story)


def test_a_recipient_whose_servers_take_nothing_holds_up_no_quiet_pair(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        home = await world.home("home", delivery={"maxConcurrent": 2, "firstAttemptTimeoutMs": 0})
        hung = await world.scripted("hung")
        well = await world.home("well")
        alice = await world.person("alice", home, known_at=[well])
        await world.person("bob", hung, known_at=[home])
        await world.person("carol", well, known_at=[home])
        hung.keeps("ReceiveIncomingMessage")
        await well.stop()

        async def seconds(number: int) -> None:
            """Let time pass, and the worker look each time it is to; the peer that says nothing never rests."""
            for _ in range(number):
                await until(lambda: home.sleeps(WORKER_SECONDS))
                await world.clock.advance(1)

        noisy = [alice.writes("bob", f"number {number}") for number in range(6)]
        for pair in noisy:
            assert await world.send(home, pair) == "accepted"
        await seconds(10)
        quiet = alice.writes("carol", "quiet")
        assert await world.send(home, quiet) == "accepted"
        await well.start()
        # From 35 s on the second attempts of the noisy ones take all room there is, until 70 s; this one's is at 40 s.
        await seconds(40)
        await until(lambda: well.has(quiet))
        await until(lambda: home.state(quiet) == "delivered")
        assert {home.state(pair) for pair in noisy} == {"accepted"}

    tell(tmp_path, story)


WORKER_SECONDS = 5.0
NO_DISK_HAS_SO_MUCH = 2**24


def least(home: Home, mebibytes: int) -> None:
    """Have another least room on the disk, as a reload does."""
    config = home.node.config
    home.node._apply(replace(config, storage=replace(config.storage, min_free_mib=mebibytes)))


async def warnings(home: Home) -> int:
    """How many warnings of ``status`` speak of that room."""
    found = (await home.node._status.status({}))["warnings"]
    assert isinstance(found, list)
    return sum("storage.minFreeMiB" in warning for warning in found)
