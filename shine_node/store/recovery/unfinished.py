"""Ends what was interrupted while one file took the place of another, on a disk where that takes two steps."""

from __future__ import annotations

import os
from pathlib import Path

from shine_node.store.files import take_lock
from shine_node.store.recovery.state import read_state, write_state

__all__ = ["finish_placing", "finish_unheld"]


def finish_placing(store: Path) -> None:
    """Give a store back its name, where its file was set aside and the new one did not come: a loss of power.

    The new file was whole before the old one was set aside. The lock of the store is held.

    Raises:
        OSError: that cannot be done.
    """
    state = read_state(store)
    if not state.placing:
        return
    kept, new = store.with_name(state.placing), store.with_name(store.name + ".new")
    if not store.exists():
        if new.exists():
            new.replace(store)
        elif kept.exists():
            kept.replace(store)
    write_state(store, state._replace(placing=""))


def finish_unheld(store: Path) -> None:
    """Do the same where nobody holds the lock, which is taken only if there is something to end.

    Raises:
        StoreError: the store is in use; OSError: that cannot be done.
    """
    if not read_state(store).placing:
        return
    lock = take_lock(store)
    try:
        finish_placing(store)
    finally:
        os.close(lock)
