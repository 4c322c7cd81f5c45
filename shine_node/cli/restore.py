"""``restore``: puts a backup in the place of the store of a node that does not run."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from shine_node.cli.common import OK, SubCommands, add_config_option, complain

__all__ = ["add_parser", "run"]

CHUNK_BYTES = 2**20


def add_parser(commands: SubCommands) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "restore",
        help="put a backup in the place of the store",
        description="Looks at every row of a backup, and puts a copy of it in the place of the store of a node that"
        " does not run; one that an older version has made is brought up to date. The store that was there is kept"
        " beside it. What came since the backup comes back from the other servers of the users who have one, by itself,"
        " once the node runs.",
    )
    add_config_option(parser)
    parser.add_argument(
        "--force",
        action="store_true",
        help="also where it is a backup of a server of another name: this one was renamed",
    )
    parser.add_argument("backup", metavar="BACKUP", type=Path, help="a file that `backup` has written")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Restore a backup.

    Raises:
        ConfigError; StoreError: the node runs, or the backup is not sound; NewFileError: nothing was changed.
    """
    from shine_node.cli.new_file import NewFile, need_room, sync_folder
    from shine_node.cli.owner import as_owner
    from shine_node.cli.store_place import open_given, store_folder
    from shine_node.config import load_config
    from shine_node.node import STORE_FILE
    from shine_node.store.copying import check_copy, migrate_copy
    from shine_node.store.environment import StoreError
    from shine_node.store.files import take_lock
    from shine_node.store.owner import check_owner, read_owner

    config = load_config(arguments.config)
    folder = store_folder(config)
    store = folder / STORE_FILE
    with os.fdopen(open_given(arguments.backup, folder), "rb") as source, as_owner(folder):
        size = os.fstat(source.fileno()).st_size
        if store.exists() and os.path.samestat(store.stat(), os.fstat(source.fileno())):
            raise StoreError(f"{store} is the store itself: name a backup of it")
        lock = take_lock(store)
        try:
            need_room(folder, size)
            with NewFile(store, replace=True) as new:
                while data := source.read(CHUNK_BYTES):
                    new.write(data)
                new.sync()
                try:
                    migrate_copy(new.path, map_size=config.storage.map_size_mib * 2**20)
                    problems = check_copy(new.path)
                    owner = read_owner(new.path)
                    if not arguments.force:
                        check_owner(arguments.backup, owner, config.server.login.lower())
                except StoreError as error:
                    said = str(error).replace(str(new.path), str(arguments.backup))
                    raise StoreError(f"{said}\nnothing was changed") from None
                aside = _keep_aside(store)
                new.put_in_place()
            sync_folder(folder)
        finally:
            os.close(lock)
    if not owner:
        complain(f"{arguments.backup} does not say whose it is: an older version has made it")
    if problems:
        complain("\n".join(problems))
        complain("that is how the store was when the backup was made: run `shine-node verify`")
    print(
        f"{store} is now {arguments.backup}"
        + (f"; what was there is {aside}, to be removed when all is well" if aside else "")
    )
    print("start the node: users' other servers send it what it lacks")
    return OK


def _keep_aside(store: Path) -> Path | None:
    """Give the store that is there a second name, which it keeps; ``None`` where there is none."""
    from datetime import UTC, datetime

    from shine_node.clock import SystemClock
    from shine_node.store.environment import StoreError

    if not store.exists():
        return None
    at = datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC).strftime("%Y%m%d-%H%M%S-%f")
    aside = store.with_name(f"{store.name}.before-{at}")
    try:
        os.link(store, aside)
    except OSError as error:
        raise StoreError(f"{store} cannot be kept beside the backup ({error.strerror}): move it elsewhere") from None
    return aside
