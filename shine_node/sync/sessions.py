"""Sync sessions: one at a time with each peer, after each connection and at an interval (PROTOCOL.md §6).

A session takes turns: one of ``MAX_SESSIONS`` places, for a time. What a part has not come to within its time it goes
on with in the peer's next turn, behind the peers that are waiting; the parts after it have theirs in this turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple

from shine_node.clock import Clock
from shine_node.peers.directory import KnownPeer
from shine_node.peers.repeats import Repeats
from shine_node.peers.turns import Ending, Turn
from shine_node.peers.waiting import within
from shine_node.protocol.errors import LeftAlone, LinkError, PeerRefused, Refusal
from shine_node.sync.outcomes import Outcomes

__all__ = ["Sessions", "Step"]

log = logging.getLogger(__name__)

MAX_SESSIONS = 16
"""Turns under way at one time; the other peers wait for theirs."""
PART_SECONDS = 10.0
"""After which a part gives way while other peers wait; it ends the page that it is at, which has bounds of its own."""
LONE_PART_SECONDS = 60.0
"""The same while nobody waits: the parts that follow are not to wait for ever."""


class Step(NamedTuple):
    """One part of a session. ``run`` takes the peer and its turn, and returns how the part ended.

    Where it raises ``PeerRefused`` or ``LeftAlone``, or a ``Refusal`` of this server's own, the next part follows; any
    other ``LinkError`` ends the session.
    """

    name: str
    run: Callable[[KnownPeer, Turn], Awaitable[Ending]]


class Sessions:
    """Runs the steps of a session with each connected peer, in their order.

    A peer with a permanent link has a session at each interval while it is connected; one with a link on demand has one
    after it was connected, so that sessions do not keep a link open that nobody else needs.

    Args:
        steps: the parts of a session.
        interval_seconds: ``sync.intervalSeconds``.
        connected: returns the peer if its link is up.
    """

    def __init__(
        self,
        *,
        steps: Sequence[Step],
        clock: Clock,
        interval_seconds: float,
        connected: Callable[[str], KnownPeer | None],
    ) -> None:
        self._steps = tuple(steps)
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._connected = connected
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._wakes: dict[str, asyncio.Event] = {}
        self._closed = False
        self._places = asyncio.Semaphore(MAX_SESSIONS)
        self._waiting = 0
        self._repeats = Repeats(clock)
        self.outcomes = Outcomes(clock)
        """How the sessions have ended."""

    def start(self, server_login: str) -> None:
        """Begin sessions with a peer that has just been connected, or have the next one at once; does not wait."""
        login = server_login.lower()
        if self._closed:
            return
        wake = self._wakes.get(login)
        if wake is not None:
            wake.set()
            return
        self._wakes[login] = asyncio.Event()
        self._tasks[login] = asyncio.get_running_loop().create_task(self._run(login), name=f"sync {login}")

    async def close(self) -> None:
        """End the sessions under way, and begin none any more; what they had not acknowledged comes again."""
        self._closed = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, login: str) -> None:
        wake = self._wakes[login]
        kept: dict[str, str] = {}
        try:
            while (peer := self._connected(login)) is not None:
                if wake.is_set():  # a new connection begins a new session
                    kept.clear()
                wake.clear()
                left = await self._turn(peer, kept)
                if wake.is_set() or left is Ending.AT_ONCE:
                    continue
                if not peer.permanent:
                    return
                with contextlib.suppress(TimeoutError):
                    await within(self._clock, self._interval_seconds, wake.wait())
        finally:
            del self._tasks[login], self._wakes[login]

    async def _turn(self, peer: KnownPeer, kept: dict[str, str]) -> Ending:
        """Wait for a place, in the order of asking, and have one turn."""
        self._waiting += 1
        try:
            await self._places.acquire()
        finally:
            self._waiting -= 1
        try:
            return await self._parts(peer, kept)
        finally:
            self._places.release()

    async def _parts(self, peer: KnownPeer, kept: dict[str, str]) -> Ending:
        left, problem = Ending.DONE, ""
        for step in self._steps:
            turn = Turn(partial(self._is_over, self._clock.monotonic()), kept)
            try:
                ended = await step.run(peer, turn)
            except (PeerRefused, LeftAlone, Refusal) as refusal:
                level = self._repeats.level(logging.WARNING, peer.server_login, step.name)
                log.log(level, "part %s of the session with %s was given up: %s", step.name, peer.server_login, refusal)
                problem = problem or f"{step.name}: {refusal}"
            except LinkError as error:
                level = self._repeats.level(logging.INFO, peer.server_login, step.name)
                log.log(level, "the session with %s ended in its part %s: %s", peer.server_login, step.name, error)
                left, problem = Ending.DONE, problem or f"{step.name}: {error}"
                kept.clear()
                break
            except Exception:
                level = self._repeats.level(logging.ERROR, peer.server_login, step.name)
                text = "a defect in part %s of the session with %s"
                log.log(level, text, step.name, peer.server_login, exc_info=True)
                problem = problem or f"{step.name}: a defect, which is in the log"
            else:
                if ended is not Ending.DONE:
                    problem = problem or f"{step.name}: there is more, which is under way"
                left = max(left, ended)
        self.outcomes.note(peer.server_login, problem)
        return left

    def _is_over(self, began: float) -> bool:
        spent = self._clock.monotonic() - began
        return spent >= (PART_SECONDS if self._waiting else LONE_PART_SECONDS)
