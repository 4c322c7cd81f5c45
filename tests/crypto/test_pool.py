"""The pool that checks signatures: batches, its bound, several sinks, and what must not end a thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from shine_node.crypto.pool import (
    MAX_BATCH,
    MAX_BATCH_BYTES,
    MAX_BATCH_LATER,
    MAX_WAITING_BYTES,
    TURNS_LATER,
    Check,
    CryptoPool,
    Submission,
    first_wrong,
)
from shine_node.protocol.errors import ServerBusy
from shine_node.protocol.signatures import key_pair, sign

pytestmark = pytest.mark.core

WAIT = 30
"""Seconds that a test waits for what has to come; far more than it takes."""
PUBLIC, SECRET = key_pair(b"a seed for the tests of the pool")
OTHER, _ = key_pair(b"another seed for these very tests"[:32])


def right(message: bytes = b"message") -> Check:
    return PUBLIC, message, sign(SECRET, message)


def wrong(message: bytes = b"message") -> Check:
    return OTHER, message, sign(SECRET, message)


class Sink:
    """Keeps the batches it gets, and may be told to do something with each."""

    def __init__(self, then: Callable[[], None] = lambda: None) -> None:
        self.batches: list[list[Submission]] = []
        self.threads: set[str] = set()
        self.then = then

    def checked(self, batch: list[Submission]) -> None:
        self.batches.append(batch)
        self.threads.add(threading.current_thread().name)
        self.then()

    @property
    def submissions(self) -> list[Submission]:
        return [submission for batch in self.batches for submission in batch]


@contextmanager
def running(threads: int = 1, max_queue: int = 1000) -> Iterator[CryptoPool]:
    pool = CryptoPool(threads=threads, max_queue=max_queue)
    pool.start()
    try:
        yield pool
    finally:
        pool.close()


def test_the_first_wrong_signature_is_named() -> None:
    assert first_wrong([]) is None
    assert first_wrong([right(), right(b"other")]) is None
    assert first_wrong([right(), wrong(), wrong()]) == 1
    assert first_wrong([(PUBLIC, b"message", b"short")]) == 0


def test_what_cannot_be_checked_is_wrong(caplog: pytest.LogCaptureFixture) -> None:
    assert first_wrong([right(), (PUBLIC, "a text", bytes(64))]) == 1  # type: ignore[list-item]
    assert "a signature could not be checked" in caplog.text


def test_verify_gives_the_index_of_the_first_wrong_one() -> None:
    async def story() -> None:
        with running(threads=2) as pool:
            results = await asyncio.gather(
                pool.verify([right()]), pool.verify([wrong()]), pool.verify([right(), wrong()]), pool.verify([])
            )
            assert results == [None, 0, 1, None]
            assert pool.waiting == 0

    asyncio.run(asyncio.wait_for(story(), WAIT))


def test_submissions_are_checked_each_by_itself() -> None:
    sink = Sink()
    submissions = [Submission([right(), right()]), Submission([right(), wrong()]), Submission([wrong()])]
    with running() as pool:
        pool.submit(submissions, sink)
    assert sink.submissions == submissions
    assert [submission.failed for submission in submissions] == [None, 1, 0]


def test_what_is_waiting_is_handed_on_in_batches_in_the_order_it_came() -> None:
    sink = Sink()
    pool = CryptoPool(threads=1, max_queue=1000)
    submissions = [Submission([]) for _ in range(2 * MAX_BATCH + 3)]
    for submission in submissions:
        pool.submit([submission], sink)
    assert pool.waiting == len(submissions)
    pool.start()
    pool.close()
    assert sink.submissions == submissions
    assert [len(batch) for batch in sink.batches] == [MAX_BATCH, MAX_BATCH, 3]
    assert sink.threads == {"crypto-0"}


def test_threads_share_what_is_waiting() -> None:
    # Each thread that has a batch waits in the sink for the other one: both must get some.
    both = threading.Barrier(2, timeout=WAIT)
    sink = Sink(lambda: both.wait() and None)
    pool = CryptoPool(threads=2, max_queue=100)
    pool.submit([Submission([right()]) for _ in range(2)], sink)
    pool.start()
    pool.close()
    assert [len(batch) for batch in sink.batches] == [1, 1]
    assert sink.threads == {"crypto-0", "crypto-1"}


def test_idle_threads_share_what_comes_at_once() -> None:
    both, done = threading.Barrier(3, timeout=WAIT), threading.Semaphore(0)

    def meet() -> None:
        both.wait()
        done.release()

    with running(threads=2) as pool:
        time.sleep(0.05)  # for both to be idle; if they are not, the test passes and shows less
        pool.submit([Submission([right()]) for _ in range(2)], Sink(meet))
        both.wait()
        assert done.acquire(timeout=WAIT) and done.acquire(timeout=WAIT)


def test_a_busy_thread_does_not_hold_up_the_others() -> None:
    reached, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        reached.set()
        assert let_go.wait(WAIT)

    async def story() -> None:
        with running(threads=2) as pool:
            pool.submit([Submission([right()])], Sink(hold))
            assert await asyncio.to_thread(reached.wait, WAIT)
            for _ in range(20):
                assert await pool.verify([right()]) is None
            let_go.set()

    asyncio.run(asyncio.wait_for(story(), WAIT))


def test_what_can_wait_is_checked_after_all_else_a_few_at_a_time() -> None:
    sink, patient = Sink(), Sink()
    order: list[str] = []
    sink.then, patient.then = lambda: order.append("now"), lambda: order.append("later")
    pool = CryptoPool(threads=1, max_queue=1000)
    later = [Submission([right()]) for _ in range(MAX_BATCH_LATER + 1)]
    pool.submit(later, patient, later=True)
    now = [Submission([]) for _ in range(2 * MAX_BATCH)]
    pool.submit(now, sink)
    assert pool.waiting == len(now) + len(later)
    pool.start()
    pool.close()
    assert order == ["now", "now", "later", "later"]
    assert sink.submissions == now
    assert patient.submissions == later
    assert [len(batch) for batch in patient.batches] == [MAX_BATCH_LATER, 1]


def test_what_can_wait_has_one_thread_at_a_time_and_the_others_are_for_what_cannot() -> None:
    reached, let_go = threading.Semaphore(0), threading.Event()

    def hold() -> None:
        reached.release()
        assert let_go.wait(WAIT)

    async def story() -> None:
        with running(threads=2) as pool:
            patient = Sink(hold)
            later = [Submission([right()]) for _ in range(3 * MAX_BATCH_LATER)]
            pool.submit(later, patient, later=True)
            assert await asyncio.to_thread(reached.acquire, timeout=WAIT)
            for _ in range(20):
                assert await pool.verify([right()]) is None
            assert len(patient.batches) == 1
            let_go.set()
        assert patient.submissions == later

    asyncio.run(asyncio.wait_for(story(), WAIT))


def test_what_can_wait_is_never_stopped() -> None:
    order: list[str] = []
    pool = CryptoPool(threads=1, max_queue=10 * MAX_BATCH)
    pool.submit([Submission([]) for _ in range(2)], Sink(lambda: order.append("later")), later=True)
    pool.submit([Submission([]) for _ in range(8 * MAX_BATCH)], Sink(lambda: order.append("now")))
    pool.start()
    pool.close()
    assert order == ["now"] * (TURNS_LATER - 1) + ["later"] + ["now"] * (8 - TURNS_LATER + 1)


def test_each_sink_gets_its_own_in_one_batch() -> None:
    one, other = Sink(), Sink()
    submissions = [Submission([right()]) for _ in range(6)]
    pool = CryptoPool(threads=1, max_queue=100)
    for number, submission in enumerate(submissions):
        pool.submit([submission], (one, other)[number % 2])
    pool.start()
    pool.close()
    assert one.batches == [submissions[0::2]]
    assert other.batches == [submissions[1::2]]


def test_over_the_bound_nothing_is_queued() -> None:
    sink = Sink()
    pool = CryptoPool(threads=1, max_queue=3)
    first = [Submission([right()]) for _ in range(2)]
    pool.submit(first, sink)
    with pytest.raises(ServerBusy) as caught:
        pool.submit([Submission([right()]) for _ in range(2)], sink)
    assert caught.value.payload == {"retryAfterMs": 1000}
    assert pool.waiting == 2
    last = Submission([wrong()])
    pool.submit([last], sink)
    with pytest.raises(ServerBusy):
        pool.submit([Submission([right()])], sink, later=True)

    async def refused() -> None:
        with pytest.raises(ServerBusy):
            await pool.verify([right()])

    asyncio.run(refused())
    pool.start()
    pool.close()
    assert sink.submissions == [*first, last]


def large(source: str | None = None, *, share: int = 1) -> Submission:
    """Return a submission of a part of all the bytes that may wait."""
    return Submission([(PUBLIC, bytes(MAX_WAITING_BYTES // share), b"no signature")], source)


@pytest.mark.parametrize("later", [False, True])
def test_the_bytes_that_wait_are_bounded_and_what_is_larger_is_taken_alone(later: bool) -> None:
    sink, pool = Sink(), CryptoPool(threads=1, max_queue=1000)
    huge = Submission([(PUBLIC, bytes(MAX_WAITING_BYTES + 1), b"no signature")])
    assert huge.size == MAX_WAITING_BYTES + 1
    pool.submit([huge], sink, later=later)
    with pytest.raises(ServerBusy):
        pool.submit([Submission([right()])], sink, later=not later)
    pool.start()
    pool.close()
    assert sink.submissions == [huge]
    pool = CryptoPool(threads=1, max_queue=1000)
    for _ in range(4):
        pool.submit([large(share=4)], sink, later=later)
    with pytest.raises(ServerBusy):
        pool.submit([large(share=4)], sink, later=later)
    pool.close(abandon=True)


@pytest.mark.parametrize("later", [False, True])
def test_a_batch_is_bounded_by_bytes_too(later: bool) -> None:
    sink, pool = Sink(), CryptoPool(threads=1, max_queue=1000)
    pool.submit([large(share=16) for _ in range(5)], sink, later=later)
    pool.start()
    pool.close()
    most = MAX_BATCH_BYTES // (MAX_WAITING_BYTES // 16)
    assert [len(batch) for batch in sink.batches] == [most, most, 1]


def test_no_source_has_more_than_half_of_the_bytes_that_may_wait() -> None:
    sink, pool = Sink(), CryptoPool(threads=1, max_queue=1000)
    for _ in range(5):
        pool.submit([large("noisy", share=8)], sink)
    with pytest.raises(ServerBusy):
        pool.submit([large("noisy", share=8)], sink)
    pool.submit([large("quiet", share=8)], sink)
    pool.close(abandon=True)


def test_there_is_room_again_when_what_waited_is_checked() -> None:
    async def story() -> None:
        with running(max_queue=1) as pool:
            for _ in range(10):
                assert await pool.verify([wrong()]) == 0

    asyncio.run(asyncio.wait_for(story(), WAIT))


def test_closing_checks_what_is_waiting_and_takes_no_more() -> None:
    reached, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        reached.set()
        assert let_go.wait(WAIT)

    sink = Sink()
    pool = CryptoPool(threads=1, max_queue=1000)
    pool.start()
    pool.submit([Submission([])], Sink(hold))
    assert reached.wait(WAIT)
    submissions = [Submission([right()]) for _ in range(100)]
    pool.submit(submissions, sink)
    closing = threading.Thread(target=pool.close)
    closing.start()
    refused, end = False, time.monotonic() + WAIT
    while not refused:
        assert time.monotonic() < end
        try:
            pool.submit([], sink)
        except ServerBusy:
            refused = True
    let_go.set()
    closing.join(WAIT)
    assert not closing.is_alive()
    assert sink.submissions == submissions
    pool.close()  # once more does nothing


def test_what_waits_may_be_abandoned() -> None:
    pool, sink = CryptoPool(threads=1, max_queue=10), Sink()
    pool.submit([Submission([right()])], sink)
    pool.submit([Submission([right()])], sink, later=True)
    pool.start()
    pool.close()
    assert len(sink.submissions) == 2
    pool, sink = CryptoPool(threads=1, max_queue=10), Sink()
    pool.submit([Submission([right()])], sink)
    pool.submit([Submission([right()])], sink, later=True)
    pool.close(abandon=True)
    assert (pool.waiting, sink.submissions) == (0, [])


def test_a_pool_that_was_never_started_closes() -> None:
    CryptoPool(threads=2, max_queue=1).close()


def test_a_sink_that_breaks_harms_neither_the_thread_nor_other_sinks(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise RuntimeError("no room in the sink")

    sink = Sink()
    pool = CryptoPool(threads=1, max_queue=100)
    pool.submit([Submission([right()])], Sink(fail))
    pool.submit([Submission([wrong()])], sink)
    pool.start()

    async def story() -> None:
        assert await pool.verify([right()]) is None

    asyncio.run(asyncio.wait_for(story(), WAIT))
    pool.close()
    assert [submission.failed for submission in sink.submissions] == [0]
    assert "no room in the sink" in caplog.text


def test_a_caller_may_give_up() -> None:
    async def story() -> None:
        pool = CryptoPool(threads=1, max_queue=100)
        given_up = asyncio.ensure_future(pool.verify([right()]))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.sleep(0)
        assert given_up.cancelled()
        pool.start()
        assert await pool.verify([right()]) is None
        pool.close()

    asyncio.run(asyncio.wait_for(story(), WAIT))


def test_the_loop_may_end_before_the_pool(caplog: pytest.LogCaptureFixture) -> None:
    pool = CryptoPool(threads=1, max_queue=100)

    async def story() -> None:
        asyncio.ensure_future(pool.verify([right()])).add_done_callback(lambda _: None)
        await asyncio.sleep(0)

    asyncio.run(story())
    sink = Sink()
    pool.submit([Submission([right()])], sink)
    pool.start()
    pool.close()
    assert len(sink.submissions) == 1
    assert caplog.records == []


def test_sources_take_turns_and_a_noisy_one_waits_behind_itself() -> None:
    sink, pool = Sink(), CryptoPool(threads=1, max_queue=1000)
    noisy = [Submission([right()], "noisy") for _ in range(2 * MAX_BATCH)]
    quiet = Submission([right()], "quiet")
    pool.submit(noisy, sink)
    pool.submit([quiet], sink)
    pool.start()
    pool.close()
    assert quiet in sink.batches[0]
    assert [one for one in sink.submissions if one is not quiet] == noisy


def test_no_source_has_more_than_half_of_what_may_wait() -> None:
    sink, pool = Sink(), CryptoPool(threads=1, max_queue=10)
    taken = 0
    with pytest.raises(ServerBusy):
        for _ in range(10):
            pool.submit([Submission([right()], "noisy")], sink)
            taken += 1
    assert taken == 6
    pool.submit([Submission([right()], "quiet")], sink)
    for _ in range(3):
        pool.submit([Submission([right()])], sink)  # of one that is not known
    with pytest.raises(ServerBusy):
        pool.submit([Submission([right()])], sink)
    pool.start()
    pool.close()
    assert len(sink.submissions) == 10
