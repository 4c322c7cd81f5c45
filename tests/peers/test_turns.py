from __future__ import annotations

import pytest

from shine_node.peers.turns import Ending, ending

pytestmark = pytest.mark.core


@pytest.mark.parametrize(
    ("more", "taken", "how"),
    [(False, 0, Ending.DONE), (False, 5, Ending.DONE), (True, 0, Ending.LATER), (True, 1, Ending.AT_ONCE)],
)
def test_how_a_part_ends(more: bool, taken: int, how: Ending) -> None:
    assert ending(more=more, taken=taken) is how


def test_of_several_parts_the_greatest_says_how_the_turn_ended() -> None:
    assert max(Ending.DONE, Ending.AT_ONCE, Ending.LATER) is Ending.AT_ONCE
    assert max(Ending.DONE, Ending.LATER) is Ending.LATER
