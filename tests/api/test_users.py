"""Registration and access records over real sockets: who may bring what, and what is told of whom."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from shine_node.client.identity import Identity, KeyPair
from shine_node.protocol.access import AccessRecord, AccessServer, record_payload
from shine_node.protocol.encoding import encode_base64
from tests.api.talk import Talk, asked, node
from tests.support.clock import ManualClock
from tests.support.nodes import LocalServer, run

NOW = 1_774_700_600_000
ELSEWHERE = AccessServer("server2", "wss://two.example/ws")
THIRD = AccessServer("server3", "wss://three.example/ws")


def identity(login: str, seed: int = 1) -> Identity:
    """Return a user whose keys are the same in each run."""
    return Identity.from_seeds(
        login, root=bytes([seed]) * 32, blockchain=bytes([seed + 1]) * 32, device=bytes([seed + 2]) * 32
    )


ALICE = identity("Alice")


def identity_payload(user: Identity) -> dict[str, Any]:
    """Return what an unsigned registration says."""
    payload = record_payload(user.access_record([], time_ms=1))
    return {key: payload[key] for key in ("login", "blockchainName", "solanaKey", "blockchainKey", "deviceKey")}


async def talk_as_peer(server: LocalServer, login: str) -> Talk:
    """Return a connection that has introduced itself as another server."""
    talk = await Talk.open(server.url)
    await talk.succeed("ServerHello", {"serverLogin": login, "protocolVersion": 1, "capabilities": []})
    return talk


async def is_known(talk: Talk, login: str) -> bool:
    return bool((await talk.succeed("GetUser", {"login": login}))["exists"])


# --- AddUser ---


def test_an_open_server_registers_anybody_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with node(tmp_path) as server, await Talk.open(server.url) as talk:
            record = ALICE.access_record([server.access], time_ms=NOW)
            assert await talk.succeed("AddUser", record_payload(record)) == {}
            assert await talk.refused("AddUser", record_payload(record)) == (409, "USER_ALREADY_EXISTS")
            thief = identity("aLICE", 50).access_record([server.access], time_ms=NOW + 1)
            assert await talk.refused("AddUser", record_payload(thief)) == (409, "USER_ALREADY_EXISTS")
            assert server.node.users.get("alice").record == record
            await server.restart()
            async with await Talk.open(server.url) as again:
                assert await is_known(again, "ALICE")

    run(story())


def test_the_answers_of_the_fields_and_of_the_signature(tmp_path: Path) -> None:
    async def story() -> None:
        async with node(tmp_path) as server, await Talk.open(server.url) as talk:
            good = record_payload(ALICE.access_record([server.access], time_ms=NOW))
            for change, refusal in (
                ({"blockchainName": "Alice-1"}, (400, "BAD_BLOCKCHAIN_NAME")),
                ({"blockchainName": "bob-001"}, (400, "BAD_BLOCKCHAIN_NAME")),
                ({"deviceKey": "AAAA"}, (400, "BAD_KEY_FORMAT")),
                ({"login": "a b"}, (400, "BAD_LOGIN")),
                ({"timeMs": NOW + 1}, (422, "BAD_SIGNATURE")),
                ({"timeMs": "now"}, (400, "BAD_REQUEST_FORMAT")),
                ({"accessServers": None}, (400, "BAD_FIELDS")),
                ({"bchLimit": -1}, (400, "BAD_FIELDS")),
                ({"bchLimit": "5"}, (400, "BAD_REQUEST_FORMAT")),
            ):
                assert await talk.refused("AddUser", good | change) == refusal, change
            assert not await is_known(talk, "alice")
            assert await talk.succeed("AddUser", good | {"bchLimit": 5_000_000}) == {}

    run(story())


def test_a_record_that_names_other_servers_makes_a_user_known_and_no_more(tmp_path: Path) -> None:
    async def story() -> None:
        async with node(tmp_path) as server, await Talk.open(server.url) as talk:
            await talk.succeed("AddUser", record_payload(ALICE.access_record([ELSEWHERE], time_ms=NOW)))
            user = server.node.users.get("alice")
            assert user is not None
            assert not server.node.users.is_here(user)

    run(story())


@pytest.mark.parametrize("op", ["AddUser", "SetUserAccess"])
def test_a_closed_server_takes_no_registrations(tmp_path: Path, op: str) -> None:
    async def story() -> None:
        registration = {"mode": "closed"}
        async with node(tmp_path, registration=registration) as server, await Talk.open(server.url) as talk:
            record = ALICE.access_record([server.access], time_ms=NOW)
            answer = await talk.ask(op, record_payload(record) | {"registrationToken": ""})
            assert (answer["status"], answer["error"]) == (403, "REGISTRATION_CLOSED")
            assert "owner" in answer["message"]
            assert not await is_known(talk, "alice")

    run(story())


@pytest.mark.parametrize("op", ["AddUser", "SetUserAccess"])
def test_a_server_with_a_token_registers_who_has_it(tmp_path: Path, op: str) -> None:
    async def story() -> None:
        registration = {"mode": "token", "token": "слово"}
        async with node(tmp_path, registration=registration) as server, await Talk.open(server.url) as talk:
            record = record_payload(ALICE.access_record([server.access], time_ms=NOW))
            for wrong in ({}, {"registrationToken": ""}, {"registrationToken": "Слово"}, {"registrationToken": None}):
                answer = await talk.ask(op, record | wrong)
                assert (answer["status"], answer["error"]) == (403, "REGISTRATION_CLOSED")
                assert "слово" not in str(answer)
            assert await talk.refused(op, record | {"registrationToken": 5}) == (400, "BAD_REQUEST_FORMAT")
            assert not await is_known(talk, "alice")
            await talk.succeed(op, record | {"registrationToken": "слово"})
            assert await is_known(talk, "alice")
            newer = record_payload(ALICE.access_record([server.access, ELSEWHERE], time_ms=NOW + 1))
            assert await talk.succeed("SetUserAccess", newer) == {"applied": True}  # no registration any more

    run(story())


def test_unsigned_users_where_the_operator_allows_them(tmp_path: Path) -> None:
    async def story() -> None:
        registration = {"mode": "token", "token": "word", "allowUnsigned": True}
        async with node(tmp_path, registration=registration) as server, await Talk.open(server.url) as talk:
            unsigned = identity_payload(ALICE)
            assert await talk.refused("AddUser", unsigned) == (403, "REGISTRATION_CLOSED")
            unsigned["registrationToken"] = "word"
            assert await talk.refused("AddUser", unsigned | {"timeMs": NOW}) == (400, "BAD_FIELDS")  # half a record
            assert await talk.refused("AddUser", unsigned | {"deviceKey": ""}) == (400, "BAD_FIELDS")
            assert await talk.succeed("AddUser", unsigned) == {}
            assert await talk.refused("AddUser", unsigned) == (409, "USER_ALREADY_EXISTS")
            user = server.node.users.get("alice")
            assert user is not None
            assert server.node.users.is_here(user)
            assert server.node.users.records("alice") == []  # nothing that a peer could be told
            known = await talk.succeed("GetUserAccess", {"login": "alice"})
            assert known == {
                "exists": True,
                **identity_payload(ALICE),
                "accessServers": [{"serverLogin": "server1", "url": server.url}],
                "history": [],
            }
            # Who proves the root key later has a record like anybody else.
            signed = ALICE.access_record([server.access], time_ms=NOW)
            assert await talk.succeed("SetUserAccess", record_payload(signed)) == {"applied": True}
            assert server.node.users.records("alice") == [signed]

    run(story())


def test_without_the_operators_leave_a_registration_is_signed(tmp_path: Path) -> None:
    async def story() -> None:
        async with node(tmp_path) as server, await Talk.open(server.url) as talk:
            assert await talk.refused("AddUser", identity_payload(ALICE)) == (400, "BAD_FIELDS")
            assert not await is_known(talk, "alice")

    run(story())


def test_insecure_addresses_only_where_they_are_allowed(tmp_path: Path) -> None:
    async def story() -> None:
        secure = {"url": "wss://one.example/ws", "pool": {"allowInsecurePeers": False}}
        async with node(tmp_path, server=secure) as server, await Talk.open(server.url) as talk:
            plain = ALICE.access_record([AccessServer("server1", "ws://one.example/ws")], time_ms=NOW)
            for op in ("AddUser", "SetUserAccess"):
                assert await talk.refused(op, record_payload(plain)) == (400, "BAD_FIELDS")

    run(story())


# --- SetUserAccess ---


def test_newer_records_replace_older_ones_and_all_are_kept(tmp_path: Path) -> None:
    async def story() -> None:
        async with node(tmp_path) as server, await Talk.open(server.url) as talk:
            devices = [KeyPair.from_seed(bytes([number]) * 32) for number in (10, 11, 12)]
            first, second, third = (
                ALICE.with_device(device).access_record([server.access], time_ms=NOW + step)
                for step, device in enumerate(devices)
            )
            await talk.succeed("AddUser", record_payload(first))
            assert await talk.succeed("SetUserAccess", record_payload(third)) == {"applied": True}
            for _ in range(2):  # an older one is taken for the history, once
                assert await talk.succeed("SetUserAccess", record_payload(second)) == {"applied": False}
            known = await talk.succeed("GetUserAccess", {"login": "ALICE"})
            assert known == {
                "exists": True,
                **record_payload(third),
                "history": [record_payload(first), record_payload(second)],
            }
            stranger = identity("Alice", 50).access_record([server.access], time_ms=NOW + 9)
            assert await talk.refused("SetUserAccess", record_payload(stranger)) == (409, "ROOT_KEY_MISMATCH")

    run(story())


def test_of_more_records_than_half_a_frame_holds_the_oldest_are_left_out(tmp_path: Path) -> None:
    limits = {"maxFrameBytes": 70_000, "maxBodyBytes": 1024, "maxBlockBytes": 1024}

    async def story() -> None:
        async with node(tmp_path, limits=limits) as server, await Talk.open(server.url) as talk:
            records = [ALICE.access_record([ELSEWHERE, THIRD], time_ms=NOW + number) for number in range(80)]
            for record in records:
                assert await server.node.users.add(record)
            await talk.say(asked("GetUserAccess", {"login": "alice"}))
            frame = await talk.socket.recv(decode=False)
            assert 30_000 < len(frame) <= 35_000
            answer = orjson.loads(frame)["payload"]
            history = answer.pop("history")
            assert answer == {"exists": True, **record_payload(records[-1])}
            assert history == [record_payload(record) for record in records[-1 - len(history) : -1]]

    run(story())


def test_who_is_not_known_is_told_so(tmp_path: Path) -> None:
    async def story() -> None:
        async with node(tmp_path) as server, await Talk.open(server.url) as talk:
            for op in ("GetUserAccess", "GetUser"):
                assert await talk.succeed(op, {"login": "nobody"}) == {"exists": False}
                assert await talk.refused(op, {"login": "a b"}) == (400, "BAD_LOGIN")
                assert await talk.refused(op, {}) == (400, "BAD_FIELDS")

    run(story())


PEERS = [{"login": "friend", "url": "wss://friend.example/ws"}]


@pytest.mark.parametrize(
    ("peer", "servers", "accepted"),
    [
        (None, [ELSEWHERE], False),  # a stranger's word is none
        (None, [], False),
        ("server9", [ELSEWHERE], False),  # nor is that of a server that has nothing to do with the user
        ("SERVER2", [ELSEWHERE], True),
        ("server3", [ELSEWHERE, THIRD], True),
        ("Friend", [ELSEWHERE], True),  # the operator's own peers are believed
        ("friend", [], True),
    ],
)
def test_who_may_bring_the_first_record_of_a_user_from_elsewhere(
    tmp_path: Path, peer: str | None, servers: list[AccessServer], accepted: bool
) -> None:
    async def story() -> None:
        async with node(tmp_path, registration={"mode": "closed"}, sync_servers=PEERS) as server:
            talk = await Talk.open(server.url) if peer is None else await talk_as_peer(server, peer)
            async with talk:
                record = record_payload(ALICE.access_record(servers, time_ms=NOW))
                if accepted:
                    assert await talk.succeed("SetUserAccess", record) == {"applied": True}
                else:
                    assert await talk.refused("SetUserAccess", record) == (403, "FORBIDDEN")
                assert await is_known(talk, "alice") is accepted
            async with await Talk.open(server.url) as anybody:
                newer = ALICE.access_record(servers, time_ms=NOW + 1)
                if accepted:  # a newer record of a known user may come from anybody: it is signed
                    assert await anybody.succeed("SetUserAccess", record_payload(newer)) == {"applied": True}

    run(story())


@pytest.mark.parametrize("peer", [None, "server2", "friend"])
def test_a_first_record_that_names_this_server_is_a_registration_whoever_brings_it(
    tmp_path: Path, peer: str | None
) -> None:
    async def story() -> None:
        async with node(tmp_path, registration={"mode": "closed"}, sync_servers=PEERS) as server:
            talk = await Talk.open(server.url) if peer is None else await talk_as_peer(server, peer)
            async with talk:
                record = ALICE.access_record([ELSEWHERE, server.access], time_ms=NOW)
                assert await talk.refused("SetUserAccess", record_payload(record)) == (403, "REGISTRATION_CLOSED")

    run(story())


def test_a_user_from_elsewhere_comes_to_this_server_by_a_registration(tmp_path: Path) -> None:
    async def story() -> None:
        registration = {"mode": "token", "token": "word"}
        async with node(tmp_path, login="Server1", registration=registration) as server:
            async with await talk_as_peer(server, "server2") as peer:
                abroad = ALICE.access_record([ELSEWHERE], time_ms=NOW)
                await peer.succeed("SetUserAccess", record_payload(abroad))
            async with await Talk.open(server.url) as talk:
                own = AccessServer("sERVER1", server.url)
                earlier = ALICE.access_record([own], time_ms=NOW - 5)
                assert await talk.succeed("SetUserAccess", record_payload(earlier)) == {"applied": False}
                comes = record_payload(ALICE.access_record([ELSEWHERE, own], time_ms=NOW + 1))
                assert await talk.refused("SetUserAccess", comes) == (403, "REGISTRATION_CLOSED")
                assert server.node.users.get("alice").record == abroad
                assert await talk.succeed("SetUserAccess", comes | {"registrationToken": "word"}) == {"applied": True}
                stays = record_payload(ALICE.access_record([own], time_ms=NOW + 2))
                assert await talk.succeed("SetUserAccess", stays) == {"applied": True}
                leaves = record_payload(ALICE.access_record([THIRD], time_ms=NOW + 3))
                assert await talk.succeed("SetUserAccess", leaves) == {"applied": True}
                returns = record_payload(ALICE.access_record([own], time_ms=NOW + 4))
                assert await talk.refused("SetUserAccess", returns) == (403, "REGISTRATION_CLOSED")

    run(story())


def test_a_record_from_the_future_is_refused_by_the_servers_clock(tmp_path: Path) -> None:
    async def story() -> None:
        clock = ManualClock(NOW)
        async with node(tmp_path, clock=clock) as server, await Talk.open(server.url) as talk:
            record = record_payload(ALICE.access_record([server.access], time_ms=NOW + 900_001))
            assert await talk.refused("AddUser", record) == (400, "BAD_FIELDS")
            clock.jump(1)
            assert await talk.succeed("AddUser", record) == {}

    run(story())


# --- looking for users ---


def test_the_keys_of_a_user_are_told_whatever_the_case_of_the_login(tmp_path: Path) -> None:
    async def story() -> None:
        async with node(tmp_path) as server, await Talk.open(server.url) as talk:
            await talk.succeed("AddUser", record_payload(ALICE.access_record([server.access], time_ms=NOW)))
            for login in ("alice", "ALICE", "aLiCe"):
                assert await talk.succeed("GetUser", {"login": login}) == {
                    "exists": True,
                    "login": "Alice",
                    "blockchainName": "Alice-001",
                    "solanaKey": encode_base64(ALICE.root.public),
                    "blockchainKey": encode_base64(ALICE.blockchain.public),
                    "deviceKey": encode_base64(ALICE.device.public),
                }

    run(story())


def test_search_finds_at_most_five_by_any_case_of_their_beginning(tmp_path: Path) -> None:
    async def story() -> None:
        async with node(tmp_path) as server, await Talk.open(server.url) as talk:
            for number, login in enumerate(["Ann", "anna", "ANTON", "an.1", "an-2", "An_3", "bob", "b"]):
                record: AccessRecord = identity(login, 3 * number + 1).access_record([server.access], time_ms=NOW)
                await talk.succeed("AddUser", record_payload(record))

            async def search(prefix: str) -> list[str]:
                found = await talk.succeed("SearchUsers", {"prefix": prefix})
                assert list(found) == ["logins"]
                return list(found["logins"])

            lower, upper = await search("an"), await search("AN")
            assert lower == upper
            assert len(lower) == 5
            assert set(lower) < {"Ann", "anna", "ANTON", "an.1", "an-2", "An_3"}
            assert await search("aNN") == ["Ann", "anna"]
            assert await search("ANTON") == ["ANTON"]
            assert await search("b") == ["b", "bob"]
            for nothing in ("c", "bobb", " an", "%", "*", "an\0", "\U0001f600", "x" * 5000):
                assert await search(nothing) == []
            assert await talk.refused("SearchUsers", {"prefix": ""}) == (400, "BAD_FIELDS")
            assert await talk.refused("SearchUsers", {}) == (400, "BAD_FIELDS")
            assert await talk.refused("SearchUsers", {"prefix": 5}) == (400, "BAD_REQUEST_FORMAT")

    run(story())
