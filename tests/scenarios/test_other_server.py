"""The sender's two servers: what is handed over, and who asks whom (PROTOCOL.md §5.2 step 4, §5.3, §5.4)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shine_node.client.messages import SignedPair
from tests.scenarios.world import HOUR, Home, Person, Scripted, World, tell

INCOMING, OUTCOMING, STATUS = "ReceiveIncomingMessage", "ReceiveOutcomingMessage", "GetDmDeliveryStatus"
TIMES = [0, 30, 300, 1500, 3600]


async def alice_with_two_servers(world: World) -> tuple[Home, Scripted, Scripted, Person]:
    """Alice at ``a1`` and at the scripted ``a2``, bob at ``r1``, which takes nothing."""
    a1 = await world.home("a1")
    a2, r1 = await world.scripted("a2"), await world.scripted("r1")
    alice = await world.person("alice", a1, a2)
    await world.person("bob", r1, known_at=(a1,))
    r1.refuses(INCOMING)
    return a1, a2, r1, alice


async def hand_over(home: Home, pair: SignedPair, *, introduced_as: str | None) -> dict[str, object]:
    """Bring a pair as the sender's other server does."""
    async with await home.connect() as peer:
        if introduced_as is not None:
            await peer.request(
                "ServerHello", {"serverLogin": introduced_as, "protocolVersion": 1, "capabilities": ["connection-pool"]}
            )
        return await peer.request(OUTCOMING, {**pair.payload, "sourceServerLogin": introduced_as or "somebody"})


@pytest.mark.parametrize("answer", ["no", "an error", "no such operation", "nothing of use"])
def test_it_is_asked_before_the_third_fourth_and_fifth_attempt_and_no_answer_stops_them(
    tmp_path: Path, answer: str
) -> None:
    async def story(world: World) -> None:
        a1, a2, r1, alice = await alice_with_two_servers(world)
        if answer == "no":
            a2.says(STATUS, known=True, delivered=False)
        elif answer == "an error":
            a2.refuses(STATUS)
        elif answer == "no such operation":
            a2.refuses(STATUS, 400, "UNKNOWN_OP")
        pair = alice.writes("bob", "has it arrived?")
        assert await world.send(a1, pair) == "accepted"
        await world.passes(2 * HOUR)
        assert r1.times() == TIMES
        assert a2.times(STATUS) == TIMES[2:]
        assert a2.times(OUTCOMING) == [0], "handed over once, in the first attempt"
        assert [payload for op, _, payload in a2.calls if op == STATUS] == [{"messageKey": pair.outgoing_key}] * 3
        assert a1.state(pair) == "failed"

    tell(tmp_path, story)


@pytest.mark.parametrize("attempt", [3, 4, 5])
def test_delivered_there_ends_it_here_and_the_recipient_is_not_called(tmp_path: Path, attempt: int) -> None:
    async def story(world: World) -> None:
        a1, a2, r1, alice = await alice_with_two_servers(world)
        a2.says(STATUS, known=True, delivered=False)
        pair = alice.writes("bob", "by another way")
        await world.send(a1, pair)
        await world.passes(TIMES[attempt - 1] - 1)
        a2.says(STATUS, messageKey=pair.outgoing_key, known=True, delivered=True)
        await world.passes(1)
        assert a1.state(pair) == "delivered"
        await world.passes(2 * HOUR)
        assert r1.times() == TIMES[: attempt - 1]
        assert a2.times(STATUS) == TIMES[2:attempt]

    tell(tmp_path, story)


def test_it_is_off_and_the_attempts_go_on(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, a2, r1, alice = await alice_with_two_servers(world)
        await a2.stop()
        pair = alice.writes("bob", "on my own")
        await world.send(a1, pair)
        await world.passes(2 * HOUR)
        assert r1.times() == TIMES
        assert a1.state(pair) == "failed"

    tell(tmp_path, story)


def test_one_of_two_real_servers_gets_through_and_the_other_learns_it_at_the_third_attempt(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, a2 = await world.homes("a1", "a2")
        r1 = await world.scripted("r1")
        alice = await world.person("alice", a1, a2)
        await world.person("bob", r1, known_at=(a1, a2))
        r1.accepts_from("a2")
        pair = alice.writes("bob", "one of us will do")
        assert await world.send(a1, pair) == "accepted"
        await world.rest()
        assert a2.state(pair) == "delivered", "it tried at once by itself"
        await world.passes(299)
        assert a1.state(pair) == "accepted"
        await world.passes(1)
        assert a1.state(pair) == "delivered"
        await world.passes(2 * HOUR)
        made = [(payload["sourceServerLogin"], at) for _, at, payload in r1.calls]
        assert made == [("a1", 0), ("a2", 0), ("a1", 30)]

    tell(tmp_path, story)


def test_the_life_of_a_pair_that_was_handed_over(tmp_path: Path) -> None:
    """Its own delivery from now, tried at once, asked about at the attempts 3 to 5, never passed back."""

    async def story(world: World) -> None:
        a1, a2, r1, alice = await alice_with_two_servers(world)
        a2.says(STATUS, known=True, delivered=False)
        pair = alice.writes("bob", "from the other one")
        await world.passes(100)  # it was accepted there long ago
        assert await hand_over(a1, pair, introduced_as="a2") == {"outgoingKey": pair.outgoing_key}
        await world.rest()
        assert r1.times() == [100]
        assert await a1.status(pair) == (True, False)
        assert await hand_over(a1, pair, introduced_as="a2") == {"outgoingKey": pair.outgoing_key}
        assert await world.send(a1, pair) == "accepted", "the client may come here too"
        await world.passes(2 * HOUR)
        assert r1.times() == [100 + after for after in TIMES], "its own hour"
        assert a2.times(STATUS) == [100 + after for after in TIMES[2:]]
        assert OUTCOMING not in a2.ops, "not passed back"
        assert a1.state(pair) == "failed"

    tell(tmp_path, story)


def test_it_is_answered_as_soon_as_it_is_stored(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, _, r1, alice = await alice_with_two_servers(world)
        gate = r1.keeps(INCOMING)
        pair = alice.writes("bob", "do not wait for bob")
        await hand_over(a1, pair, introduced_as="a2")
        assert a1.state(pair) == "accepted"
        await r1.until_called(INCOMING)
        gate.set()
        await world.rest()
        assert a1.state(pair) == "delivered"

    tell(tmp_path, story)


def test_both_servers_are_given_the_pair_by_the_client_and_both_deliver_it(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, a2, b1 = await world.homes("a1", "a2", "b1")
        alice = await world.person("alice", a1, a2, known_at=(b1,))
        await world.person("bob", b1, known_at=(a1, a2))
        pair = alice.writes("bob", "twice is once")
        states = await asyncio.gather(world.send(a1, pair), world.send(a2, pair))
        await world.rest()
        assert set(states) <= {"accepted", "delivered"}
        assert a1.state(pair) == a2.state(pair) == "delivered"
        assert b1.has(pair)

    tell(tmp_path, story)


def test_two_edits_of_one_moment_at_two_servers_come_to_the_same_everywhere(tmp_path: Path) -> None:
    """Between servers the rule of §4 decides: of two with one ``revisionMs`` the greater signature wins."""

    async def story(world: World) -> None:
        a1, a2, b1 = await world.homes("a1", "a2", "b1")
        alice = await world.person("alice", a1, a2, known_at=(b1,))
        await world.person("bob", b1, known_at=(a1, a2))
        pair = alice.writes("bob", "first")
        await world.send(a1, pair)
        await world.rest()
        await a2.stop()
        one, two = alice.edits(pair, "second"), alice.edits(pair, "2nd")
        assert one.revision_ms == two.revision_ms
        await world.send(a1, one)
        await a1.stop()
        await a2.start()
        await world.send(a2, two)
        await a1.start()
        await hand_over(a1, two, introduced_as="a2")
        await hand_over(a2, one, introduced_as="a1")
        await world.rest()
        winner = max(one, two, key=lambda edit: edit.incoming[-64:])
        for home in (a1, a2):
            assert home.blobs(pair.outgoing_key) == (winner.incoming, winner.outgoing)
        assert b1.has(winner)

    tell(tmp_path, story)
