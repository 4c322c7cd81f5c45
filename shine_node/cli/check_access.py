"""What ``check`` finds of the rights of files: what the node must read and cannot, what others can."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from shine_node.cli.findings import Finding, Level, Situation
from shine_node.cli.node_user import NodeUser, as_node, group_name
from shine_node.cli.owner import groups_of
from shine_node.config import read_sources, source_files

__all__ = ["PRODUCERS", "find_closed", "let_in", "readers", "shut"]

EVERYBODY = "every user of this machine"


def find_unreadable(situation: Situation) -> list[Finding]:
    """Look whether the node's user can read the configuration, of which root has seen that it has no mistakes."""
    user, path = situation.node, situation.config_path
    needed = [path, path.parent / "conf.d", *source_files(path)[1:]]
    closed = dict.fromkeys(found for file in needed if (found := find_closed(file, user)) is not None)
    return [
        Finding(
            Level.ERROR,
            "configuration",
            f"{found} cannot be read by {user.name}, whom the node runs as: {let_in(found, user)}",
        )
        for found in closed
    ]


def find_readable_token(situation: Situation) -> list[Finding]:
    """Look whether other users of the machine can read a file with the registration token in it."""
    user = situation.node
    files = [Path(source.name) for source in read_sources(situation.config_path) if _has_token(source.table)]
    return [
        Finding(
            Level.WARNING,
            "registration",
            f"{path}, in which the token stands, can be read by {EVERYBODY}: {shut(path, user)}",
        )
        for path in files
        if readers(path, user) == EVERYBODY
    ]


def find_closed(path: Path, user: NodeUser) -> Path | None:
    """Return what keeps the node's user from reading a file or listing a folder: that itself, or a folder above it.

    ``None`` where nothing does, or it is not there.
    """
    with as_node(user):
        try:
            if path.is_dir():
                os.listdir(path)  # noqa: PTH208 - that of Path is lazy in some versions
            else:
                path.open("rb").close()
        except PermissionError:
            above = (folder for folder in reversed(path.absolute().parents) if not _may_enter(folder))
            return next(above, path)
        except OSError:
            return None
    return None


def let_in(path: Path, user: NodeUser) -> str:
    """Return the commands that let the node's user read a file or list a folder, and nobody else."""
    return f"chgrp {user.group} {path} && chmod {750 if path.is_dir() else 640} {path}"


def readers(path: Path, user: NodeUser) -> str:
    """Return who else can read a file, by its rights and those of the folders above it; empty if nobody can.

    Root, the node's user and the groups of that user do not count.
    """
    file = path.resolve()
    mode, group = file.stat().st_mode, file.stat().st_gid
    above = [folder.stat() for folder in file.parents]
    if mode & stat.S_IROTH and all(folder.st_mode & stat.S_IXOTH for folder in above):
        return EVERYBODY
    if not mode & stat.S_IRGRP or group == 0 or group in groups_of(user.uid, user.gid):
        return ""
    return f"the group {group_name(group)}" if all(_enters(folder, group) for folder in above) else ""


def shut(path: Path, user: NodeUser) -> str:
    """Return the commands that shut others out of a file, and not the node."""
    status = path.stat()
    if status.st_uid == user.uid:
        return f"chmod go-rwx {path}"
    if status.st_mode & stat.S_IRGRP and status.st_gid in groups_of(user.uid, user.gid):
        return f"chmod o-rwx {path}"
    return let_in(path, user)


PRODUCERS: tuple[Callable[[Situation], list[Finding]], ...] = (find_unreadable, find_readable_token)


def _has_token(table: object) -> bool:
    section = table.get("registration") if isinstance(table, dict) else None
    return isinstance(section, dict) and bool(section.get("token"))


def _may_enter(folder: Path) -> bool:
    return os.access(folder, os.X_OK, effective_ids=True)


def _enters(folder: os.stat_result, group: int) -> bool:
    """Say whether members of a group can enter a folder."""
    return bool(folder.st_mode & (stat.S_IXGRP if folder.st_gid == group else stat.S_IXOTH))
