"""Accounts that are made and recovered, at real nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from shine_node.client.connection import ConnectFailed, RequestRefused
from shine_node.client.identity import Identity, KeyPair
from shine_node.client.joining import LoginTaken
from shine_node.client.keyfile import Account, KeyFileError, create_key_file, load_key_file
from shine_node.client.people import PersonUnknown
from shine_node.client.registering import (
    AwaitsOperator,
    NamelessServer,
    NotThisAccount,
    ServerToUse,
    prepare,
    recover,
    register,
)
from shine_node.client.secret import make_identity
from shine_node.clock import SystemClock
from shine_node.protocol.access import AccessServer, record_payload
from shine_node.protocol.errors import BadLogin
from tests.client.scripted import Refuse, Script, scripted_url
from tests.support.nodes import LocalServer, now_ms, run, servers
from tests.support.nodes import register as register_there
from tests.support.operator import operator_adds

CLOCK = SystemClock()
NOWHERE = ServerToUse("ws://127.0.0.1:9/ws")  # the discard port: nobody listens


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return tmp_path / "alice" / "keys.json"


def test_one_server(tmp_path: Path, keys: Path) -> None:
    async def story() -> None:
        async with servers(LocalServer, tmp_path, "home") as (home,):
            account = await register(keys, "Alice", [ServerToUse(home.url)], clock=CLOCK)
            assert load_key_file(keys) == account
            assert account == Account("Alice", account.secret, (home.access,), True, {}, {})
            known = await home.request("GetUserAccess", {"login": "alice"})
            assert known["accessServers"] == [{"serverLogin": "home", "url": home.url}]
            with pytest.raises(KeyFileError, match="never overwritten"):
                await register(keys, "Alice", [ServerToUse(home.url)], clock=CLOCK)
            with pytest.raises(KeyFileError, match="never overwritten"):
                await register(keys, "bob", [ServerToUse(home.url)], clock=CLOCK)
            assert load_key_file(keys) == account

    run(story())


def test_two_servers_of_which_one_wants_a_token(tmp_path: Path, keys: Path) -> None:
    async def story() -> None:
        closed = {"mode": "token", "token": "secret"}
        async with (
            servers(LocalServer, tmp_path, "first") as (first,),
            servers(LocalServer, tmp_path, "second", registration=closed) as (second,),
        ):
            one, other = ServerToUse(first.url), ServerToUse(second.url, "SECOND")
            with pytest.raises(RequestRefused, match="REGISTRATION_CLOSED"):
                await register(keys, "Alice", [one, other], clock=CLOCK)
            begun = load_key_file(keys)  # the first one has taken it
            assert not begun.registered
            account = await register(keys, "Alice", [one, other._replace(token="secret")], clock=CLOCK)
            assert account.secret == begun.secret and account.registered
            assert [server.server_login for server in account.servers] == ["first", "SECOND"]
            for server in (first, second):
                assert len((await server.request("GetUserAccess", {"login": "alice"}))["accessServers"]) == 2

    run(story())


def test_a_login_that_is_taken_leaves_nothing(tmp_path: Path, keys: Path) -> None:
    async def story() -> None:
        async with servers(LocalServer, tmp_path, "home") as (home,):
            await register_there(Identity.generate("alice"), [home])
            with pytest.raises(RequestRefused, match="USER_ALREADY_EXISTS"):
                await register(keys, "Alice", [ServerToUse(home.url)], clock=CLOCK)

    run(story())
    assert not keys.exists()


@pytest.mark.parametrize(("code", "stays"), [("INTERNAL_ERROR", True), ("BAD_FIELDS", False)])
def test_the_file_stays_where_the_server_may_have_taken_it(keys: Path, code: str, stays: bool) -> None:
    script: Script = {
        "GetServerInfo": lambda payload: {"serverLogin": "home", "url": 7},
        "AddUser": lambda payload: Refuse(500, code),
        "GetUserAccess": lambda payload: {"exists": False},
    }

    async def story() -> None:
        async with scripted_url(script) as url:
            for _ in range(2):
                with pytest.raises(RequestRefused, match=code):
                    await register(keys, "Alice", [ServerToUse(url)], clock=CLOCK)
            if stays:
                assert load_key_file(keys).servers == (AccessServer("home", url),)
                with pytest.raises(KeyFileError):
                    await register(keys, "Bob", [ServerToUse(url)], clock=CLOCK)

    run(story())
    assert keys.exists() is stays


def test_a_file_of_an_earlier_try_is_not_removed(tmp_path: Path, keys: Path) -> None:
    cut: Script = {"GetServerInfo": lambda payload: {"serverLogin": "home"}, "AddUser": lambda payload: None}

    async def story() -> None:
        async with scripted_url(cut) as url:
            with pytest.raises(Exception, match="the connection ended"):
                await register(keys, "Alice", [ServerToUse(url)], clock=CLOCK)
        begun = load_key_file(keys)
        async with servers(LocalServer, tmp_path, "home", registration={"mode": "closed"}) as (home,):
            with pytest.raises(AwaitsOperator, match="home is closed"):
                await register(keys, "Alice", [ServerToUse(home.url)], clock=CLOCK)
            assert load_key_file(keys) == begun._replace(servers=(home.access,))  # where its operator may add it

    run(story())


def test_a_closed_server(tmp_path: Path, keys: Path) -> None:
    async def story() -> None:
        async with (
            servers(LocalServer, tmp_path, "open") as (open_one,),
            servers(LocalServer, tmp_path, "home", registration={"mode": "closed"}) as (home,),
        ):
            at = [ServerToUse(home.url)]
            with pytest.raises(AwaitsOperator) as waiting:
                await register(keys, "Alice", at, clock=CLOCK)
            account, record = waiting.value.account, waiting.value.record
            assert load_key_file(keys) == account and not account.registered
            assert record.solana_key == account.identity.root.public
            assert record.access_servers == (home.access,)
            again = await prepare(keys, "Alice", at, clock=CLOCK)
            assert again.solana_key == record.solana_key and load_key_file(keys) == account
            await operator_adds(home, orjson.dumps(record_payload(record)).decode())
            assert (await register(keys, "Alice", at, clock=CLOCK)).secret == account.secret
            assert (await prepare(keys, "Alice", at, clock=CLOCK)).device_key == record.device_key
            for login, where in (("Alice", [ServerToUse(open_one.url)]), ("Bob", at)):
                with pytest.raises(KeyFileError, match="never overwritten"):
                    await prepare(keys, login, where, clock=CLOCK)

            other = tmp_path / "other.json"
            with pytest.raises(RequestRefused, match="USER_ALREADY_EXISTS: this login is taken"):
                await register(other, "ALICE", at, clock=CLOCK)
            with pytest.raises(LoginTaken, match="somebody else"):
                await prepare(other, "ALICE", at, clock=CLOCK)
            assert not other.exists()

            both = [ServerToUse(open_one.url), *at]
            with pytest.raises(AwaitsOperator):
                await register(other, "Carol", both, clock=CLOCK)
            begun = load_key_file(other)
            record = await prepare(other, "Carol", both, clock=CLOCK)
            assert record.access_servers == (open_one.access, home.access)
            await open_one.request("AddUser", record_payload(Identity.generate("dave").access_record([], time_ms=1)))
            create_key_file(tmp_path / "dave.json", begun._replace(login="dave"))
            with pytest.raises(LoginTaken):
                await prepare(tmp_path / "dave.json", "dave", both, clock=CLOCK)
            assert (tmp_path / "dave.json").exists(), "it is not of this try"

    run(story())


def test_what_goes_wrong_before_anything_is_made(keys: Path) -> None:
    async def story() -> None:
        with pytest.raises(BadLogin):
            await register(keys, "a b", [NOWHERE], clock=CLOCK)
        with pytest.raises(ConnectFailed):
            await register(keys, "Alice", [NOWHERE], clock=CLOCK)
        for info in ({}, {"serverLogin": "a b"}, {"serverLogin": 7}):
            async with scripted_url({"GetServerInfo": lambda payload, info=info: info}) as url:  # type: ignore[misc]
                with pytest.raises(NamelessServer, match="give it as NAME=ws://"):
                    await register(keys, "Alice", [ServerToUse(url)], clock=CLOCK)
        assert not keys.parent.exists()

    run(story())


def test_recovery(tmp_path: Path, keys: Path) -> None:
    elsewhere = tmp_path / "laptop.json"

    async def story() -> None:
        async with servers(LocalServer, tmp_path, "first", "second") as (first, second):
            made = await register(keys, "Alice", [ServerToUse(first.url), ServerToUse(second.url)], clock=CLOCK)
            account = await recover(elsewhere, "ALICE", made.secret, ServerToUse(second.url))
            assert load_key_file(elsewhere) == account
            assert account == made._replace(servers=(second.access, first.access))
            with pytest.raises(KeyFileError, match="never overwritten"):
                await recover(elsewhere, "Alice", made.secret, ServerToUse(first.url))
            other = tmp_path / "other.json"
            with pytest.raises(PersonUnknown):
                await recover(other, "bob", made.secret, ServerToUse(first.url))
            with pytest.raises(NotThisAccount, match="other keys"):
                await recover(other, "alice", bytes(32), ServerToUse(first.url))
            user = made.identity.with_device(KeyPair.from_seed(bytes(32)))
            await first.request("SetUserAccess", record_payload(user.access_record([], time_ms=now_ms() + 1)))
            with pytest.raises(NotThisAccount, match="other keys"):
                await recover(other, "alice", made.secret, ServerToUse(first.url))
            nowhere = made.identity.access_record([], time_ms=now_ms() + 2)
            await second.request("SetUserAccess", record_payload(nowhere))
            with pytest.raises(NotThisAccount, match="no access server"):
                await recover(other, "alice", made.secret, ServerToUse(second.url))
            assert not other.exists()

    run(story())


def test_recovery_at_a_server_that_says_little(tmp_path: Path, keys: Path) -> None:
    user = make_identity("Alice", bytes(32))
    record = user.access_record([AccessServer("Home", "wss://home.example/ws")], time_ms=1)
    info: dict[str, Any] = {}
    script: Script = {
        "GetUserAccess": lambda payload: {"exists": True, **record_payload(record)},
        "GetServerInfo": lambda payload: info,
    }

    async def story() -> None:
        async with scripted_url(script) as url:
            account = await recover(keys, "alice", bytes(32), ServerToUse(url))
            assert account.servers == record.access_servers
            account = await recover(tmp_path / "named", "alice", bytes(32), ServerToUse(url, "HOME"))
            assert account.servers == (AccessServer("Home", url),)

    run(story())
