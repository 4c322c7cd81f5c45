from __future__ import annotations

import asyncio
import logging

import pytest

from shine_node.peers import repeats as repeats_module
from shine_node.peers.repeats import QUIET_SECONDS, Repeats
from tests.support.clock import ManualClock

pytestmark = pytest.mark.core


def test_a_line_is_told_once_a_minute_and_others_are_told_beside_it() -> None:
    async def story() -> None:
        clock = ManualClock()
        repeats = Repeats(clock)
        for _ in range(3):
            assert repeats.level(logging.WARNING, "Server2", "refused") == logging.WARNING
            for _ in range(9):
                assert repeats.level(logging.WARNING, "server2", "refused") == logging.DEBUG
            await clock.advance(QUIET_SECONDS - 1)
            assert repeats.level(logging.WARNING, "server2", "refused") == logging.DEBUG
            await clock.advance(1)
        assert repeats.level(logging.ERROR, "server2", "refused") == logging.ERROR
        assert repeats.level(logging.WARNING, "server2", "given up") == logging.WARNING
        assert repeats.level(logging.WARNING, "server3", "refused") == logging.WARNING

    asyncio.run(story())


def test_of_too_many_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats_module, "MAX_REMEMBERED", 2)
    repeats = Repeats(ManualClock())
    assert [repeats.level(logging.INFO, name) for name in ("a", "b", "c", "b", "a", "c")] == [
        logging.INFO,
        logging.INFO,
        logging.INFO,
        logging.DEBUG,
        logging.INFO,
        logging.DEBUG,
    ]
