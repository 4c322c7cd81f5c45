import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from shine_node.clock import Clock, SystemClock
from shine_node.peers import dial
from shine_node.peers.address import parse_endpoint
from shine_node.peers.dial import Candidate, Dialer, DialFailed, Resolver, make_tls_context
from tests.peers.certificates import Authority
from tests.peers.conftest import Run
from tests.peers.links import closed_port
from tests.peers.raw import raw_server, silent_port
from tests.support.clock import ManualClock, settle
from tests.support.scripted_peer import PATIENCE, ScriptedPeer

pytestmark = pytest.mark.core

Resolve = Callable[[str, int], Awaitable[Sequence[Candidate]]]


def resolves_to(*addresses: tuple[str, int]) -> Resolve:
    """Return a name service that knows one answer to every question."""

    async def resolve(host: str, port: int) -> list[Candidate]:
        return [Candidate(socket.AF_INET6 if ":" in a else socket.AF_INET, (a, p)) for a, p in addresses]

    return resolve


def make_dialer(
    *,
    clock: Clock | None = None,
    ca_file: Path | None = None,
    resolve: Resolve | None = None,
    insecure: bool = True,
    private: bool = True,
    max_frame_bytes: int = 1000,
) -> Dialer:
    return Dialer(
        clock=clock or SystemClock(),
        tls=None if ca_file is None else make_tls_context(ca_file),
        allow_insecure=insecure,
        allow_private=private,
        max_frame_bytes=max_frame_bytes,
        resolve=resolve or Resolver(),
    )


async def fails(dialer: Dialer, url: str) -> str:
    """Return the text of the failure."""
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(DialFailed) as caught:
            await dialer.open(url)
    return str(caught.value)


# --- plain connections ---


def test_a_connection_without_compression_proxy_or_pings(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "WS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")

    async def story() -> None:
        async with ScriptedPeer() as peer:
            connection = await make_dialer().open(peer.url)
            await peer.until(lambda: len(peer.connections) == 1)
            request = peer.connections[0].socket.request
            assert request is not None
            assert "Sec-WebSocket-Extensions" not in request.headers
            assert request.headers["User-Agent"] == "shine-node"
            assert connection.ping_interval is None
            await connection.close()

    run(story())


def test_a_message_over_the_limit_closes_the_connection(run: Run) -> None:
    async def story() -> None:
        async with ScriptedPeer() as peer:
            connection = await make_dialer(max_frame_bytes=1000).open(peer.url)
            await peer.until(lambda: len(peer.connections) == 1)
            await peer.connections[0].send("x" * 1000)
            assert len(await connection.recv()) == 1000
            await peer.connections[0].send("x" * 1001)
            with pytest.raises(ConnectionClosed):
                await connection.recv()
            await peer.until(lambda: peer.connections[0].socket.close_code == 1009)

    run(story())


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "HTTP 404"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "HTTP 200"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "no WebSocket at"),
        (b"", "no WebSocket at"),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "no WebSocket at"),
    ],
)
def test_what_is_no_websocket(run: Run, reply: bytes, reason: str) -> None:
    async def story() -> None:
        async with raw_server(reply) as (port, _):
            assert reason in await fails(make_dialer(), f"ws://127.0.0.1:{port}/ws")

    run(story())


def test_a_redirect_is_not_followed(run: Run) -> None:
    async def story() -> None:
        async with ScriptedPeer() as elsewhere:
            reply = f"HTTP/1.1 302 Found\r\nLocation: {elsewhere.url}\r\nContent-Length: 0\r\n\r\n".encode()
            async with raw_server(reply) as (port, seen):
                await fails(make_dialer(), f"ws://127.0.0.1:{port}/ws")
                assert seen.accepted == 1
            assert elsewhere.connections == []

    run(story())


def test_nobody_listens(run: Run) -> None:
    async def story() -> None:
        with closed_port() as port:
            assert "no connection to 127.0.0.1" in await fails(make_dialer(), f"ws://127.0.0.1:{port}/")

    run(story())


def test_who_gives_up_during_the_handshake_leaves_no_socket_behind(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        for scheme in ("ws", "wss"):
            async with raw_server(None) as (port, seen):
                attempt = asyncio.ensure_future(make_dialer().open(f"{scheme}://127.0.0.1:{port}/"))
                await seen.until(lambda seen=seen: seen.accepted == 1)
                attempt.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await attempt
                await seen.until(lambda seen=seen: seen.ended == 1)

    run(story())


# --- which URLs and addresses ---


def test_a_bad_url_is_a_failure_like_any_other(run: Run) -> None:
    async def story() -> None:
        assert "wss:// or ws://" in await fails(make_dialer(), "https://example.org/")

    run(story())


def test_ws_only_where_the_configuration_says_so(run: Run) -> None:
    async def story() -> None:
        async with raw_server(None) as (port, seen):
            reason = await fails(make_dialer(insecure=False), f"ws://127.0.0.1:{port}/")
            assert "server.pool.allowInsecurePeers" in reason
            assert seen.accepted == 0

    run(story())


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1"])
def test_no_address_of_this_machine_whatever_it_is_called(run: Run, host: str) -> None:
    async def story() -> None:
        async with raw_server(None) as (port, seen):
            reason = await fails(make_dialer(private=False), f"ws://{host}:{port}/")
            assert "a loopback address" in reason
            assert "server.pool.allowPrivatePeers" in reason
            assert seen.accepted == 0

    run(story())


@pytest.mark.parametrize("address", ["10.1.2.3", "169.254.169.254", "224.0.0.1", "192.168.0.1", "fe80::1", "::1"])
def test_a_name_that_resolves_to_such_an_address_is_refused_too(run: Run, address: str) -> None:
    async def story() -> None:
        dialer = make_dialer(private=False, resolve=resolves_to((address, 443)))
        assert f"{address} is a" in await fails(dialer, "wss://innocent.example/")

    run(story())


def test_every_candidate_is_checked(run: Run) -> None:
    async def story() -> None:
        resolve = resolves_to(("127.0.0.1", 1), ("8.8.8.8", 1), ("10.0.0.1", 1), ("2606:4700::1111", 1))
        dialer = make_dialer(private=False, resolve=resolve)
        candidates = await dialer._candidates(parse_endpoint("wss://mixed.example/"))
        assert [candidate.address[0] for candidate in candidates] == ["8.8.8.8", "2606:4700::1111"]

    run(story())


def test_the_checked_address_is_the_one_that_is_dialled(run: Run) -> None:
    """The name is looked up once; a name service that answers otherwise the next time changes nothing."""

    async def story() -> None:
        async with ScriptedPeer() as peer:
            questions = []

            async def resolve(host: str, port: int) -> list[Candidate]:
                questions.append((host, port))
                return [Candidate(socket.AF_INET, ("127.0.0.1", peer.port))]

            connection = await make_dialer(resolve=resolve).open("ws://peer.invalid:8000/ws")
            assert questions == [("peer.invalid", 8000)]
            request = peer.connections[0].socket.request
            assert request is not None
            assert request.headers["Host"] == "peer.invalid:8000"
            await connection.close()

    run(story())


def test_a_name_without_addresses(run: Run) -> None:
    async def story() -> None:
        assert "no address" in await fails(make_dialer(resolve=resolves_to()), "wss://empty.example/")

        async def broken(host: str, port: int) -> list[Candidate]:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")

        assert "no address found for" in await fails(make_dialer(resolve=broken), "wss://unknown.example/")
        assert "no address found for" in await fails(make_dialer(), "wss://two..dots/")

    run(story())


# --- several addresses ---


def test_the_next_address_is_tried_when_one_fails(run: Run) -> None:
    async def story() -> None:
        async with ScriptedPeer() as peer:
            with closed_port() as closed:
                resolve = resolves_to(("127.0.0.1", closed), ("127.0.0.1", peer.port))
                connection = await make_dialer(clock=ManualClock(), resolve=resolve).open("ws://peer.example/")
                await connection.close()

    run(story())


def test_all_addresses_fail(run: Run) -> None:
    async def story() -> None:
        with closed_port() as one, closed_port() as two:
            resolve = resolves_to(("127.0.0.1", one), ("127.0.0.2", two))
            reason = await fails(make_dialer(resolve=resolve), "ws://peer.example/")
            assert "127.0.0.1: " in reason
            assert "127.0.0.2: " in reason

    run(story())


def test_an_address_that_swallows_packets_costs_only_its_head_start(run: Run) -> None:
    async def story() -> None:
        clock = ManualClock()
        async with ScriptedPeer() as peer, silent_port() as silent:
            resolve = resolves_to(("127.0.0.1", silent), ("127.0.0.1", peer.port))
            attempt = asyncio.ensure_future(make_dialer(clock=clock, resolve=resolve).open("ws://peer.example/"))
            await clock.advance(dial.STAGGER_SECONDS - 0.1)
            assert peer.connections == []
            await clock.advance(0.1)
            connection = await attempt
            await connection.close()

    run(story())


def test_while_one_address_may_still_answer_there_is_hope(run: Run) -> None:
    async def story() -> None:
        clock = ManualClock()
        with closed_port() as closed:
            async with silent_port() as silent:
                resolve = resolves_to(("127.0.0.1", silent), ("127.0.0.1", closed))
                attempt = asyncio.ensure_future(make_dialer(clock=clock, resolve=resolve).open("ws://peer.example/"))
                await clock.advance(dial.STAGGER_SECONDS)
                await asyncio.wait((attempt,), timeout=0.2)
                assert not attempt.done()
                attempt.cancel()
                await asyncio.wait((attempt,))

    run(story())


class HastyClock(SystemClock):
    """A clock on which every wait is over at once."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


def test_of_several_connections_one_is_kept(run: Run) -> None:
    async def story() -> None:
        async with raw_server(None) as (port, seen):
            dialer = make_dialer(clock=HastyClock())
            candidates = [Candidate(socket.AF_INET, ("127.0.0.1", port))] * 5
            kept = await dialer._connect_first(candidates, parse_endpoint("ws://peer.example/"))
            await seen.until(lambda: seen.accepted >= 1)
            await seen.until(lambda: seen.ended == seen.accepted - 1)
            kept.close()

    run(story())


def test_a_connection_that_came_too_late_is_closed(run: Run) -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        late, failed, cancelled = loop.create_future(), loop.create_future(), loop.create_future()
        late.set_result(ours)
        failed.set_exception(OSError("refused"))
        cancelled.cancel()
        for attempt in (late, failed, cancelled):
            dial._close_result(attempt)
        assert ours.fileno() == -1
        theirs.close()

    run(story())


def test_families_take_turns_and_a_name_gets_only_some_tries() -> None:
    def candidates(*families: int) -> list[Candidate]:
        return [Candidate(family, (str(number), 1)) for number, family in enumerate(families)]

    order = dial._alternate(candidates(10, 10, 10, 2, 2))
    assert [candidate.family for candidate in order] == [10, 2, 10, 2, 10]

    async def story() -> None:
        dialer = make_dialer(resolve=resolves_to(*[("8.8.8.8", port) for port in range(1, 100)]))
        assert len(await dialer._candidates(parse_endpoint("wss://many.example/"))) == dial.MAX_CANDIDATES

    asyncio.run(story())


# --- TLS ---


def test_a_certificate_of_an_own_authority_for_the_name_in_the_url(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        authority = Authority(tmp_path)
        async with ScriptedPeer(tls=authority.server_context("peer.example")) as peer:
            resolve = resolves_to(("127.0.0.1", peer.port))
            connection = await make_dialer(ca_file=authority.ca_file, resolve=resolve).open("wss://peer.example/ws")
            await connection.close()

    run(story())


def test_a_certificate_for_an_address(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        authority = Authority(tmp_path)
        async with ScriptedPeer(tls=authority.server_context("127.0.0.1")) as peer:
            connection = await make_dialer(ca_file=authority.ca_file).open(peer.url)
            await connection.close()

    run(story())


def test_certificates_that_are_not_accepted(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
        cases = [
            (authority.server_context("127.0.0.1"), None),
            (authority.server_context("127.0.0.1"), stranger.ca_file),
            (authority.server_context("other.example"), authority.ca_file),
            (authority.server_context("127.0.0.1", expired=True), authority.ca_file),
        ]
        for context, ca_file in cases:
            async with ScriptedPeer(tls=context) as peer:
                reason = await fails(make_dialer(ca_file=ca_file), peer.url)
                assert "the certificate of 127.0.0.1 is not accepted" in reason
                assert "server.pool.caFile" in reason
                assert peer.connections == []

    run(story())


def test_a_plain_server_behind_wss(run: Run) -> None:
    async def story() -> None:
        async with raw_server(b"HTTP/1.1 400 Bad Request\r\n\r\n") as (port, _):
            assert "no WebSocket at" in await fails(make_dialer(), f"wss://127.0.0.1:{port}/")

    run(story())


def test_the_authorities_of_the_system_stay_beside_an_own_one(tmp_path: Path) -> None:
    context = make_tls_context(Authority(tmp_path).ca_file)
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.cert_store_stats()["x509_ca"] == make_tls_context(None).cert_store_stats()["x509_ca"] + 1


def test_a_ca_file_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("")
    (tmp_path / "text.pem").write_text("no certificate")
    for name in ("missing.pem", "empty.pem", "text.pem"):
        with pytest.raises(DialFailed, match=r"server\.pool\.caFile = .*PEM"):
            make_tls_context(tmp_path / name)


# --- looking names up ---


def test_an_address_needs_no_look_up(run: Run) -> None:
    async def story() -> None:
        async def look_up(host: str, port: int) -> list[tuple[Any, ...]]:
            raise AssertionError

        resolver = Resolver(look_up)
        assert [c.address[:2] for c in await resolver("192.0.2.1", 443)] == [("192.0.2.1", 443)]
        assert [c.address[:2] for c in await resolver("2001:db8::1", 443)] == [("2001:db8::1", 443)]

    run(story())


def test_the_systems_resolver(run: Run) -> None:
    async def story() -> None:
        assert "127.0.0.1" in [c.address[0] for c in await Resolver()("localhost", 80)]

    run(story())


def test_look_ups_that_do_not_come_back_do_not_pile_up(run: Run) -> None:
    """Who gives up leaves; the look-up itself, which cannot be cancelled, keeps its place until it is done."""

    async def story() -> None:
        begun: list[str] = []
        release = asyncio.Event()

        async def look_up(host: str, port: int) -> list[tuple[Any, ...]]:
            begun.append(host)
            await release.wait()
            raise socket.gaierror(socket.EAI_AGAIN, "no answer")

        resolver = Resolver(look_up)
        first = [asyncio.ensure_future(resolver(f"host{number}.example", 1)) for number in range(20)]
        await settle()
        assert len(begun) == dial.CONCURRENT_LOOKUPS
        for asker in first:
            asker.cancel()
        await asyncio.wait(first)
        second = asyncio.ensure_future(resolver("late.example", 1))
        await settle()
        assert len(begun) == dial.CONCURRENT_LOOKUPS
        release.set()
        with pytest.raises(socket.gaierror):
            await second
        assert begun[-1] == "late.example"
        assert len(begun) == dial.CONCURRENT_LOOKUPS + 1

    run(story())


def test_closing_lets_go_of_look_ups(run: Run) -> None:
    async def story() -> None:
        async def look_up(host: str, port: int) -> list[tuple[Any, ...]]:
            await asyncio.Event().wait()
            return []

        resolver = Resolver(look_up)
        asker = asyncio.ensure_future(resolver("host.example", 1))
        await settle()
        resolver.close()
        with pytest.raises(asyncio.CancelledError):
            await asker

    run(story())
