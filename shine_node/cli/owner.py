"""Lets root act as the owner of a data folder there: what root made in it, the node's own user could not open."""

from __future__ import annotations

import functools
import importlib
import os
import pkgutil
import pwd
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from shine_node.protocol.errors import ShineError

__all__ = ["NotAllowed", "as_owner", "as_user", "as_writer", "groups_of"]

ROOMS = ("protocol", "store", "control")
"""All of whose modules may be asked for while root is somebody else; with what the commands share."""
SHARED = ("bar", "lines", "new_file", "store_place", "verify")


class NotAllowed(ShineError):
    """This root may not act as anybody else; the text says what to do."""


@contextmanager
def as_owner(folder: Path) -> Iterator[None]:
    """Have the rights of a folder's owner, and no others, for the length of a block; for nobody but root.

    Descriptors that are open stay so: root can hand in a file that the owner could not open, and take one out.

    Raises:
        NotAllowed: this root lacks the capability for that, as in some containers; the process is to end.
    """
    status = folder.stat()
    if os.geteuid() != 0 or status.st_uid == 0:
        yield
        return
    refusal = f"{folder} belongs to the user {status.st_uid}: run this as that user"
    with as_user(status.st_uid, status.st_gid, refusal):
        yield


@contextmanager
def as_user(user: int, group: int, refusal: str) -> Iterator[None]:
    """Let root have the rights of a user, with all groups of that user, and no others, for the length of a block.

    Args:
        refusal: what to say where this root may not.

    Raises:
        NotAllowed: as of ``as_owner``.
    """
    _load_rooms()
    own_group, own_groups = os.getegid(), os.getgroups()
    try:
        os.setgroups(groups_of(user, group))
        os.setegid(group)
        os.seteuid(user)
    except PermissionError:
        raise NotAllowed(refusal) from None
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(own_group)
        os.setgroups(own_groups)


def groups_of(user: int, group: int) -> list[int]:
    """Return the groups whose rights a user has who runs with a group: that and those which the system lists."""
    try:
        return os.getgrouplist(pwd.getpwuid(user).pw_name, group)
    except KeyError:
        return [group]


def as_writer(folder: Path, data_dir: Path) -> AbstractContextManager[None]:
    """Have the rights of the node's user where a copy of the store is written into a folder of that user's.

    Root leaves it so that the node can use it. In a folder of anybody else's it stays root's: it is nothing for them.
    """
    try:
        theirs = folder.stat().st_uid == data_dir.stat().st_uid
    except OSError:  # whoever writes there will say what is wrong
        theirs = False
    return as_owner(data_dir) if theirs else nullcontext()


@functools.cache
def _load_rooms() -> None:
    """Import all that is needed as the owner, who may be unable to read this program: in a home of root's."""
    for room in ROOMS:
        package = importlib.import_module(f"shine_node.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    for name in SHARED:
        importlib.import_module(f"shine_node.cli.{name}")
