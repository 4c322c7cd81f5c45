"""An account that an operator has to add: how its commands find out that it was added."""

from __future__ import annotations

from pathlib import Path

import pytest

from shine_node.client.connection import ConnectFailed, Connection
from shine_node.client.identity import Identity
from shine_node.client.joining import LoginTaken, NotRegistered, ask_servers, find_registered
from shine_node.client.keyfile import Account, create_key_file, load_key_file
from shine_node.client.secret import make_identity
from shine_node.clock import SystemClock
from shine_node.protocol.access import AccessServer, record_payload
from tests.client.scripted import Script, scripted_url
from tests.support.nodes import LocalServer, register, run, servers

CLOCK = SystemClock()
NOWHERE = AccessServer("nowhere", "ws://127.0.0.1:9/ws")
CUT: Script = {"GetUserAccess": lambda payload: None}


def waiting_at(keys: Path, *at: AccessServer, login: str = "Alice") -> Account:
    account = Account(login, bytes(32), at, False, {}, {})
    create_key_file(keys, account)
    return account


def test_an_account_is_found_where_it_was_added(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(LocalServer, tmp_path, "home") as (home,), scripted_url(CUT) as cutting:
            keys = tmp_path / "keys.json"
            account = waiting_at(keys, NOWHERE, AccessServer("cutting", cutting), home.access)
            assert await ask_servers(keys, account, clock=CLOCK) == account == load_key_file(keys)
            async with await home.connect() as connection:
                with pytest.raises(NotRegistered, match="Alice is not registered yet: if the server's operator has"):
                    await find_registered(connection, keys, account, clock=CLOCK)
            await register(make_identity("Alice", bytes(32)), [home])
            found = await ask_servers(keys, account, clock=CLOCK)
            assert found == account._replace(registered=True) == load_key_file(keys)
        assert await ask_servers(keys, found, clock=CLOCK) == found, "nobody is asked any more"

    run(story())


def test_it_is_known_at_once_where_it_is_known_already(tmp_path: Path) -> None:
    async def story() -> None:
        async with scripted_url({}) as url, await Connection.open(url) as connection:
            account = Account("Alice", bytes(32), (NOWHERE,), True, {}, {})
            assert await find_registered(connection, tmp_path / "none", account, clock=CLOCK) is account

    run(story())


def test_a_login_that_is_somebody_elses(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(LocalServer, tmp_path, "home") as (home,):
            keys = tmp_path / "keys.json"
            await register(Identity.generate("alice"), [home])
            with pytest.raises(LoginTaken, match="Alice is somebody else at this server") as taken:
                await ask_servers(keys, waiting_at(keys, home.access), clock=CLOCK)
            assert taken.value.code == "USER_ALREADY_EXISTS"
            assert not load_key_file(keys).registered
            later = make_identity("bob", bytes(32)).with_device(Identity.generate("bob").device)
            await home.request("AddUser", record_payload(later.access_record([home.access], time_ms=1)))
            bob = tmp_path / "bob.json"
            with pytest.raises(LoginTaken, match="or this account with later keys"):
                await ask_servers(bob, waiting_at(bob, home.access, login="bob"), clock=CLOCK)
        with pytest.raises(ConnectFailed):
            await home.connect()

    run(story())
