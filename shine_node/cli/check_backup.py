"""What ``check`` finds of the backups: whether there is one, of late, that the node's own user can use."""

from __future__ import annotations

import os
from collections.abc import Callable

from shine_node.cli.findings import Finding, Level, Situation
from shine_node.cli.owner import NotAllowed, as_owner
from shine_node.clock import SystemClock
from shine_node.control.backups import backup_warnings, read_newest
from shine_node.control.recovery import store_rules

__all__ = ["PRODUCERS", "find_backup"]


def find_backup(situation: Situation) -> list[Finding]:
    """Look at the newest backup as the node's user; nothing where this user is neither that one nor root."""
    config = situation.config
    folder, rules = config.server.data_dir, store_rules(config)
    try:
        if os.geteuid() not in (0, folder.stat().st_uid):
            return []
        with as_owner(folder):
            newest = read_newest(rules.backups, rules.own_login)
    except (OSError, NotAllowed):  # others find what is wrong with the data folder
        return []
    wanted = config.storage.backup_dir is not None
    warnings = backup_warnings(newest, wanted=wanted, now_ms=SystemClock().now_ms())
    if warnings:
        return [Finding(Level.WARNING, "backup", text) for text in warnings]
    if newest.path is None:
        return [Finding(Level.OK, "backup", f"there is none in {rules.backups}: `shine-node backup` makes one")]
    return [Finding(Level.OK, "backup", f"{newest.path}, {newest.size // 2**20} MiB")]


PRODUCERS: tuple[Callable[[Situation], list[Finding]], ...] = (find_backup,)
