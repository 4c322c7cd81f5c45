"""Going online: which server, which session, and what is kept in the key file."""

from __future__ import annotations

from pathlib import Path

import pytest

from shine_node.client import online as module
from shine_node.client.connection import ConnectFailed, ConnectionLost, RequestRefused
from shine_node.client.keyfile import Account, KeyFileError, create_key_file, load_key_file, update_key_file
from shine_node.client.online import connect_first, is_passing, load_registered, make_people, online
from shine_node.client.people import RecordReplaced, RootKeyChanged
from shine_node.client.registering import ServerToUse, register
from shine_node.client.secret import make_identity
from shine_node.clock import SystemClock
from shine_node.protocol.access import AccessServer
from tests.client.scripted import Refuse, scripted_url
from tests.support.nodes import LocalServer, run, servers

CLOCK = SystemClock()
NOWHERE = AccessServer("nowhere", "ws://127.0.0.1:9/ws")


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return tmp_path / "alice" / "keys.json"


def account_at(*at: AccessServer) -> Account:
    return Account("Alice", bytes(32), at, True, {}, {})


def test_a_session_is_kept_for_the_next_time(tmp_path: Path, keys: Path) -> None:
    async def story() -> None:
        async with servers(LocalServer, tmp_path, "home") as (home,):
            await register(keys, "Alice", [ServerToUse(home.url)], clock=CLOCK)
            for _ in range(2):
                async with online(keys, clock=CLOCK) as at:
                    assert (at.server, at.user.login) == (home.access, "Alice")
                    [session] = (await at.connection.request("ListSessions", {}))["sessions"]
                    assert session["sessionId"] == load_key_file(keys).sessions[home.url].session_id
                    assert session["clientInfoFromClient"].startswith("shine-node")
                    assert [dialog async for dialog in at.history.dialogs()] == []

    run(story())


def test_the_other_server_where_one_is_off_or_refuses(tmp_path: Path, keys: Path) -> None:
    async def story() -> None:
        async with (
            servers(LocalServer, tmp_path, "home") as (home,),
            scripted_url({"AuthChallenge": lambda payload: Refuse(422, "UNKNOWN_USER")}) as refusing,
        ):
            made = await register(tmp_path / "first", "Alice", [ServerToUse(home.url)], clock=CLOCK)
            create_key_file(keys, made._replace(servers=(NOWHERE, AccessServer("refusing", refusing), home.access)))
            async with online(keys, clock=CLOCK) as at:
                assert at.server == home.access
            async with connect_first(load_key_file(keys).servers[::2]) as (connection, server):
                assert server == home.access and connection.is_open
            assert not connection.is_open

    run(story())


def test_nobody_lets_it_in(keys: Path) -> None:
    async def story() -> None:
        async with scripted_url({"AuthChallenge": lambda payload: Refuse(422, "UNKNOWN_USER")}) as refusing:
            create_key_file(keys, account_at(NOWHERE, AccessServer("refusing", refusing)))
            with pytest.raises(RequestRefused, match="UNKNOWN_USER"):
                async with online(keys, clock=CLOCK):
                    pass
        with pytest.raises(ConnectFailed):
            async with online(keys, clock=CLOCK):
                pass
        with pytest.raises(ConnectFailed, match=r"ws://127.0.0.1:9/ws and ws://127.0.0.1:9/ws: .+; .+"):
            async with connect_first([NOWHERE, NOWHERE]):
                pass

    run(story())


def test_an_account_that_is_not_registered(keys: Path) -> None:
    create_key_file(keys, account_at(NOWHERE)._replace(registered=False))
    with pytest.raises(KeyFileError, match="account new Alice` again"):
        load_registered(keys)


def test_root_keys_go_to_the_key_file(tmp_path: Path, keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with servers(LocalServer, tmp_path, "home") as (home,):
            others = {
                login: await register(tmp_path / login, login, [ServerToUse(home.url)], clock=CLOCK)
                for login in ("bob", "carol")
            }
            account = await register(keys, "Alice", [ServerToUse(home.url)], clock=CLOCK)
            monkeypatch.setattr(module, "MOST_ROOT_KEYS", 1)
            people = make_people(keys, account, clock=CLOCK)
            async with await home.connect() as client:
                for login in ("alice", "Bob", "carol"):
                    await people.find(client, login)
            kept = load_key_file(keys)
            assert kept.root_keys == {"bob": others["bob"].identity.root.public}
            assert set(kept.record_times) == {"alice", "bob"}
            # What another program has seen meanwhile is not made older.
            ahead = kept._replace(record_times={"alice": 2**50, "bob": 2**50})
            await update_key_file(keys, lambda account: ahead, clock=CLOCK)
            async with await home.connect() as client:
                await make_people(keys, kept._replace(record_times={}), clock=CLOCK).find(client, "bob")
                assert load_key_file(keys).record_times == {"alice": 2**50, "bob": 2**50}
                with pytest.raises(RecordReplaced):
                    await make_people(keys, load_key_file(keys), clock=CLOCK).find(client, "bob")

    run(story())


def test_ones_own_root_key_is_known_from_the_start(tmp_path: Path, keys: Path) -> None:
    async def story() -> None:
        async with servers(LocalServer, tmp_path, "home") as (home,):
            await register(tmp_path / "somebody", "alice", [ServerToUse(home.url)], clock=CLOCK)
            create_key_file(keys, account_at(home.access))
            people = make_people(keys, load_key_file(keys), clock=CLOCK)
            async with await home.connect() as client:
                with pytest.raises(RootKeyChanged):
                    await people.find(client, "alice")

    run(story())
    assert make_identity("Alice", bytes(32)) == load_key_file(keys).identity


def test_what_passes() -> None:
    assert is_passing(ConnectionLost("lost"))
    assert is_passing(RequestRefused("op", 503, "SERVER_BUSY", "", {}))
    assert not is_passing(RequestRefused("op", 422, "UNKNOWN_USER", "", {}))
