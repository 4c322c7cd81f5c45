"""The sign of life: given while the writer gets work done, by a real store's writer too, and never else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from shine_node.protocol.errors import InternalError, ServerBusy
from shine_node.store.environment import Store
from shine_node.store.jobs import Job
from shine_node.store.layout import Table
from shine_node.watchdog import Watchdog
from tests.support.clock import ManualClock
from tests.support.nodes import PATIENCE, eventually, run


class Beaten:
    """What a watchdog sees and does."""

    def __init__(self, work: Callable[[], Awaitable[object]]) -> None:
        self.clock = ManualClock()
        self.position = 1
        self.beats = 0
        self._watchdog = Watchdog(
            work=work, position=lambda: self.position, beat=self._beat, clock=self.clock, seconds=60
        )

    def _beat(self) -> None:
        self.beats += 1

    @asynccontextmanager
    async def running(self) -> Any:
        task = asyncio.create_task(self._watchdog.run())
        try:
            await self.clock.advance(0)
            yield self
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def at_once() -> None:
    pass


def test_it_beats_at_once_and_in_every_quarter() -> None:
    async def story() -> None:
        async with Beaten(at_once).running() as it:
            assert it.beats == 1
            await it.clock.advance(14)
            assert it.beats == 1
            await it.clock.advance(2)
            assert it.beats == 2
            await it.clock.advance(45)
            assert it.beats == 5

    run(story())


def test_it_does_not_beat_while_the_writer_does_not_answer_and_beats_when_it_does() -> None:
    async def story() -> None:
        answer = asyncio.Event()
        async with Beaten(answer.wait).running() as it:
            await it.clock.advance(600)
            assert it.beats == 0
            answer.set()
            await it.clock.advance(0)
            assert it.beats == 1
            await it.clock.advance(15)
            assert it.beats == 2

    run(story())


def test_a_slow_writer_that_commits_is_alive_however_long_the_job_waits() -> None:
    async def story() -> None:
        async with Beaten(asyncio.Event().wait).running() as it:
            await it.clock.advance(15)
            assert it.beats == 0
            for number in (1, 2, 3):
                it.position += 1
                await it.clock.advance(15)
                assert it.beats == number
            await it.clock.advance(600)
            assert it.beats == 3

    run(story())


@pytest.mark.parametrize(("problem", "beats"), [(ServerBusy("full"), 0), (InternalError("broken"), 3)])
def test_a_refusal_of_the_writer_is_an_answer_and_a_full_queue_is_none(problem: Exception, beats: int) -> None:
    async def refuse() -> None:
        raise problem

    async def story() -> None:
        async with Beaten(refuse).running() as it:
            await it.clock.advance(30)
            assert it.beats == beats

    run(story())


def test_a_defect_is_told_and_not_taken_for_life(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    async def story() -> None:
        async with Beaten(fail).running() as it:
            await it.clock.advance(30)
            assert it.beats == 0

    run(story())
    assert "a defect in the watchdog" in caplog.text and "ZeroDivisionError" in caplog.text


def test_the_writer_of_a_real_store(tmp_path: Path) -> None:
    """An empty job writes nothing to the disk; a writer that is held up gives no sign of life."""

    async def story() -> None:
        store = Store(tmp_path / "shine.mdb", map_size=2**24)
        store.start()
        held, let_go = threading.Event(), threading.Event()
        try:
            before = store.position
            it = Beaten(lambda: store.write(lambda txn: None))
            async with it.running():

                async def beaten(times: int = 2) -> bool:
                    await it.clock.advance(15)
                    return it.beats >= times

                await eventually(beaten)
                assert store.position == before

                def hold(txn: Any) -> None:
                    held.set()
                    let_go.wait(PATIENCE)
                    txn.put(Table.META, b"x", b"y")

                job: Job[None] = Job(hold, asyncio.get_running_loop().create_future())
                store.submit([job])
                assert await asyncio.to_thread(held.wait, PATIENCE)
                await it.clock.advance(15)  # what was asked before the job may still be answered
                beats = it.beats
                await it.clock.advance(600)
                assert it.beats == beats
                let_go.set()
                await job.future

                async def again() -> bool:
                    return await beaten(beats + 2)

                await eventually(again)
        finally:
            let_go.set()
            await asyncio.to_thread(store.close)

    run(story())
