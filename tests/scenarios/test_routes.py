"""Where the recipient is now, and what the recipient's servers know of the sender (PROTOCOL.md §3, §5.3)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.world import HOUR, World, tell

INCOMING, SET_ACCESS = "ReceiveIncomingMessage", "SetUserAccess"


def test_bob_moves_while_a_message_waits_and_the_next_attempt_goes_to_his_new_server(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, b2 = await world.homes("a1", "b2")
        r1 = await world.scripted("r1")
        alice = await world.person("alice", a1, known_at=(b2,))
        bob = await world.person("bob", r1, known_at=(a1,))
        r1.refuses(INCOMING)
        pair = alice.writes("bob", "where are you?")
        assert await world.send(a1, pair) == "accepted"
        await world.passes(10)
        await world.moves(bob, b2, known_at=(a1,))
        await world.passes(20)
        assert a1.state(pair) == "delivered"
        assert b2.has(pair)
        assert r1.times() == [0]

    tell(tmp_path, story)


def test_bob_has_moved_and_only_his_old_server_knows_where(tmp_path: Path) -> None:
    """An attempt that failed at every route has the recipient looked up there before the next one (§3)."""

    async def story(world: World) -> None:
        a1, b1, b2 = await world.homes("a1", "b1", "b2")
        alice = await world.person("alice", a1, known_at=(b1, b2))
        bob = await world.person("bob", b1, known_at=(a1, b2))
        await world.moves(bob, b2, known_at=(b1,))
        pair = alice.writes("bob", "please forward")
        assert await world.send(a1, pair) == "accepted", "b1 says that it is none of his servers"
        await world.passes(30)
        assert a1.state(pair) == "delivered"
        assert b2.has(pair)
        assert not b1.has(pair)

    tell(tmp_path, story)


def test_alice_writes_to_somebody_whom_only_a_connected_server_knows(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        hub, b1 = await world.homes("hub", "b1")
        a1 = await world.home("a1", sync_servers=[{"login": "hub", "url": hub.url}])
        alice = await world.person("alice", a1)
        await world.rest()
        await world.person("bob", b1, known_at=(hub,))
        pair = alice.writes("bob", "we have not met")
        assert await world.send(a1, pair) == "delivered"
        assert b1.has(pair)

    tell(tmp_path, story)


def test_bob_has_no_server_at_first(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, b1 = await world.homes("a1", "b1")
        alice = await world.person("alice", a1, known_at=(b1,))
        bob = await world.person("bob", known_at=(a1,))
        early, late = alice.writes("bob", "nowhere to go"), alice.writes("bob", "too early")
        assert await world.send(a1, early) == "accepted", "no route is a failed attempt, not an error"
        await world.passes(HOUR)
        assert a1.state(early) == "failed"
        assert await world.send(a1, late) == "accepted"
        await world.moves(bob, b1, known_at=(a1,))
        await world.passes(30)
        assert a1.state(late) == "delivered"
        await world.passes(HOUR)
        assert a1.state(early) == "failed", "what is terminal is not opened again"
        assert not b1.has(early)

    tell(tmp_path, story)


def test_bob_moves_to_alices_server(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, r1 = await world.home("a1"), await world.scripted("r1")
        alice = await world.person("alice", a1)
        bob = await world.person("bob", r1, known_at=(a1,))
        r1.refuses(INCOMING)
        pair = alice.writes("bob", "welcome")
        assert await world.send(a1, pair) == "accepted"
        await world.moves(bob, a1, r1)
        await world.passes(30)
        assert a1.state(pair) == "delivered"
        assert a1.has(pair)
        assert r1.times() == [0]

    tell(tmp_path, story)


@pytest.mark.parametrize("end", ["delivered", "failed"])
def test_after_the_end_a_new_record_changes_nothing(tmp_path: Path, end: str) -> None:
    async def story(world: World) -> None:
        a1 = await world.home("a1")
        r1, r2 = await world.scripted("r1"), await world.scripted("r2")
        alice = await world.person("alice", a1)
        bob = await world.person("bob", r1, known_at=(a1,))
        if end == "failed":
            r1.refuses(INCOMING)
        pair = alice.writes("bob", "over is over")
        await world.send(a1, pair)
        await world.passes(HOUR)
        assert a1.state(pair) == end
        await world.moves(bob, r2, known_at=(a1,))
        await world.passes(HOUR)
        assert r2.calls == []
        assert a1.state(pair) == end

    tell(tmp_path, story)


def test_bobs_server_has_never_heard_of_alice(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, b1 = await world.homes("a1", "b1")
        alice = await world.person("Alice", a1)
        await world.person("bob", b1, known_at=(a1,))
        pair = alice.writes("bob", "we have not met")
        assert await world.send(a1, pair) == "delivered", "within the first attempt"
        assert b1.has(pair)
        known = await b1.request("GetUserAccess", {"login": "alice"})
        assert (known["login"], known["history"]) == ("Alice", [])

    tell(tmp_path, story)


def test_alice_has_a_new_device_and_bobs_server_learns_its_key(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, b1 = await world.homes("a1", "b1")
        alice = await world.person("alice", a1, known_at=(b1,))
        await world.person("bob", b1, known_at=(a1,))
        before = alice.writes("bob", "from the old device")
        assert await world.send(a1, before) == "delivered"
        alice.takes_a_new_device()
        await world.moves(alice, a1)
        await world.passes(1)
        after = alice.writes("bob", "from the new one")
        assert await world.send(a1, after) == "delivered"
        assert b1.has(before)
        assert b1.has(after)
        assert len((await b1.request("GetUserAccess", {"login": "alice"}))["history"]) == 1

    tell(tmp_path, story)


def test_alice_has_moved_and_bobs_server_meets_her_only_now(tmp_path: Path) -> None:
    """Her first record names a server that is gone; the first record that bob's server may take names ``a1``."""

    async def story(world: World) -> None:
        a1, b1 = await world.homes("a1", "b1")
        gone = await world.scripted("gone")
        alice = await world.person("alice", gone, known_at=(a1,))
        await world.moves(alice, a1)
        await world.person("bob", b1, known_at=(a1,))
        pair = alice.writes("bob", "I live here now")
        assert await world.send(a1, pair) == "delivered"
        assert b1.has(pair)
        assert len((await b1.request("GetUserAccess", {"login": "alice"}))["history"]) == 1, "and the old one, too"

    tell(tmp_path, story)


@pytest.mark.parametrize(("status", "code"), [(404, "USER_NOT_FOUND"), (422, "BAD_SIGNATURE")])
def test_a_server_that_goes_on_refusing_is_called_twice_an_attempt(tmp_path: Path, status: int, code: str) -> None:
    async def story(world: World) -> None:
        a1, r1 = await world.home("a1"), await world.scripted("r1")
        alice = await world.person("alice", a1)
        await world.person("bob", r1, known_at=(a1,))
        r1.refuses(INCOMING, status, code)
        pair = alice.writes("bob", "it does not help")
        assert await world.send(a1, pair) == "accepted"
        await world.passes(30)
        assert [op for op in r1.ops if op in (INCOMING, SET_ACCESS)] == [INCOMING, SET_ACCESS, INCOMING] * 2
        assert r1.times() == [0, 0, 30, 30]

    tell(tmp_path, story)


def test_a_final_error_is_a_failed_attempt_like_any_other(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, r1 = await world.home("a1"), await world.scripted("r1")
        alice = await world.person("alice", a1)
        await world.person("bob", r1, known_at=(a1,))
        r1.refuses(INCOMING, 421, "NOT_ACCESS_SERVER")
        pair = alice.writes("bob", "not here, it says")
        assert await world.send(a1, pair) == "accepted"
        await world.passes(299)
        r1.says(INCOMING)
        await world.passes(1)
        assert r1.times() == [0, 30, 300]
        assert a1.state(pair) == "delivered"

    tell(tmp_path, story)
