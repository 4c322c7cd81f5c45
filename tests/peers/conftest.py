"""What the tests of links share: both event loops, a hand-moved clock, links and pools that end with their test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

Run = Callable[[Coroutine[Any, Any, None]], None]

HARD_LIMIT = 60.0
"""Seconds after which a test that hangs is ended."""


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Return what runs a story on an event loop; it fails where the story leaves tasks behind."""

    async def bounded(story: Coroutine[Any, Any, None]) -> None:
        async with asyncio.timeout(HARD_LIMIT):
            await story
        for _ in range(5):
            await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks are left behind: {left}"

    def run_story(story: Coroutine[Any, Any, None]) -> None:
        factory = uvloop.new_event_loop if request.param == "uvloop" else None
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(bounded(story))

    return run_story
