"""``demo``: four servers on loopback and two users lose one server, then both; everything it shows is checked."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from shine_node.cli.demo_servers import DemoServer
from shine_node.cli.demo_story import Story
from shine_node.clock import SystemClock
from shine_node.protocol.errors import ShineError

__all__ = ["LIMIT_SECONDS", "SCHEDULE", "play", "run"]

SCHEDULE = (0, 1, 3, 5, 8)
"""``delivery.scheduleSeconds`` of the servers: five attempts, as by default, and much sooner."""

LIMIT_SECONDS = 27.0
"""The bound of the story; what is left of the promised 30 s is for cleaning up."""


def run(arguments: argparse.Namespace) -> int:
    """Run the demo and return its exit status: 0 only if everything that it showed was true."""
    return asyncio.run(play(SCHEDULE, LIMIT_SECONDS))


async def play(schedule: Sequence[int], limit_seconds: float) -> int:
    """Play the story with a schedule and a bound, and return the exit status. ``SIGTERM`` ends it, cleanly."""
    clock = SystemClock()
    begin = clock.monotonic()
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    if task is None:
        raise AssertionError("a coroutine runs in a task")
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        async with asyncio.timeout(limit_seconds), _servers(schedule) as servers:
            await Story(servers, schedule).play()
    except TimeoutError:
        problem = f"it was not over after {limit_seconds:g} s; the machine may be too busy"
    except asyncio.CancelledError:
        problem = "it was told to end"
    except (ShineError, OSError) as error:
        problem = str(error)
    else:
        took = clock.monotonic() - begin
        print(f"\nAll of this was checked while it was shown. It took {took:.0f} s and leaves nothing behind.")
        return 0
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
    print(f"\nThe demo has failed: {problem}", file=sys.stderr)
    return 1


@contextlib.asynccontextmanager
async def _servers(schedule: Sequence[int]) -> AsyncIterator[list[DemoServer]]:
    """Make four servers that know each other, not yet running, in a folder that is removed with all that is in it."""
    with tempfile.TemporaryDirectory(prefix="shine-demo-") as folder:
        async with contextlib.AsyncExitStack() as stack:
            servers: list[DemoServer] = []
            for number in range(1, 5):
                server = DemoServer(f"server{number}", Path(folder), schedule)
                stack.push_async_callback(server.discard)
                servers.append(server)
            for server in servers:
                server.configure([peer for peer in servers if peer is not server])
            yield servers
