"""Who is a known peer, worked out from the store beside the event loop (PROTOCOL.md §7)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from shine_node.directory import peers as peers_module
from shine_node.directory.peers import PeerDirectory
from shine_node.peers.directory import KnownPeer
from shine_node.protocol.access import AccessServer
from shine_node.store.readers import Readers
from shine_node.store.users import add_record
from tests.delivery.rooms import Rooms, run, until
from tests.store.rooms import NOW, OWN, identity, servers

CONFIGURED = (AccessServer("Friend", "wss://friend.example/ws"),)


@asynccontextmanager
async def directory_of(rooms: Rooms) -> AsyncIterator[PeerDirectory]:
    readers = Readers(rooms.store)
    try:
        yield PeerDirectory(
            readers=readers, clock=rooms.clock, own_login=OWN, sync_servers=CONFIGURED, refresh_seconds=30
        )
    finally:
        readers.close()


def known_as(login: str, *, permanent: bool) -> KnownPeer:
    [server] = servers(login)
    return KnownPeer(server.server_login, server.url, permanent)


FRIEND = known_as("Friend", permanent=True)


def test_the_configuration_and_the_newest_records_name_the_peers(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms, directory_of(rooms) as directory:
            assert directory.known() == []
            await directory.refresh()
            assert directory.known() == [FRIEND]
            await rooms.know("alice", OWN, "a0", time_ms=NOW - 2000)
            await rooms.know("alice", OWN, "a2")
            await rooms.know("bob", "b1", "friend")
            assert directory.known() == [FRIEND], "it is read when it is told to"
            await directory.refresh()
            assert directory.known() == [FRIEND, known_as("a2", permanent=True), known_as("b1", permanent=False)]

    run(story())


def test_a_user_of_this_server_alone_makes_no_peer(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms, directory_of(rooms) as directory:
            record = identity("alice").access_record(servers(OWN), time_ms=0)._replace(signature=b"")
            await rooms.users.add(record, local=True)
            await directory.refresh()
            assert directory.known() == [FRIEND]

    run(story())


def test_it_is_read_away_from_the_event_loop(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms, directory_of(rooms) as directory:
            seen: list[threading.Thread] = []

            class Watching(tuple[AccessServer, ...]):
                def __iter__(self):  # type: ignore[no-untyped-def]
                    seen.append(threading.current_thread())
                    return super().__iter__()

            directory.sync_servers = Watching(CONFIGURED)
            await directory.refresh()
            assert seen
            assert threading.main_thread() not in seen

    run(story())


def test_it_is_read_at_its_interval_and_somebody_is_told(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms, directory_of(rooms) as directory:
            told: list[list[KnownPeer]] = []
            task = asyncio.ensure_future(directory.refresh_forever(lambda: told.append(directory.known())))
            try:
                await rooms.clock.advance(29.9)
                assert told == []
                await rooms.clock.advance(0.1)
                await until(lambda: told)
                directory.sync_servers = servers("Second", "Friend")
                await until(lambda: rooms.clock.sleeping == 1)
                await rooms.clock.advance(30)
                await until(lambda: len(told) == 2)
                assert told == [[FRIEND], [known_as("Second", permanent=True), FRIEND]]
            finally:
                task.cancel()
                await asyncio.wait((task,))

    run(story())


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    """A store that cannot be read is for the node to judge, which stops."""

    async def story() -> None:
        async with Rooms(tmp_path) as rooms, directory_of(rooms) as directory:
            readers = Readers(rooms.store)
            readers.close()
            directory._readers = readers
            task = asyncio.ensure_future(directory.refresh_forever(lambda: None))
            await rooms.clock.advance(30)
            with pytest.raises(RuntimeError):
                await asyncio.wait_for(task, 20)

    run(story())


def test_known_peers_are_bounded_and_those_that_matter_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers_module, "MAX_KNOWN", 3)

    async def story() -> None:
        async with Rooms(tmp_path) as rooms, directory_of(rooms) as directory:

            def strangers(txn):  # type: ignore[no-untyped-def]
                for number in range(5):
                    add_record(
                        txn, identity(f"a{number}").access_record(servers(f"s{number}", f"t{number}"), time_ms=NOW)
                    )

            await rooms.store.write(strangers)
            await rooms.know("zoe", OWN, "z2")
            await directory.refresh()
            assert directory.known()[:2] == [FRIEND, known_as("z2", permanent=True)]
            assert len(directory.known()) == 3

    run(story())


def test_whose_word_is_enough_for_a_login_that_is_new_here(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms, directory_of(rooms) as directory:
            record = identity("bob").access_record(servers("B1", "b2"), time_ms=NOW)
            assert directory.is_configured("FRIEND")
            assert not directory.is_configured("b1")
            for login in ("friend", "Friend", "b1", "B2"):
                assert directory.vouches(login, record), login
            for login in ("b3", OWN, ""):
                assert not directory.vouches(login, record), login
            directory.sync_servers = ()
            assert not directory.vouches("friend", record), "the configuration was changed"

    run(story())
