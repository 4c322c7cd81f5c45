"""Threads that read pages of the store."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shine_node.store.environment import Store, Transaction
from shine_node.store.layout import Table
from shine_node.store.readers import THREADS, Readers
from tests.delivery.rooms import run, until
from tests.store.rooms import opened

KEY = b"a place"


@contextmanager
def library(folder: Path) -> Iterator[tuple[Store, Readers]]:
    with opened(folder / "shine.mdb") as store:
        readers = Readers(store)
        try:
            yield store, readers
        finally:
            readers.close()


def look(txn: Transaction) -> bytes | None:
    return txn.get(Table.META, KEY)


def test_it_reads_the_last_commit_in_a_thread_of_its_own(tmp_path: Path) -> None:
    async def story() -> None:
        with library(tmp_path) as (store, readers):
            assert await readers.run(look) is None
            store.write_now(lambda txn: txn.put(Table.META, KEY, b"here"))
            assert await readers.run(look) == b"here"
            names = {await readers.run(lambda txn: threading.current_thread().name) for _ in range(5)}
            assert all(name.startswith("reading") for name in names)

    run(story())


def test_what_the_work_raises_is_raised(tmp_path: Path) -> None:
    async def story() -> None:
        with library(tmp_path) as (_, readers):
            with pytest.raises(ZeroDivisionError):
                await readers.run(lambda txn: 1 // 0)
            assert await readers.run(look) is None

    run(story())


class Slow:
    """Work that goes on until it is let go; ``began`` says on how many threads."""

    def __init__(self) -> None:
        self.began = 0
        self.ended = 0
        self.gate = threading.Event()

    def __call__(self, txn: Transaction) -> bytes | None:
        self.began += 1
        assert self.gate.wait(20)
        found = look(txn)  # the store is still open
        self.ended += 1
        return found


def test_the_event_loop_does_not_wait_and_the_threads_are_bounded(tmp_path: Path) -> None:
    async def story() -> None:
        with library(tmp_path) as (_, readers):
            slow = Slow()
            tasks = [asyncio.ensure_future(readers.run(slow)) for _ in range(THREADS + 3)]
            await until(lambda: slow.began == THREADS)
            await asyncio.sleep(0.05)
            assert slow.began == THREADS, "the others wait"
            slow.gate.set()
            assert await asyncio.gather(*tasks) == [None] * (THREADS + 3)

    run(story())


def test_the_end_waits_for_what_is_being_read_and_begins_nothing_new(tmp_path: Path) -> None:
    async def story() -> None:
        with library(tmp_path) as (_, readers):
            slow = Slow()
            tasks = [asyncio.ensure_future(readers.run(slow)) for _ in range(THREADS + 1)]
            await until(lambda: slow.began == THREADS)
            closing = asyncio.ensure_future(asyncio.to_thread(readers.close))
            await asyncio.wait(tasks[THREADS:])
            assert tasks[THREADS].cancelled(), "it had not begun"
            assert not closing.done()
            slow.gate.set()
            await closing
            assert slow.ended == THREADS
            assert await asyncio.gather(*tasks[:THREADS]) == [None] * THREADS
            with pytest.raises(RuntimeError):
                await readers.run(look)

    run(story())


def test_a_caller_who_leaves_harms_nobody(tmp_path: Path) -> None:
    async def story() -> None:
        with library(tmp_path) as (_, readers):
            slow = Slow()
            task = asyncio.ensure_future(readers.run(slow))
            await until(lambda: slow.began == 1)
            task.cancel()
            await asyncio.wait((task,))
            slow.gate.set()
            assert await readers.run(look) is None

    run(story())


def test_what_nobody_asks_for_is_missed_by_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        with library(tmp_path) as (_, readers):
            future = readers.begin(lambda txn: 1 // 0)
            await until(future.done)
            del future
            gc.collect()
            assert await readers.begin(look) is None
            assert caplog.records == []

    run(story())


def test_a_long_reading_is_not_waited_for_longer_than_wanted(tmp_path: Path) -> None:
    async def story() -> None:
        with library(tmp_path) as (_, readers):
            slow = Slow()
            task = asyncio.ensure_future(readers.run(slow))
            await until(lambda: slow.began)
            assert not await asyncio.to_thread(readers.close, 0.05)
            slow.gate.set()
            assert await asyncio.to_thread(readers.close, 20)
            await task

    run(story())
