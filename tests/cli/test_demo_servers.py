"""A server of the demo: its process, what it answers, and what is on its disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from shine_node.cli.demo_servers import DemoServer
from shine_node.client.connection import ConnectFailed
from shine_node.client.identity import Identity
from shine_node.client.messages import make_message, make_receipt
from tests.support.nodes import eventually, now_ms, run


def test_two_servers_and_what_they_store(tmp_path: Path) -> None:
    async def story() -> None:
        servers = [DemoServer(login, tmp_path, (0, 1, 600)) for login in ("server1", "server2")]
        one, two = servers
        try:
            for server, peer in ((one, two), (two, one)):
                server.configure([peer])
                assert not server.running
                await server.start()
                assert server.running
            alice, bob = Identity.generate("alice"), Identity.generate("bob")
            for server in servers:
                await server.add_user(alice, [one], time_ms=now_ms())
                await server.add_user(bob, [two], time_ms=now_ms())

            pair = make_message(alice, "bob", "hello", time_ms=now_ms())
            assert not await one.knows(pair)
            assert not one.has_pair(pair)
            assert await one.send(pair) == "delivered"
            assert await one.send(pair) == "delivered"
            assert await one.knows(pair)
            assert (one.has_pair(pair), one.has_copy(pair)) == (True, False)
            assert (two.has_pair(pair), two.has_copy(pair)) == (False, True)

            assert not one.shows_read(pair.message)
            await two.send(make_receipt(bob, pair.message, time_ms=now_ms()))

            async def is_read() -> bool:
                return one.shows_read(pair.message)

            await eventually(is_read)
            later = make_message(alice, "bob", "later", time_ms=pair.message.time_ms + 1)
            assert not one.shows_read(later.message)

            await two.stop()
            await two.stop()
            assert not two.running
            assert two.has_copy(pair)
            with pytest.raises(ConnectFailed):
                await two.send(pair)
            await two.start()
            assert await two.send(make_message(bob, "alice", "hi", time_ms=now_ms())) == "delivered"
            await two.stop()
        finally:
            for server in servers:
                await server.discard()
        assert not one.running

    run(story())
