"""What the tests of the control socket share: both event loops, and whoever asks over the real socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson
import pytest
import uvloop

from shine_node.control.place import connect_to

Run = Callable[[Coroutine[Any, Any, None]], None]

LIMIT = 60
"""Seconds after which a test that hangs is ended."""


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Return what runs a story on an event loop; it fails where the story leaves tasks behind."""

    async def bounded(story: Coroutine[Any, Any, None]) -> None:
        await asyncio.wait_for(story, LIMIT)
        for _ in range(5):
            await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks are left behind: {left}"

    def run_story(story: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop if request.param == "uvloop" else None) as runner:
            runner.run(bounded(story))

    return run_story


class Asker:
    """A connection to a control socket."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def __aenter__(self) -> Self:
        connection = connect_to(self._path, LIMIT)
        connection.setblocking(False)
        self._reader, self._writer = await asyncio.open_unix_connection(sock=connection, limit=2**26)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def leave(self) -> None:
        self._writer.transport.abort()

    def pause(self) -> None:
        """Read nothing any more."""
        self._reader._transport.pause_reading()  # type: ignore[attr-defined]

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    def write_eof(self) -> None:
        self._writer.write_eof()

    async def read(self) -> dict[str, Any]:
        """Return the next answer."""
        line = await self._reader.readline()
        assert line.endswith(b"\n"), line[-100:]
        answer = orjson.loads(line)
        assert isinstance(answer, dict)
        return answer

    async def send(self, data: bytes) -> dict[str, Any]:
        self.write(data)
        return await self.read()

    async def ask(self, op: str, payload: object = None) -> dict[str, Any]:
        return await self.send(orjson.dumps({"op": op, "payload": {} if payload is None else payload}) + b"\n")

    async def at_end(self) -> bool:
        """Wait for the next byte or the end, and say whether it is the end."""
        try:
            return await self._reader.read(1) == b""
        except ConnectionResetError:  # what was sent has not been read: it is the end all the same
            return True
