import random

import pytest

from shine_node.peers.backoff import pause_seconds

STEPS = [1, 2, 5, 10, 20, 40, 60, 60, 60]


@pytest.mark.parametrize(("failures", "step"), [*enumerate(STEPS), (10_000, 60)])
def test_each_step_has_jitter_in_its_upper_half(failures: int, step: float) -> None:
    assert pause_seconds(failures, lambda: 0.0) == step / 2
    assert pause_seconds(failures, lambda: 0.5) == step * 0.75
    assert pause_seconds(failures, lambda: 1.0) == step


def test_many_links_do_not_come_back_in_one_moment() -> None:
    source = random.Random(7)
    pauses = [pause_seconds(6, source.random) for _ in range(200)]
    in_a_second = max(sum(second <= pause < second + 1 for pause in pauses) for second in range(30, 60))
    assert min(pauses) >= 30
    assert max(pauses) <= 60
    assert in_a_second < 20, "200 links within 30 s: about 7 in a second"
