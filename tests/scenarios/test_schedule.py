"""The hour of retries: each attempt at its time, through restarts and clocks that jump (PROTOCOL.md §5.3)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.scenarios.world import HOUR, INTERVAL, Home, Person, Scripted, World, tell, until

INCOMING = "ReceiveIncomingMessage"
STATUS = "GetDmDeliveryStatus"
TIMES = [0, 30, 300, 1500, 3600]
DAY = 86_400
YEAR = 365 * DAY


async def alice_and_a_closed_door(world: World) -> tuple[Home, Scripted, Person]:
    """Alice at ``a1``, bob at ``r1``, which takes nothing."""
    a1, r1 = await world.home("a1"), await world.scripted("r1")
    alice = await world.person("alice", a1)
    await world.person("bob", r1, known_at=(a1,))
    r1.refuses(INCOMING)
    return a1, r1, alice


def test_five_attempts_at_their_times_then_failed_and_never_again(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, r1, alice = await alice_and_a_closed_door(world)
        pair = alice.writes("bob", "knock knock")
        assert await world.send(a1, pair) == "accepted"
        await world.passes(HOUR - 1)
        assert a1.state(pair) == "accepted"
        await world.passes(1)
        assert r1.times() == TIMES
        assert a1.state(pair) == "failed"

        r1.says(INCOMING)  # it would take it now
        await world.passes(HOUR)
        await a1.restart()
        await world.passes(HOUR)
        assert await world.send(a1, pair) == "failed"
        r2 = await world.scripted("r2")
        await world.moves(world.people["bob"], r2, known_at=(a1,))
        await world.passes(HOUR)
        assert r1.times() == TIMES
        assert r2.calls == []
        assert await a1.status(pair) == (True, False)

    tell(tmp_path, story)


@pytest.mark.parametrize("attempt", [2, 3, 4, 5])
def test_both_servers_of_bob_are_off_and_one_is_back_in_time_for_an_attempt(tmp_path: Path, attempt: int) -> None:
    async def story(world: World) -> None:
        a1, b1, b2 = await world.homes("a1", "b1", "b2")
        alice = await world.person("alice", a1, known_at=(b1, b2))
        await world.person("bob", b1, b2, known_at=(a1,))
        await b1.stop()
        await b2.stop()
        pair = alice.writes("bob", "anybody?")
        assert await world.send(a1, pair) == "accepted"
        await world.passes(TIMES[attempt - 2] + 1)
        await (b1 if attempt % 2 else b2).start()
        await world.passes(TIMES[attempt - 1] - TIMES[attempt - 2] - 1 - INTERVAL)
        assert a1.state(pair) == "accepted", "it waits for its time"
        await world.passes(INTERVAL)
        assert a1.state(pair) == "delivered"
        assert (b1 if attempt % 2 else b2).has(pair)

    tell(tmp_path, story)


def test_restarts_between_the_attempts_move_none_of_them(tmp_path: Path) -> None:
    """The client is long gone and nothing else comes in."""

    async def story(world: World) -> None:
        a1, r1, alice = await alice_and_a_closed_door(world)
        pair = alice.writes("bob", "still there")
        await world.send(a1, pair)
        for second in (12, 47, 298, 1000, 1499, 3596):
            await world.passes(second - world.seconds)
            await a1.restart()
        await world.passes(2 * HOUR - world.seconds)
        assert len(r1.times()) == 5
        for made, due in zip(r1.times(), TIMES, strict=True):
            assert due <= made <= due + INTERVAL
        assert a1.state(pair) == "failed"

    tell(tmp_path, story)


def test_missed_times_collapse_into_one_attempt_at_the_start(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, r1, alice = await alice_and_a_closed_door(world)
        pair = alice.writes("bob", "while I sleep")
        await world.send(a1, pair)
        await a1.stop()
        await world.passes(2000)
        await a1.start()
        await world.passes(2 * HOUR - world.seconds)
        assert r1.times() == [0, 2000, 3600], "the 2nd, 3rd and 4th are one"
        assert a1.state(pair) == "failed"

    tell(tmp_path, story)


@pytest.mark.parametrize("answers", [True, False])
def test_found_after_the_hour_it_gets_one_last_attempt(tmp_path: Path, answers: bool) -> None:
    async def story(world: World) -> None:
        a1, r1, alice = await alice_and_a_closed_door(world)
        pair = alice.writes("bob", "a long night")
        await world.send(a1, pair)
        await a1.stop()
        await world.passes(10 * DAY)
        if answers:
            r1.says(INCOMING)
        await a1.start()
        await world.passes(HOUR)
        assert r1.times() == [0, 10 * DAY]
        assert a1.state(pair) == ("delivered" if answers else "failed")

    tell(tmp_path, story)


def test_stopped_in_the_middle_of_the_first_attempt_it_is_made_again_at_the_start(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, r1, alice = await alice_and_a_closed_door(world)
        r1.keeps(INCOMING)
        pair = alice.writes("bob", "cut short")
        async with await a1.connect() as client:
            sending = asyncio.create_task(client.request("SendMessagePair", pair.payload))
            await r1.until_called(INCOMING)
            await asyncio.gather(a1.stop(), world.clock.advance(8))  # the answer of the request is waited for
            await asyncio.gather(sending, return_exceptions=True)  # answered, or cut off
        r1.says(INCOMING)
        await world.passes(1)
        await a1.start()
        await world.rest()
        assert r1.times() == [0, 9]
        assert a1.state(pair) == "delivered"

    tell(tmp_path, story)


def test_the_clock_goes_forward_50_years_and_back_a_day_while_it_runs(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, r1, alice = await alice_and_a_closed_door(world)
        early = alice.writes("bob", "before")
        await world.send(a1, early)
        await world.passes(60)
        world.clock.jump(50 * YEAR * 1000)
        await world.passes(2 * INTERVAL)
        assert r1.times() == [0, 30, 65], "one last attempt"
        assert a1.state(early) == "failed"

        late = alice.writes("bob", "after")
        assert await world.send(a1, late) == "accepted"
        await world.passes(10)
        world.clock.jump(-DAY * 1000)
        began = world.seconds
        await world.passes(2 * HOUR)
        *_, first, second, third, fourth, fifth = r1.times()
        assert first == 70
        jump_seen = second - 30 - began
        assert 0 <= jump_seen <= INTERVAL, "counted from when the jump was seen"
        assert [third - second, fourth - second, fifth - second] == [270, 1470, 3570]
        assert len(r1.times()) == 3 + 5
        assert a1.state(late) == "failed"

    tell(tmp_path, story)


def test_a_jump_forward_fails_no_message_whose_first_attempt_is_under_way(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, r1, alice = await alice_and_a_closed_door(world)
        gate = r1.keeps(INCOMING)
        pair = alice.writes("bob", "what year is it?")
        sending = asyncio.create_task(world.send(a1, pair))
        await r1.until_called(INCOMING)
        world.clock.jump(50 * YEAR * 1000)
        await world.clock.advance(INTERVAL + 1)
        assert a1.state(pair) == "accepted"
        gate.set()
        assert await sending == "delivered"
        await world.passes(HOUR)
        assert r1.times() == [0]

    tell(tmp_path, story)


def test_an_attempt_that_runs_longer_than_its_lease_stays_the_only_one(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1 = await world.home("a1", delivery={"leaseMs": 1500, "scheduleSeconds": [0, 1, 3600]})
        r1 = await world.scripted("r1")
        alice = await world.person("alice", a1)
        await world.person("bob", r1, known_at=(a1,))
        gate = r1.keeps(INCOMING)
        pair = alice.writes("bob", "hold the line")
        sending = asyncio.create_task(world.send(a1, pair))
        await r1.until_called(INCOMING)
        for _ in range(22):
            await world.clock.advance(0.5)
            await until(lambda: a1.sleeps(0.5) and a1.lease_ms(pair) == world.clock.now_ms() + 1500)
        assert world.seconds == 11
        assert r1.times() == [0]
        gate.set()
        assert await sending == "accepted"
        await world.rest()
        assert a1.state(pair) == "delivered"

    tell(tmp_path, story)


def test_a_board_without_a_battery_begins_in_1970_and_its_messages_wait_for_it(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, r1, alice = await alice_and_a_closed_door(world)
        pair = alice.writes("bob", "a power cut")
        await world.send(a1, pair)
        await world.passes(40)
        assert r1.times() == [0, 30]
        await a1.stop()
        away = world.clock.now_ms() - 1000
        world.clock.jump(-away)
        await a1.start()
        await world.passes(100)
        assert r1.times() == [0, 30], "the second attempt is now; the third is 270 s later"
        r1.says(INCOMING)
        await world.passes(175)
        assert len(r1.times()) == 3
        assert a1.state(pair) == "delivered"
        world.clock.jump(away)
        await world.passes(HOUR)
        assert len(r1.times()) == 3

    tell(tmp_path, story)


def test_a_shorter_schedule_ends_with_its_last_entry(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1 = await world.home("a1", delivery={"scheduleSeconds": [0, 10, 20]})
        a2, r1 = await world.scripted("a2"), await world.scripted("r1")
        alice = await world.person("alice", a1, a2)
        await world.person("bob", r1, known_at=(a1,))
        r1.refuses(INCOMING)
        a2.says(STATUS, known=False, delivered=False)
        pair = alice.writes("bob", "be quick")
        await world.send(a1, pair)
        await world.passes(HOUR)
        assert r1.times() == [0, 10, 20]
        assert a2.times(STATUS) == [20], "attempts from the third on ask first, whatever the schedule"
        assert a1.state(pair) == "failed"

    tell(tmp_path, story)


def test_many_messages_to_a_closed_door_each_have_their_five_attempts(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1, r1, alice = await alice_and_a_closed_door(world)
        pairs = []
        for number in range(30):
            pairs.append(alice.writes("bob", f"number {number}"))
            await world.send(a1, pairs[-1])
            await world.passes(1)
        await world.passes(HOUR + INTERVAL)
        made: dict[str, list[float]] = {}
        for _, at, payload in r1.calls:
            made.setdefault(payload["incomingBlobB64"], []).append(at)
        assert len(made) == 30
        for number, times in enumerate(made.values()):
            assert len(times) == 5
            for at, due in zip(times, TIMES, strict=True):
                assert number + due <= at <= number + due + INTERVAL
        assert {a1.state(pair) for pair in pairs} == {"failed"}

    tell(tmp_path, story)
