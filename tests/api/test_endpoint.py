"""The endpoint on real sockets: what is admitted, what is counted, and how it ends."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvloop
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from shine_node.api import endpoint as endpoint_module
from shine_node.api import sockets as sockets_module
from shine_node.api.connection import Connection
from shine_node.api.endpoint import Endpoint, client_address
from shine_node.api.sockets import most_sockets
from shine_node.clock import Clock, SystemClock
from shine_node.config import LimitsConfig, ListenAddress, config_from_mapping
from shine_node.protocol.hello import Hello
from tests.api.talk import Silent, Talk, asked
from tests.cli.certificates import write_certificate
from tests.support.clock import ManualClock, settle
from tests.support.nodes import PATIENCE, eventually, node_settings, run

LOOPBACK = ListenAddress("127.0.0.1", 0)


class Gate:
    """Handlers: one that answers at once, and one that waits until the test lets it go on."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.waiting = 0

    @property
    def handlers(self) -> dict[str, Any]:
        return {"Echo": self.echo, "Wait": self.wait, "Flood": self.flood}

    async def echo(self, connection: Connection, payload: dict[str, Any]) -> Mapping[str, object]:
        return {"address": connection.address, **payload}

    async def wait(self, connection: Connection, payload: dict[str, Any]) -> Mapping[str, object]:
        self.waiting += 1
        await self.open.wait()
        return payload

    async def flood(self, connection: Connection, payload: dict[str, Any]) -> Mapping[str, object]:
        self.waiting += 1
        return {"pad": "x" * 2**18}

    async def until_waiting(self, number: int) -> None:
        async def so() -> bool:
            return self.waiting >= number

        await eventually(so)


def limits(**changes: Any) -> LimitsConfig:
    config = config_from_mapping(node_settings("server1", Path("/nowhere")))
    return replace(config.limits, **changes)


@asynccontextmanager
async def listening(
    gate: Gate | None = None,
    *,
    listen: tuple[ListenAddress, ...] = (LOOPBACK,),
    clock: Clock | None = None,
    tls: ssl.SSLContext | None = None,
    **changes: Any,
) -> AsyncIterator[tuple[Endpoint, str]]:
    endpoint = Endpoint(
        handlers=(gate or Gate()).handlers, limits=limits(**changes), clock=clock or SystemClock(), tls=tls
    )
    await endpoint.start(listen)
    host, port = endpoint.addresses[0]
    try:
        yield endpoint, f"{'wss' if tls else 'ws'}://{host}:{port}/ws"
    finally:
        await endpoint.close()
        assert len(endpoint._sockets) == 0


async def refusal_of(url: str, headers: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Try to connect; return the HTTP status and the text that come instead of a connection."""
    with pytest.raises(InvalidStatus) as refused:
        await Talk.open(url, headers=headers)
    response = refused.value.response
    assert "Server" not in response.headers
    return response.status_code, (response.body or b"").decode()


@pytest.mark.parametrize("path", ["/", "/ws/", "/wss", "/other?x=/ws", "/WS", "//ws"])
def test_another_path_is_not_found_and_the_answer_says_which_is_right(path: str) -> None:
    async def story() -> None:
        async with listening() as (endpoint, url):
            status, text = await refusal_of(url.removesuffix("/ws") + path)
            assert (status, "/ws" in text) == (404, True)
            assert endpoint.connections == 0

    run(story())


def test_the_path_may_have_a_query() -> None:
    async def story() -> None:
        async with listening() as (_, url), await Talk.open(f"{url}?x=1") as talk:
            assert await talk.succeed("Echo", {"a": 1}) == {"address": "127.0.0.1", "a": 1}

    run(story())


def test_what_speaks_no_websocket_gets_a_plain_answer() -> None:
    async def story() -> None:
        async with listening() as (endpoint, _):
            for words, status in (
                (b"GET /ws HTTP/1.1\r\nHost: x\r\n\r\n", b"426"),
                (b"GET /other HTTP/1.1\r\nHost: x\r\n\r\n", b"404"),
            ):
                reader, writer = await asyncio.open_connection(*endpoint.addresses[0])
                writer.write(words)
                line = await asyncio.wait_for(reader.readline(), PATIENCE)
                assert line.split()[1] == status
                writer.close()
            assert endpoint.connections == 0

    run(story())


def test_connections_in_all_are_bounded_exactly_also_when_they_come_at_once() -> None:
    async def story() -> None:
        async with listening(max_connections=3) as (endpoint, url):
            tries = await asyncio.gather(*(Talk.open(url) for _ in range(12)), return_exceptions=True)
            inside = [talk for talk in tries if isinstance(talk, Talk)]
            assert len(inside) == 3
            assert endpoint.connections == 3
            others = [other for other in tries if other not in inside]
            told = [other for other in others if isinstance(other, InvalidStatus)]
            assert 1 <= len(told) <= most_sockets(3) - 3  # the sockets of all others are closed before they can ask
            assert all(isinstance(other, InvalidStatus | InvalidHandshake | OSError) for other in others)
            status, text = await refusal_of(url)
            assert (status, "too many connections" in text) == (503, True)
            await inside[0].succeed("Echo")
            await inside[0].close()

            async def room() -> bool:
                return endpoint.connections == 2

            await eventually(room)
            async with await Talk.open(url) as talk:
                await talk.succeed("Echo")
            for talk in inside[1:]:
                await talk.close()

    run(story())


def test_other_limits_hold_from_now_on_also_for_those_who_are_there() -> None:
    async def story() -> None:
        few = {"max_connections": 1, "requests_per_second": 100}
        async with listening(clock=ManualClock(), **few) as (endpoint, url), await Talk.open(url) as before:
            await before.succeed("Echo")
            assert (await refusal_of(url))[0] == 503
            endpoint.change_limits(limits(max_connections=2, requests_per_second=1))
            async with await Talk.open(url) as after:
                await after.succeed("Echo")
                assert await after.refused("Echo") == (429, "RATE_LIMITED")
                await before.succeed("Echo")
                assert await before.refused("Echo") == (429, "RATE_LIMITED"), "what it has saved up counts no more"
                assert (await refusal_of(url))[0] == 503
                few = limits(max_outbound_bytes=70_000, max_frame_bytes=100_000)
                endpoint.change_limits(few)
                assert {doorway.websocket.most_unread for doorway in endpoint._sockets} == {170_000}
                assert {connection.outbound.max_bytes for connection in endpoint._connections} == {70_000}

    run(story())


def test_large_requests_of_one_address_count_together_however_many_connections_it_has() -> None:
    async def story() -> None:
        clock = ManualClock()
        async with listening(clock=clock, peer_requests_per_second=5) as (_, url):
            large = asked("Echo", {"pad": "x" * 10 * 16384})
            for number in range(3):
                async with await Talk.open(url) as talk:
                    await talk.say(large)
                    answer = await talk.hear()
                    assert (answer["status"], answer["requestId"]) == (200 if number == 0 else 429, "r")
                    await talk.succeed("Echo")
            async with await Talk.open(url, headers={"X-Forwarded-For": "198.51.100.7"}) as other:
                await other.say(large)
                assert (await other.hear())["status"] == 200
            await clock.advance(2.5)
            async with await Talk.open(url) as talk:
                await talk.say(large)
                assert (await talk.hear())["status"] == 200

    run(story())


async def until_no_socket(endpoint: Endpoint) -> None:
    async def so() -> bool:
        return len(endpoint._sockets) == 0

    await eventually(so)


def test_sockets_that_say_nothing_are_bounded_too() -> None:
    async def story() -> None:
        async with listening(max_connections=10) as (endpoint, url):
            async with Silent(endpoint.addresses[0], 40) as silent:
                await silent.until_closed(40 - most_sockets(10))
                assert len(endpoint._sockets) == most_sockets(10)
                assert endpoint.connections == 0
                endpoint.change_limits(limits(max_connections=50))
                async with await Talk.open(url) as talk:
                    await talk.succeed("Echo")
            await until_no_socket(endpoint)

    run(story())


@pytest.mark.parametrize("secure", [False, True], ids=["ws", "wss"])
def test_sockets_that_say_nothing_do_not_stay(secure: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "HANDSHAKE_SECONDS", 0.3)

    async def story() -> None:
        tls = tls_of(tmp_path)[0] if secure else None
        async with listening(tls=tls) as (endpoint, _), Silent(endpoint.addresses[0], 3) as silent:
            await silent.until_closed(3)
            await until_no_socket(endpoint)

    run(story())


def test_requests_of_one_address_count_together_unless_it_may_be_a_proxy() -> None:
    async def story() -> None:
        def by(address: str) -> dict[str, str]:
            return {"X-Forwarded-For": address}

        async with (
            listening(clock=ManualClock(), requests_per_second_per_address=3) as (_, url),
            await Talk.open(url, headers=by("2001:db8:1:2::3")) as one,
            await Talk.open(url, headers=by("2001:db8:1:2::4")) as neighbour,
            await Talk.open(url, headers=by("2001:db8:1:3::3")) as stranger,
            await Talk.open(url) as proxy,
        ):
            for talk in (one, neighbour, one):
                await talk.succeed("Echo")
            assert await one.refused("Echo") == await neighbour.refused("Echo") == (429, "RATE_LIMITED")
            await stranger.succeed("Echo")
            for _ in range(10):
                await proxy.succeed("Echo")

    run(story())


def test_blocked_addresses_may_not_connect_and_those_that_are_there_have_to_go() -> None:
    async def story() -> None:
        networks = tuple(ipaddress.ip_network(text) for text in ("198.51.100.0/24", "2001:db8::/32"))
        through = {"X-Forwarded-For": "198.51.100.7"}
        async with listening() as (endpoint, url):
            async with await Talk.open(url) as free, await Talk.open(url, headers=through) as other:
                await other.succeed("Echo")
                endpoint.change_limits(limits(blocked_addresses=networks))
                assert await other.end() == 1008
                await free.succeed("Echo")
            assert await refusal_of(url, through) == (403, "This address is blocked here.\n")
            endpoint.change_limits(limits(blocked_addresses=(ipaddress.ip_network("127.0.0.1"),)))
            with pytest.raises((OSError, InvalidHandshake, ConnectionClosed)):
                await Talk.open(url)
            endpoint.change_limits(limits())
            async with await Talk.open(url, headers=through) as other:
                await other.succeed("Echo")

    run(story())


def test_blocked_servers_that_are_there_have_to_go() -> None:
    async def story() -> None:
        async with (
            listening() as (endpoint, url),
            await Talk.open(url) as client,
            await Talk.open(url) as bad,
            await Talk.open(url) as good,
        ):
            for talk in (client, bad, good):
                await talk.succeed("Echo")
            names = {talk.socket.local_address: name for talk, name in ((bad, "Bad.Server"), (good, "good"))}
            for connection in endpoint._connections:
                name = names.get(connection._websocket.remote_address)  # type: ignore[attr-defined]
                if name is not None:
                    connection.introduce(Hello(name, 1, frozenset()), 100)
            endpoint.change_limits(limits(blocked_peers=frozenset({"bad.server"})))
            assert await bad.end() == 1008
            await client.succeed("Echo")
            await good.succeed("Echo")

    run(story())


def test_sockets_of_one_address_are_bounded_unless_it_is_this_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        few = {"max_connections": 100, "max_connections_per_address": 2}
        async with listening(**few) as (endpoint, url):
            async with Silent(endpoint.addresses[0], 20) as silent:
                async with await Talk.open(url) as talk:  # all of them may be a proxy's
                    await talk.succeed("Echo")
                assert silent.closed == 0
            await until_no_socket(endpoint)
            monkeypatch.setattr(sockets_module, "is_loopback", lambda host: False)
            async with Silent(endpoint.addresses[0], 20) as silent:
                await silent.until_closed(20 - most_sockets(2))

    run(story())


def test_connections_of_one_address_are_bounded_and_a_proxy_says_whose_they_are() -> None:
    async def story() -> None:
        async with listening(max_connections=100, max_connections_per_address=2) as (endpoint, url):
            own = [await Talk.open(url) for _ in range(2)]
            status, text = await refusal_of(url)
            assert (status, "from this address" in text) == (503, True)
            through = {"X-Forwarded-For": "203.0.113.9, 198.51.100.7"}
            others = [await Talk.open(url, headers=through) for _ in range(2)]
            assert (await others[0].succeed("Echo"))["address"] == "198.51.100.7"
            assert (await refusal_of(url, through))[0] == 503
            assert (await refusal_of(url, {"X-Forwarded-For": "198.51.100.7"}))[0] == 503
            async with await Talk.open(url, headers={"X-Forwarded-For": "203.0.113.9"}) as talk:
                assert (await talk.succeed("Echo"))["address"] == "203.0.113.9"
            for talk in own + others:
                await talk.close()

            async def all_gone() -> bool:
                return endpoint.connections == 0

            await eventually(all_gone)

    run(story())


@pytest.mark.parametrize(
    ("remote", "forwarded", "counts"),
    [
        ("127.0.0.1", [], "127.0.0.1"),
        ("127.0.0.1", ["198.51.100.7"], "198.51.100.7"),
        ("127.9.9.9", ["1.1.1.1, 198.51.100.7 "], "198.51.100.7"),
        ("127.0.0.1", ["1.1.1.1", "198.51.100.7"], "198.51.100.7"),
        ("::1", ["2001:db8::7"], "2001:db8::7"),
        ("127.0.0.1", ["198.51.100.7:40001"], "198.51.100.7"),
        ("127.0.0.1", ["[2001:db8::7]:40001"], "2001:db8::7"),
        ("127.0.0.1", ["[2001:db8::7]"], "2001:db8::7"),
        ("127.0.0.1", [""], "127.0.0.1"),
        ("127.0.0.1", ["1.1.1.1, "], "127.0.0.1"),
        ("127.0.0.1", ["x" * 1000], "x" * 64),
        ("198.51.100.1", ["203.0.113.9"], "198.51.100.1"),
        ("192.168.1.5", ["203.0.113.9"], "192.168.1.5"),
        ("2001:db8::1", ["203.0.113.9"], "2001:db8::1"),
        ("unknown", ["203.0.113.9"], "unknown"),
    ],
)
def test_only_a_proxy_on_this_machine_is_believed(remote: str, forwarded: list[str], counts: str) -> None:
    assert client_address(remote, forwarded) == counts


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as one:
            one.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_several_addresses_of_both_families() -> None:
    async def story() -> None:
        listen = (LOOPBACK, ListenAddress("::1", 0), ListenAddress("localhost", 0))
        async with listening(listen=listen) as (endpoint, _):
            hosts = [host for host, _ in endpoint.addresses]
            assert {"127.0.0.1", "::1"} <= set(hosts)
            for host, port in endpoint.addresses:
                at = f"[{host}]" if ":" in host else host
                async with await Talk.open(f"ws://{at}:{port}/ws") as talk:
                    assert (await talk.succeed("Echo"))["address"] == host
        assert endpoint.addresses == []

    run(story())


def test_every_address_of_the_machine() -> None:
    async def story() -> None:
        async with listening(listen=(ListenAddress("", 0),)) as (endpoint, _):
            [port] = {port for host, port in endpoint.addresses if host == "0.0.0.0"}
            async with await Talk.open(f"ws://127.0.0.1:{port}/ws") as talk:
                await talk.succeed("Echo")

    run(story())


def test_an_address_in_use_is_an_error_and_then_none_is_listened_on() -> None:
    async def story() -> None:
        with socket.socket() as other, socket.socket() as first:
            other.bind(("127.0.0.1", 0))
            other.listen()
            first.bind(("127.0.0.1", 0))
            free = first.getsockname()[1]
            first.close()
            endpoint = Endpoint(handlers={}, limits=limits(), clock=SystemClock())
            listen = [ListenAddress("127.0.0.1", free), ListenAddress("127.0.0.1", other.getsockname()[1])]
            with pytest.raises(OSError, match="in use"):
                await endpoint.start(listen)
            assert endpoint.addresses == []
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", free)

    run(story())


def test_frames_that_the_endpoint_does_not_take_end_their_connection_with_the_right_code() -> None:
    async def story() -> None:
        async with listening(max_frame_bytes=65536) as (_, url):
            text = asked("Echo", {"pad": "x" * 65536})
            for frame, as_text, code in ((text, True, 1009), (b"{}", False, 1003), (b'{"op":"\xff"}', True, 1007)):
                talk = await Talk.open(url)
                await talk.say(frame, text=as_text)
                assert await talk.end() == code
            fits = asked("Echo", {"pad": "ж" * 20_000})
            largest = fits[:-2] + " " * (65536 - len(fits.encode())) + fits[-2:]
            async with await Talk.open(url) as talk:
                await talk.say(largest)
                assert (await talk.hear())["ok"] is True
                await talk.say(largest[:-2] + " " + largest[-2:])
                assert await talk.end() == 1009

    run(story())


def tls_of(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the server's context, and one that trusts it."""
    cert, key = write_certificate(folder)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    return tls, ssl.create_default_context(cafile=str(cert))


def test_tls_is_spoken_with_the_certificate_that_is_given(tmp_path: Path) -> None:
    async def story() -> None:
        tls, trust = tls_of(tmp_path)
        async with listening(tls=tls) as (endpoint, url):
            assert url.startswith("wss://")
            # One that says nothing does not hold up the end, though its TLS handshake has not begun.
            _, writer = await asyncio.open_connection(*endpoint.addresses[0])
            with pytest.raises(ssl.SSLCertVerificationError):
                await Talk.open(url)
            async with await Talk.open(url, ssl=trust, server_hostname="localhost") as talk:
                await talk.succeed("Echo")
                await asyncio.wait_for(endpoint.close(), endpoint_module.HANDSHAKE_SECONDS - 1)
                assert await talk.end() == 1001
            writer.close()

    run(story())


def test_at_the_end_requests_under_way_are_answered_and_nothing_new_is_taken() -> None:
    async def story() -> None:
        gate = Gate()
        async with listening(gate) as (endpoint, url):
            talk = await Talk.open(url)
            await talk.say(asked("Wait", {"n": 1}, "first"))
            await gate.until_waiting(1)
            settling = asyncio.ensure_future(endpoint.settle(PATIENCE))
            await settle()
            with pytest.raises(ConnectionRefusedError):
                await Talk.open(url)
            await talk.say(asked("Echo", {}, "second"))
            assert not settling.done()
            gate.open.set()
            answer = await talk.hear()
            assert (answer["requestId"], answer["payload"]) == ("first", {"n": 1})
            await settling
            await endpoint.close()
            assert await talk.end() == 1001
            assert endpoint.connections == 0

    run(story())


def test_the_end_waits_a_bounded_time_for_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "CLOSE_SECONDS", 0.1)

    async def story() -> None:
        gate = Gate()
        async with listening(gate) as (endpoint, url):
            talk = await Talk.open(url)
            await talk.say(asked("Wait"))
            await gate.until_waiting(1)
            await asyncio.wait_for(endpoint.close(), PATIENCE)
            assert await talk.end() == 1001
            assert endpoint.connections == 0

    run(story())


@pytest.mark.parametrize("floods", [8, 16])  # less and more than a connection may have waiting
def test_one_that_does_not_read_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch, floods: int) -> None:
    monkeypatch.setattr(endpoint_module, "CLOSE_SECONDS", 0.2)

    async def story() -> None:
        gate = Gate()
        async with listening(gate) as (endpoint, url):
            narrow = socket.socket()
            # So that the system hides little of what waits:
            narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            narrow.connect(endpoint.addresses[0])
            talk = await Talk.open(url, sock=narrow)
            talk.stop_reading()
            for _ in range(floods):
                await talk.say(asked("Flood"))
            await gate.until_waiting(floods)
            await asyncio.wait_for(endpoint.close(), endpoint_module.PING_SECONDS / 2)
            assert endpoint.connections == 0
            talk.leave()

    run(story())


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_one_that_only_pings_and_does_not_read_is_cut(loop: Any) -> None:
    ping = b"\x89\xfd\0\0\0\0" + b"x" * 125

    async def story() -> None:
        bounds = {"max_frame_bytes": 65536, "max_outbound_bytes": 65536}
        async with listening(**bounds) as (endpoint, url), await Talk.open(url) as other:
            bad = await Talk.open(url)
            bad.stop_reading()

            async def counted_out() -> bool:
                if not bad.socket.transport.is_closing():
                    bad.socket.transport.write(ping * 2000)
                return endpoint.connections == 1

            await eventually(counted_out)
            await asyncio.wait_for(await other.socket.ping(), PATIENCE)
            await other.succeed("Echo")
            bad.leave()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(asyncio.wait_for(story(), 4 * PATIENCE))


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_one_that_says_nothing_does_not_hold_up_the_end(loop: Any) -> None:
    async def story() -> None:
        async with listening() as (endpoint, url):
            reader, writer = await asyncio.open_connection(*endpoint.addresses[0])
            async with await Talk.open(url) as talk:  # the silent one came first, and has been accepted
                await talk.succeed("Echo")
                await asyncio.wait_for(endpoint.close(), endpoint_module.HANDSHAKE_SECONDS - 1)
                assert await talk.end() == 1001
            with suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(), PATIENCE) == b""
            writer.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(asyncio.wait_for(story(), 4 * PATIENCE))


def test_to_close_twice_does_nothing_and_one_that_never_began_can_be_closed() -> None:
    async def story() -> None:
        async with listening() as (endpoint, _):
            await endpoint.close()
            await endpoint.close()
        await Endpoint(handlers={}, limits=limits(), clock=SystemClock()).close()

    run(story())


def test_a_defect_of_a_connection_is_logged_ends_it_and_is_counted_out(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(connection: Connection) -> None:
        raise RuntimeError("the cause")

    monkeypatch.setattr(Connection, "serve", fail)

    async def story() -> None:
        async with listening() as (endpoint, url):
            with suppress(ConnectionClosed):
                await (await Talk.open(url)).end()

            async def counted_out() -> bool:
                return endpoint.connections == 0

            await eventually(counted_out)

    with caplog.at_level(logging.ERROR, logger="shine_node"):
        run(story())
    [record] = caplog.records
    assert "a defect in the connection of 127.0.0.1" in record.getMessage()
    assert record.exc_info and "the cause" in str(record.exc_info[1])
