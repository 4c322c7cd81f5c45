"""``recover``: says what is wrong with a damaged store, and goes on from a backup or from the users' other server."""

from __future__ import annotations

import argparse
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
        help="also where the store is sound, or there is none, or the backup is not sound: it is used without what is"
        " no good",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Say what is wrong, or put another store in the place of the damaged one.

    Raises:
        ConfigError.
    """
    from shine_node.cli.owner import as_owner
    from shine_node.config import load_config
    from shine_node.control.recovery import store_file, store_rules
    from shine_node.protocol.errors import ShineError
    from shine_node.store.files import take_lock

    config = load_config(arguments.config)
    store, rules = store_file(config), store_rules(config)
    try:
        with as_owner(store.parent):
            lock = take_lock(store)
            try:
                return _recover(arguments, store, rules)
            finally:
                os.close(lock)
    except (ShineError, OSError) as error:
        complain(str(error))
        return UNUSABLE


def _recover(arguments: argparse.Namespace, store: Path, rules: Rules) -> int:
    from shine_node.clock import SystemClock
    from shine_node.store.recovery.start import find_damage
    from shine_node.store.recovery.state import State, boot_id, read_state, write_state
    from shine_node.store.recovery.succeed import put_backup, put_empty

    now_ms = SystemClock().now_ms()
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
    if arguments.refill:
        if not rules.refill_from:
            complain("nobody is to fill it: name the users' other server in a section [[sync_servers]]")
            return UNUSABLE
        name = "a new store that other servers fill: " + ", ".join(rules.refill_from)
        kept = put_empty(store, map_size=rules.map_size, refill_from=rules.refill_from, now_ms=now_ms)
    else:
        backup = _choose(arguments, rules)
        if backup is None:
            return UNUSABLE
        name = f"the backup {backup}"
        kept = put_backup(store, backup, now_ms=now_ms)
    state = State(known=True, recovered_at_ms=now_ms, recovered_from=name, kept=kept.name if kept is not None else "")
    write_state(store, state)
    print(f"{store} is now {name}" + (f"; what was there is {kept}" if kept is not None else ""))
    print("start the node: what is missing comes from the users' other servers, by itself")
    return OK


def _choose(arguments: argparse.Namespace, rules: Rules) -> Backup | None:
    """Return the backup to use, looked through to the last signature; complain where there is none."""
    from shine_node.cli.bar import Bar
    from shine_node.store.recovery.succeed import examine_backup, find_backups, first_sound

    if arguments.from_backup:
        with Bar("verifying the backup") as bar:
            given = Path(arguments.from_backup)
            backup: Backup | None = examine_backup(given, rules.own_login, progress=bar.show)
    else:
        with Bar("verifying backups") as bar:
            backup = first_sound(find_backups(rules.backups), rules.own_login, progress=bar.show)
    if backup is None:
        complain(f"there is no sound backup shine-*.mdb in {rules.backups}: name another one, or use --refill")
    elif backup.lost and not arguments.force:
        complain(
            f"{backup.lost} things in {backup} are not as they must be, and would be left out; `shine-node verify"
            f" --store {backup}` names them, and --force uses it all the same"
        )
        return None
    return backup


def _ways(store: Path, damage: str, rules: Rules) -> list[str]:
    from shine_node.store.recovery.succeed import find_backups

    backups = find_backups(rules.backups)
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
