"""Bringing a pair to a server: which one, how often, and until when."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shine_node.client.connection import ClientError, ConnectFailed, RequestRefused
from shine_node.client.history import BadAnswer
from shine_node.client.identity import Identity
from shine_node.client.messages import make_edit, make_message
from shine_node.client.sending import PAUSES_SECONDS, await_delivery, submit
from shine_node.clock import SystemClock
from shine_node.protocol.access import AccessServer
from tests.client.scripted import Refuse, Script, scripted_url
from tests.support.nodes import LocalServer, now_ms, register, run, servers

ALICE, BOB = Identity.generate("alice"), Identity.generate("bob")
PAIR = make_message(ALICE, "bob", "x", time_ms=1)
NOWHERE = AccessServer("nowhere", "ws://127.0.0.1:9/ws")


class Pauses:
    """A clock on which time passes only by pauses, which are noted."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    def now_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        return sum(self.pauses)

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)


def script_of(*answers: dict[str, Any] | Refuse | None) -> Script:
    left = list(answers)
    return {"SendMessagePair": lambda payload: left.pop(0)}


def state(text: str) -> dict[str, Any]:
    return {"deliveryState": text}


BUSY = Refuse(503, "SERVER_BUSY")


def test_a_pair_is_delivered_and_followed(tmp_path: Path) -> None:
    async def story() -> None:
        quick = {"scheduleSeconds": [0, 1, 2], "workerIntervalMs": 50}
        async with servers(LocalServer, tmp_path, "home", "away", delivery=quick) as (home, away):
            await register(ALICE, [home], known_at=[away])
            await register(BOB, [away], known_at=[home])
            pair = make_message(ALICE, "bob", "x", time_ms=now_ms())
            clock = SystemClock()
            assert await submit([home.access], pair, clock=clock, limit_seconds=30) == "delivered"
            assert await await_delivery([home.access], pair, clock=clock, limit_seconds=30) == "delivered"
            await away.stop()
            pair = make_message(ALICE, "bob", "y", time_ms=now_ms())
            assert await await_delivery([home.access], pair, clock=clock, limit_seconds=60) == "failed"
            assert await submit([NOWHERE, home.access], pair, clock=clock, limit_seconds=30) == "failed"
            edit = make_edit(ALICE, pair.message, "z", revision_ms=now_ms())
            await submit([home.access], edit, clock=clock, limit_seconds=30)
            with pytest.raises(RequestRefused, match="STALE_REVISION"):
                await submit([home.access], pair, clock=clock, limit_seconds=30)

    run(story())


def test_losses_and_busy_servers_are_tried_again_elsewhere() -> None:
    async def story() -> None:
        clock = Pauses()
        one = script_of(None, Refuse(429, "RATE_LIMITED", {"retryAfterMs": 7000}), state("accepted"))
        other = script_of(BUSY, Refuse(507, "STORAGE_FULL", {"retryAfterMs": "soon"}))
        async with scripted_url(one) as first, scripted_url(other) as second:
            at = [AccessServer("one", first), AccessServer("other", second)]
            assert await submit(at, PAIR, clock=clock, limit_seconds=60) == "accepted"
        assert clock.pauses == [0.5, 1, 7, 5]

    run(story())


def test_a_state_that_is_none_is_no_answer() -> None:
    async def story() -> None:
        async with scripted_url(script_of(state("\x1b[31mread"), {}, state("failed"))) as url:
            at = [AccessServer("one", url)]
            assert await submit(at, PAIR, clock=Pauses(), limit_seconds=60) == "failed"
        async with scripted_url(script_of(state("read"))) as url:
            with pytest.raises(BadAnswer, match="deliveryState must be one of accepted, delivered, failed"):
                await submit([AccessServer("one", url)], PAIR, clock=Pauses(), limit_seconds=0)

    run(story())


def test_there_is_a_limit() -> None:
    async def story() -> None:
        clock = Pauses()
        async with scripted_url(script_of(*[BUSY] * 20)) as url:
            with pytest.raises(RequestRefused, match="SERVER_BUSY"):
                await submit([AccessServer("busy", url)], PAIR, clock=clock, limit_seconds=10)
        assert clock.pauses == [0.5, 1, 2, 5]
        with pytest.raises(ConnectFailed):
            await submit([NOWHERE], PAIR, clock=clock, limit_seconds=0)

    run(story())


def test_a_server_that_is_none_of_the_senders_any_more() -> None:
    gone = Refuse(421, "NOT_ACCESS_SERVER")

    async def story() -> None:
        clock = Pauses()
        async with scripted_url(script_of(gone)) as first, scripted_url(script_of(state("delivered"), gone)) as second:
            at = [AccessServer("one", first), AccessServer("other", second)]
            assert await submit(at, PAIR, clock=clock, limit_seconds=10) == "delivered"
            assert clock.pauses == [0]
            with pytest.raises(RequestRefused, match="NOT_ACCESS_SERVER"):
                await submit(at[1:], PAIR, clock=clock, limit_seconds=10)

    run(story())


def test_waiting_for_a_delivery_ends() -> None:
    async def story() -> None:
        clock = Pauses()
        async with scripted_url(script_of(*[state("accepted")] * 20)) as url:
            at = [AccessServer("home", url)]
            assert await await_delivery(at, PAIR, clock=clock, limit_seconds=11) == "accepted"
        assert clock.pauses == [*PAUSES_SECONDS, 2.5]

    run(story())


def test_a_loss_while_waiting_is_no_end_and_a_refusal_is() -> None:
    async def story() -> None:
        stale = Refuse(409, "STALE_REVISION")
        for answers, end in (([None, BUSY, state("delivered")], None), ([stale], "STALE_REVISION")):
            async with scripted_url(script_of(state("accepted"), *answers)) as url:
                at = [AccessServer("home", url)]
                if end is None:
                    assert await await_delivery(at, PAIR, clock=Pauses(), limit_seconds=60) == "delivered"
                else:
                    with pytest.raises(ClientError, match=end):
                        await await_delivery(at, PAIR, clock=Pauses(), limit_seconds=60)

    run(story())
