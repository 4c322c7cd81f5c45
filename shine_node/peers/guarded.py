"""The library's connection, cut where the peer lets too much wait to be read."""

from __future__ import annotations

from typing import Any

from websockets.asyncio.client import ClientConnection

__all__ = ["GuardedConnection"]


class GuardedConnection(ClientConnection):
    """A connection to a peer with a bound that the library does not have.

    The library answers pings at once, read or not: a peer that only sends pings would fill the memory.

    Args:
        most_unread: bytes that may wait to be read by the peer; with more the connection is cut.
    """

    def __init__(self, *args: Any, most_unread: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._most_unread = most_unread
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
        """Take bytes from the socket."""
        super().data_received(data)
        self.check_unread()
