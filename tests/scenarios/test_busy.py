"""A server with too much to do says so at once, and does the rest (PROTOCOL.md §2, §5.2)."""

from __future__ import annotations

import asyncio
from pathlib import Path

from shine_node.client.connection import RequestRefused
from tests.scenarios.world import World, submit, tell


def test_a_full_queue_of_signatures_is_503_at_once_and_nothing_of_it_is_stored(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        home = await world.home("home", crypto={"threads": 1, "maxQueue": 2}, limits={"requestsPerSecond": 10_000})
        alice = await world.person("alice", home)
        await world.person("bob", home)
        pairs = [alice.writes("bob", f"number {number}") for number in range(200)]
        async with await home.connect() as client:
            answers = await asyncio.gather(*(submit(client, pair) for pair in pairs), return_exceptions=True)
            taken = [pair for pair, answer in zip(pairs, answers, strict=True) if answer == "delivered"]
            busy = [pair for pair, answer in zip(pairs, answers, strict=True) if isinstance(answer, RequestRefused)]
            assert len(taken) + len(busy) == len(pairs), answers
            assert taken
            assert busy
            for answer in answers:
                if isinstance(answer, RequestRefused):
                    assert (answer.status, answer.code) == (503, "SERVER_BUSY")
                    assert answer.retryable
                    assert answer.payload["retryAfterMs"] > 0
            for pair in busy:
                assert home.row(pair.outgoing_key) is None
                assert home.row(pair.incoming_key) is None
            for pair in taken:
                assert home.has(pair)
            for pair in busy:
                assert await submit(client, pair) == "delivered", "later it is taken"

    tell(tmp_path, story)
