import asyncio
import math
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from shine_node.peers.priorities import Priority
from shine_node.peers.queue import STALE_SLACK, LinkRequest, RequestQueue

LOOP = asyncio.new_event_loop()
LOOP.close()


def request(priority: Priority, name: str = "", deadline: float = 100.0) -> LinkRequest:
    return LinkRequest(name, {}, priority, deadline, asyncio.Future(loop=LOOP))


def names(requests: Iterable[LinkRequest]) -> list[str]:
    return [one.op for one in requests]


def pop_all(queue: RequestQueue) -> list[str]:
    found = []
    while (one := queue.pop()) is not None:
        found.append(one.op)
    return found


def test_by_priority_then_by_arrival() -> None:
    queue = RequestQueue(10)
    for name, priority in [("b1", 2), ("n1", 1), ("r1", 0), ("b2", 2), ("r2", 0), ("n2", 1)]:
        assert queue.push(request(Priority(priority), name))
    assert len(queue) == 6
    assert queue.lengths() == {Priority.REALTIME: 2, Priority.NORMAL: 2, Priority.BULK: 2}
    assert pop_all(queue) == ["r1", "r2", "n1", "n2", "b1", "b2"]
    assert len(queue) == 0


def test_a_full_queue_takes_nothing_and_stays_as_it_is() -> None:
    queue = RequestQueue(2)
    first = request(Priority.BULK, "b1")
    assert queue.push(first)
    assert queue.push(request(Priority.BULK, "b2"))
    assert not queue.push(request(Priority.REALTIME, "r", deadline=1.0))
    assert len(queue) == 2
    assert queue.next_deadline() == 100.0
    assert queue.discard(first)
    assert queue.push(request(Priority.REALTIME, "r")), "one that left makes room"
    assert pop_all(queue) == ["r", "b2"]


def test_discard_says_whether_it_was_there() -> None:
    queue = RequestQueue(5)
    one, two = request(Priority.NORMAL, "one"), request(Priority.NORMAL, "two")
    assert queue.push(one)
    assert queue.push(two)
    assert queue.discard(one)
    assert not queue.discard(one)
    assert pop_all(queue) == ["two"]
    assert not queue.discard(two)


def test_deadlines_of_those_that_wait() -> None:
    queue = RequestQueue(10)
    assert queue.next_deadline() == math.inf
    late, early, middle = (
        request(Priority.BULK, "late", 30.0),
        request(Priority.BULK, "early", 10.0),
        request(Priority.REALTIME, "middle", 20.0),
    )
    for one in (late, early, middle):
        assert queue.push(one)
    assert queue.next_deadline() == 10.0
    assert queue.take_expired(9.9) == []
    assert queue.pop() is middle, "it is sent, so its deadline is no longer the queue's"
    assert names(queue.take_expired(20.0)) == ["early"]
    assert queue.next_deadline() == 30.0
    assert names(queue.take_expired(1000.0)) == ["late"]
    assert queue.next_deadline() == math.inf
    assert len(queue) == 0


def test_take_all_in_the_order_of_sending() -> None:
    queue = RequestQueue(10)
    for name, priority in [("b", 2), ("n", 1), ("r", 0)]:
        queue.push(request(Priority(priority), name))
    assert names(queue.take_all()) == ["r", "n", "b"]
    assert len(queue) == 0
    assert queue.pop() is None
    assert queue.next_deadline() == math.inf


def test_deadlines_of_those_that_have_left_do_not_pile_up() -> None:
    queue = RequestQueue(10)
    queue.push(request(Priority.BULK, "stays", deadline=1.0))
    for number in range(20 * STALE_SLACK):
        queue.push(request(Priority.REALTIME, deadline=1000.0 + number))
        queue.pop()
    assert len(queue._deadlines) <= 2 * len(queue) + STALE_SLACK
    assert queue.next_deadline() == 1.0


@given(st.lists(st.tuples(st.sampled_from(["push", "pop", "discard", "expire"]), st.integers(0, 60)), max_size=80))
def test_it_is_like_a_sorted_list(steps: list[tuple[str, int]]) -> None:
    """The same steps on the queue and on a plain list, which is sorted anew each time, come to the same."""
    queue, model = RequestQueue(12), []
    for number, (step, value) in enumerate(steps):
        if step == "push":
            one = request(Priority(value % 3), str(number), deadline=float(value))
            assert queue.push(one) == (len(model) < 12)
            if len(model) < 12:
                model.append(one)
                model.sort(key=lambda r: r.priority)  # stable: by arrival within a priority
        elif step == "pop":
            assert queue.pop() is (model.pop(0) if model else None)
        elif step == "discard" and model:
            one = model.pop(value % len(model))
            assert queue.discard(one)
        elif step == "expire":
            gone = {one for one in model if one.deadline <= value}
            assert set(queue.take_expired(float(value))) == gone
            model = [one for one in model if one not in gone]
        assert len(queue) == len(model)
        assert queue.next_deadline() == min((one.deadline for one in model), default=math.inf)
    assert queue.take_all() == model
