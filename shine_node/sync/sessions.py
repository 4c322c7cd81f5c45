"""Sync sessions: one at a time with each peer, after each connection and at an interval (PROTOCOL.md §6)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from shine_node.clock import Clock
from shine_node.peers.directory import KnownPeer
from shine_node.peers.waiting import within
from shine_node.protocol.errors import LinkError, PeerRefused, Refusal

__all__ = ["Sessions", "Step"]

log = logging.getLogger(__name__)

MAX_SESSIONS = 16
"""Sessions under way at one time; the others wait for their turn."""


class Step(NamedTuple):
    """One part of a session. ``run`` takes the peer.

    Where it raises ``PeerRefused``, or a ``Refusal`` of this server's own, the next part follows; any other
    ``LinkError`` ends the session.
    """

    name: str
    run: Callable[[KnownPeer], Awaitable[None]]


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
        self._turns = asyncio.Semaphore(MAX_SESSIONS)

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
        try:
            while (peer := self._connected(login)) is not None:
                wake.clear()
                async with self._turns:
                    await self._session(peer)
                if not peer.permanent and not wake.is_set():
                    return
                with contextlib.suppress(TimeoutError):
                    await within(self._clock, self._interval_seconds, wake.wait())
        finally:
            del self._tasks[login], self._wakes[login]

    async def _session(self, peer: KnownPeer) -> None:
        for step in self._steps:
            try:
                await step.run(peer)
            except (PeerRefused, Refusal) as refusal:
                log.warning("part %s of the session with %s was given up: %s", step.name, peer.server_login, refusal)
            except LinkError as error:
                log.info("the session with %s ended in its part %s: %s", peer.server_login, step.name, error)
                return
            except Exception:
                log.exception("a defect in part %s of the session with %s", step.name, peer.server_login)
