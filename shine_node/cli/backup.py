"""``backup``: a compact copy of the store, whether or not the node runs, that is looked through before it counts."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from shine_node.cli.common import OK, REFUSED, SubCommands, add_config_option, complain, number_between

if TYPE_CHECKING:
    from shine_node.cli.new_file import NewFile
    from shine_node.config import Config
    from shine_node.store.copying import Copied

__all__ = ["add_parser", "run"]

MOST_A_SECOND = 1000
"""Backups of one name and second."""
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
        help="of the dated backups of this server in the folder TARGET keep the newest N, this one included, and remove"
        " the others; those of other servers, and files of other names, stay",
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
        help="the file to write, or a folder: shine-SERVER-YYYYMMDD-HHMMSS.mdb in it (default: the folder"
        " storage.backupDir, from which a damaged store is replaced: root leaves the file there to the node's user)",
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
    from shine_node.clock import SystemClock
    from shine_node.config import load_config
    from shine_node.store.recovery.backups import backup_name, old_backups

    config = load_config(arguments.config)
    store = find_store(config)
    target = arguments.target or _backup_folder(config)
    folder = target if target.is_dir() else None
    if arguments.keep is not None and folder is None:
        raise NewFileError(f"--keep is for a folder, which {target} is not: make it, or leave --keep out")
    own_login = config.server.login.lower()
    now_ms = SystemClock().now_ms()
    place = folder / backup_name(own_login, now_ms) if folder is not None else target
    protect_store(store, place)
    with as_writer(place.parent, store.parent):
        made = _copy(
            store,
            place,
            config,
            others=[folder / backup_name(own_login, now_ms, number) for number in range(2, MOST_A_SECOND)]
            if folder is not None
            else [],
            replace=arguments.force and folder is None,
            full=arguments.verify,
        )
        place, problems = made.place, made.problems
        keep = arguments.keep if not problems else None
        old = old_backups(place.parent, own_login, keep, place.name) if keep is not None else []
        for path in old:
            path.unlink()
    if made.owner != own_login:
        complain(
            f"the store is of the server {made.owner}, and so is this backup: correct server.login, or where it was"
            f" renamed to {own_login}, start the node once"
        )
    if not made.given:
        complain(
            f"{place} could not be given to the node's user, so that a damaged store is not replaced by it: give that"
            f" user the folder {place.parent}, and let storage.backupDir name it itself and no link"
        )
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


class _Made(NamedTuple):
    """A backup: where it is, whose it says that it is, whether the node's user has it where that is wanted.

    ``problems`` are what is not right in the store, and so in the copy.
    """

    place: Path
    owner: str
    given: bool
    problems: list[str]


def _copy(store: Path, place: Path, config: Config, *, others: Sequence[Path], replace: bool, full: bool) -> _Made:
    """Make the copy and look through it.

    Args:
        others: places that do as well where one is taken.
        full: look at signatures and indexes too.
    """
    from shine_node.cli.bar import Bar
    from shine_node.cli.new_file import need_room
    from shine_node.cli.owner import as_owner
    from shine_node.store.copying import copy_store, estimate_copy, finish_copy
    from shine_node.store.environment import StoreError

    map_size = config.storage.map_size_mib * 2**20
    with as_owner(store.parent):
        size = estimate_copy(store, map_size=map_size)
    need_room(place.parent, size)
    _leave_room(store, place.parent, size, config.storage.min_free_mib)
    own_login = config.server.login.lower()
    with _new_file([place, *others], replace=replace) as new:
        with Bar("copying", size) as bar, as_owner(store.parent):

            def take(data: bytes) -> None:
                new.write(data)
                bar.add(len(data))

            copied = copy_store(store, take, map_size=map_size)
        owner = finish_copy(new.path, copied.position, own_login)
        new.sync()
        try:
            problems = _check(new.path, copied)
            if full:
                problems += _verify(new.path, own_login)
        except StoreError as error:
            raise StoreError(f"{str(error).replace(str(new.path), 'the copy')}\nno backup was made") from None
        given = _give(new, store, config)
        _put_in_place(new, others)
    return _Made(new.place, owner, given, problems)


def _new_file(places: Sequence[Path], *, replace: bool) -> NewFile:
    """Begin the file at the first of some places that is free."""
    from shine_node.cli.new_file import NewFile, NewFileExists

    for place in places[:-1]:
        with contextlib.suppress(NewFileExists):
            return NewFile(place, replace=replace)
    return NewFile(places[-1], replace=replace)


def _put_in_place(new: NewFile, others: Sequence[Path]) -> None:
    """Give the file its name, or another one where a backup of the same second has got it meanwhile."""
    from shine_node.cli.new_file import NewFileExists

    for place in others:
        try:
            new.put_in_place()
            return
        except NewFileExists:
            new.place = place
    new.put_in_place()


def _give(new: NewFile, store: Path, config: Config) -> bool:
    """Let a backup in ``storage.backupDir`` that root makes belong to the node's user, who is to find it there.

    Returns:
        Whether the node's user has it, where that is wanted.
    """
    from shine_node.control.recovery import store_rules

    folder, theirs = store_rules(config).backups, store.parent.stat()
    if os.geteuid() != 0 or theirs.st_uid == 0 or not (folder.exists() and new.place.parent.samefile(folder)):
        return True
    return _is_out_of_reach(folder, theirs.st_uid) and new.give_to(theirs.st_uid, theirs.st_gid)


def _is_out_of_reach(folder: Path, user: int) -> bool:
    """Say whether a user cannot have put a link to any folder of root's there, to be given a file in it."""
    if os.path.ismount(folder) and not folder.is_symlink():
        return True
    return not any(above.stat().st_uid == user for path in (folder, folder.resolve()) for above in path.parents)


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
