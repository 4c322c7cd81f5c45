"""Operations about settings over real sockets: who may do what, what is answered, and how long an answer is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from shine_node.api import settings as settings_module
from shine_node.api.connection import LiveSession
from shine_node.client.identity import Identity
from shine_node.client.messages import make_message
from shine_node.client.settings import make_setting
from shine_node.protocol.access import AccessServer, record_payload
from shine_node.protocol.hello import hello_payload
from shine_node.protocol.settings import setting_payload
from shine_node.store.environment import Transaction
from shine_node.store.layout import Table
from shine_node.store.settings import acknowledge_setting
from tests.api.talk import Talk, asked, node
from tests.support.clock import ManualClock
from tests.support.nodes import LocalServer, eventually, run
from tests.support.scripted_peer import PeerConnection, ScriptedPeer

NOW = 1_774_700_600_000
ALICE, BOB, CAROL = (Identity.generate(login) for login in ("Alice", "bob", "carol"))
ELSEWHERE = AccessServer("server2", "ws://127.0.0.1:9/ws")
UPSERT, GET, LIST, MARK = "UpsertUserParam", "GetUserParam", "ListUserParams", "MarkAllUserSettingsUnsynced"


def signed(user: Identity = ALICE, param: str = "theme", value: str = "dark", *, time_ms: int = NOW) -> dict[str, Any]:
    return setting_payload(make_setting(user, param, value, time_ms=time_ms))


@asynccontextmanager
async def home(folder: Path, **sections: Any) -> AsyncIterator[tuple[LocalServer, Talk]]:
    """A node with alice, who has another server too, bob, who has only this one, and carol, who is elsewhere."""
    async with node(folder, clock=ManualClock(NOW), **sections) as server, await Talk.open(server.url) as talk:
        for user, homes in (
            (ALICE, [server.access, ELSEWHERE]),
            (BOB, [server.access]),
            (CAROL, [ELSEWHERE]),
        ):
            await talk.succeed("AddUser", record_payload(user.access_record(homes, time_ms=NOW - 1000)))
        yield server, talk


def unsynced(server: LocalServer) -> tuple[int, int]:
    with server.node.store.read() as txn:
        return txn.count(Table.SETTINGS_UNSYNCED), txn.count(Table.OUTBOX_UNSYNCED)


def acknowledge_all(txn: Transaction) -> None:
    for row in list(txn.scan_keys(Table.SETTINGS_UNSYNCED)):
        assert acknowledge_setting(txn, row)


def test_a_setting_is_set_read_and_listed_without_a_session(tmp_path: Path) -> None:
    async def story() -> None:
        async with home(tmp_path) as (_, talk):
            assert await talk.succeed(GET, {"login": "alice", "param": "theme"}) == {"exists": False}
            assert await talk.succeed(UPSERT, signed()) == {}
            assert await talk.succeed(UPSERT, signed(param="b.c", value="")) == {}
            assert await talk.succeed(UPSERT, signed(time_ms=NOW - 1, value="an older one")) == {}
            assert await talk.succeed(GET, {"login": "ALICE", "param": "theme"}) == {"exists": True, **signed()}
            assert await talk.succeed(GET, {"login": "alice", "param": "Theme"}) == {"exists": False}
            assert await talk.succeed(LIST, {"login": "alice"}) == {
                "login": "Alice",
                "params": [signed(param="b.c", value=""), signed()],
                "cursor": "theme",
                "hasMore": False,
            }
            assert await talk.succeed(LIST, {"login": "bob"}) == {
                "login": "bob",
                "params": [],
                "cursor": "",
                "hasMore": False,
            }

    run(story())


@pytest.mark.parametrize(
    ("op", "payload", "refusal"),
    [
        (UPSERT, signed(CAROL), (421, "NOT_ACCESS_SERVER")),
        (UPSERT, signed(Identity.generate("dave")), (404, "USER_NOT_FOUND")),
        (UPSERT, signed() | {"value": "x" * 1025}, (413, "TOO_LARGE")),
        (UPSERT, signed() | {"value": "light"}, (403, "SIGNATURE_INVALID")),
        (UPSERT, signed() | {"device_key": signed(BOB)["device_key"]}, (403, "DEVICE_KEY_MISMATCH")),
        (GET, {"login": "carol", "param": "theme"}, (421, "NOT_ACCESS_SERVER")),
        (GET, {"login": "dave", "param": "theme"}, (404, "USER_NOT_FOUND")),
        (GET, {"login": "alice"}, (400, "BAD_FIELDS")),
        (GET, {"login": "alice", "param": "1"}, (400, "BAD_FIELDS")),
        (GET, {"login": "a b", "param": "theme"}, (400, "BAD_LOGIN")),
        (LIST, {"login": "carol"}, (421, "NOT_ACCESS_SERVER")),
        (LIST, {"login": "dave"}, (404, "USER_NOT_FOUND")),
        (LIST, {}, (400, "BAD_FIELDS")),
        (LIST, {"login": "alice", "cursor": "1"}, (400, "BAD_FIELDS")),
        (LIST, {"login": "alice", "cursor": 5}, (400, "BAD_REQUEST_FORMAT")),
        (LIST, {"login": "alice", "limit": "5"}, (400, "BAD_REQUEST_FORMAT")),
    ],
)
def test_what_is_refused(tmp_path: Path, op: str, payload: dict[str, object], refusal: tuple[int, str]) -> None:
    async def story() -> None:
        limits = {"maxBodyBytes": 1024, "maxBlockBytes": 1024}
        async with home(tmp_path, limits=limits) as (server, talk):
            assert await talk.refused(op, payload) == refusal
            with server.node.store.read() as txn:
                assert txn.count(Table.SETTINGS) == 0

    run(story())


def test_peers_are_asked_for_a_client_and_not_for_a_peer(tmp_path: Path) -> None:
    dave = Identity.generate("dave")

    async def knows(connection: PeerConnection, request: dict[str, Any]) -> None:
        there = AccessServer("server2", connection.peer.url)
        await connection.answer(
            request, {"exists": True, "history": [], **record_payload(dave.access_record([there], time_ms=1))}
        )

    async def story() -> None:
        async with ScriptedPeer("server2", {"GetUserAccess": knows}) as peer:
            friends = [{"login": "server2", "url": peer.url}]
            async with node(tmp_path, sync_servers=friends) as server, await Talk.open(server.url) as talk:

                async def connected() -> bool:
                    return bool(server.node.pool.connected())

                await eventually(connected)
                await talk.succeed("ServerHello", hello_payload("server3"))
                named = {"login": "dave", "param": "theme"}
                for op, payload in ((UPSERT, signed(dave)), (GET, named), (LIST, named)):
                    assert await talk.refused(op, payload) == (404, "USER_NOT_FOUND")
                async with await Talk.open(server.url) as client:
                    assert await client.refused(GET, named) == (421, "NOT_ACCESS_SERVER")

    run(story())


# Lists


def test_a_list_that_does_not_fit_has_a_cursor(tmp_path: Path) -> None:
    limits = {"maxFrameBytes": 70_000, "maxBodyBytes": 1024, "maxBlockBytes": 1024}
    settings = [signed(param=f"p{number:03}x", value="v" * 900) for number in range(60)]

    async def story() -> None:
        async with home(tmp_path, limits=limits) as (_, talk):
            for setting in settings:
                await talk.succeed(UPSERT, setting)
            await talk.say(asked(LIST, {"login": "alice"}))
            frame = await talk.socket.recv(decode=False)
            assert 30_000 < len(frame) <= 35_000
            answer = orjson.loads(frame)["payload"]
            found = answer["params"]
            while answer["hasMore"]:
                answer = await talk.succeed(LIST, {"login": "alice", "cursor": answer["cursor"]})
                found += answer["params"]
            assert found == settings
            assert answer["cursor"] == settings[-1]["param"]
            end = await talk.succeed(LIST, {"login": "alice", "cursor": answer["cursor"]})
            assert (end["params"], end["cursor"], end["hasMore"]) == ([], answer["cursor"], False)

    run(story())


def test_the_limit_of_a_list(tmp_path: Path) -> None:
    async def story() -> None:
        async with home(tmp_path) as (_, talk):
            for param in ("a", "b", "c"):
                await talk.succeed(UPSERT, signed(param=param))
            for limit, count in ((2, 2), (0, 1), (-5, 1), (3, 3), (2**63, 3)):
                answer = await talk.succeed(LIST, {"login": "alice", "limit": limit, "cursor": None})
                assert (len(answer["params"]), answer["hasMore"]) == (count, count < 3)
            rest = await talk.succeed(LIST, {"login": "alice", "limit": 2, "cursor": "a"})
            assert [setting["param"] for setting in rest["params"]] == ["b", "c"]
            assert (await talk.succeed(LIST, {"login": "alice", "cursor": ""}))["params"][0]["param"] == "a"

    run(story())


def test_one_setting_goes_however_long_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"maxFrameBytes": 70_000, "maxBodyBytes": 1024, "maxBlockBytes": 1024}
    monkeypatch.setattr(settings_module, "ENVELOPE_BYTES", 34_000)  # what is left is less than one takes

    async def story() -> None:
        async with home(tmp_path, limits=limits) as (_, talk):
            settings = [signed(param=param, value="\1" * 600) for param in ("a", "b")]
            for setting in settings:
                await talk.succeed(UPSERT, setting)
            first = await talk.succeed(LIST, {"login": "alice"})
            assert (first["params"], first["hasMore"]) == (settings[:1], True)
            second = await talk.succeed(LIST, {"login": "alice", "cursor": first["cursor"]})
            assert (second["params"], second["hasMore"]) == (settings[1:], False)

    run(story())


# All of them again


def test_all_that_is_mine_is_sent_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with home(tmp_path) as (server, talk):
            for param in ("a", "b"):
                await talk.succeed(UPSERT, signed(param=param))
            await talk.succeed(UPSERT, signed(BOB))
            message = make_message(ALICE, "alice", "to myself", time_ms=NOW)
            await talk.succeed("SendMessagePair", message.payload)
            assert unsynced(server) == (2, 2)
            await server.node.store.write(acknowledge_all)
            assert await talk.refused(MARK) == (422, "NOT_AUTHENTICATED")
            [connection] = server.node._endpoint._connections
            connection.session = LiveSession("alice", "x")
            assert await talk.refused(MARK, {"login": "bob"}) == (403, "FORBIDDEN")
            assert await talk.refused(MARK, {"login": "a b"}) == (400, "BAD_LOGIN")
            assert await talk.refused(MARK, {"login": ""}) == (400, "BAD_FIELDS")
            assert unsynced(server)[0] == 0

            async def done() -> bool:
                return unsynced(server) == (2, 2)

            for payload in ({}, {"login": "ALICE"}, {"login": None}):
                assert await talk.succeed(MARK, payload) == {"settings": 2, "messages": 2}
                await eventually(done)
            connection.session = LiveSession("bob", "x")
            assert await talk.succeed(MARK) == {"settings": 0, "messages": 0}, "there is nobody to send it to"
            connection.session = None

    run(story())
