"""The library's connection, with bounds on what the other side can make it do and keep."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from websockets.asyncio.server import ServerConnection
from websockets.frames import CTRL_OPCODES, Frame, Opcode
from websockets.protocol import Event

__all__ = ["GuardedConnection"]

FEWEST_BYTES, MOST_BYTES = 2048, 16384
"""Of one piece that is handed to the library: many frames can be in a small one, and large frames take many pieces."""
BYTES_A_TURN = 65536
FRAMES_A_TURN = 16
MAX_CONTROL_FRAMES = 200
"""Pings, pongs and the like that one side may send within ``COUNT_SECONDS``; nobody needs more than a few."""
COUNT_SECONDS = 10.0
MOST_WAITING_FRAMES = 16
MAX_FRAGMENTS = 1024
"""Frames of one message."""


class GuardedConnection(ServerConnection):
    """A connection with the bounds that the library does not have.

    * What comes is worked on in turns of about ``FRAMES_A_TURN`` frames, or ``BYTES_A_TURN``, between which other
      connections have theirs: one read of the socket can bring tens of thousands of frames, and keep the event loop for
      seconds.
    * One that sends too many pings and pongs, which no rate of requests covers, or a message of too many fragments, is
      cut.
    * So is one that lets too much wait to be read: pings are answered at once, read or not.
    * So is one that reads nothing for too long: the library's own pings, which find out whether the other side is still
      there, wait behind what is not read.

    Args:
        most_unread: bytes that may wait to be read; with more the connection is cut.
        unread_seconds: how long nothing at all of what waits may be read; then it is cut.
        monotonic: the monotonic clock, seconds.

    Attributes:
        when_lost: called at the end of the socket.
    """

    when_lost: Callable[[], None]

    def __init__(
        self, *args: Any, most_unread: int, unread_seconds: float, monotonic: Callable[[], float], **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.most_unread = most_unread
        """In force now."""
        self._unread_seconds = unread_seconds
        self._watch: asyncio.TimerHandle | None = None
        self._monotonic = monotonic
        self.when_lost = lambda: None
        self._control_frames = 0
        self._counting_since = 0.0
        self._fragments = 0
        self._come = bytearray()
        """What has come and was not worked on yet."""
        self._turn: asyncio.Handle | None = None
        self._piece = FEWEST_BYTES
        self._frames_of_turn = 0
        self._filled = False
        """Whether the library has as many frames waiting as it wants."""

    # What comes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take note of the beginning."""
        super().connection_made(transport)
        self.recv_messages.pause = self._fill
        self.recv_messages.resume = self._drained

    def data_received(self, data: bytes) -> None:
        """Take bytes from the socket, to be worked on in turns."""
        self._come += data
        if self._turn is None and not self._filled:
            self._take_turn()

    def eof_received(self) -> None:
        """Take note that nothing comes any more; what would need yet another turn is lost with the connection."""
        if self._turn is not None:
            self._turn.cancel()
            self._take_turn()
        self._come.clear()
        super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Take note of the end."""
        self._come.clear()
        self._stop_looking()
        self.when_lost()
        super().connection_lost(exc)

    def process_event(self, event: Event) -> None:
        """Take one frame, or the request of the handshake."""
        self._frames_of_turn += 1
        if isinstance(event, Frame):
            if self._is_too_much(event):
                self.transport.abort()
                return
            # The library counts the frames that wait, and not their bytes.
            self.recv_messages.high = 0 if len(event.data) > BYTES_A_TURN else MOST_WAITING_FRAMES
        super().process_event(event)

    def _take_turn(self) -> None:
        self._turn = None
        self._frames_of_turn = 0
        left = BYTES_A_TURN
        while left > 0 and self._come and not self._filled and self._frames_of_turn < FRAMES_A_TURN:
            piece, before = bytes(self._come[: self._piece]), self._frames_of_turn
            del self._come[: self._piece]
            left -= self._piece
            super().data_received(piece)
            few = self._frames_of_turn - before <= FRAMES_A_TURN // 2
            self._piece = min(2 * self._piece, MOST_BYTES) if few else FEWEST_BYTES
            if self.transport.get_write_buffer_size() > self.most_unread:
                self.transport.abort()
            if self.transport.is_closing():
                return  # nobody is left to answer to
        self._go_on()

    def _go_on(self) -> None:
        """Read on where there is nothing left to do, and have another turn where there is."""
        if self._come and not self._filled and self._turn is None:
            self._turn = asyncio.get_running_loop().call_soon(self._take_turn)
        if self.transport.is_closing():
            return
        if self._come or self._filled:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def _fill(self) -> None:
        self._filled = True

    def _drained(self) -> None:
        self._filled = False
        self._go_on()

    def _is_too_much(self, frame: Frame) -> bool:
        if frame.opcode in CTRL_OPCODES:
            now = self._monotonic()
            if now - self._counting_since >= COUNT_SECONDS:
                self._counting_since, self._control_frames = now, 0
            self._control_frames += 1
            return self._control_frames > MAX_CONTROL_FRAMES
        self._fragments = self._fragments + 1 if frame.opcode is Opcode.CONT else 0
        return self._fragments > MAX_FRAGMENTS

    # What leaves

    def pause_writing(self) -> None:
        """Take note that the other side reads more slowly than it is written to."""
        super().pause_writing()
        self._look_again()

    def resume_writing(self) -> None:
        """Take note that it has caught up."""
        super().resume_writing()
        self._stop_looking()

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
