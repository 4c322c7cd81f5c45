"""Bringing a pair to a server: which one, how often, and until when."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shine_node.client.connection import ClientError, ConnectFailed, Connection, RequestRefused, RequestTimedOut
from shine_node.client.history import BadAnswer
from shine_node.client.identity import Identity
from shine_node.client.messages import SignedPair, make_edit, make_message
from shine_node.client.people import PersonError, PersonUnknown, RecordReplaced
from shine_node.client.sending import PAUSES_SECONDS, Outgoing, await_delivery, submit
from shine_node.clock import SystemClock
from shine_node.protocol.access import AccessServer
from tests.client.scripted import Refuse, Script, Silence, scripted_url
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


def sealing(*answers: PersonError | None) -> tuple[Outgoing, list[Connection]]:
    """Return a message that is sealed when a server gives ``None`` for an answer, and the connections it asked at."""
    asked: list[Connection] = []

    async def seal(connection: Connection) -> SignedPair:
        asked.append(connection)
        problem = answers[len(asked) - 1] if len(asked) <= len(answers) else None
        if problem is not None:
            raise problem
        await connection.request("GetUserAccess", {})
        return PAIR

    return Outgoing(seal), asked


FOUND: Script = {"GetUserAccess": lambda payload: {}}


def test_looking_up_and_submitting_have_one_deadline_and_both_servers() -> None:
    async def story() -> None:
        clock = Pauses()
        looked = iter([None, {}])
        lost: Script = {"GetUserAccess": lambda payload: next(looked), **script_of(None)}
        good: Script = {**FOUND, **script_of(BUSY, state("accepted"))}
        async with scripted_url(lost) as first, scripted_url(good) as second:
            message, asked = sealing()
            assert message.pair is None
            at = [NOWHERE, AccessServer("lost", first), AccessServer("good", second)]
            assert await submit(at, message, clock=clock, limit_seconds=60) == "accepted"
            assert message.pair is PAIR and len(asked) == 2, "it is sealed once"
        assert clock.pauses[:2] == [0.5, 1]

        clock = Pauses()
        message, asked = sealing()
        with pytest.raises(ConnectFailed):
            await submit([NOWHERE], message, clock=clock, limit_seconds=10)
        assert (clock.pauses, message.pair, asked) == ([0.5, 1, 2, 5], None, [])

    run(story())


def test_a_server_that_hangs_leaves_time_for_the_other() -> None:
    async def story() -> None:
        async with scripted_url({"GetUserAccess": lambda payload: Silence()}) as hanging:
            async with scripted_url({**FOUND, **script_of(state("delivered"))}) as good:
                at = [AccessServer("hanging", hanging), AccessServer("good", good)]
                message, _ = sealing()
                # The clock stands: the first server has its share, 1 s of the 2 s, and the second one the rest.
                assert await submit(at, message, clock=Pauses(), limit_seconds=2) == "delivered"
            message, _ = sealing()
            with pytest.raises(RequestTimedOut, match=r"the recipient's keys: no answer within 1 s"):
                await submit(at[:1], message, clock=Pauses(), limit_seconds=0.1)

    run(story())


def test_a_recipient_whom_only_the_other_server_knows() -> None:
    unknown, stale = PersonUnknown("bob"), RecordReplaced("bob")

    async def story() -> None:
        good: Script = {**FOUND, **script_of(state("delivered"))}
        async with scripted_url(FOUND) as first, scripted_url(good) as second:
            at = [AccessServer("first", first), AccessServer("second", second)]
            clock = Pauses()
            message, asked = sealing(unknown)
            assert await submit(at, message, clock=clock, limit_seconds=60) == "delivered"
            assert (len(asked), clock.pauses) == (2, [0])
            message, asked = sealing(unknown, stale)
            with pytest.raises(RecordReplaced):
                await submit(at, message, clock=Pauses(), limit_seconds=60)
            assert (len(asked), message.pair) == (2, None)
            # Where the other one cannot say anything, what was said counts, and nobody waits for the deadline.
            for servers_of_it in ([NOWHERE, at[0]], [at[0], NOWHERE]):
                clock = Pauses()
                message, asked = sealing(unknown)
                with pytest.raises(PersonUnknown):
                    await submit(servers_of_it, message, clock=clock, limit_seconds=60)
                assert (len(asked), clock.pauses) == (1, [0])
            message, asked = sealing(unknown)
            with pytest.raises(PersonUnknown):
                await submit(at, message, clock=Pauses(), limit_seconds=0)

    run(story())


def test_waiting_for_a_delivery_takes_the_other_server_where_one_fails() -> None:
    async def story() -> None:
        stuck = script_of(state("accepted"), None)
        async with scripted_url(stuck) as first, scripted_url(script_of(state("delivered"))) as second:
            at = [AccessServer("first", first), AccessServer("second", second)]
            assert await await_delivery(at, PAIR, clock=Pauses(), limit_seconds=60) == "delivered"

    run(story())
