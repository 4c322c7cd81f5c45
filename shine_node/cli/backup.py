"""``backup``: a compact copy of the store, whether or not the node runs, that is looked through before it counts."""

from __future__ import annotations

import argparse
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from shine_node.cli.common import OK, REFUSED, SubCommands, add_config_option, complain, number_between

if TYPE_CHECKING:
    from shine_node.config import Config
    from shine_node.store.copying import Copied

__all__ = ["add_parser", "old_backups", "run"]

DATED = re.compile(r"shine-[0-9]{8}-[0-9]{6}\.mdb")
"""The names of backups in a folder; nothing else there is ever removed."""
MOST_KEPT = 100_000


def add_parser(commands: SubCommands) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "backup",
        help="copy the store, also while the node runs",
        description="Copies the store as it is at one moment, also while the node runs, without what is free in it, and"
        " looks at every row of the copy before it gets its name. Everything is in it that was accepted before. Run it"
        " as the user of the node, or as root. `restore` puts it back.",
    )
    add_config_option(parser)
    parser.add_argument("--force", action="store_true", help="replace TARGET if it exists")
    parser.add_argument(
        "--keep",
        metavar="N",
        type=number_between(1, MOST_KEPT),
        help="of the dated backups in the folder TARGET keep the newest N, this one included, and remove the others",
    )
    parser.add_argument(
        "--verify",
        action="store_true",
        help="look at every signature and every index of the copy too, as `verify` does; it takes longer",
    )
    parser.add_argument(
        "target",
        metavar="TARGET",
        type=Path,
        nargs="?",
        help="the file to write, or a folder: shine-YYYYMMDD-HHMMSS.mdb in it (default: the folder storage.backupDir,"
        " from which a damaged store is replaced)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Make a backup.

    Raises:
        ConfigError, StoreError; NewFileError: it cannot be written there. Nothing was left or removed.
    """
    from shine_node.cli.new_file import NewFileError
    from shine_node.cli.owner import as_writer
    from shine_node.cli.store_place import find_store, protect_store
    from shine_node.config import load_config

    config = load_config(arguments.config)
    store = find_store(config)
    target = arguments.target or _backup_folder(config)
    folder = target if target.is_dir() else None
    if arguments.keep is not None and folder is None:
        raise NewFileError(f"--keep is for a folder, which {target} is not: make it, or leave --keep out")
    place = folder / _dated_name() if folder is not None else target
    protect_store(store, place)
    with as_writer(place.parent, store.parent):
        problems = _copy(store, place, config, replace=arguments.force, full=arguments.verify)
        old = old_backups(place.parent, arguments.keep) if arguments.keep is not None and not problems else []
        for path in old:
            path.unlink()
    if problems:
        complain("\n".join(problems))
        complain(f"{place} is what the store is; run `shine-node verify`. No older backup was removed")
        return REFUSED
    print(place)
    for path in old:
        print(f"removed {path}")
    return OK


def _backup_folder(config: Config) -> Path:
    """Return the folder of the backups, which is made where there is none."""
    from shine_node.cli.new_file import NewFileError
    from shine_node.cli.owner import as_owner
    from shine_node.control.recovery import store_rules

    folder = store_rules(config).backups
    try:
        with as_owner(config.server.data_dir):
            folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise NewFileError(f"{folder} cannot be made ({error.strerror}): correct storage.backupDir") from None
    return folder


def _copy(store: Path, place: Path, config: Config, *, replace: bool, full: bool) -> list[str]:
    """Make the copy and look through it.

    Args:
        full: look at signatures and indexes too.

    Returns:
        What is not right in the store, and so in the copy.
    """
    from shine_node.cli.bar import Bar
    from shine_node.cli.new_file import NewFile, need_room
    from shine_node.cli.owner import as_owner
    from shine_node.store.copying import copy_store, estimate_copy, finish_copy
    from shine_node.store.environment import StoreError

    map_size = config.storage.map_size_mib * 2**20
    with as_owner(store.parent):
        size = estimate_copy(store, map_size=map_size)
    need_room(place.parent, size)
    _leave_room(store, place.parent, size, config.storage.min_free_mib)
    with NewFile(place, replace=replace) as new:
        with Bar("copying", size) as bar, as_owner(store.parent):

            def take(data: bytes) -> None:
                new.write(data)
                bar.add(len(data))

            copied = copy_store(store, take, map_size=map_size)
        finish_copy(new.path, copied.position)
        new.sync()
        try:
            problems = _check(new.path, copied)
            if full:
                problems += _verify(new.path, config.server.login.lower())
        except StoreError as error:
            raise StoreError(f"{str(error).replace(str(new.path), 'the copy')}\nno backup was made") from None
        new.put_in_place()
    return problems


def _leave_room(store: Path, folder: Path, size: int, min_free_mib: int) -> None:
    """Refuse to make a copy of so many bytes that would have the node refuse messages, on the disk of the store."""
    from shine_node.cli.new_file import NewFileError

    if folder.stat().st_dev != store.stat().st_dev:
        return
    left = shutil.disk_usage(folder).free - size
    if left < min_free_mib * 2**20:
        raise NewFileError(
            f"no backup was made: it takes {-(-size // 2**20)} MiB, and the disk of {store} would have {left // 2**20}"
            f" MiB left, where {min_free_mib} are to stay free (storage.minFreeMiB): make room, or name a folder on"
            " another disk in storage.backupDir"
        )


def old_backups(folder: Path, keep: int) -> list[Path]:
    """Return the dated backups in a folder but the newest ones, the oldest first."""
    with os.scandir(folder) as entries:
        names = [
            entry.name for entry in entries if DATED.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)
        ]
    return [folder / name for name in sorted(names)[:-keep]]


def _check(path: Path, copied: Copied) -> list[str]:
    from shine_node.cli.bar import Bar
    from shine_node.store.copying import check_copy

    with Bar("looking through the copy", sum(copied.after.values())) as bar:
        return check_copy(path, copied, bar.add)


def _verify(path: Path, own_login: str) -> list[str]:
    from shine_node.cli.bar import Bar
    from shine_node.cli.verify import told
    from shine_node.store.verifying.verify import verify_file

    with Bar("verifying the copy") as bar:
        report = verify_file(path, own_login, progress=bar.show, lock=False)
    return [] if report.clean else told(report, repaired=False)


def _dated_name() -> str:
    """Return a name that sorts by time; of UTC, which never goes back."""
    from datetime import UTC, datetime

    from shine_node.clock import SystemClock

    return datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC).strftime("shine-%Y%m%d-%H%M%S.mdb")
