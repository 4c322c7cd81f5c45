"""Going online: which server, which session, and what is kept in the key file."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from shine_node.client import online as module
from shine_node.client.connection import ConnectFailed, ConnectionLost, RequestRefused
from shine_node.client.joining import NotRegistered
from shine_node.client.keyfile import Account, create_key_file, load_key_file, update_key_file
from shine_node.client.online import Online, connect_first, is_passing, make_people, online, read_online
from shine_node.client.people import RecordReplaced, RootKeyChanged
from shine_node.client.registering import ServerToUse, register
from shine_node.client.secret import make_identity
from shine_node.clock import SystemClock
from shine_node.protocol.access import AccessServer
from shine_node.protocol.errors import BadFields, Refusal
from tests.client.scripted import Refuse, scripted_url
from tests.support.nodes import LocalServer, run, servers
from tests.support.nodes import register as register_there

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
            create_key_file(keys, account_at(AccessServer("refusing", refusing)))
            with pytest.raises(RequestRefused, match="UNKNOWN_USER"):
                async with online(keys, clock=CLOCK):
                    pass
            # Of two the one counts that may do better later, whichever comes first.
            for servers_of_it in ((NOWHERE, AccessServer("r", refusing)), (AccessServer("r", refusing), NOWHERE)):
                here = keys.with_name(servers_of_it[0].server_login)
                create_key_file(here, account_at(*servers_of_it))
                with pytest.raises(ConnectFailed, match=r"ws://127\.0\.0\.1:9/ws"):
                    async with online(here, clock=CLOCK):
                        pass
        async with scripted_url({"AuthChallenge": lambda payload: {}}) as odd:
            create_key_file(keys.with_name("odd"), account_at(AccessServer("odd", odd)))
            with pytest.raises(Refusal, match="authNonce"):
                async with online(keys.with_name("odd"), clock=CLOCK):
                    pass
        with pytest.raises(ConnectFailed):
            async with online(keys, clock=CLOCK):
                pass
        with pytest.raises(ConnectFailed, match=r"ws://127.0.0.1:9/ws and ws://127.0.0.1:9/ws: .+; .+"):
            async with connect_first([NOWHERE, NOWHERE]):
                pass

    run(story())


def test_an_account_that_is_not_registered_yet(tmp_path: Path, keys: Path) -> None:
    async def story() -> None:
        async with servers(LocalServer, tmp_path, "home") as (home,):
            create_key_file(keys, account_at(home.access, NOWHERE)._replace(registered=False))
            with pytest.raises(NotRegistered):
                async with online(keys, clock=CLOCK):
                    pass
            await register_there(load_key_file(keys).identity, [home])
            async with online(keys, clock=CLOCK) as at:
                assert at.user.login == "Alice"
            assert load_key_file(keys).registered

    run(story())


def test_a_server_that_has_failed_is_tried_last(tmp_path: Path, keys: Path) -> None:
    async def story() -> None:
        async with servers(LocalServer, tmp_path, "home", "away") as (home, away):
            await register(keys, "Alice", [ServerToUse(home.url), ServerToUse(away.url)], clock=CLOCK)
            for last, used in ((None, home), (home.access, away), (away.access, home)):
                async with online(keys, clock=CLOCK, last=last) as at:
                    assert at.server == used.access
            await away.stop()
            async with online(keys, clock=CLOCK, last=home.access) as at:
                assert at.server == home.access

    run(story())


def test_reading_goes_on_at_the_other_server(tmp_path: Path, keys: Path) -> None:
    async def story() -> None:
        async with servers(LocalServer, tmp_path, "home", "away") as (home, away):
            await register(keys, "Alice", [ServerToUse(home.url), ServerToUse(away.url)], clock=CLOCK)
            read_at: list[str] = []

            async def read(at: Online, problem: Exception | None = None, *, always: bool = False) -> str:
                read_at.append(at.server.server_login)
                if problem is not None and (always or len(read_at) == 1):
                    raise problem
                return at.server.server_login

            assert await read_online(keys, read, clock=CLOCK) == "home"
            for passing in (ConnectionLost("lost"), BadFields("half an answer")):
                read_at.clear()
                assert await read_online(keys, partial(read, problem=passing), clock=CLOCK) == "away"
                read_at.clear()
                with pytest.raises(type(passing)):
                    await read_online(keys, partial(read, problem=passing, always=True), clock=CLOCK)
                assert read_at == ["home", "away"]
            read_at.clear()
            with pytest.raises(RequestRefused):
                refused = RequestRefused("GetDirectMessages", 400, "BAD_FIELDS", "", {})
                await read_online(keys, partial(read, problem=refused), clock=CLOCK)
            assert read_at == ["home"], "it would be refused there too"
            await home.stop()
            await away.stop()
            with pytest.raises(ConnectFailed):
                await read_online(keys, read, clock=CLOCK)

    run(story())


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
