"""What waits for the writer: batches, what can wait, the bound, and the end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from shine_node.protocol.errors import ServerBusy
from shine_node.store import job_queue
from shine_node.store.job_queue import MAX_JOBS_A_COMMIT, MAX_WAITING_BYTES, MAX_WAITING_JOBS, JobQueue
from shine_node.store.jobs import Job

WAIT = 30
PAUSE = 0.05
"""Seconds after which a thread waits, on most machines; a test that comes too early tests less and does not fail."""


@pytest.fixture(autouse=True)
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def make_jobs(loop: asyncio.AbstractEventLoop, count: int) -> list[Job[Any]]:
    return [Job(lambda txn: None, loop.create_future()) for _ in range(count)]


def a_job(loop: asyncio.AbstractEventLoop, size: int = 0) -> Job[Any]:
    return Job(lambda txn: None, loop.create_future(), size=size)


@contextmanager
def taker(queue: JobQueue) -> Iterator[list[list[Job[Any]]]]:
    """A thread that takes batches out until the queue ends, and what it has taken."""
    batches: list[list[Job[Any]]] = []

    def take() -> None:
        while batch := queue.next_batch():
            batches.append(batch)

    thread = threading.Thread(target=take)
    thread.start()
    try:
        yield batches
    finally:
        queue.close()
        thread.join(WAIT)
        assert not thread.is_alive()


def until(batches: list[list[Job[Any]]], count: int) -> None:
    end = time.monotonic() + WAIT
    while len(batches) < count:
        assert time.monotonic() < end
        time.sleep(0.001)


def test_a_batch_is_what_waits_and_what_has_waited_comes_first(loop: asyncio.AbstractEventLoop) -> None:
    queue, (now, later, too) = JobQueue(), make_jobs(loop, 3)
    queue.put([now], later=False)
    queue.put([later], later=True)
    queue.put([too], later=True)
    assert len(queue) == 3
    assert queue.next_batch() == [later, too, now]
    assert len(queue) == 0


def test_a_batch_has_a_bound(loop: asyncio.AbstractEventLoop) -> None:
    queue, jobs = JobQueue(), make_jobs(loop, MAX_JOBS_A_COMMIT + 1)
    queue.put(jobs[:2], later=True)
    queue.put(jobs[2:], later=False)
    assert queue.next_batch() == jobs[:-1]
    assert queue.next_batch() == jobs[-1:]


def test_the_queue_has_a_bound(loop: asyncio.AbstractEventLoop) -> None:
    queue, [job] = JobQueue(), make_jobs(loop, 1)
    queue.put([job] * (MAX_WAITING_JOBS - 1), later=False)
    with pytest.raises(ServerBusy):
        queue.put([job, job], later=True)
    queue.put([job], later=True)
    with pytest.raises(ServerBusy) as caught:
        queue.put([job], later=False)
    assert caught.value.payload == {"retryAfterMs": 1000}
    assert queue.clear() == MAX_WAITING_JOBS
    assert len(queue) == 0


def test_what_can_wait_goes_with_what_cannot(loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_queue, "LATER_SECONDS", 10 * WAIT)
    queue, (later, now) = JobQueue(), make_jobs(loop, 2)
    with taker(queue) as batches:
        time.sleep(PAUSE)
        queue.put([later], later=True)
        time.sleep(PAUSE)
        assert batches == []
        queue.put([now], later=False)
        until(batches, 1)
        assert batches == [[later, now]]


def test_what_can_wait_does_so_for_a_while_only(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_queue, "LATER_SECONDS", 0.1)
    queue = JobQueue()
    with taker(queue) as batches:
        end = time.monotonic() + WAIT
        while not batches:  # those that come after it do not put it off
            assert time.monotonic() < end
            queue.put(make_jobs(loop, 1), later=True)
            time.sleep(0.01)


def test_at_the_end_all_is_taken_out_at_once(loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_queue, "LATER_SECONDS", 10 * WAIT)
    queue, jobs = JobQueue(), make_jobs(loop, 1)
    with taker(queue) as batches:
        queue.put(jobs, later=True)
        time.sleep(PAUSE)
    assert batches == [jobs]
    assert queue.closed
    with pytest.raises(ServerBusy):
        queue.put(jobs, later=False)


def test_too_large_ones_are_refused_until_those_before_are_written(loop: asyncio.AbstractEventLoop) -> None:
    queue = JobQueue()
    queue.put([a_job(loop, MAX_WAITING_BYTES - 10)])
    queue.put([a_job(loop, 10)], later=True)
    for later in (False, True):
        with pytest.raises(ServerBusy):
            queue.put([a_job(loop, 1)], later=later)
    queue.put([a_job(loop)])
    batch = queue.next_batch()
    assert len(batch) == 3
    with pytest.raises(ServerBusy):
        queue.put([a_job(loop, 1)])  # what is being written is in memory yet
    queue.done(batch)
    assert queue.waiting_bytes == 0
    queue.put([a_job(loop, 1)])
    assert queue.clear() == 1
    assert queue.waiting_bytes == 0


def test_one_that_is_larger_than_all_that_may_wait_passes_alone(loop: asyncio.AbstractEventLoop) -> None:
    queue, large = JobQueue(), a_job(loop, 3 * MAX_WAITING_BYTES)
    queue.put([large])
    with pytest.raises(ServerBusy):
        queue.put([a_job(loop, 1)])
    queue.done(queue.next_batch())
    assert queue.waiting_bytes == 0
