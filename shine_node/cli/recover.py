"""``recover``: says what is wrong with a damaged store, and goes on from a backup or from the users' other server."""

from __future__ import annotations

import argparse
import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from shine_node.cli.common import OK, REFUSED, UNUSABLE, SubCommands, add_config_option, complain

if TYPE_CHECKING:
    from shine_node.store.recovery.start import Rules
    from shine_node.store.recovery.succeed import Backup

__all__ = ["add_parser", "run"]


def add_parser(commands: SubCommands) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "recover",
        help="go on after the store was damaged: from a backup, or from the users' other server",
        description="Looks at every page of the store of a node that does not run. Without a way to go on it only says"
        " what is wrong and which ways there are. The damaged file is kept beside the store in any case. Exit status:"
        " 0 the store is sound, or another is in its place; 1 it is damaged; 2 it could not be done.",
    )
    add_config_option(parser)
    way = parser.add_mutually_exclusive_group()
    way.add_argument(
        "--from-backup",
        metavar="FILE",
        nargs="?",
        const="",
        help="use a copy of this backup, or of the newest one in storage.backupDir that verifies",
    )
    way.add_argument(
        "--refill",
        action="store_true",
        help="begin with an empty store: the servers of [[sync_servers]] tell who the users here were, each of the"
        " users whom both have, and send their settings and messages",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="also where the store is sound, or there is none: it is kept as shine.mdb.replaced-…; or where the backup"
        " is not sound: it is used without what is no good; and with --from-backup FILE also where that is of a server"
        " of another name: this one was renamed",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Say what is wrong, or put another store in the place of the damaged one.

    Raises:
        ConfigError.
    """
    from shine_node.cli.owner import as_owner
    from shine_node.cli.store_place import open_given
    from shine_node.config import load_config
    from shine_node.control.recovery import store_file, store_rules
    from shine_node.protocol.errors import ShineError
    from shine_node.store.files import take_lock

    config = load_config(arguments.config)
    store, rules = store_file(config), store_rules(config)
    try:
        with contextlib.ExitStack() as held:
            given = None
            if arguments.from_backup:
                given = open_given(Path(arguments.from_backup), store.parent)
                held.callback(os.close, given)
            held.enter_context(as_owner(store.parent))
            held.callback(os.close, take_lock(store))
            return _recover(arguments, store, rules, given)
    except (ShineError, OSError) as error:
        complain(str(error))
        return UNUSABLE


def _recover(arguments: argparse.Namespace, store: Path, rules: Rules, given: int | None) -> int:
    from shine_node.clock import SystemClock
    from shine_node.store.recovery.start import find_damage
    from shine_node.store.recovery.state import State, boot_id, read_state, write_state
    from shine_node.store.recovery.succeed import DAMAGED, REPLACED, put_backup, put_empty, take_place
    from shine_node.store.recovery.unfinished import finish_placing

    now_ms = SystemClock().now_ms()
    finish_placing(store)
    damage = find_damage(store, read_state(store), boot=boot_id(), now_ms=now_ms, thorough=True)
    wanted = arguments.refill or arguments.from_backup is not None
    if damage is None and not (wanted and arguments.force):
        print(f"{store} is sound: all of its pages fit together" if store.exists() else f"{store} is not there")
        if wanted:
            complain("nothing was done: --force puts another store in its place all the same")
            return REFUSED
        return OK
    if not wanted:
        print("\n".join(_ways(store, str(damage), rules)))
        return REFUSED
    called = REPLACED if damage is None else DAMAGED
    if arguments.refill:
        if not rules.refill_from:
            complain("nobody is to fill it: name the users' other server in a section [[sync_servers]]")
            return UNUSABLE
        name = "a new store that other servers fill: " + ", ".join(rules.refill_from)
        kept = put_empty(
            store,
            map_size=rules.map_size,
            refill_from=rules.refill_from,
            now_ms=now_ms,
            own_login=rules.own_login,
            called=called,
        )
    elif given is not None:
        name = f"the backup {arguments.from_backup}"
        new = _copy(store, Path(arguments.from_backup), given, rules, force=arguments.force, now_ms=now_ms)
        if new is None:
            return UNUSABLE
        kept = take_place(store, new, now_ms=now_ms, called=called)
    else:
        backup = _choose(arguments, rules)
        if backup is None:
            return UNUSABLE
        name = f"the backup {backup}"
        kept = put_backup(store, backup, now_ms=now_ms, called=called)
    state = State(known=True)
    if damage is not None:  # else nothing of it is to be looked after, nor counts as a damage before another one
        state = State(
            known=True, recovered_at_ms=now_ms, recovered_from=name, kept=kept.name if kept is not None else ""
        )
    write_state(store, state)
    print(f"{store} is now {name}" + (f"; what was there is {kept}" if kept is not None else ""))
    print("start the node: what is missing comes from the users' other servers, by itself")
    return OK


def _choose(arguments: argparse.Namespace, rules: Rules) -> Backup | None:
    """Return the backup to use, looked through to the last signature; complain where there is none."""
    from shine_node.cli.bar import Bar
    from shine_node.store.recovery.succeed import find_backups, first_sound

    with Bar("verifying backups") as bar:
        backup = first_sound(find_backups(rules.backups, rules.own_login), rules.own_login, progress=bar.show)
    if backup is None:
        complain(f"there is no sound backup shine-*.mdb in {rules.backups}: name another one, or use --refill")
    elif backup.lost and not arguments.force:
        _complain_of_lost(backup.path, backup.lost)
        return None
    return backup


def _copy(store: Path, backup: Path, given: int, rules: Rules, *, force: bool, now_ms: int) -> Path | None:
    """Copy an open backup beside the store, look through the copy, which nobody else can change any more, and mend it.

    Returns:
        The copy; ``None`` where mending it would lose something, which is said.

    Raises:
        StoreError: it is another server's, or cannot be looked into; OSError: it cannot be copied. Nothing is left.
    """
    from shine_node.cli.bar import Bar
    from shine_node.store.files import StoreError
    from shine_node.store.owner import check_owner, read_owner
    from shine_node.store.recovery.succeed import copy_backup, examine_backup, mend_copy

    new = copy_backup(store, given)
    with contextlib.ExitStack() as undo:
        undo.callback(new.unlink, missing_ok=True)
        try:
            owner = read_owner(new)
            if not force:
                check_owner(backup, owner, rules.own_login)
            if not owner:
                complain(f"{backup} does not say whose it is: an older version has made it")
            with Bar("verifying the backup") as bar:
                found = examine_backup(new, owner or rules.own_login, progress=bar.show)
        except StoreError as error:
            raise StoreError(str(error).replace(str(new), str(backup))) from None
        if found.lost and not force:
            _complain_of_lost(backup, found.lost)
            return None
        mend_copy(store, new, found._replace(path=backup), now_ms)
        undo.pop_all()
    return new


def _complain_of_lost(backup: Path, lost: int) -> None:
    complain(
        f"{lost} things in {backup} are not as they must be, and would be left out; `shine-node verify"
        f" --store {backup}` names them, and --force uses it all the same"
    )


def _ways(store: Path, damage: str, rules: Rules) -> list[str]:
    from shine_node.store.recovery.succeed import find_backups

    backups = find_backups(rules.backups, rules.own_login)
    lines = [damage, "the file stays as it is until you choose one of these; it is kept then too"]
    if backups:
        lines.append(f"  shine-node recover --from-backup    the newest sound one of {len(backups)} in {rules.backups}")
    else:
        lines.append(f"  shine-node recover --from-backup FILE    there are none in {rules.backups}")
    if rules.refill_from:
        lines.append(f"  shine-node recover --refill    from {', '.join(rules.refill_from)}")
    else:
        lines.append("  shine-node recover --refill    once the users' other server is in [[sync_servers]]")
    return lines
