"""Who is known, the routes, and the way in for access records (PROTOCOL.md §3)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shine_node.client.identity import Identity, KeyPair
from shine_node.directory import users as users_module
from shine_node.directory.users import TooManyUsers
from shine_node.protocol.access import AccessRecord
from shine_node.protocol.errors import (
    BadFields,
    BadSignature,
    RateLimited,
    RootKeyMismatch,
    ServerBusy,
    UserAlreadyExists,
)
from shine_node.protocol.sessions import Session
from shine_node.store.changes import Change, KeyChange
from shine_node.store.layout import Table
from shine_node.store.sessions import SESSION_ID_CHARACTERS, add_session, list_sessions
from tests.delivery.rooms import Rooms, run
from tests.store.rooms import NOW, OWN, identity, servers

MINUTE = 60_000


def record_of(who: Identity, *server_logins: str, time_ms: int = NOW) -> AccessRecord:
    return who.access_record(servers(*server_logins), time_ms=time_ms)


def test_nobody_is_known_at_first(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            users = rooms.users
            assert users.get("alice") is None
            assert users.routes("alice") == ()
            assert users.other_server("alice") is None
            assert users.records("alice") == []
            assert users.search("", 5) == []

    run(story())


def test_a_user_of_this_server(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            users = rooms.users
            assert users.own_login == OWN, "in lower case, however the configuration spells it"
            record = record_of(identity("Alice"), OWN.upper(), "Second")
            assert await users.add(record)
            found = users.get("alice")
            assert found is not None
            assert found.record == record
            assert users.get("alice") is found, "from the cache"
            assert users.is_here(found)
            assert users.routes("alice") == servers(OWN.upper(), "Second")
            assert users.other_server("alice") == servers("Second")[0]
            assert users.shares("alice", "SECOND")
            assert not users.shares("alice", OWN)
            assert not users.shares("bob", "second")
            assert users.records("alice") == [record]
            assert users.search("AL", 5) == ["Alice"]

    run(story())


def test_a_user_of_other_servers(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await rooms.know("bob", "r1", "r2")
            found = rooms.users.get("bob")
            assert found is not None
            assert not rooms.users.is_here(found)
            assert rooms.users.routes("bob") == servers("r1", "r2")
            assert rooms.users.other_server("bob") is None, "the other one of this server's users only"

    run(story())


def test_routes_and_keys_are_those_of_the_newest_record_and_older_ones_stay(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            users = rooms.users
            alice = identity("alice")
            moved = alice.with_device(KeyPair.from_seed(bytes(32)))
            first, second = record_of(alice, OWN, "a2"), record_of(moved, "a3", time_ms=NOW + 1)
            before = record_of(alice, "a0", time_ms=NOW - 5)
            assert await users.add(first)
            assert users.get("alice") is not None, "in the cache from here on"
            assert await users.add(second)
            known = users.get("alice")
            assert known is not None
            assert known.record == second
            assert known.device_key_at(NOW) == alice.device.public
            assert users.routes("alice") == servers("a3")
            assert users.other_server("alice") is None
            assert await users.add(before) is False, "older: a success with applied: false"
            assert await users.add(second) is False, "equal: the same"
            assert users.routes("alice") == servers("a3")
            assert users.records("alice") == [before, first, second], "oldest first"

    run(story())


def test_a_new_device_key_ends_the_sessions_that_the_old_one_made(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            told: list[Change] = []
            rooms.store.watch = told.extend
            alice = identity("alice")
            session = Session("s" * SESSION_ID_CHARACTERS, "alice", "ed25519/x", "", "", "", NOW, NOW)

            async def sessions_after(record: AccessRecord) -> int:
                await rooms.store.write(lambda txn: add_session(txn, session, greatest=9))
                await rooms.users.add(record)
                with rooms.store.read() as txn:
                    return len(list_sessions(txn, "alice"))

            moved = alice.with_device(KeyPair.from_seed(bytes(32)))
            assert await sessions_after(record_of(alice, OWN)) == 1
            assert await sessions_after(record_of(alice, OWN, "a2", time_ms=NOW + 1)) == 1, "the same key"
            assert await sessions_after(record_of(moved, OWN, time_ms=NOW - 1)) == 1, "an older record"
            assert told == []
            assert await sessions_after(record_of(moved, OWN, time_ms=NOW + 2)) == 0
            assert told == [KeyChange("alice")]

    run(story())


def test_the_cache_is_bounded_and_loses_its_oldest_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users_module, "MAX_CACHED", 2)

    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            logins = ["alice", "bob", "carol"]
            for login in logins:
                await rooms.know(login, OWN)
            first = [rooms.users.get(login) for login in logins]
            again = [rooms.users.get(login) for login in logins[1:]]
            assert first[1:] == again
            assert first[1] is again[0]
            assert first[2] is again[1]
            assert rooms.users.get("alice") is not first[0], "read from the store anew"
            assert rooms.users.get("alice") == first[0]
            assert len(rooms.users._cache) == 2

    run(story())


# What a record is refused for; nothing is stored then.


async def refused(rooms: Rooms, record: AccessRecord, error: type[Exception], **how: bool) -> None:
    before = rooms.count(Table.ACCESS_RECORDS)
    with pytest.raises(error):
        await rooms.users.add(record, **how)
    assert rooms.count(Table.ACCESS_RECORDS) == before


def test_records_that_are_refused(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            alice = identity("alice")
            record = record_of(alice, OWN)
            wrong = record._replace(signature=bytes(64))
            await refused(rooms, wrong, BadSignature)
            await refused(rooms, record_of(alice, OWN, time_ms=NOW + 15 * MINUTE + 1), BadFields)
            assert await rooms.users.add(record_of(alice, OWN, time_ms=NOW + 15 * MINUTE)), "the clock allows so much"
            thief = Identity.generate("alice")
            await refused(rooms, record_of(thief, "thief", time_ms=NOW + 15 * MINUTE), RootKeyMismatch)
            await refused(rooms, record_of(alice, OWN, time_ms=NOW), UserAlreadyExists, must_be_new=True)
            assert rooms.users.routes("alice") == servers(OWN)

    run(story())


def test_the_root_key_is_checked_before_the_signature(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await rooms.know("alice", OWN)
            forged = record_of(Identity.generate("alice"), OWN)._replace(signature=bytes(64))
            await refused(rooms, forged, RootKeyMismatch)

    run(story())


def test_of_two_that_register_one_login_at_once_one_wins(tmp_path: Path) -> None:
    """Both pass the first look, before either is stored; the transaction looks again."""

    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            mine, other = record_of(identity("alice"), OWN), record_of(Identity.generate("Alice"), OWN)
            adds = [rooms.users.add(record, must_be_new=True) for record in (mine, other)]
            results = await asyncio.gather(*adds, return_exceptions=True)
            assert sorted(map(str, results)) == ["True", "USER_ALREADY_EXISTS: this login is taken"]
            adds = [
                rooms.users.add(record)
                for record in (record_of(identity("bob"), OWN), record_of(Identity.generate("bob"), OWN))
            ]
            found = await asyncio.gather(*adds, return_exceptions=True)
            assert sum(result is True for result in found) == 1
            assert sum(isinstance(result, RootKeyMismatch) for result in found) == 1

    run(story())


def test_a_user_without_a_signature_is_of_this_server_alone(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            record = record_of(identity("alice"), OWN, time_ms=0)._replace(signature=b"")
            assert await rooms.users.add(record, must_be_new=True, local=True, bch_limit=1000)
            found = rooms.users.get("alice")
            assert found is not None
            assert found.record == record
            assert rooms.users.records("alice") == [], "there is nothing that a peer could be told"

    run(story())


def test_a_user_has_a_bounded_number_of_records_and_known_ones_stay_welcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(users_module, "MAX_RECORDS_A_USER", 3)

    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            records = [record_of(identity("alice"), OWN, time_ms=NOW + n) for n in range(4)]
            for record in records[:3]:
                assert await rooms.users.add(record)
            await refused(rooms, records[3], RateLimited)
            assert await rooms.users.add(records[2]) is False, "the same again is a success"
            assert await rooms.users.add(records[0]) is False
            assert await rooms.users.add(record_of(identity("bob"), OWN)), "others are not concerned"

    run(story())


def test_users_of_other_servers_are_bounded_and_those_of_this_one_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(users_module, "MAX_STRANGERS", 2)

    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            for login in ("a", "b"):
                await rooms.know(login, "elsewhere")
            await refused(rooms, record_of(identity("c"), "elsewhere"), TooManyUsers)
            assert rooms.users.get("c") is None
            assert await rooms.users.add(record_of(identity("a"), "moved", time_ms=NOW + 1)), "who is known stays"
            assert await rooms.users.add(record_of(identity("d"), OWN))

    run(story())


def test_a_record_that_makes_somebody_a_user_of_this_server(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            comes = rooms.users.comes_here
            bob = identity("bob")
            assert comes(record_of(bob, "b1", OWN.upper())), "nobody of that login is known"
            assert not comes(record_of(bob, "b1"))
            await rooms.users.add(record_of(bob, "b1"))
            assert comes(record_of(bob, OWN, time_ms=NOW + 1)), "from elsewhere"
            assert not comes(record_of(bob, OWN, time_ms=NOW - 1)), "long ago"
            assert not comes(record_of(bob, "b2", time_ms=NOW + 1))
            await rooms.users.add(record_of(bob, OWN, time_ms=NOW + 1))
            assert not comes(record_of(bob, OWN, "b2", time_ms=NOW + 2)), "who is here already"

    run(story())


def test_a_store_or_a_pool_that_has_too_much_to_do_refuses(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            rooms.store.busy = True
            await refused(rooms, record_of(identity("alice"), OWN), ServerBusy)
            assert rooms.users.get("alice") is None
            rooms.store.busy = False
            assert await rooms.users.add(record_of(identity("alice"), OWN))

    run(story())


@pytest.mark.parametrize("prefix", ["", "a" * 10_000, "ä" * 400, "\0", "\udcff".encode("utf-8", "replace").decode()])
def test_any_prefix_can_be_searched_for(tmp_path: Path, prefix: str) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await rooms.know("alice", OWN)
            assert rooms.users.search(prefix, 5) == ([] if prefix else ["alice"])

    run(story())
