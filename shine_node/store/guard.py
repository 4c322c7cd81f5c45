"""Watches the room on the store's disk: with too little of it the store does not grow (PROTOCOL.md §10, ``[storage]``).

Small writes go on: acknowledgements, states of deliveries, sessions. They need room too, which is what is kept free.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path

from shine_node.clock import Clock
from shine_node.store.environment import Store

__all__ = ["DiskGuard", "free_bytes"]

log = logging.getLogger(__name__)

LOOK_SECONDS = 10.0
SOON_SECONDS = 0.25
NEAR = 8
"""With less than so many times the least it looks more often: a disk can be filled fast, and not by this node alone."""
MIB = 2**20
MORE = 4
"""It opens again with a quarter more than the least: what is written and removed must not make it flap."""


class DiskGuard:
    """Has a store refuse to grow while its disk has too little room.

    Args:
        min_free_mib: ``storage.minFreeMiB``; 0 is no such rule.
        free: says how many bytes are free on the disk of a folder; called in a thread, for a disk that fails may not
            answer.
    """

    def __init__(
        self, store: Store, *, min_free_mib: int, clock: Clock, free: Callable[[Path], int] | None = None
    ) -> None:
        self._store = store
        self._least = min_free_mib * MIB
        self._clock = clock
        self._free = free or free_bytes
        self._found: int | None = None

    @property
    def problem(self) -> str:
        """What is wrong and what to do; empty while there is room."""
        if not self._store.no_room:
            return ""
        return (
            f"less than {self._least // MIB} MiB are free on the disk of {self._store.path.parent}: new messages are"
            " refused. Make room, or lower storage.minFreeMiB"
        )

    def change(self, min_free_mib: int) -> None:
        """Go on with another least room, at once."""
        self._least = min_free_mib * MIB
        self._judge()

    async def look(self) -> None:
        """Look at the disk once; where that cannot be done, all stays as it is: what is written says what is wrong."""
        try:
            self._found = await asyncio.to_thread(self._free, self._store.path.parent)
        except OSError:
            return
        self._judge()

    async def watch(self) -> None:
        """Look every ``LOOK_SECONDS`` until cancelled; every ``SOON_SECONDS`` where there is not much to spare."""
        while True:
            near = self._found is not None and self._found < NEAR * self._least
            await self._clock.sleep(SOON_SECONDS if near else LOOK_SECONDS)
            await self.look()

    def _judge(self) -> None:
        if self._found is None:
            return
        closed = bool(self._store.no_room)
        short = self._found < self._least + (self._least // MORE if closed else 0)
        if short and not closed:
            self._store.no_room = "the server's disk has too little room for new messages"
            log.error("%s", self.problem)
        elif closed and not short:
            self._store.no_room = ""
            log.warning("there is room on the disk again: new messages are taken")


def free_bytes(folder: Path) -> int:
    """Return how many bytes are free for this user on the disk of a folder.

    Raises:
        OSError: it cannot be said.
    """
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize
