"""Sockets as they are accepted: which count, which are too many, and what is said when no files are left."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import resource
import socket
import ssl
import struct
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvloop
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.protocol import State

from shine_node.api.front import Front
from shine_node.api.guarded import GuardedConnection
from shine_node.api.pages import PATH, PageSet
from shine_node.api.sockets import (
    FILES_KEPT_FREE,
    AcceptedSockets,
    Doorway,
    is_in,
    is_loopback,
    most_sockets,
    origin_of,
)
from shine_node.clock import SystemClock
from shine_node.config import LimitsConfig, config_from_mapping
from tests.api.talk import Silent, Talk
from tests.cli.certificates import write_certificate
from tests.support.nodes import PATIENCE, eventually, node_settings


class Accepted(asyncio.BaseTransport):
    """What is known of a socket that was accepted."""

    def __init__(self, remote: str | None, number: int = 5) -> None:
        super().__init__({"peername": (remote, 1) if remote else None, "socket": self})
        self._number = number

    def fileno(self) -> int:
        return self._number


class Entrance:
    """Sockets that come one after the other, and are nobody's."""

    def __init__(self, most: int = 100, of_one_address: int = 100, **options: Any) -> None:
        self.inside = AcceptedSockets(limits(most, of_one_address), **options)

    def come(self, remote: str | None, number: int = 5) -> Doorway | None:
        """Let a socket come; return ``None`` where it is too many."""
        connection: Any = _Nobodys()
        doorway = Doorway(connection, sockets=self.inside, tls=None, handshake_seconds=1, shutdown_seconds=1)
        return doorway if self.inside.add(doorway, Accepted(remote, number)) else None


class _Nobodys:
    when_lost: Any = None


def limits(most: int, of_one_address: int) -> LimitsConfig:
    config = config_from_mapping(node_settings("server1", Path("/nowhere")))
    return replace(config.limits, max_connections=most, max_connections_per_address=of_one_address)


@pytest.mark.parametrize(("connections", "most"), [(1, 5), (64, 68), (100, 106), (2000, 2125)])
def test_a_few_more_sockets_than_connections(connections: int, most: int) -> None:
    assert most_sockets(connections) == most


@pytest.mark.parametrize(
    ("address", "origin"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("unknown", "unknown"),
        ("", ""),
    ],
)
def test_a_network_of_ipv6_counts_as_one_address(address: str, origin: str) -> None:
    assert origin_of(address) == origin


@pytest.mark.parametrize(
    ("address", "inside"),
    [
        ("192.0.2.7", True),
        ("::ffff:192.0.2.7", True),
        ("192.0.3.7", False),
        ("2001:db8:1::5", True),
        ("2001:db9::", False),
        ("unknown", False),
    ],
)
def test_addresses_in_networks(address: str, inside: bool) -> None:
    networks = [ipaddress.ip_network(text) for text in ("192.0.2.0/24", "2001:db8::/32")]
    assert is_in(address, networks) is inside
    assert not is_in(address, [])


@pytest.mark.parametrize("written", ["10.0.0.1", "::ffff:10.0.0.1", "::ffff:a00:1/128", "::ffff:10.0.0.0/104"])
@pytest.mark.parametrize("comes_as", ["10.0.0.1", "::ffff:10.0.0.1", "::ffff:a00:1"])
def test_an_address_is_blocked_however_it_is_written_and_however_it_comes(written: str, comes_as: str) -> None:
    config = config_from_mapping(node_settings("server1", Path("/nowhere"), limits={"blockedAddresses": [written]}))
    assert is_in(comes_as, config.limits.blocked_addresses)
    assert not is_in("::ffff:11.0.0.1", config.limits.blocked_addresses)
    assert not AcceptedSockets(config.limits).add(_someone(), Accepted(comes_as))


@pytest.mark.parametrize("written", ["fe80::1", "fe80::1%eth0", "fe80::%eth1/64"])
def test_the_zone_of_an_address_says_nothing_of_who_has_it(written: str) -> None:
    config = config_from_mapping(node_settings("server1", Path("/nowhere"), limits={"blockedAddresses": [written]}))
    assert is_in("fe80::1%eth0", config.limits.blocked_addresses)
    assert is_in("fe80::1", config.limits.blocked_addresses)


def test_a_socket_of_a_blocked_address_is_not_let_in() -> None:
    entrance = Entrance()
    assert entrance.come("192.0.2.7")
    blocked = replace(limits(100, 100), blocked_addresses=(ipaddress.ip_network("192.0.2.7"),))
    entrance.inside.change_limits(blocked)
    assert not entrance.come("192.0.2.7")
    assert entrance.come("192.0.2.8")
    assert not AcceptedSockets(blocked).add(_someone(), Accepted("::ffff:192.0.2.7"))


def _someone() -> Doorway:
    connection: Any = _Nobodys()
    return Doorway(connection, sockets=Entrance().inside, tls=None, handshake_seconds=1, shutdown_seconds=1)


@pytest.mark.parametrize(
    ("address", "own"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:192.0.2.1", False),
        ("192.0.2.1", False),
        ("2001:db8::1", False),
        ("x", False),
    ],
)
def test_the_machines_own_addresses(address: str, own: bool) -> None:
    assert is_loopback(address) is own


def test_sockets_in_all_are_bounded_this_machines_too() -> None:
    entrance = Entrance(most=10)
    first = [entrance.come(f"192.0.2.{number}") for number in range(7)] + [entrance.come("127.0.0.1") for _ in range(7)]
    assert all(first)
    assert len(entrance.inside) == len(list(entrance.inside)) == most_sockets(10) == 14
    assert entrance.come("198.51.100.1") is entrance.come("127.0.0.1") is None
    assert first[0] is not None
    for _ in range(2):
        entrance.inside.remove(first[0])
    assert entrance.come("198.51.100.1")
    assert not entrance.come("127.0.0.1")


@pytest.mark.parametrize(
    "remotes",
    [
        ["192.0.2.7"] * 6,
        ["192.0.2.7", "::ffff:192.0.2.7"] * 3,
        [f"2001:db8:1:2::{number}" for number in range(6)],
        [None] * 6,
    ],
    ids=["IPv4", "IPv4 of a socket for both", "IPv6", "unknown"],
)
def test_sockets_of_one_address_are_bounded(remotes: list[str | None]) -> None:
    entrance = Entrance(of_one_address=1)
    assert [bool(entrance.come(remote)) for remote in remotes] == [True] * 5 + [False]
    assert entrance.come("192.0.2.8")
    assert entrance.come("2001:db8:1:3::")
    assert entrance.come("::ffff:192.0.2.9")
    assert all(entrance.come(own) for own in ("127.0.0.1", "::ffff:127.0.0.1") for _ in range(10))


def test_nobody_is_let_in_any_more_at_the_end_and_those_inside_are_waited_for_but_not_for_ever() -> None:
    async def story() -> None:
        entrance = Entrance()
        await entrance.inside.until_empty(0)
        doorways = [entrance.come("192.0.2.7") for _ in range(2)]
        entrance.inside.close()
        assert not entrance.come("192.0.2.8")
        await entrance.inside.until_empty(0.01)
        assert len(entrance.inside) == 2
        gone = asyncio.create_task(entrance.inside.until_empty(4 * PATIENCE))
        for doorway in doorways:
            await asyncio.sleep(0)
            assert not gone.done()
            assert doorway is not None
            entrance.inside.remove(doorway)
            doorway.abort()  # there is nothing left to close
        await asyncio.wait_for(gone, PATIENCE)

    asyncio.run(story())


def test_other_limits_hold_from_now_on() -> None:
    entrance = Entrance(most=1)
    assert [bool(entrance.come("192.0.2.7")) for _ in range(6)] == [True] * 5 + [False]
    entrance.inside.change_limits(limits(2, 100))
    assert [bool(entrance.come("192.0.2.7")) for _ in range(2)] == [True, False]
    entrance.inside.change_limits(limits(100, 2))
    assert not entrance.come("192.0.2.7")
    assert entrance.come("192.0.2.8")


def test_where_nearly_no_files_are_left_it_is_told_once_and_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    entrance = Entrance(most_files=lambda: 256)
    last = 256 - FILES_KEPT_FREE - 1
    with caplog.at_level(logging.ERROR, logger="shine_node"):
        assert entrance.come("192.0.2.7", last)
        assert caplog.records == []
        for number in range(last + 1, 256):
            assert not entrance.come("192.0.2.7", number)
        assert entrance.come("192.0.2.7", 9)
        assert not entrance.come("127.0.0.1", 255)
    [record] = caplog.records
    for words in ("256 files", "LimitNOFILE=", "ulimit -n", "limits.maxConnections"):
        assert words in record.getMessage()
    assert len(entrance.inside) == 2


@pytest.mark.parametrize("endless", [False, True])
def test_how_many_files_may_be_open_is_what_the_system_says(monkeypatch: pytest.MonkeyPatch, endless: bool) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY if endless else 1024, 4096))
    entrance = Entrance()
    assert entrance.come("192.0.2.7", 1024 - FILES_KEPT_FREE - 1)
    assert bool(entrance.come("192.0.2.7", 1024)) is endless


# --- real sockets ---


CLIENT_HELLO_BEGINS = bytes.fromhex("16030100f8 010000f4 0303")


class Remembering(AcceptedSockets):
    """Knows how many sockets it has met."""

    met = 0

    def add(self, doorway: Doorway, transport: asyncio.BaseTransport) -> bool:
        self.met += 1
        return super().add(doorway, transport)


class House:
    """A server that says what it hears, and lets in by doorways."""

    def __init__(self, inside: Remembering) -> None:
        self.inside = inside
        self.address = ("", 0)
        self.url = ""

    async def serve(self, connection: ServerConnection) -> None:
        with suppress(ConnectionClosed):
            while True:
                await connection.send(await connection.recv())

    async def until_inside(self, number: int) -> None:
        async def so() -> bool:
            return len(self.inside) == number

        await eventually(so)


@asynccontextmanager
async def a_house(
    tls: ssl.SSLContext | None, *, most: int = 100, handshake_seconds: float = 60, **options: Any
) -> AsyncIterator[House]:
    house = House(Remembering(limits(most, 100), **options))

    def accept(*arguments: Any, **options: Any) -> Doorway:
        connection = GuardedConnection(
            *arguments, most_unread=2**20, unread_seconds=60, monotonic=SystemClock().monotonic, **options
        )
        front = Front(connection, pages=PageSet(), now_ms=SystemClock().now_ms, seconds=handshake_seconds)
        return Doorway(front, sockets=house.inside, tls=tls, handshake_seconds=handshake_seconds, shutdown_seconds=1)

    create: Any = accept
    async with serve(
        house.serve, "127.0.0.1", 0, create_connection=create, compression=None, open_timeout=handshake_seconds
    ) as server:
        house.address = server.sockets[0].getsockname()
        house.url = f"ws{'s' if tls else ''}://127.0.0.1:{house.address[1]}{PATH}"
        yield house


@pytest.fixture(params=[False, True], ids=["ws", "wss"])
def tls(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[ssl.SSLContext | None, dict[str, Any]]:
    """The server's context, and how a client trusts it."""
    if not request.param:
        return None, {}
    cert, key = write_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context, {"ssl": ssl.create_default_context(cafile=str(cert)), "server_hostname": "localhost"}


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Any:
    def run_story(story: Any) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(asyncio.wait_for(story, 4 * PATIENCE))

    return run_story


def test_sockets_count_from_the_first_moment_to_the_last(run: Any, tls: Any) -> None:
    context, trust = tls

    async def story() -> None:
        async with a_house(context) as house:
            async with await Talk.open(house.url, **trust) as talk, Silent(house.address, 3) as silent:
                for number in range(20):
                    await talk.say(str(number))
                    assert await asyncio.wait_for(talk.socket.recv(), PATIENCE) == str(number)
                await house.until_inside(4)
                silent.leave()
                await house.until_inside(1)
            await house.until_inside(0)

    run(story())


def test_sockets_that_are_too_many_are_closed_at_once(run: Any, tls: Any) -> None:
    context, trust = tls

    async def story() -> None:
        async with a_house(context, most=10) as house, await Talk.open(house.url, **trust) as talk:
            async with Silent(house.address, 30) as silent:
                await silent.until_closed(31 - most_sockets(10))
                await talk.say("1")
                assert await asyncio.wait_for(talk.socket.recv(), PATIENCE) == "1"
            await house.until_inside(1)
            async with await Talk.open(house.url, **trust):
                pass

    run(story())


def test_nonsense_and_a_hand_that_is_not_shaken_end_the_socket(run: Any, tls: Any) -> None:
    context, _ = tls

    async def story() -> None:
        async with a_house(context, handshake_seconds=0.3) as house, Silent(house.address, 2) as silent:
            silent.writers[0].write(b"nonsense, and more of it\r\n\r\n")
            silent.writers[1].write_eof()
            with suppress(ConnectionError):  # it is told first that this is nonsense, where there is no TLS
                await asyncio.wait_for(silent.readers[0].read(), PATIENCE)
            await silent.until_closed(2)
            await house.until_inside(0)

    run(story())


def test_sockets_that_are_gone_before_they_are_met_leave_nothing(run: Any, tls: Any) -> None:
    context, trust = tls

    async def story() -> None:
        async with a_house(context) as house:
            for _ in range(20):
                with socket.create_connection(house.address, PATIENCE) as client:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            async with await Talk.open(house.url, **trust):
                assert house.inside.met == 21
                await house.until_inside(1)

    run(story())


def test_a_socket_can_be_closed_whatever_its_state(run: Any, tls: Any) -> None:
    context, trust = tls

    async def story() -> None:
        async with a_house(context) as house, Silent(house.address, 2) as silent:
            talk = await Talk.open(house.url, **trust)
            await house.until_inside(3)
            for doorway in house.inside:
                assert doorway.websocket.state in {State.CONNECTING, State.OPEN}
                doorway.abort()
            await silent.until_closed(2)
            assert await talk.end() == 1006
            await house.until_inside(0)

    run(story())


def test_a_socket_for_which_there_is_no_second_file_is_closed_and_does_not_count(run: Any, tmp_path: Path) -> None:
    cert, key = write_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    trust = {"ssl": ssl.create_default_context(cafile=str(cert)), "server_hostname": "localhost"}
    files = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def story() -> None:
        # The wait of a second after a failure, and its log, are the event loop's.
        asyncio.get_running_loop().set_exception_handler(lambda loop, told: None)
        async with a_house(context, most_files=lambda: 2**31) as house:
            with socket.create_connection(house.address, PATIENCE) as client:
                client.setblocking(False)
                next_file = os.dup(client.fileno())
                os.close(next_file)
                resource.setrlimit(resource.RLIMIT_NOFILE, (next_file + 1, files[1]))
                try:
                    with suppress(ConnectionError):
                        closed = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(client, 1), PATIENCE)
                        assert closed == b""
                finally:
                    resource.setrlimit(resource.RLIMIT_NOFILE, files)
            assert house.inside.met == 1
            await house.until_inside(0)
            async with await Talk.open(house.url, **trust) as talk:
                await talk.say("1")
                assert await asyncio.wait_for(talk.socket.recv(), PATIENCE) == "1"

    run(story())


def test_where_there_is_no_file_at_all_what_comes_is_closed_and_the_loop_is_left_in_peace() -> None:
    files = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def story() -> None:
        async with a_house(None, most_files=lambda: 2**31) as house:
            with socket.create_connection(house.address, PATIENCE) as client:
                client.setblocking(False)
                next_file = os.dup(client.fileno())
                os.close(next_file)
                resource.setrlimit(resource.RLIMIT_NOFILE, (next_file, files[1]))
                try:
                    with suppress(ConnectionError):
                        closed = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(client, 1), PATIENCE)
                        assert closed == b""
                    before = time.process_time()
                    await asyncio.sleep(0.5)
                    assert time.process_time() - before < 0.4
                finally:
                    resource.setrlimit(resource.RLIMIT_NOFILE, files)
            assert house.inside.met == 0
            async with await Talk.open(house.url) as talk:
                await talk.say("1")
                assert await asyncio.wait_for(talk.socket.recv(), PATIENCE) == "1"

    # The node runs on uvloop; the loop of asyncio lets what comes wait, and looks again every second.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(story(), 4 * PATIENCE))


@pytest.mark.parametrize("said", [b"", CLIENT_HELLO_BEGINS], ids=["nothing", "a little"])
def test_a_hand_that_is_still_being_shaken_does_not_hold_up_the_end(run: Any, tls: Any, said: bytes) -> None:
    context, trust = tls

    async def story() -> None:
        async with a_house(context) as house, Silent(house.address, 3) as silent:
            silent.writers[0].write(said)
            await house.until_inside(3)  # the task of the last one has not begun yet
            house.inside.close()
            for doorway in house.inside:
                doorway.abort()
                doorway.abort()
            await house.inside.until_empty(PATIENCE)
            assert len(house.inside) == 0
            await silent.until_closed(3)
            with pytest.raises((OSError, InvalidHandshake)):
                await Talk.open(house.url, **trust)

    run(story())


def test_a_defect_in_the_handshake_is_told_and_leaves_nothing(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    no_context: Any = "no context"

    async def story() -> None:
        async with a_house(no_context) as house, Silent(house.address, 1) as silent:
            await silent.until_closed(1)
            await house.until_inside(0)

    run(story())
    [record] = caplog.records
    assert "a defect in the handshake" in record.getMessage()
    assert record.exc_info
