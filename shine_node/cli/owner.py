"""Lets root act as the owner of a data folder there: what root made in it, the node's own user could not open."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["as_owner"]


@contextmanager
def as_owner(folder: Path) -> Iterator[None]:
    """Have the rights of a folder's owner, and no others, for the length of a block; for nobody but root.

    Descriptors that are open stay so: root can hand in a file that the owner could not open, and take one out.
    """
    status = folder.stat()
    if os.geteuid() != 0 or status.st_uid == 0:
        yield
        return
    group, groups = os.getegid(), os.getgroups()
    os.setgroups([status.st_gid])
    os.setegid(status.st_gid)
    os.seteuid(status.st_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(groups)
