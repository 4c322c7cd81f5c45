import asyncio
import math

import pytest

from shine_node.peers.alarm import Alarm
from tests.peers.conftest import Run
from tests.support.clock import ManualClock, settle

pytestmark = pytest.mark.core


def test_it_wakes_when_the_time_has_come(run: Run) -> None:
    async def story() -> None:
        clock = ManualClock()
        waiting = asyncio.ensure_future(Alarm(clock).wait(clock.monotonic() + 5))
        await clock.advance(4.9)
        assert not waiting.done()
        await clock.advance(0.1)
        assert waiting.done()

    run(story())


@pytest.mark.parametrize("due", [1005.0, math.inf])
def test_an_earlier_time_wakes_it_at_once_and_a_later_one_does_not(run: Run, due: float) -> None:
    async def story() -> None:
        clock = ManualClock(monotonic=1000.0)
        alarm = Alarm(clock)
        waiting = asyncio.ensure_future(alarm.wait(due))
        await settle()
        alarm.wake_by(due)
        await settle()
        assert not waiting.done()
        alarm.wake_by(1004.0)
        await settle()
        assert waiting.done()
        again = asyncio.ensure_future(alarm.wait(1005.0))
        await settle()
        assert not again.done(), "each wait begins anew"
        await clock.advance(5)
        assert again.done()

    run(story())
