"""Lines to the standard output of a command that goes on: a slow reader holds up nothing else, its end is noticed."""

from __future__ import annotations

import os
import select
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shine_node.clock import Clock

__all__ = ["Output"]

PIECE_BYTES = select.PIPE_BUF
"""So many bytes a pipe takes at once if it takes any."""
ROOM_SECONDS = 0.05
LOOK_SECONDS = 1.0


class Output:
    """The standard output of this process, which must be a file, a pipe, a socket or a terminal."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._stream = sys.stdout
        self._room = select.poll()
        self._room.register(self._stream, select.POLLOUT)
        self._end = select.poll()
        self._end.register(self._stream, 0)  # an error and a hanging-up are told unasked

    async def write(self, line: str) -> None:
        """Write a line as soon as there is room.

        Raises:
            BrokenPipeError: nobody reads on.
        """
        self._stream.flush()
        data = f"{line}\n".encode(self._stream.encoding, self._stream.errors or "strict")
        while data:
            while not self._room.poll(0):
                await self._clock.sleep(ROOM_SECONDS)
            data = data[os.write(self._stream.fileno(), data[:PIECE_BYTES]) :]

    async def until_closed(self) -> None:
        """Return when the other end is closed, also while there is nothing to write."""
        while not self._end.poll(0):
            await self._clock.sleep(LOOK_SECONDS)
