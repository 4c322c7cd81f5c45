"""Whom the node runs as: root, who looks, is to judge by the rights of that user."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from shine_node.cli.owner import as_user
from shine_node.cli.unit import Unit

__all__ = ["NodeUser", "as_node", "find_node_user", "group_name", "own_user"]


class NodeUser(NamedTuple):
    """A user and the group that the node has with it, by their numbers."""

    uid: int
    gid: int

    @property
    def name(self) -> str:
        """The login, or the number where there is none."""
        try:
            return pwd.getpwuid(self.uid).pw_name
        except KeyError:
            return str(self.uid)

    @property
    def group(self) -> str:
        """The name of the group, or its number."""
        return group_name(self.gid)


def group_name(gid: int) -> str:
    """Return the name of a group, or its number where there is none."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def own_user() -> NodeUser:
    """Return the user of this process."""
    return NodeUser(os.geteuid(), os.getegid())


def find_node_user(data_dir: Path, unit: Unit | None) -> NodeUser:
    """Return whom the node runs as.

    Whoever is not root speaks of a node of their own. For root it is the user of the unit, or else the owner of the
    data folder, or root where there is neither.
    """
    if os.geteuid() != 0:
        return own_user()
    if unit is not None and unit.user:
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam(unit.user)
            return NodeUser(user.pw_uid, grp.getgrnam(unit.group).gr_gid if unit.group else user.pw_gid)
    with contextlib.suppress(OSError):
        status = data_dir.stat()
        return NodeUser(status.st_uid, status.st_gid)
    return own_user()


def as_node(user: NodeUser) -> AbstractContextManager[None]:
    """Have the rights of the node's user for the length of a block, where root looks and the node is not root's.

    Raises:
        NotAllowed: this root may not.
    """
    if os.geteuid() != 0 or user.uid == 0:
        return contextlib.nullcontext()
    return as_user(user.uid, user.gid, f"this root may not act as the user {user.name}: run the check as that user")
