"""Why writes fail: told once when it begins and once when it has ended, however often they go either way."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import lmdb

from shine_node.protocol.errors import InternalError, Refusal, StorageFull
from shine_node.store.files import is_damage, is_disk_full

__all__ = ["QUIET_SECONDS", "Trouble"]

log = logging.getLogger(__name__)

QUIET_SECONDS = 60.0
"""On a disk that is nearly full, small writes go well and large ones do not: it has ended after so long without one."""


class Trouble:
    """What is wrong with the writing of a store.

    Args:
        path: the store's file.
        map_size: its greatest size, bytes.
        monotonic: the monotonic clock, seconds.
        fatal: called by the writer when the file can no longer be written until the process is started again.
    """

    def __init__(self, path: Path, map_size: int, *, monotonic: Callable[[], float], fatal: Callable[[], None]) -> None:
        self._path = path
        self._map_size = map_size
        self._monotonic = monotonic
        self._fatal = fatal
        self._met_at = 0.0
        self.text = ""
        """What is wrong and what to do; empty while all is well."""
        self.damage = ""
        """What is wrong with the file itself, once it was met."""

    def is_damage(self, error: lmdb.Error) -> bool:
        """Say whether an error means that the file is damaged, and take note of it: then the node has to stop."""
        if not is_damage(error):
            return False
        self.damage = self.damage or str(error)
        self._met(f"the store is damaged, the node stops: {error}")
        self._fatal()
        return True

    def refusal(self, error: lmdb.Error) -> Refusal:
        """Take note of a write that failed, and return what is said to whoever wanted it."""
        # What LMDB names otherwise than by its plain class is a defect of the job, or harms that job alone.
        of_system = type(error) is lmdb.Error
        if isinstance(error, lmdb.MapFullError):
            self._met(f"the store is full: raise storage.mapSizeMiB (now {self._map_size // 2**20}) and restart")
            return StorageFull("the server's store is full")
        if isinstance(error, lmdb.DiskError) or (of_system and is_disk_full(self._path)):
            self._met(f"the disk is full: make room on the disk of {self._path.parent}")
            return StorageFull("the server's disk is full")
        if of_system or isinstance(error, lmdb.PanicError):
            self._met(f"the store cannot be written, the node stops: {error}")
            self._fatal()
        elif not self.is_damage(error):
            log.error("a write failed; nothing of it was stored", exc_info=error)
        return InternalError("the server could not store this")

    def went_well(self) -> None:
        """Take note of a write that went well."""
        if self.text and self._monotonic() - self._met_at >= QUIET_SECONDS:
            log.warning("the store can be written again")
            self.text = ""

    def _met(self, text: str) -> None:
        """Log it once, not for each write that meets it: the log may lie on the same disk."""
        if text != self.text:
            log.error(text)
        self.text = text
        self._met_at = self._monotonic()
