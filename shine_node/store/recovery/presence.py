"""Whether a store that was there is there still: nothing takes the place of one that is gone without a word."""

from __future__ import annotations

from pathlib import Path

from shine_node.store.files import StoreError, StoreGone
from shine_node.store.recovery.state import State, read_state, state_file

__all__ = ["find_gone", "has_bytes", "refuse_gone"]


def find_gone(store: Path, state: State) -> StoreGone | None:
    """Return what is to be said where a node has had a store open that is not there, or is an empty file.

    Raises:
        OSError: the file cannot be looked at.
    """
    if not state.known or has_bytes(store):
        return None
    reason = "it is empty, and was not" if store.exists() else "it is not there"
    return StoreGone(store, reason, remembered=state_file(store))


def refuse_gone(store: Path) -> None:
    """Refuse to read a store that is gone, or to make an empty one in its place.

    Raises:
        StoreGone: it is gone; StoreError: it is away for a moment, while another file takes its place, or since that
            was interrupted.
        OSError: the file cannot be looked at.
    """
    state = read_state(store)
    gone = find_gone(store, state)
    if gone is not None and state.placing:
        raise StoreError(
            f"{store} is not there while another file takes its place: try again in a moment; if that was interrupted,"
            " the next start of the node ends it"
        )
    if gone is not None:
        raise gone


def has_bytes(store: Path) -> bool:
    """Say whether the file of a store is there, and not empty.

    Raises:
        OSError: it cannot be looked at.
    """
    try:
        return store.stat().st_size > 0
    except FileNotFoundError:
        return False
