"""What the configuration says of a damaged store, and what its owner has to know of one."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from shine_node.config import Config
from shine_node.protocol.errors import ShineError
from shine_node.store.files import take_lock
from shine_node.store.recovery.start import Rules, find_damage, recovery_notice
from shine_node.store.recovery.state import read_state

__all__ = ["STORE_FILE", "damage_notice", "store_file", "store_rules"]

STORE_FILE: Final = "shine.mdb"


def store_file(config: Config) -> Path:
    """Return the file of the store."""
    return config.server.data_dir / STORE_FILE


def store_rules(config: Config) -> Rules:
    """Return what the configuration says of a store that is damaged."""
    return Rules(
        policy=config.storage.when_damaged,
        own_login=config.server.login.lower(),
        map_size=config.storage.map_size_mib * 2**20,
        backups=config.storage.backup_dir or config.server.data_dir / "backups",
        refill_from=tuple(server.login for server in config.sync_servers),
    )


def damage_notice(config: Config, *, now_ms: int, boot: str = "") -> tuple[str, bool]:
    """Return what there is to say of damage to the store, empty if nothing, and whether a node cannot use it.

    The file is looked at where no node runs; nothing is changed.

    Args:
        now_ms: Unix milliseconds.
        boot: what tells this start of the machine from others.
    """
    store = store_file(config)
    state = read_state(store)
    with contextlib.suppress(ShineError, OSError), contextlib.ExitStack() as held:
        if store.with_name(store.name + ".pid").exists():  # else no node has run, and none of its files is made here
            held.callback(os.close, take_lock(store))
        damage = find_damage(store, state, boot=boot, now_ms=now_ms)
        if damage is not None:
            return str(damage), True
    return recovery_notice(store, state), False
