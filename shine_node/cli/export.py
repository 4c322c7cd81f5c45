"""``export``: all that a store holds as JSON lines, whether or not the node runs."""

from __future__ import annotations

import argparse
import contextlib
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from shine_node import __version__
from shine_node.cli.common import OK, SubCommands, add_config_option

if TYPE_CHECKING:
    from shine_node.config import Config
    from shine_node.store.environment import Transaction

__all__ = ["add_parser", "run"]

PIECE_BYTES = 256 * 1024


def add_parser(commands: SubCommands) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "export",
        help="write the store as JSON lines",
        description="Writes all that the store holds at one moment as JSON lines, which `import` reads on any other"
        " machine and with any other version of the store. Also while the node runs; a reader that is slow lets the"
        " store's file grow meanwhile. Sessions, with what clients have left there, are among it: keep it to yourself.",
    )
    add_config_option(parser)
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")
    parser.add_argument("--no-sessions", action="store_true", help="leave the sessions out: people log in again then")
    parser.add_argument("file", metavar="FILE", help="the file to write; - is the standard output")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Export the store.

    Raises:
        ConfigError, StoreError; NewFileError: it cannot be written there, and nothing was left.
    """
    from shine_node.cli.new_file import NewFile
    from shine_node.cli.owner import as_owner, as_writer
    from shine_node.cli.store_place import find_store, protect_store
    from shine_node.config import load_config
    from shine_node.store.view import open_view

    config = load_config(arguments.config)
    store = find_store(config)
    map_size = config.storage.map_size_mib * 2**20
    with contextlib.ExitStack() as stack:
        new = None
        if arguments.file != "-":
            place = Path(arguments.file)
            protect_store(store, place)
            stack.enter_context(as_writer(place.parent, store.parent))
            new = stack.enter_context(NewFile(place, replace=arguments.force))
        with as_owner(store.parent), open_view(store, map_size=map_size) as view, view.read() as txn:
            lines = _lines(txn, config, sessions=not arguments.no_sessions)
            _write(lines, _print if new is None else new.write)
        if new is not None:
            new.put_in_place()
    return OK


def _lines(txn: Transaction, config: Config, *, sessions: bool) -> Iterator[bytes]:
    """Yield the lines, and say how far it has come.

    Raises:
        StoreError: a row cannot be read.
    """
    from shine_node.cli.bar import Bar
    from shine_node.clock import SystemClock
    from shine_node.store.environment import StoreError
    from shine_node.store.exporting import count_lines, export_store

    own_login, now_ms = config.server.login.lower(), SystemClock().now_ms()
    try:
        with Bar("exporting", count_lines(txn)) as bar:
            for line in export_store(txn, own_login=own_login, at_ms=now_ms, program=__version__, sessions=sessions):
                yield line
                bar.add()
    except (ValueError, LookupError, TypeError, struct.error) as error:
        raise StoreError(f"a row of the store cannot be read ({error!r}): run `shine-node verify`") from None


def _print(data: bytes) -> None:
    """Write to the standard output.

    Raises:
        BrokenPipeError: nobody reads on; NewFileError: there is no room where it goes, or its disk is broken.
    """
    from shine_node.cli.new_file import NewFileError

    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise NewFileError(
            f"the standard output cannot be written ({error.strerror}): it holds no whole export"
        ) from None


def _write(lines: Iterable[bytes], take: Callable[[bytes], object]) -> None:
    """Write lines in large pieces."""
    waiting = bytearray()
    for line in lines:
        waiting += line
        if len(waiting) >= PIECE_BYTES:
            take(bytes(waiting))
            waiting.clear()
    take(bytes(waiting))
