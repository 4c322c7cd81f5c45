"""What a commit has changed that devices may be told of, once it is on disk (PROTOCOL.md §8)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from shine_node.store.layout import ItemKey, Row

__all__ = ["Change", "ItemChange", "KeyChange", "SignOut", "Watch"]


class ItemChange(NamedTuple):
    """A new container of an item, or a new delivery state, or both.

    ``blob`` is the owner's copy, empty where there is no new one. ``state_changed`` says whether the item was there
    with another state before. ``origin`` is that of the job.
    """

    key: ItemKey
    row: Row
    blob: bytes
    state_changed: bool
    origin: object


class KeyChange(NamedTuple):
    """A user's device key was replaced, and the sessions that it had made are gone; the login in lower case."""

    login: str


class SignOut(NamedTuple):
    """The operator has ended all sessions of a user; the login in lower case."""

    login: str


Change = ItemChange | KeyChange | SignOut

Watch = Callable[[Sequence[Change]], None]
"""Is told, in the event loop, all changes in the order of their commits."""
