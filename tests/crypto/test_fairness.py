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
    assert queue.take(2) == ["n0", "q0"]
    queue.put("quiet", "q1")
    assert queue.take(10) == ["x0", "n1", "q1", "n2", "n3", "n4"]
    assert queue.take(10) == []
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
            taken += queue.take(step)
        assert len(queue) == len(put) - len(taken)
    taken += queue.take(len(put))
    for source in "abc":
        assert [item for item in taken if item[0] == source] == [item for item in put if item[0] == source]


def test_all_can_be_forgotten() -> None:
    queue = FairQueue[int]()
    for number in range(5):
        queue.put(number % 2, number)
    queue.clear()
    assert (len(queue), queue.waiting_of(0), queue.take(9)) == (0, 0, [])
    queue.put("new", 1)
    assert queue.take(9) == [1]
