"""``import``: takes the lines of an export into the store of a node that does not run."""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from shine_node.cli.common import OK, REFUSED, SubCommands, add_config_option, complain

if TYPE_CHECKING:
    from shine_node.config import Config
    from shine_node.protocol.errors import Refusal
    from shine_node.store.importing import Check, Imported

__all__ = ["add_parser", "run"]

MOST_TOLD = 100
"""Refused lines that are named one by one."""
CHUNK_BYTES = 2**20
CHECKS_A_JOB = 32


def add_parser(commands: SubCommands) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "import",
        help="take an export into the store",
        description="Takes what `export` has written into the store of a node that does not run, beside what is there:"
        " newer records, revisions and settings count, and nothing is doubled. Run it again after an interruption."
        " Each signature is checked; a line that is refused is named, and the others are taken."
        " Exit status: 0 all was taken, 1 something was not.",
    )
    add_config_option(parser)
    parser.add_argument(
        "--force",
        action="store_true",
        help="take also what is left of a file that was cut or changed, and, of an export of another server, what is of"
        " users of this one; and make a new store where there was one that is gone",
    )
    parser.add_argument("file", metavar="FILE", help="the file to read; - is the standard input")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Import a file.

    Raises:
        ConfigError; ExportError: it is no whole export of this server, and nothing was imported; StoreError: the node
        runs, or the store cannot be opened, or is gone; StorageFull: what was imported before stays.
    """
    from shine_node.cli.owner import as_owner
    from shine_node.cli.store_place import settle_store, store_folder
    from shine_node.config import load_config
    from shine_node.node import STORE_FILE
    from shine_node.store.export_file import ExportError, check_whole, read_header

    config = load_config(arguments.config)
    folder = store_folder(config)
    with _opened(arguments.file, folder) as stream:
        header = read_header(stream)
        foreign = header.server_login != config.server.login.lower()
        if foreign and not arguments.force:
            raise ExportError(
                f"this is an export of {header.server_login}, not of {config.server.login}: correct server.login, or"
                " add --force to take what is of users of this server"
            )
        if not arguments.force:
            stream.seek(0)
            check_whole(stream)
        stream.seek(0)
        stream.readline()
        with as_owner(folder):
            settle_store(folder / STORE_FILE, may_begin_anew=arguments.force)
            imported = _import(stream, config, folder, foreign=foreign)
    print(f"{imported.stored} lines stored, {imported.known} passed over, {imported.refused} refused")
    return REFUSED if imported.refused else OK


def _import(stream: BinaryIO, config: Config, folder: Path, *, foreign: bool) -> Imported:
    from concurrent.futures import ThreadPoolExecutor

    from shine_node.cli.bar import Bar
    from shine_node.clock import SystemClock
    from shine_node.node import STORE_FILE
    from shine_node.store.environment import Store
    from shine_node.store.export_file import read_lines
    from shine_node.store.importing import Importer
    from shine_node.store.owner import put_owner

    size = stream.seek(0, 2)
    stream.seek(0)
    stream.readline()
    map_size = config.storage.map_size_mib * 2**20
    store = Store(folder / STORE_FILE, map_size=map_size, now_ms=SystemClock().now_ms())
    try:
        store.write_now(lambda txn: put_owner(txn, config.server.login.lower()))
        with ThreadPoolExecutor(config.crypto.threads, "import") as threads, Bar("importing", size) as bar:

            def verify(checks: Sequence[Check]) -> list[bool]:
                jobs = [checks[first : first + CHECKS_A_JOB] for first in range(0, len(checks), CHECKS_A_JOB)]
                return [result for results in threads.map(_verify, jobs) for result in results]

            importer = Importer(
                store, own_login=config.server.login.lower(), foreign=foreign, refuse=_Complaints(), verify=verify
            )
            # Where nothing was lost, no line is too long any more: the whole file was checked.
            for lines in read_lines(stream, too_long=importer.refuse):
                importer.take(lines)
                bar.add(sum(len(line.data) for line in lines))
        return importer.imported
    finally:
        store.close()


class _Complaints:
    """Names the first refused lines."""

    def __init__(self) -> None:
        self._told = 0

    def __call__(self, number: int, refusal: Refusal) -> None:
        self._told += 1
        if self._told <= MOST_TOLD:
            complain(f"line {number}: {refusal}")
        elif self._told == MOST_TOLD + 1:
            complain("more lines are refused, which are not named")


def _verify(checks: Sequence[Check]) -> list[bool]:
    from shine_node.protocol.signatures import is_signed_by

    return [is_signed_by(*check) for check in checks]


@contextmanager
def _opened(source: str, folder: Path) -> Iterator[BinaryIO]:
    """Open a file; the standard input becomes one first, in the data folder: it has to be read twice."""
    from shine_node.cli.owner import as_owner
    from shine_node.store.export_file import ExportError

    with contextlib.ExitStack() as stack:
        try:
            if source == "-":
                with as_owner(folder):
                    stream: BinaryIO = stack.enter_context(tempfile.TemporaryFile(dir=folder))
                while data := sys.stdin.buffer.read(CHUNK_BYTES):
                    stream.write(data)
                stream.seek(0)
            else:
                stream = stack.enter_context(Path(source).open("rb"))
        except OSError as error:
            raise ExportError(f"{source} cannot be read: {error.strerror}") from None
        yield stream
