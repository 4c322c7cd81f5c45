"""What a node goes on with."""

from __future__ import annotations

import pytest

from shine_node.store.recovery.decide import QUIET_MS, Way, decide

NOW = 1_774_700_000_000


@pytest.mark.parametrize(
    ("policy", "has_backup", "can_refill", "recovered", "way", "why"),
    [
        ("stop", True, True, 0, Way.STOP, "stop"),
        ("backup", True, True, 0, Way.BACKUP, ""),
        ("backup", False, True, 0, Way.STOP, "no sound backup"),
        ("refill", True, True, 0, Way.BACKUP, ""),
        ("refill", False, True, 0, Way.REFILL, ""),
        ("refill", False, False, 0, Way.STOP, "no [[sync_servers]]"),
        ("backup", True, True, NOW - QUIET_MS + 1, Way.STOP, "failing"),
        ("refill", True, True, NOW + QUIET_MS - 1, Way.STOP, "failing"),
        ("backup", True, True, NOW - QUIET_MS, Way.BACKUP, ""),
    ],
)
def test_the_way(policy: str, has_backup: bool, can_refill: bool, recovered: int, way: Way, why: str) -> None:
    found = decide(policy, has_backup=has_backup, can_refill=can_refill, recovered_at_ms=recovered, now_ms=NOW)
    assert found.way is way
    assert why in found.why
