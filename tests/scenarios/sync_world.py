"""What the stories of synchronisation share: alice with two real servers, and whether they have become equal."""

from __future__ import annotations

import shutil

from tests.scenarios.world import SESSIONS, Home, Person, Scripted, World
from tests.sync.history import History, history_of, unsynced_of

__all__ = ["alice_at_two", "equal", "history", "keep_copy", "restore_copy", "session", "unsynced"]


async def alice_at_two(world: World, *, bob_at: str = "r1") -> tuple[Home, Home, Scripted, Person]:
    """Alice at the real ``a1`` and ``a2``, which are connected; bob at a server that says yes."""
    a1, a2 = await world.homes("a1", "a2")
    r1 = await world.scripted(bob_at)
    alice = await world.person("alice", a1, a2)
    await world.person("bob", r1, known_at=(a1, a2))
    await world.passes(SESSIONS)
    return a1, a2, r1, alice


def history(home: Home, owner: str = "alice") -> History:
    """What a running server has of an owner."""
    with home.node.store.read() as txn:
        return history_of(txn, owner)


def unsynced(home: Home, owner: str = "alice") -> int:
    """How many entries of an owner a running server has yet to give away."""
    with home.node.store.read() as txn:
        return len(unsynced_of(txn, owner))


def equal(*homes: Home, owner: str = "alice") -> bool:
    """Whether servers have the same history of an owner, and nothing to give any more."""
    first = history(homes[0], owner)
    return all(history(home, owner) == first and not unsynced(home, owner) for home in homes)


async def session(world: World, count: int = 1) -> None:
    """Let time pass until every connected peer has had so many more sessions."""
    await world.passes(SESSIONS * count + 1)


def keep_copy(home: Home) -> None:
    """Copy the store of a server that is stopped, as a backup."""
    shutil.copyfile(home.store_file, home.folder / "backup.mdb")


def restore_copy(home: Home) -> None:
    """Put the copy in the place of the store of a server that is stopped."""
    shutil.copyfile(home.folder / "backup.mdb", home.store_file)
