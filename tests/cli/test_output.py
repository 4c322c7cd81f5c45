"""Lines to a reader who is slow, or who goes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress

import pytest

from shine_node.cli.output import LOOK_SECONDS, ROOM_SECONDS, Output
from tests.support.clock import ManualClock


@contextmanager
def piped() -> Iterator[int]:
    """Have the standard output lead into a pipe for the block, and yield its other end."""
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "w", encoding="ascii", errors="backslashreplace") as stream, redirect_stdout(stream):
        yield read_end
    with suppress(OSError):
        os.close(read_end)


def test_lines_arrive() -> None:
    async def story(reader: int) -> None:
        output = Output(clock=ManualClock())
        print("before", end=" ")
        await output.write("жук")
        assert os.read(reader, 99) == b"before \\u0436\\u0443\\u043a\n"

    with piped() as reader:
        asyncio.run(story(reader))


def test_a_slow_reader_is_waited_for() -> None:
    async def story(reader: int) -> None:
        clock = ManualClock()
        output = Output(clock=clock)
        line = "x" * 300_000
        writing = asyncio.create_task(output.write(line))
        got = b""
        while not writing.done():
            await clock.advance(ROOM_SECONDS)
            got += os.read(reader, 1_000_000)
        os.set_blocking(reader, False)
        with suppress(BlockingIOError):
            got += os.read(reader, 1_000_000)
        assert got == line.encode() + b"\n"

    with piped() as reader:
        asyncio.run(story(reader))


def test_a_reader_who_goes() -> None:
    async def story(reader: int) -> None:
        clock = ManualClock()
        output = Output(clock=clock)
        noticing = asyncio.create_task(output.until_closed())
        await clock.advance(LOOK_SECONDS)
        assert not noticing.done()
        os.close(reader)
        await clock.advance(LOOK_SECONDS)
        assert noticing.done()
        with pytest.raises(BrokenPipeError):
            await output.write("x")

    with piped() as reader:
        asyncio.run(story(reader))
