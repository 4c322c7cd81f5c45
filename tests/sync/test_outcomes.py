"""What is remembered of how sessions ended."""

from __future__ import annotations

import asyncio

import pytest

from shine_node.sync import outcomes as outcomes_module
from shine_node.sync.outcomes import NONE_YET, Outcome, Outcomes
from tests.support.clock import ManualClock

NOW_MS = 1_774_700_000_000


def test_when_a_session_ended_well_or_since_when_none_has_and_why() -> None:
    async def story() -> None:
        clock = ManualClock(NOW_MS)
        outcomes = Outcomes(clock)
        assert outcomes.of("server2") == NONE_YET == Outcome(None, None, "")
        outcomes.note("Server2", "the first reason")
        await clock.advance(10)
        outcomes.note("server2", "another\nreason")
        assert outcomes.of("SERVER2") == Outcome(None, NOW_MS, "another?reason")
        await clock.advance(10)
        outcomes.note("server2", "")
        assert outcomes.of("server2") == Outcome(NOW_MS + 20_000, None, "")
        await clock.advance(30)
        for _ in range(3):
            outcomes.note("server2", "again")
            await clock.advance(30)
        assert outcomes.of("server2") == Outcome(NOW_MS + 20_000, NOW_MS + 50_000, "again")
        clock.jump(3_600_000)
        assert outcomes.of("server2") == Outcome(NOW_MS + 3_620_000, NOW_MS + 3_650_000, "again"), (
            "as long ago as it is"
        )
        assert outcomes.of("server3") == NONE_YET

    asyncio.run(story())


def test_of_too_many_peers_the_one_whose_session_ended_first_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes_module, "MAX_REMEMBERED", 2)
    outcomes = Outcomes(ManualClock(NOW_MS))
    for login in ("a", "b", "a", "c"):
        outcomes.note(login, "")
    assert [outcomes.of(login).well_at_ms for login in ("a", "b", "c")] == [NOW_MS, None, NOW_MS]
