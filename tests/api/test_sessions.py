"""Sessions over real sockets: every vector, nonces that serve once, bounds, lists, and ends of live connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from shine_node.api.sessions import MAX_SESSIONS_A_USER, SessionOperations
from shine_node.client.connection import Connection, ConnectionLost, RequestRefused
from shine_node.client.identity import Identity, KeyPair
from shine_node.protocol.access import record_payload
from shine_node.protocol.encoding import decode_base64, encode_base64
from shine_node.protocol.sessions import Session, Signed
from shine_node.store.environment import Transaction
from shine_node.store.sessions import add_session, close_session, get_session
from tests.support.clock import ManualClock
from tests.support.nodes import PATIENCE, LocalServer, run
from tests.support.vectors import load_vectors

NOW = 1_774_700_600_000
SESSION = KeyPair.from_seed(b"\7" * 32)
SESSION_KEY = "ed25519/" + encode_base64(SESSION.public)


class Home:
    """A running node on a clock that only the test moves, and one user of it."""

    def __init__(self, server: LocalServer, clock: ManualClock, user: Identity) -> None:
        self.server = server
        self.clock = clock
        self.user = user

    async def create(self, client: Connection, **change: object) -> str:
        """Create a session; a member of the payload may differ, before it is signed."""
        nonce = (await client.request("AuthChallenge", {"login": self.user.login}))["authNonce"]
        payload = self.create_payload(nonce, **change)
        return str((await client.request("CreateAuthSession", payload))["sessionId"])

    def create_payload(self, nonce: str, **change: object) -> dict[str, Any]:
        payload: dict[str, Any] = {
            "login": self.user.login,
            "sessionKey": SESSION_KEY,
            "storagePwd": "pwd",
            "timeMs": self.clock.now_ms(),
            "authNonce": nonce,
            "deviceKey": encode_base64(self.user.device.public),
            "clientInfo": "a test",
        } | change
        fields = ("login", "sessionKey", "storagePwd", "timeMs", "authNonce")
        text = ":".join(["AUTH_CREATE_SESSION", *(str(payload[field]) for field in fields)])
        return payload | {"signatureB64": encode_base64(self.user.device.sign(text.encode()))}

    async def log_in(self, client: Connection, session_id: str, **change: object) -> dict[str, Any]:
        nonce = (await client.request("SessionChallenge", {"sessionId": session_id}))["nonce"]
        return await client.request("SessionLogin", self.login_payload(session_id, nonce, **change))

    def login_payload(self, session_id: str, nonce: str, **change: object) -> dict[str, Any]:
        time_ms = self.clock.now_ms()
        text = f"SESSION_LOGIN:{session_id}:{time_ms}:{nonce}"
        return {
            "sessionId": session_id,
            "sessionKey": SESSION_KEY,
            "timeMs": time_ms,
            "signatureB64": encode_base64(SESSION.sign(text.encode())),
            "clientInfo": "again",
        } | change


@asynccontextmanager
async def home(folder: Path, user: Identity | None = None) -> AsyncIterator[Home]:
    clock = ManualClock(NOW)
    server = LocalServer("Home", folder, clock=clock)
    try:
        await server.start()
        user = user or Identity.generate("Alice")
        await server.request("AddUser", record_payload(user.access_record([server.access], time_ms=NOW)))
        yield Home(server, clock, user)
    finally:
        await server.discard()


async def refusal(client: Connection, op: str, payload: dict[str, Any]) -> tuple[int, str]:
    """Make a request that must be refused, and return status and code."""
    with pytest.raises(RequestRefused) as refused:
        await client.request(op, payload)
    return refused.value.status, refused.value.code


async def ended(client: Connection) -> str:
    """Wait until the server has ended a connection; how it did so."""
    with pytest.raises(ConnectionLost) as lost:
        await client.next_event(timeout=PATIENCE)
    return str(lost.value)


# The vectors


def test_every_case_of_the_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = load_vectors("sessions")

    def identity(login: str) -> Identity:
        keys = vectors["keys"][login]
        root, blockchain, device = (bytes.fromhex(keys[f"{name}SeedHex"]) for name in ("root", "blockchain", "device"))
        return Identity.from_seeds(login, root=root, blockchain=blockchain, device=device)

    async def story() -> dict[str, str | None]:
        found = {}
        async with home(tmp_path, identity("alice")) as here:
            record = identity("bob").access_record([here.server.access], time_ms=NOW)
            await here.server.request("AddUser", record_payload(record))
            for case in vectors["cases"]:
                async with await here.server.connect() as client:
                    found[case["name"]] = await run_case(here, client, vectors, case, monkeypatch)
        return found

    assert run(story()) == {case["name"]: case["error"] for case in vectors["cases"]}


async def run_case(
    here: Home, client: Connection, vectors: dict[str, Any], case: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> str | None:
    """Bring a node to where a case begins, and return the error that it answers."""
    given = case["challenge"]
    stored = dict(vectors["sessions"])
    passing = given.get("sessionId") if given else None
    if passing is not None:
        stored.setdefault(passing, SESSION_KEY)  # one that is unknown later on existed when it was asked for

    def prepare(txn: Transaction) -> None:
        for session_id, key in stored.items():
            session = Session(session_id, "alice", key, "pwd", "", "", NOW, NOW)
            if get_session(txn, session_id) is None:
                add_session(txn, session, greatest=MAX_SESSIONS_A_USER)

    await here.server.node.store.write(prepare)
    if given:
        here.clock.jump(given["atMs"] - here.clock.now_ms())
        nonce = given.get("authNonce") or given["nonce"]
        with monkeypatch.context() as patch:
            patch.setattr("shine_node.api.sessions.new_nonce", lambda: nonce)
            if case["op"] == "CreateAuthSession":
                assert await client.request("AuthChallenge", {"login": given["login"]}) == {"authNonce": nonce}
            else:
                assert await client.request("SessionChallenge", {"sessionId": passing}) == {"nonce": nonce}
    if passing is not None and passing not in vectors["sessions"]:
        await here.server.node.store.write(lambda txn: close_session(txn, passing, login="alice"))
    here.clock.jump(case.get("nowMs", vectors["nowMs"]) - here.clock.now_ms())
    try:
        await client.request(case["op"], case["payload"])
    except RequestRefused as refused:
        assert refused.status == (400 if refused.code == "BAD_KEY_FORMAT" else 422)
        return refused.code
    return None


# The way of a session


def test_a_session_is_created_and_logged_in_to(tmp_path: Path) -> None:
    async def story() -> None:
        async with home(tmp_path) as here:
            async with await here.server.connect() as client:
                session_id = await here.create(client)
                assert len(session_id) == 43
                assert len(decode_base64(session_id + "=", "sessionId")) == 32
                created = (await client.request("ListSessions", {}))["sessions"]
            await here.server.restart()  # sessions outlive the process
            here.clock.jump(5_000)
            async with await here.server.connect() as client:
                assert await here.log_in(client, session_id) == {"storagePwd": "pwd"}
                listed = (await client.request("ListSessions", {}))["sessions"]
        [entry] = created
        agent = entry["clientInfoFromRequest"]
        assert "websockets" in agent
        assert entry == {
            "sessionId": session_id,
            "clientInfoFromClient": "a test",
            "clientInfoFromRequest": agent,
            "geo": "",
            "lastAuthenticatedAtMs": NOW,
        }
        assert listed == [entry | {"clientInfoFromClient": "again", "lastAuthenticatedAtMs": NOW + 5_000}]

    run(story())


def test_a_login_without_news_of_the_client_keeps_what_it_said(tmp_path: Path) -> None:
    async def story() -> None:
        async with home(tmp_path) as here, await here.server.connect() as client:
            session_id = await here.create(client)
            await here.log_in(client, session_id, clientInfo=None)
            [entry] = (await client.request("ListSessions", {}))["sessions"]
            assert entry["clientInfoFromClient"] == "a test"

    run(story())


def test_a_nonce_serves_once_whatever_comes_of_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with home(tmp_path) as here, await here.server.connect() as client:
            session_id = await here.create(client)
            nonce = (await client.request("AuthChallenge", {"login": "alice"}))["authNonce"]
            right = here.create_payload(nonce)
            wrong = (
                {"signatureB64": encode_base64(bytes(64))},
                {"authNonce": "x"},
                {"sessionKey": None},
                {"storagePwd": "x" * 2000},
            )
            for change in wrong:
                nonce = (await client.request("AuthChallenge", {"login": "alice"}))["authNonce"]
                right = here.create_payload(nonce)
                assert (await refusal(client, "CreateAuthSession", right | change))[1] != "NO_STEP1_CONTEXT"
                assert await refusal(client, "CreateAuthSession", right) == (422, "NO_STEP1_CONTEXT")
            for login_change in ({"signatureB64": encode_base64(bytes(64))}, {"sessionKey": None}, {"sessionId": "x"}):
                nonce = (await client.request("SessionChallenge", {"sessionId": session_id}))["nonce"]
                right = here.login_payload(session_id, nonce)
                assert (await refusal(client, "SessionLogin", right | login_change))[1] != "NO_CHALLENGE"
                assert await refusal(client, "SessionLogin", right) == (422, "NO_CHALLENGE")
            assert len((await client.request("ListSessions", {}))["sessions"]) == 1

    run(story())


def test_of_two_tries_at_once_with_one_nonce_one_succeeds(tmp_path: Path) -> None:
    async def story() -> None:
        async with home(tmp_path) as here, await here.server.connect() as client:
            nonce = (await client.request("AuthChallenge", {"login": "alice"}))["authNonce"]
            payload = here.create_payload(nonce)
            tries = [client.request("CreateAuthSession", payload) for _ in range(5)]
            results = await asyncio.gather(*tries, return_exceptions=True)
            assert [isinstance(result, RequestRefused) for result in results].count(False) == 1
            assert len((await client.request("ListSessions", {}))["sessions"]) == 1

    run(story())


def test_a_nonce_serves_on_its_connection_only(tmp_path: Path) -> None:
    async def story() -> None:
        async with home(tmp_path) as here, await here.server.connect() as one, await here.server.connect() as two:
            nonce = (await one.request("AuthChallenge", {"login": "alice"}))["authNonce"]
            payload = here.create_payload(nonce)
            assert await refusal(two, "CreateAuthSession", payload) == (422, "NO_STEP1_CONTEXT")
            await one.request("CreateAuthSession", payload)

    run(story())


def test_a_new_challenge_replaces_the_earlier_one(tmp_path: Path) -> None:
    async def story() -> None:
        async with home(tmp_path) as here, await here.server.connect() as client:
            earlier = (await client.request("AuthChallenge", {"login": "alice"}))["authNonce"]
            later = (await client.request("AuthChallenge", {"login": "alice"}))["authNonce"]
            assert earlier != later
            assert await refusal(client, "CreateAuthSession", here.create_payload(earlier)) == (
                422,
                "AUTH_NONCE_MISMATCH",
            )

    run(story())


def test_empty_fields_and_unknown_names(tmp_path: Path) -> None:
    async def story() -> None:
        async with home(tmp_path) as here, await here.server.connect() as client:
            for empty in ({}, {"login": None}, {"login": ""}):
                assert await refusal(client, "AuthChallenge", empty) == (400, "EMPTY_LOGIN")
            assert await refusal(client, "AuthChallenge", {"login": "nobody"}) == (422, "UNKNOWN_USER")
            for empty in ({}, {"sessionId": None}, {"sessionId": ""}):
                assert await refusal(client, "SessionChallenge", empty) == (400, "EMPTY_SESSION_ID")
            assert await refusal(client, "SessionChallenge", {"sessionId": "x"}) == (422, "SESSION_NOT_FOUND")
            await here.create(client)
            assert await refusal(client, "CloseActiveSession", {}) == (400, "EMPTY_SESSION_ID")
            assert await refusal(client, "CloseActiveSession", {"sessionId": "x"}) == (422, "SESSION_NOT_FOUND")

    run(story())


def test_lists_and_ends_need_a_session(tmp_path: Path) -> None:
    async def story() -> None:
        async with home(tmp_path) as here, await here.server.connect() as client:
            assert await refusal(client, "ListSessions", {}) == (422, "NOT_AUTHENTICATED")
            assert await refusal(client, "CloseActiveSession", {"sessionId": "x"}) == (422, "NOT_AUTHENTICATED")

    run(story())


def test_a_device_key_that_was_replaced_creates_no_sessions(tmp_path: Path) -> None:
    async def story() -> None:
        async with home(tmp_path) as here, await here.server.connect() as client:
            newer = here.user.with_device(KeyPair.from_seed(b"\x08" * 32))
            record = newer.access_record([here.server.access], time_ms=NOW + 1)
            await client.request("SetUserAccess", record_payload(record))
            nonce = (await client.request("AuthChallenge", {"login": "alice"}))["authNonce"]
            assert await refusal(client, "CreateAuthSession", here.create_payload(nonce)) == (
                422,
                "DEVICE_KEY_NOT_ACTUAL",
            )
            here.user = newer
            await here.create(client)

    run(story())


def test_a_key_that_is_replaced_while_its_session_is_being_made_makes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with home(tmp_path) as here, await here.server.connect() as client:
            users = here.server.node.users
            newer = here.user.with_device(KeyPair.from_seed(b"\x08" * 32))
            prove = SessionOperations._prove

            async def prove_late(self: SessionOperations, signed: Signed) -> None:
                await prove(self, signed)
                await users.add(newer.access_record([here.server.access], time_ms=NOW + 1))

            monkeypatch.setattr(SessionOperations, "_prove", prove_late)
            nonce = (await client.request("AuthChallenge", {"login": "alice"}))["authNonce"]
            assert await refusal(client, "CreateAuthSession", here.create_payload(nonce)) == (
                422,
                "DEVICE_KEY_NOT_ACTUAL",
            )
            assert await refusal(client, "ListSessions", {}) == (422, "NOT_AUTHENTICATED")

    run(story())


# Ends


def test_a_new_device_key_ends_all_sessions_of_the_old_one(tmp_path: Path) -> None:
    async def story() -> None:
        async with home(tmp_path) as here, await here.server.connect() as one, await here.server.connect() as two:
            session_id = await here.create(one)
            await here.create(two)
            newer = here.user.with_device(KeyPair.from_seed(b"\x08" * 32))
            record = record_payload(newer.access_record([here.server.access], time_ms=NOW + 1))
            assert await here.server.request("SetUserAccess", record) == {"applied": True}
            for client in (one, two):
                assert "1008: the device key was replaced" in await ended(client)
            async with await here.server.connect() as again:
                assert await refusal(again, "SessionChallenge", {"sessionId": session_id}) == (
                    422,
                    "SESSION_NOT_FOUND",
                )

    run(story())


def test_a_login_that_meets_a_new_device_key_does_not_outlive_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with home(tmp_path) as here, await here.server.connect() as bringing:
            for number in range(1, 11):
                async with await here.server.connect() as late:
                    session_id = await here.create(late)
                    nonce = (await late.request("SessionChallenge", {"sessionId": session_id}))["nonce"]
                    login = late.request("SessionLogin", here.login_payload(session_id, nonce))
                    here.user = here.user.with_device(KeyPair.from_seed(bytes([number]) * 32))
                    record = here.user.access_record([here.server.access], time_ms=NOW + number)
                    bring = bringing.request("SetUserAccess", record_payload(record))
                    await asyncio.gather(login, bring, return_exceptions=True)
                    assert "1008" in await ended(late)

    run(story())


def test_a_session_that_is_closed_loses_its_connections_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with home(tmp_path) as here, await here.server.connect() as asking:
            kept = await here.create(asking)
            async with await here.server.connect() as one, await here.server.connect() as two:
                session_id = await here.create(one)
                await here.log_in(two, session_id)
                assert await asking.request("CloseActiveSession", {"sessionId": session_id}) == {}
                for client in (one, two):
                    assert "1008" in await ended(client)
            [entry] = (await asking.request("ListSessions", {}))["sessions"]
            assert entry["sessionId"] == kept
            assert await refusal(asking, "SessionChallenge", {"sessionId": session_id}) == (422, "SESSION_NOT_FOUND")

    run(story())


def test_who_closes_the_own_session_is_answered_before_the_end(tmp_path: Path) -> None:
    async def story() -> None:
        async with home(tmp_path) as here, await here.server.connect() as client:
            session_id = await here.create(client)
            assert await client.request("CloseActiveSession", {"sessionId": session_id}) == {}
            assert "1008" in await ended(client)
            async with await here.server.connect() as again:
                assert await refusal(again, "SessionChallenge", {"sessionId": session_id}) == (
                    422,
                    "SESSION_NOT_FOUND",
                )

    run(story())


def test_a_connection_that_has_moved_to_another_session_survives_the_end_of_the_first(tmp_path: Path) -> None:
    async def story() -> None:
        async with home(tmp_path) as here, await here.server.connect() as client:
            first = await here.create(client)
            second = await here.create(client)
            assert await client.request("CloseActiveSession", {"sessionId": first}) == {}
            [entry] = (await client.request("ListSessions", {}))["sessions"]
            assert entry["sessionId"] == second

    run(story())


def test_nobody_ends_the_session_of_another(tmp_path: Path) -> None:
    async def story() -> None:
        async with home(tmp_path) as here, await here.server.connect() as one, await here.server.connect() as two:
            session_id = await here.create(one)
            mallory = Home(here.server, here.clock, Identity.generate("mallory"))
            record = mallory.user.access_record([here.server.access], time_ms=NOW)
            await here.server.request("AddUser", record_payload(record))
            await mallory.create(two)
            assert await refusal(two, "CloseActiveSession", {"sessionId": session_id}) == (
                422,
                "SESSION_OF_ANOTHER_USER",
            )
            assert len((await one.request("ListSessions", {}))["sessions"]) == 1

    run(story())


def test_a_login_that_meets_the_end_of_its_session_does_not_outlive_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with home(tmp_path) as here, await here.server.connect() as asking:
            await here.create(asking)
            for _ in range(10):
                async with await here.server.connect() as late:
                    session_id = await here.create(late)
                    nonce = (await late.request("SessionChallenge", {"sessionId": session_id}))["nonce"]
                    login = late.request("SessionLogin", here.login_payload(session_id, nonce))
                    close = asking.request("CloseActiveSession", {"sessionId": session_id})
                    await asyncio.gather(login, close, return_exceptions=True)
                    assert "1008" in await ended(late)

    run(story())


def test_a_user_has_so_many_sessions_and_the_oldest_goes_with_its_connections(tmp_path: Path) -> None:
    async def story() -> None:
        async with home(tmp_path) as here, await here.server.connect() as oldest:
            first = await here.create(oldest)
            async with await here.server.connect() as client:
                made = []
                for _ in range(MAX_SESSIONS_A_USER):
                    here.clock.jump(1)
                    made.append(await here.create(client))
                assert "1008" in await ended(oldest)
                listed = [entry["sessionId"] for entry in (await client.request("ListSessions", {}))["sessions"]]
                assert listed == made[::-1]
                assert first not in listed

    run(story())
