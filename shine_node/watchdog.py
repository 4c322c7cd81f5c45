"""Gives the service manager a sign of life, only while the event loop runs and the store's writer gets work done."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from shine_node.clock import Clock
from shine_node.protocol.errors import Refusal, ServerBusy

__all__ = ["Watchdog"]

log = logging.getLogger(__name__)

SIGNS_A_PERIOD = 4


class Watchdog:
    """Sees whether the writer is alive, and beats.

    A beat is given when, since the last one, the writer has either committed something or answered an empty job. A
    writer that waits for its disk does neither; one that is slow but moves does the first, however much waits for it.

    Args:
        work: hands an empty job to the writer, and returns when it was answered.
        position: the number of the last commit, which is on disk.
        beat: gives the sign of life.
        clock: of the node.
        seconds: within which the manager wants each sign; one is given after each quarter.
    """

    def __init__(
        self,
        *,
        work: Callable[[], Awaitable[object]],
        position: Callable[[], int],
        beat: Callable[[], None],
        clock: Clock,
        seconds: float,
    ) -> None:
        self._work = work
        self._position = position
        self._beat = beat
        self._clock = clock
        self._pause = seconds / SIGNS_A_PERIOD

    async def run(self) -> None:
        """Beat until cancelled; the first beat comes at once."""
        asked: asyncio.Future[bool] | None = None
        last = self._position()
        try:
            while True:
                if asked is None:
                    asked = asyncio.ensure_future(self._ask())
                pause = asyncio.ensure_future(self._clock.sleep(self._pause))
                await asyncio.wait((asked, pause), return_when=asyncio.FIRST_COMPLETED)
                position, answered = self._position(), False
                if asked.done():
                    answered, asked = asked.result(), None
                if answered or position != last:
                    self._beat()
                last = position
                await pause
        finally:
            for one in (asked, pause):
                if one is not None:
                    one.cancel()

    async def _ask(self) -> bool:
        """Say whether the writer has answered; that its queue was full is no answer of it."""
        try:
            await self._work()
        except ServerBusy:
            return False
        except Refusal:
            return True
        except Exception:
            log.exception("a defect in the watchdog; it gives no sign of life")
            return False
        return True
