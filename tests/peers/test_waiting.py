import asyncio

import pytest

from shine_node.peers.waiting import all_results, within
from tests.peers.conftest import Run
from tests.support.clock import ManualClock, settle


def test_work_that_is_done_in_time(run: Run) -> None:
    async def story() -> None:
        clock = ManualClock()

        async def work() -> str:
            await clock.sleep(3)
            return "done"

        task = asyncio.ensure_future(within(clock, 5, work()))
        await clock.advance(2.9)
        assert not task.done()
        await clock.advance(0.2)
        assert await task == "done"
        assert clock.sleeping == 0

    run(story())


def test_work_that_is_late_is_cancelled_and_its_end_waited_for(run: Run) -> None:
    async def story() -> None:
        clock, ended = ManualClock(), []

        async def work() -> None:
            try:
                await clock.sleep(100)
            finally:
                await asyncio.sleep(0)
                ended.append(True)

        task = asyncio.ensure_future(within(clock, 5, work()))
        await clock.advance(5)
        with pytest.raises(TimeoutError):
            await task
        assert ended

    run(story())


def test_work_that_fails(run: Run) -> None:
    async def story() -> None:
        async def work() -> None:
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            await within(ManualClock(), 5, work())

    run(story())


def test_work_that_ends_well_although_it_was_cancelled_counts(run: Run) -> None:
    async def story() -> None:
        clock = ManualClock()

        async def work() -> str:
            try:
                await clock.sleep(100)
            except asyncio.CancelledError:
                return "just in time"
            raise AssertionError

        task = asyncio.ensure_future(within(clock, 5, work()))
        await clock.advance(6)
        assert await task == "just in time"

    run(story())


def test_a_caller_that_is_cancelled_takes_the_work_with_it(run: Run) -> None:
    async def story() -> None:
        clock, ended = ManualClock(), []

        async def work() -> None:
            try:
                await clock.sleep(100)
            finally:
                ended.append(True)
                raise ValueError("nobody is there to hear it")

        task = asyncio.ensure_future(within(clock, 5, work()))
        await settle()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended

    run(story())


def test_all_results_come_in_order_and_an_error_only_when_nothing_goes_on_any_more() -> None:
    async def story() -> None:
        ended: list[int] = []
        gate = asyncio.Event()

        async def work(number: int) -> int:
            if number == 1:
                raise KeyError(number)
            await gate.wait()
            ended.append(number)
            return number

        waiting = asyncio.ensure_future(all_results(work(number) for number in range(3)))
        await asyncio.sleep(0)
        assert not waiting.done()
        gate.set()
        with pytest.raises(KeyError):
            await waiting
        assert ended == [0, 2]
        assert await all_results(work(number) for number in (2, 0)) == [2, 0]
        assert await all_results([]) == []

    asyncio.run(story())


def test_an_exception_that_is_returned_is_a_result() -> None:
    async def story() -> None:
        said = KeyError("why not")

        async def work(number: int) -> int | KeyError:
            return said if number == 1 else number

        assert await all_results(work(number) for number in range(3)) == [0, said, 2]

    asyncio.run(story())


def test_who_is_cancelled_while_waiting_for_all_ends_all() -> None:
    async def story() -> None:
        ended: list[int] = []

        async def work(number: int) -> None:
            try:
                await asyncio.sleep(3600)
            finally:
                ended.append(number)

        waiting = asyncio.ensure_future(all_results(work(number) for number in range(3)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert sorted(ended) == [0, 1, 2]

    asyncio.run(story())
