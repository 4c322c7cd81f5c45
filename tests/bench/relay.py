"""A relay in front of a server, which counts the bytes of both directions: what nodes wrote to their sockets."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

__all__ = ["Relay"]

PIECE_BYTES = 65_536


class Relay:
    """Passes connections on to a port of this machine.

    Args:
        target: the port; nobody need listen there yet.
        pids: the processes whose connections are told apart from others.
    """

    def __init__(self, target: int, pids: Callable[[], Iterable[int]]) -> None:
        self.forward: Counter[int] = Counter()
        """Bytes that those who connect have written, by process; 0 for any other."""
        self._pids = pids
        self.back = 0
        """Bytes that the server behind it has written to them."""
        self._target = target
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """Where it listens on 127.0.0.1."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self) -> None:
        """Listen on a free port of 127.0.0.1."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def close(self) -> None:
        """Stop, and cut what is connected."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._pass_on(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        source = _owner(writer.get_extra_info("peername")[1], self.port, self._pids())
        with contextlib.suppress(OSError), contextlib.closing(writer):
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._target)
            with contextlib.closing(there_writer):
                ways = [
                    asyncio.ensure_future(self._copy(reader, there_writer, source)),
                    asyncio.ensure_future(self._copy(there_reader, writer, None)),
                ]
                try:
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for way in ways:
                        way.cancel()
                    await asyncio.gather(*ways, return_exceptions=True)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, source: int | None) -> None:
        while piece := await reader.read(PIECE_BYTES):
            if source is None:
                self.back += len(piece)
            else:
                self.forward[source] += len(piece)
            writer.write(piece)
            await writer.drain()


def _owner(port: int, remote_port: int, pids: Iterable[int]) -> int:
    """Return which of the processes has a connection of TCP between these ports, 0 if none of them has."""
    inode = ""
    for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
        fields = line.split()
        if [int(address.rpartition(":")[2], 16) for address in fields[1:3]] == [port, remote_port]:
            inode = f"socket:[{fields[9]}]"
    for pid in pids:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # it was closed meanwhile
                if str(entry.readlink()) == inode:
                    return pid
    return 0
