"""``watch``: a line for everything new, until it is interrupted or nobody reads on."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from shine_node.cli.common import OK, SubCommands, add_keys_option, complain, drop_output, key_file

if TYPE_CHECKING:
    from shine_node.client.ledger import Change

__all__ = ["add_parser", "run"]

ENDING = (signal.SIGINT, signal.SIGTERM)


def add_parser(commands: SubCommands) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "watch",
        help="show messages and changes as they come",
        description="Prints a line for each message, edit, deletion, state of a delivery and read receipt, from now on."
        " It connects again by itself after a loss, misses nothing and shows nothing twice. It ends, with status 0, on"
        " SIGINT or SIGTERM, or when nobody reads its output on.",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    add_keys_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print what is new.

    Raises:
        KeyFileError, SealingUnavailable, RequestRefused.
    """
    from shine_node.client.sealing import check_sealing

    check_sealing()
    try:
        asyncio.run(_watch(key_file(arguments), as_json=arguments.json))
    except BrokenPipeError:
        drop_output()
    return OK


async def _watch(keys: Path, *, as_json: bool) -> None:
    from shine_node.cli.lines import change_fields, change_line, json_line
    from shine_node.cli.output import Output
    from shine_node.client.watching import watch
    from shine_node.clock import SystemClock

    clock = SystemClock()
    output = Output(clock=clock)

    async def show(change: Change) -> None:
        await output.write(json_line(change_fields(change)) if as_json else change_line(change))

    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    tasks = [
        asyncio.create_task(watch(keys, clock=clock, show=show, tell=complain)),
        asyncio.create_task(stopped.wait()),
        asyncio.create_task(output.until_closed()),
    ]
    for number in ENDING:
        loop.add_signal_handler(number, stopped.set)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for number in ENDING:
            loop.remove_signal_handler(number)
        for task in tasks:
            task.cancel()
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError):
            await task  # the watching raises what has ended it
