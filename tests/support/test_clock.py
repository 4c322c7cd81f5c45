"""The clock that tests move by hand does what they rely on."""

import asyncio

from tests.support.clock import ManualClock, settle


def test_both_clocks_move_together_and_the_wall_can_jump() -> None:
    async def story() -> None:
        clock = ManualClock(now_ms=1_000_000, monotonic=50.0)
        await clock.advance(1.5)
        assert (clock.now_ms(), clock.monotonic()) == (1_001_500, 51.5)
        clock.jump(-500)
        assert (clock.now_ms(), clock.monotonic()) == (1_001_000, 51.5)

    asyncio.run(story())


def test_sleepers_wake_in_the_order_of_their_times_and_see_them() -> None:
    async def story() -> None:
        clock, seen = ManualClock(monotonic=0.0), []

        async def sleeper(name: str, *naps: float) -> None:
            for nap in naps:
                await clock.sleep(nap)
                seen.append((name, clock.monotonic()))

        tasks = [asyncio.ensure_future(one) for one in (sleeper("a", 5, 1), sleeper("b", 2, 2, 2), sleeper("c", 0, -1))]
        await settle()
        assert clock.sleeping == 2
        assert clock.next_wake() == 2
        await clock.advance(5.5)
        assert seen == [("c", 0.0), ("c", 0.0), ("b", 2.0), ("b", 4.0), ("a", 5.0)]
        await clock.advance(10)
        assert seen[5:] == [("b", 6.0), ("a", 6.0)], "of two equal times, who slept first"
        assert clock.monotonic() == 15.5
        assert clock.next_wake() is None
        await asyncio.gather(*tasks)

    asyncio.run(story())


def test_a_sleeper_that_is_cancelled_is_none() -> None:
    async def story() -> None:
        clock = ManualClock()
        task = asyncio.ensure_future(clock.sleep(5))
        await settle()
        task.cancel()
        await asyncio.wait((task,))
        assert clock.sleeping == 0
        await clock.advance(10)

    asyncio.run(story())
