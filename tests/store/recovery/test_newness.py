"""Backups by their age."""

from __future__ import annotations

import pytest

from shine_node.store.recovery.newness import newness

DAY_NS = 86_400 * 10**9
FEBRUARY = 20_485 * DAY_NS
"""The first day of February 2026."""


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (("shine-20260131-031700.mdb", FEBRUARY), ("shine-20260201-031700.mdb", 0)),
        (("shine-20260131-031700.mdb", 9), ("shine-20260131-031700-2.mdb", 0)),
        (("shine-20260131-031700-9.mdb", 9), ("shine-20260131-031700-10.mdb", 0)),
        (("shine-zoe-20260131-031700.mdb", 9), ("shine-amy-20260201-031700.mdb", 0)),
        (("shine-a.mdb", 1), ("shine-b.mdb", 2)),
        (("shine-b.mdb", 1), ("shine-a.mdb", 2)),
        (("shine-a.mdb", 1), ("shine-b.mdb", 1)),
        (("shine-mine.mdb", FEBRUARY - DAY_NS), ("shine-20260201-031700.mdb", 0)),
        (("shine-20260131-031700.mdb", 0), ("shine-mine.mdb", FEBRUARY)),
    ],
)
def test_which_is_newer(older: tuple[str, int], newer: tuple[str, int]) -> None:
    assert newness(*older) < newness(*newer)
