"""Work that goes on by itself: kept, counted, its defects logged, and ended."""

from __future__ import annotations

import asyncio

import pytest

from shine_node.delivery.background import Background
from tests.delivery.rooms import run, until


def test_background_work_is_kept_counted_and_ended(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        background = Background()
        assert len(background) == 0
        gate = asyncio.Event()

        async def waits() -> str:
            await gate.wait()
            return "done"

        async def fails() -> None:
            raise ZeroDivisionError("a defect")

        first, second = background.spawn(waits()), background.spawn(waits())
        background.spawn(fails())
        assert len(background) == 3
        await until(lambda: len(background) == 2)
        assert "a defect" in caplog.text
        second.cancel()
        await until(lambda: len(background) == 1)
        gate.set()
        assert await first == "done"
        await until(lambda: not background)
        gate.clear()
        last = background.spawn(waits())
        await background.close()
        assert last.cancelled()
        assert len(background) == 0
        await background.close()
        assert caplog.text.count("background work failed") == 1, "to be cancelled is no defect"

    run(story())
