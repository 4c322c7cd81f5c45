"""What waits for the writer: in order, and bounded by number and by bytes."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from shine_node.protocol.errors import ServerBusy
from shine_node.store import queue as queue_module
from shine_node.store.jobs import Job
from shine_node.store.queue import MAX_WAITING_BYTES, JobQueue

pytestmark = pytest.mark.core
WAIT = 30


@pytest.fixture
def loop() -> Any:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def job(loop: asyncio.AbstractEventLoop, size: int = 0) -> Job[None]:
    return Job(lambda txn: None, loop.create_future(), size=size)


def test_first_come_first_served(loop: asyncio.AbstractEventLoop) -> None:
    queue, jobs = JobQueue(), [job(loop) for _ in range(5)]
    queue.put(jobs[:2])
    queue.put(jobs[2:])
    assert len(queue) == 5
    assert queue.take(3) == jobs[:3]
    assert queue.take(3) == jobs[3:]
    assert len(queue) == 0


def test_too_many_are_refused_whole(loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_module, "MAX_WAITING_JOBS", 3)
    queue = JobQueue()
    queue.put([job(loop), job(loop)])
    with pytest.raises(ServerBusy) as busy:
        queue.put([job(loop), job(loop)])
    assert busy.value.payload == {"retryAfterMs": 1000}
    assert len(queue) == 2
    queue.put([job(loop)])


def test_too_large_ones_are_refused_until_those_before_are_written(loop: asyncio.AbstractEventLoop) -> None:
    queue = JobQueue()
    queue.put([job(loop, MAX_WAITING_BYTES - 10)])
    queue.put([job(loop, 10)])
    for _ in range(2):
        with pytest.raises(ServerBusy):
            queue.put([job(loop, 1)])
    queue.put([job(loop)])
    batch = queue.take(1)
    with pytest.raises(ServerBusy):
        queue.put([job(loop, 1)])  # what is being written is in memory yet
    queue.done(batch)
    assert queue.waiting_bytes == 10
    queue.put([job(loop, 1)])


def test_one_that_is_larger_than_all_that_may_wait_passes_alone(loop: asyncio.AbstractEventLoop) -> None:
    queue, large = JobQueue(), job(loop, 3 * MAX_WAITING_BYTES)
    queue.put([large])
    with pytest.raises(ServerBusy):
        queue.put([job(loop, 1)])
    queue.done(queue.take(1))
    assert queue.waiting_bytes == 0


def test_the_writer_waits_for_jobs_and_for_the_end(loop: asyncio.AbstractEventLoop) -> None:
    queue, found = JobQueue(), list[list[Job[Any]]]()
    first, last = job(loop), job(loop)

    def work() -> None:
        while batch := queue.take(10):
            found.append(batch)

    writer = threading.Thread(target=work)
    writer.start()
    queue.put([first])
    queue.put([last])
    queue.close()
    writer.join(WAIT)
    assert not writer.is_alive()
    assert [one for batch in found for one in batch] == [first, last]
    with pytest.raises(ServerBusy):
        queue.put([job(loop)])
