"""The library's connection, cut where the peer lets too much wait to be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.frames import CTRL_OPCODES, Frame
from websockets.protocol import Event

__all__ = ["GuardedConnection"]

STRETCH_BYTES = 4096
TINY_BYTES = 16
"""No answer is as short."""
MAX_SMALL_FRAMES = 200
"""Pings, pongs and tiny frames that a peer may send within ``COUNT_SECONDS``."""
COUNT_SECONDS = 10.0


class GuardedConnection(ClientConnection):
    """A connection to a peer with two bounds that the library does not have.

    The library answers pings at once, read or not: a peer that only sends pings would fill the memory. And it works
    through all the small frames of one piece from the socket before anybody else has a turn.

    Args:
        most_unread: bytes that may wait to be read by the peer; with more the connection is cut.
        monotonic: the monotonic clock, seconds.
    """

    def __init__(self, *args: Any, most_unread: int, monotonic: Callable[[], float], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._most_unread = most_unread
        self._monotonic = monotonic
        self._small_frames = 0
        self._counting_since = 0.0
        self.cut_because = ""
        """Why this server cut it; empty where it did not."""

    def cut(self, reason: str) -> None:
        """End the connection without a closing handshake; who reads from it sees the end."""
        self.cut_because = self.cut_because or reason
        self.transport.abort()

    def check_unread(self) -> None:
        """Cut it if too much waits to be read; also done whenever something arrives."""
        if self.transport.get_write_buffer_size() > self._most_unread:
            self.cut(f"the peer does not read: over {self._most_unread} bytes wait for it")

    def data_received(self, data: bytes) -> None:
        """Take bytes from the socket, a small stretch at a time, so that a flood of tiny frames is noticed early."""
        for start in range(0, len(data), STRETCH_BYTES):
            super().data_received(data[start : start + STRETCH_BYTES])
            if self._small_frames > MAX_SMALL_FRAMES:
                self.cut("the peer floods this server with tiny frames")
            self.check_unread()
            if self.cut_because:
                return

    def process_event(self, event: Event) -> None:
        """Take a frame; pings and tiny ones are counted: the answers that a peer owes are neither tiny nor many."""
        if isinstance(event, Frame) and (event.opcode in CTRL_OPCODES or len(event.data) < TINY_BYTES):
            now = self._monotonic()
            if now - self._counting_since >= COUNT_SECONDS:
                self._counting_since, self._small_frames = now, 0
            self._small_frames += 1
        super().process_event(event)
