"""What the rooms above need of the links is what the pool is."""

from __future__ import annotations

import inspect

from shine_node.peers.asking import Peers
from shine_node.peers.pool import Pool, PoolSettings
from shine_node.protocol.access import AccessServer
from shine_node.protocol.errors import LinkDown
from tests.peers.conftest import Run
from tests.peers.links import start
from tests.support.clock import ManualClock


def test_the_pool_can_be_asked_as_the_rooms_above_ask(run: Run) -> None:
    async def story() -> None:
        pool = Pool(
            own_login="server1",
            own_url="wss://server1.example/ws",
            settings=PoolSettings(),
            clock=ManualClock(),
            known_peers=list,
        )
        peers: Peers = pool
        itself = AccessServer("server1", "wss://server1.example/ws")
        asked = start(peers.request(itself, "GetUserAccess", {"login": "bob"}, timeout=1))
        try:
            await asked
        except LinkDown as down:
            assert (down.server, down.op) == ("server1", "GetUserAccess")
        else:
            raise AssertionError("a server never asks itself")

    run(story())


def test_both_have_the_same_parameters() -> None:
    """The types are mypy's to compare; names and defaults are what callers use."""
    wanted, there = inspect.signature(Peers.request), inspect.signature(Pool.request)
    assert wanted.parameters == there.parameters
    assert inspect.iscoroutinefunction(Pool.request)
