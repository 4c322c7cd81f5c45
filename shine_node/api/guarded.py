"""The library's connection, cut where the other side lets too much wait to be read, or lets it wait too long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from websockets.asyncio.server import ServerConnection
from websockets.frames import CTRL_OPCODES, Frame
from websockets.protocol import Event

__all__ = ["GuardedConnection"]

STRETCH_BYTES = 4096
MAX_CONTROL_FRAMES = 200
"""Pings, pongs and the like that one side may send within ``COUNT_SECONDS``; nobody needs more than a few."""
COUNT_SECONDS = 10.0


class GuardedConnection(ServerConnection):
    """A connection with three bounds that the library does not have.

    It answers pings at once, read or not: a stranger who only sends pings would fill the memory. It works through all
    the small frames of one piece from the socket before anybody else has a turn: tens of thousands of pings fit into
    one. And its own pings, which find out whether the other side is still there, wait behind what is not read: one who
    has gone, or who reads nothing on purpose, would stay.

    Args:
        most_unread: bytes that may wait to be read; with more the connection is cut.
        unread_seconds: how long nothing at all of what waits may be read; then it is cut.
        monotonic: the monotonic clock, seconds.
    """

    def __init__(
        self, *args: Any, most_unread: int, unread_seconds: float, monotonic: Callable[[], float], **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._monotonic = monotonic
        self._most_unread = most_unread
        self._unread_seconds = unread_seconds
        self._watch: asyncio.TimerHandle | None = None
        self._control_frames = 0
        self._counting_since = 0.0

    def data_received(self, data: bytes) -> None:
        """Take bytes from the socket, a small stretch at a time, so that a flood of tiny frames is noticed early."""
        for start in range(0, len(data), STRETCH_BYTES):
            super().data_received(data[start : start + STRETCH_BYTES])
            too_many = self._control_frames > MAX_CONTROL_FRAMES
            if too_many or self.transport.get_write_buffer_size() > self._most_unread:
                self.transport.abort()
                return

    def process_event(self, event: Event) -> None:
        """Take a frame; pings, pongs and the like are counted, as no rate of requests covers them."""
        if isinstance(event, Frame) and event.opcode in CTRL_OPCODES:
            now = self._monotonic()
            if now - self._counting_since >= COUNT_SECONDS:
                self._counting_since, self._control_frames = now, 0
            self._control_frames += 1
        super().process_event(event)

    def pause_writing(self) -> None:
        """Take note that the other side reads more slowly than it is written to."""
        super().pause_writing()
        self._look_again()

    def resume_writing(self) -> None:
        """Take note that it has caught up."""
        super().resume_writing()
        self._stop_looking()

    def connection_lost(self, exc: Exception | None) -> None:
        """Take note of the end."""
        self._stop_looking()
        super().connection_lost(exc)

    def _look_again(self) -> None:
        unread = self.transport.get_write_buffer_size()
        self._watch = asyncio.get_running_loop().call_later(self._unread_seconds, self._look, unread)

    def _look(self, unread: int) -> None:
        if self.transport.get_write_buffer_size() < unread:
            self._look_again()
        else:
            self.transport.abort()

    def _stop_looking(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
