"""Servers that learn of each other's users, and what a record may and may not do to others (PROTOCOL.md §3, §7)."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from shine_node.client.connection import RequestRefused
from shine_node.client.identity import Identity
from shine_node.client.messages import SignedPair
from shine_node.peers.snapshot import LinkState, PeerSnapshot
from shine_node.protocol.access import AccessServer, record_payload
from shine_node.protocol.encoding import encode_base64
from tests.scenarios.world import Home, World, tell, until

INCOMING = "ReceiveIncomingMessage"
REFRESH = 30
SHARE = 300


class At:
    """A server as a record may name it, whether it is there or not."""

    def __init__(self, login: str, url: str) -> None:
        self.access = AccessServer(login, url)


def friends(*homes: Home) -> list[dict[str, Any]]:
    """Return the ``[[sync_servers]]`` that name these servers."""
    return [{"login": home.login, "url": home.url} for home in homes]


def links(home: Home) -> dict[str, PeerSnapshot]:
    return {peer.url: peer for peer in home.node.pool.snapshot().peers}


def answered(home: Home, *others: Home) -> list[int]:
    """How many requests others have answered to a server."""
    return [links(home)[other.url].succeeded for other in others]


async def until_linked(home: Home, *others: Home) -> None:
    await until(lambda: all(links(home).get(o.url) and links(home)[o.url].state == "connected" for o in others))


async def is_known(home: Home, login: str) -> bool:
    return bool((await home.request("GetUserAccess", {"login": login}))["exists"])


async def until_learned(world: World, home: Home, login: str, *, within: float) -> None:
    """Let time pass until a server knows somebody; what threads have begun is not over when a step of the clock is."""
    end = world.seconds + within
    while not await is_known(home, login):
        assert world.seconds < end, f"{home.login} does not know {login}"
        await world.passes(REFRESH)


async def until_directed(world: World, home: Home, login: str, url: str) -> None:
    """Let time pass until a server has read who is known, and finds another server at this place."""
    end = world.seconds + 3 * REFRESH
    while (login, url) not in [(peer.server_login, peer.url) for peer in home.node._directory.known()]:
        assert world.seconds < end, f"{home.login} does not know {login} at {url}"
        await world.passes(REFRESH)


async def refused(world: World, home: Home, pair: SignedPair) -> str:
    with pytest.raises(RequestRefused) as refusal:
        await world.send(home, pair)
    return refusal.value.code


# --- users who are looked up ---


def test_who_is_not_found_is_not_looked_for_again_for_half_a_minute(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        hub, b1 = await world.homes("hub", "b1")
        a1 = await world.home("a1", sync_servers=friends(hub))
        alice = await world.person("alice", a1)
        await until_linked(a1, hub)
        await world.rest()
        before = answered(a1, hub)
        pair = alice.writes("bob", "are you there?")
        for _ in range(3):
            assert await refused(world, a1, pair) == "USER_NOT_FOUND"
        assert answered(a1, hub) == [before[0] + 1], "one look-up for all of them"
        await world.person("bob", b1, known_at=(hub,))
        await world.passes(29)
        assert await refused(world, a1, pair) == "USER_NOT_FOUND"
        await world.passes(1.5)
        assert await world.send(a1, pair) == "delivered"
        assert b1.has(pair)

    tell(tmp_path, story)


def test_three_servers_are_asked_for_one_login_and_the_servers_of_peers_are_not(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        far = await world.home("far")
        homes = await world.homes("h1", "h2", "h3", "h4", sync_servers=friends(far))
        a1 = await world.home("a1", sync_servers=friends(*homes))
        alice = await world.person("alice", a1)
        await world.person("bob", far)
        await until_linked(a1, *homes)
        await world.rest()
        before = answered(a1, *homes)
        assert await refused(world, a1, alice.writes("bob", "are you there?")) == "USER_NOT_FOUND"
        asked = [now - then for now, then in zip(answered(a1, *homes), before, strict=True)]
        assert sorted(asked) == [0, 1, 1, 1]

    tell(tmp_path, story)


def test_bobs_old_server_is_gone_and_a_friend_of_alices_server_knows_the_new_one(tmp_path: Path) -> None:
    """Nobody tells the sender's server: it looks bob up by itself, before the next attempt."""

    async def story(world: World) -> None:
        hub, b1, b2 = await world.homes("hub", "b1", "b2")
        a1 = await world.home("a1", sync_servers=friends(hub), sync={"accessIntervalSeconds": 86400})
        alice = await world.person("alice", a1, known_at=(b2,))
        bob = await world.person("bob", b1, known_at=(a1,))
        await until_linked(a1, hub)
        await world.passes(1)
        await b1.stop()
        await world.moves(bob, b2, known_at=(hub,))
        pair = alice.writes("bob", "where are you now?")
        assert await world.send(a1, pair) == "accepted"
        await world.rest()
        assert a1.node.users.routes("bob") == (b2.access,), "looked up as soon as the attempt had failed"
        assert a1.state(pair) == "accepted"
        assert not b2.has(pair)
        await world.passes(35)
        assert a1.state(pair) == "delivered"
        assert b2.has(pair)

    tell(tmp_path, story)


# --- records that are shared ---


def local_user(login: str) -> dict[str, object]:
    """Return what registers a user of one server alone."""
    payload = record_payload(Identity.generate(login).access_record((), time_ms=1))
    return {name: payload[name] for name in ("login", "blockchainName", "solanaKey", "blockchainKey", "deviceKey")}


def news(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "were new from" in record.getMessage()]


def test_servers_that_are_configured_learn_each_others_users_but_not_those_of_one_server_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "shine_node.directory.sharing")

    async def story(world: World) -> None:
        a1 = await world.home("a1", registration={"mode": "open", "allowUnsigned": True})
        alice = await world.person("alice", a1)
        alice.takes_a_new_device()
        await world.moves(alice, a1, At("elsewhere", "wss://elsewhere.example/ws"))
        await a1.request("AddUser", local_user("local"))
        await world.person("bob", At("b1", "wss://b1.example/ws"), known_at=(a1,))
        a2 = await world.home("a2", sync_servers=friends(a1), sync={"pageLimit": 1})
        await until(lambda: news(caplog))
        records = await a2.request("GetUserAccess", {"login": "alice"})
        assert records["deviceKey"] == encode_base64(alice.identity.device.public)
        assert len(records["history"]) == 1, "superseded records too"
        assert records == await a1.request("GetUserAccess", {"login": "alice"})
        assert await is_known(a2, "bob"), "also the users of others"
        assert not await is_known(a2, "local")

        await world.person("carol", a1)
        await world.passes(SHARE - 60)
        assert not await is_known(a2, "carol")
        await until_learned(world, a2, "carol", within=120)
        await until(lambda: len(news(caplog)) == 2)
        assert news(caplog) == ["3 records were new from a1", "1 records were new from a1"]

        await a2.stop()
        await world.person("dave", a1)
        await a2.start()
        await until(lambda: len(news(caplog)) == 3)
        assert await is_known(a2, "dave")
        assert news(caplog)[2:] == ["1 records were new from a1"], "it goes on where it was"

    tell(tmp_path, story)


def test_a_friend_whose_store_was_restored_from_a_backup_is_read_anew(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1 = await world.home("a1")
        await world.person("alice", a1)
        await a1.stop()
        backup = tmp_path / "backup.mdb"
        shutil.copy(a1.store_file, backup)
        await a1.start()
        for login in ("bob", "carol", "dave"):
            await world.person(login, a1)
        a2 = await world.home("a2", sync_servers=friends(a1))
        await until_learned(world, a2, "dave", within=SHARE)

        await a1.stop()
        shutil.copy(backup, a1.store_file)
        await a1.start()
        await world.person("erin", a1)
        await until_learned(world, a2, "erin", within=3 * SHARE)
        assert await is_known(a2, "dave"), "nobody is forgotten"
        assert not await is_known(a1, "dave"), "who is to learn of them again has to ask, too"

    tell(tmp_path, story)


def test_a_stranger_is_believed_about_its_own_users_alone(tmp_path: Path) -> None:
    """The servers of this server's users are peers; only the operator's own choice may vouch for anybody."""

    async def story(world: World) -> None:
        stranger, a1 = await world.homes("stranger", "a1")
        await world.person("carol", stranger)
        elsewhere = At("elsewhere", "wss://elsewhere.example/ws")
        await world.person("victim", elsewhere, known_at=(stranger,))
        known = await world.person("known", elsewhere, known_at=(stranger, a1))
        await world.moves(known, At("third", "wss://third.example/ws"), known_at=(stranger,))
        await world.person("alice", a1, stranger)
        await until_learned(world, a1, "carol", within=SHARE)
        await until(lambda: a1.node.users.routes("known")[0].server_login == "third")
        assert not await is_known(a1, "victim")
        assert len(a1.node.users.records("known")) == 2, "a newer record is true whoever brings it"

    tell(tmp_path, story)


# --- where servers are ---


def test_a_server_that_has_moved_is_linked_at_its_new_address(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, a2 = await world.homes("a1", "a2")
        alice = await world.person("alice", a1, a2)
        await until_directed(world, a1, "a2", a2.url)
        await until_linked(a1, a2)
        old = a2.url
        await a2.stop()
        moved = Home("a2", tmp_path / "moved", world.clock, server={"dataDir": str(a2.folder / "data")})
        try:
            await moved.start()
            assert moved.url != old
            await world.moves(alice, a1, moved)
            await until_directed(world, a1, "a2", moved.url)
            await until(lambda: [link.state for link in links(a1).values()] == [LinkState.CONNECTED])
            assert list(links(a1)) == [moved.url], "the link of before is gone"
            assert links(a1)[moved.url].permanent
            pair = alice.writes("alice", "a note to myself")
            assert await world.send(a1, pair) == "delivered"
            await until(lambda: moved.has(pair))
        finally:
            await moved.discard()

    tell(tmp_path, story)


@pytest.mark.parametrize("hostile_user", ["of another server", "of this server"])
def test_a_record_of_another_user_does_not_redirect_bobs_messages(tmp_path: Path, hostile_user: str) -> None:
    async def story(world: World) -> None:
        a1, b1 = await world.homes("a1", "b1")
        impostor = await world.scripted("b1")
        alice = await world.person("alice", a1, known_at=(b1,))
        await world.person("bob", b1, known_at=(a1,))
        fake = At("b1", impostor.access.url)
        if hostile_user == "of this server":
            await world.person("mallory", a1, fake)
        else:
            await world.person("mallory", fake, known_at=(a1,))
        await until_directed(world, a1, "b1", impostor.access.url)  # the newest record decides where the link goes
        pair = alice.writes("bob", "for your eyes only")
        assert await world.send(a1, pair) == "delivered"
        assert b1.has(pair)
        assert INCOMING not in impostor.ops
        hers = alice.writes("mallory", "and this is for yours")
        assert await world.send(a1, hers) == "delivered"
        await until(lambda: INCOMING in impostor.ops)
        [payload] = [payload for op, _, payload in impostor.calls if op == INCOMING]
        assert payload["incomingBlobB64"] == encode_base64(hers.incoming)
        await world.passes(SHARE)
        assert impostor.ops.count(INCOMING) == 1

    tell(tmp_path, story)


def test_what_the_operator_has_configured_no_record_changes(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        b1 = await world.home("b1")
        impostor = await world.scripted("b1")
        a1 = await world.home("a1", sync_servers=friends(b1))
        await world.person("mallory", a1, At("B1", impostor.access.url))
        await world.passes(3 * REFRESH)
        await until_linked(a1, b1)
        assert list(links(a1)) == [b1.url]
        await world.person("bob", b1)
        assert await world.send(a1, (await world.person("alice", a1)).writes("bob", "hello")) == "delivered"
        assert impostor.ops == []

    tell(tmp_path, story)


def test_a_server_never_links_to_itself_whatever_it_is_called(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1 = await world.home("a1", delivery={"scheduleSeconds": [0, 30]})
        alice = await world.person("alice", a1)
        await world.person("mallory", At("ghost", a1.url), known_at=(a1,))
        await world.person("eve", a1, At("shadow", a1.url.replace("127.0.0.1", "LOCALHOST")))
        await until_directed(world, a1, "ghost", a1.url)
        pair = alice.writes("mallory", "boo")
        assert await world.send(a1, pair) == "accepted"
        await world.passes(60)
        assert a1.state(pair) == "failed", "no server of mallory's has it, and it is not said to be delivered"
        assert not a1.has(pair)
        assert a1.url not in links(a1)
        assert all(link.connected_at_ms is None for link in links(a1).values()), "nor by another spelling"

    tell(tmp_path, story)
