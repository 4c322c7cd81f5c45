"""What is not offered: strangers are told to introduce themselves, and those who have that there is no such thing."""

from __future__ import annotations

from pathlib import Path

import pytest

from shine_node.api.connection import LiveSession
from shine_node.api.gate import gate_handlers
from tests.api.talk import Talk, node
from tests.support.nodes import run

HELLO = {"serverLogin": "server2", "protocolVersion": 1, "capabilities": ["dm-sync", "settings-sync", "block-sync"]}


@pytest.mark.parametrize("op", gate_handlers())
def test_a_peer_is_told_that_this_is_not_offered_and_a_stranger_that_it_may_not_ask(tmp_path: Path, op: str) -> None:
    async def story() -> None:
        async with node(tmp_path) as server, await Talk.open(server.url) as talk:
            assert await talk.refused(op, {"limit": 10}) == (422, "NOT_AUTHENTICATED")
            capabilities = (await talk.succeed("ServerHello", HELLO))["capabilities"]
            assert "block-sync" not in capabilities
            assert await talk.refused(op, {"limit": 10}) == (400, "UNKNOWN_OP")

    run(story())


@pytest.mark.parametrize(
    ("op", "refusal"),
    [("SettingsSyncBatch", (422, "NOT_AUTHENTICATED")), ("GetBlocks", (400, "UNKNOWN_OP"))],
)
def test_a_session_is_enough_for_blocks_only(tmp_path: Path, op: str, refusal: tuple[int, str]) -> None:
    async def story() -> None:
        async with node(tmp_path) as server, await Talk.open(server.url) as talk:
            await talk.succeed("Ping")
            [connection] = server.node._endpoint._connections
            connection.session = LiveSession("alice", "x")
            assert await talk.refused(op, {"limit": 10}) == refusal
            connection.session = None

    run(story())
