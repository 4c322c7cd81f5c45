"""What anyone may ask of a server, and how a peer introduces itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from shine_node import __version__
from shine_node.protocol.hello import CAPABILITIES
from tests.api.talk import Talk, node
from tests.support.clock import ManualClock
from tests.support.nodes import run
from tests.support.scripted_peer import ScriptedPeer

HELLO = {"serverLogin": "server2", "protocolVersion": 1, "capabilities": ["dm-sync", "connection-pool"]}


def test_ping_tells_the_servers_time(tmp_path: Path) -> None:
    async def story() -> None:
        clock = ManualClock(1_774_700_600_123)
        async with node(tmp_path, clock=clock) as server, await Talk.open(server.url) as talk:
            assert await talk.succeed("Ping") == {"ts": 1_774_700_600_123}
            clock.jump(5_000)
            assert await talk.succeed("Ping", {"ts": 1}) == {"ts": 1_774_700_605_123}
            assert await talk.succeed("Ping", {"ts": "any", "more": [None]}) == {"ts": 1_774_700_605_123}

    run(story())


def test_the_server_says_what_its_operator_wrote(tmp_path: Path) -> None:
    async def story() -> None:
        info = {
            "physicalRegion": "Kyiv",
            "description": "Сервер «дома»",
            "origin": "https://one.example",
            "extraInfo": "line\nline",
        }
        async with node(tmp_path, server={"info": info}) as server, await Talk.open(server.url) as talk:
            expected = {"serverLogin": "server1", "registration": "open", "url": server.url, "version": __version__}
            assert await talk.succeed("GetServerInfo") == expected | info

    run(story())


def test_without_a_word_of_the_operator_the_fields_are_empty(tmp_path: Path) -> None:
    async def story() -> None:
        async with node(tmp_path) as server, await Talk.open(server.url) as talk:
            info = await talk.succeed("GetServerInfo")
            assert info == {
                "serverLogin": "server1",
                "registration": "open",
                "url": server.url,
                "version": __version__,
                "physicalRegion": "",
                "description": "",
                "origin": "",
                "extraInfo": "",
            }

    run(story())


@pytest.mark.parametrize("mode", ["open", "token", "closed"])
def test_who_may_register_is_told_and_the_token_is_not(tmp_path: Path, mode: str) -> None:
    async def story() -> None:
        registration = {"mode": mode, "token": "a secret word" if mode == "token" else ""}
        async with (
            node(tmp_path, login="Server1", registration=registration) as server,
            await Talk.open(server.url) as talk,
        ):
            info = await talk.succeed("GetServerInfo")
            assert (info["serverLogin"], info["registration"]) == ("Server1", mode)
            assert "secret" not in str(info)

    run(story())


def test_a_hello_is_answered_with_the_servers_own(tmp_path: Path) -> None:
    async def story() -> None:
        async with node(tmp_path, login="Server1") as server, await Talk.open(server.url) as talk:
            for login in ("server2", "Third.One"):  # a second one replaces the first
                assert await talk.succeed("ServerHello", HELLO | {"serverLogin": login}) == {
                    "accepted": True,
                    "serverLogin": "Server1",
                    "protocolVersion": 1,
                    "capabilities": list(CAPABILITIES),
                }

    run(story())


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ({"protocolVersion": 2}, (426, "UNSUPPORTED_PROTOCOL")),
        ({"protocolVersion": 0}, (426, "UNSUPPORTED_PROTOCOL")),
        ({"protocolVersion": None}, (400, "BAD_FIELDS")),
        ({"protocolVersion": "1"}, (400, "BAD_REQUEST_FORMAT")),
        ({"serverLogin": ""}, (400, "BAD_FIELDS")),
        ({"serverLogin": "a b"}, (400, "BAD_LOGIN")),
        ({"serverLogin": 5}, (400, "BAD_REQUEST_FORMAT")),
        ({"capabilities": "dm-sync"}, (400, "BAD_REQUEST_FORMAT")),
    ],
)
def test_a_hello_that_is_none(tmp_path: Path, change: dict[str, object], refusal: tuple[int, str]) -> None:
    async def story() -> None:
        async with node(tmp_path) as server, await Talk.open(server.url) as talk:
            assert await talk.refused("ServerHello", HELLO | change) == refusal
            assert (await talk.succeed("ServerHello", HELLO | {"capabilities": [None, 5]}))["accepted"] is True

    run(story())


def test_the_hello_of_a_blocked_server_is_refused_and_its_connection_ends(tmp_path: Path) -> None:
    async def story() -> None:
        async with node(tmp_path, limits={"blockedPeers": ["Server2"]}) as server, await Talk.open(server.url) as talk:
            assert await talk.refused("ServerHello", HELLO | {"serverLogin": "SERVER2"}) == (403, "FORBIDDEN")
            assert await talk.end() == 1008
            async with await Talk.open(server.url) as other:
                await other.succeed("ServerHello", HELLO | {"serverLogin": "server3"})

    run(story())


def test_from_its_hello_on_a_connection_has_the_rate_of_peers(tmp_path: Path) -> None:
    limits = {"requestsPerSecond": 2, "peerRequestsPerSecond": 40}

    async def story() -> None:
        clock = ManualClock()
        async with node(tmp_path, clock=clock, limits=limits) as server, await Talk.open(server.url) as talk:
            for _ in range(2):
                await talk.succeed("Ping")
            answer = await talk.ask("ServerHello", HELLO)
            assert answer["error"] == "RATE_LIMITED"
            await clock.advance(answer["payload"]["retryAfterMs"] / 1000)
            await talk.succeed("ServerHello", HELLO)
            await clock.advance(1)
            for _ in range(40):
                await talk.succeed("Ping")
            assert await talk.refused("Ping") == (429, "RATE_LIMITED")

    run(story())


def test_the_hello_of_a_peer_ends_the_pause_of_the_link_to_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with ScriptedPeer("server2") as peer:
            url = peer.url
            await peer.stop()
            clock = ManualClock()  # which stands still: the pause has no end of its own
            peers = [{"login": "server2", "url": url}]
            async with node(tmp_path, clock=clock, sync_servers=peers) as server:
                pool = server.node.pool
                await peer.until(lambda: [link.state.name for link in pool.snapshot().peers] == ["PAUSE"])
                await peer.listen()
                async with await Talk.open(server.url) as talk:
                    await talk.succeed("ServerHello", HELLO | {"serverLogin": "other"})
                    assert not peer.live
                    await talk.succeed("ServerHello", HELLO | {"serverLogin": "SERVER2"})
                    await peer.until(lambda: bool(peer.live))

    run(story())
