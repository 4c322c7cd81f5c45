"""Sources take turns, and of each source what came first goes first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shine_node.crypto.fairness import FairQueue


def test_who_has_much_waiting_waits_behind_itself() -> None:
    queue = FairQueue[str]()
    for number in range(5):
        queue.put("noisy", f"n{number}")
    queue.put("quiet", "q0")
    queue.put(None, "x0")
    assert (len(queue), queue.waiting_of("noisy"), queue.waiting_of("nobody")) == (7, 5, 0)
    assert queue.take(2, 1) == ["n0", "q0"]
    queue.put("quiet", "q1")
    assert queue.take(10, 1) == ["x0", "n1", "q1", "n2", "n3", "n4"]
    assert queue.take(10, 1) == []
    assert len(queue) == 0


@given(st.lists(st.one_of(st.sampled_from("abc"), st.integers(1, 5)), max_size=100))
def test_nothing_is_lost_and_each_source_keeps_its_order(steps: list[str | int]) -> None:
    queue = FairQueue[tuple[str, int]]()
    put: list[tuple[str, int]] = []
    taken: list[tuple[str, int]] = []
    for number, step in enumerate(steps):
        if isinstance(step, str):
            put.append((step, number))
            queue.put(step, put[-1])
        else:
            taken += queue.take(step, 1)
        assert len(queue) == len(put) - len(taken)
    taken += queue.take(len(put), 1)
    for source in "abc":
        assert [item for item in taken if item[0] == source] == [item for item in put if item[0] == source]


def test_what_is_taken_is_bounded_by_its_size_and_the_sizes_of_what_waits_are_known() -> None:
    queue = FairQueue[str]()
    for number in range(3):
        queue.put("noisy", f"n{number}", 10)
    queue.put("quiet", "q0", 5)
    assert (queue.size, queue.size_of("noisy"), queue.size_of("quiet"), queue.size_of("nobody")) == (35, 30, 5, 0)
    assert queue.take(9, 11) == ["n0", "q0"], "one is taken where there was room left"
    assert (queue.size, queue.size_of("noisy"), queue.size_of("quiet")) == (20, 20, 0)
    assert queue.take(9, 1) == ["n1"]
    queue.clear()
    assert (queue.size, queue.size_of("noisy")) == (0, 0)


def test_all_can_be_forgotten() -> None:
    queue = FairQueue[int]()
    for number in range(5):
        queue.put(number % 2, number)
    queue.clear()
    assert (len(queue), queue.waiting_of(0), queue.take(9, 1)) == (0, 0, [])
    queue.put("new", 1)
    assert queue.take(9, 1) == [1]
