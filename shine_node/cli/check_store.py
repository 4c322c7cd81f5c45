"""What ``check`` finds of the store itself: whether the node can open it, and whether it was damaged."""

from __future__ import annotations

from collections.abc import Callable

from shine_node.cli.findings import Finding, Level, Situation
from shine_node.cli.owner import as_owner
from shine_node.clock import SystemClock
from shine_node.control.recovery import damage_notice, store_file
from shine_node.protocol.errors import ShineError
from shine_node.store.owner import read_owner
from shine_node.store.recovery.state import boot_id
from shine_node.store.unreadable import describe

__all__ = ["PRODUCERS", "find_damaged_store", "find_other_server", "find_unreadable_rows"]


def find_damaged_store(situation: Situation) -> list[Finding]:
    """Look whether the store is damaged, as far as a start would see it."""
    store = store_file(situation.config)
    text, unusable = damage_notice(situation.config, now_ms=SystemClock().now_ms(), boot=boot_id())
    if text:
        return [Finding(Level.ERROR if unusable else Level.WARNING, "store", text)]
    try:
        size = store.stat().st_size
    except OSError:
        return []
    return [Finding(Level.OK, "store", f"{store}, {size // 2**20} MiB")]


def find_unreadable_rows(situation: Situation) -> list[Finding]:
    """Say how many rows of its store the node that runs could not read."""
    text = describe(situation.unreadable_rows)
    return [Finding(Level.WARNING, "store", text)] if text else []


def find_other_server(situation: Situation) -> list[Finding]:
    """Look whether the store is that of another server; while a node runs it is the node's own."""
    store, own_login = store_file(situation.config), situation.config.server.login.lower()
    try:
        if situation.listening or not store.exists():
            return []
        with as_owner(store.parent):
            owner = read_owner(store)
    except (ShineError, OSError):  # the other look has found more
        return []
    if owner in ("", own_login):
        return []
    text = (
        f"{store} is the store of the server {owner}, and server.login is {own_login}: correct server.login or"
        " server.dataDir. If the server was renamed, start it: the store is then that of the new name, and its users"
        " have to name that one in their records"
    )
    return [Finding(Level.WARNING, "store", text)]


PRODUCERS: tuple[Callable[[Situation], list[Finding]], ...] = (
    find_damaged_store,
    find_other_server,
    find_unreadable_rows,
)
