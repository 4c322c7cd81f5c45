"""What ``check`` finds of the disk of the data folder: its free space, and whether its file system can hold a store."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from shine_node.cli.findings import Finding, Level, Situation
from shine_node.control.health import comfortable_mib

__all__ = ["PRODUCERS", "Mount", "judge_free_space", "judge_mount", "mount_of", "nearest_existing", "read_mounts"]

MIB = 2**20
LEAST_FREE_MIB = 64
MOUNTS = Path("/proc/self/mountinfo")
_NETWORK = re.compile(r"nfs\d?|cifs|smb\d?|smbfs|9p|ceph|glusterfs|afs|fuse\.(sshfs|rclone|s3fs|glusterfs|curlftpfs)")
_NO_RIGHTS = frozenset({"vfat", "msdos", "exfat", "ntfs", "ntfs3", "fuseblk"})
_GONE = {"tmpfs": "lies in memory", "ramfs": "lies in memory", "overlay": "is a layer over another one"}


class Mount(NamedTuple):
    """A file system where it is mounted."""

    point: str
    kind: str
    read_only: bool


def find_disk(situation: Situation) -> list[Finding]:
    """Look how much room the disk of the data folder has, and what file system it is."""
    folder = nearest_existing(situation.config.server.data_dir)
    findings = [judge_free_space(folder, shutil.disk_usage(folder).free, situation.config.storage.min_free_mib)]
    mount = mount_of(os.path.realpath(folder), read_mounts())
    if mount is not None:
        findings += judge_mount(folder, mount)
    return findings


def judge_free_space(folder: Path, free_bytes: int, min_free_mib: int) -> Finding:
    """Say whether a disk with so many free bytes is enough to begin with; pure.

    Args:
        min_free_mib: ``storage.minFreeMiB``, 0 where there is no such rule.
    """
    free = f"{free_bytes // MIB} MiB free on the disk of {folder}"
    if min_free_mib and free_bytes <= min_free_mib * MIB:
        text = f"{free}, and storage.minFreeMiB is {min_free_mib}: new messages are refused. Make room, or lower it"
        return Finding(Level.ERROR, "disk", text)
    if not min_free_mib and free_bytes < LEAST_FREE_MIB * MIB:
        return Finding(Level.ERROR, "disk", f"{free}: nothing could be stored for long. Make room")
    if free_bytes < comfortable_mib(min_free_mib) * MIB:
        least = f" with {min_free_mib} (storage.minFreeMiB) new messages are refused" if min_free_mib else ""
        return Finding(Level.WARNING, "disk", f"{free}: make room before it is full{least and f';{least}'}")
    return Finding(Level.OK, "disk", free)


def judge_mount(folder: Path, mount: Mount) -> list[Finding]:
    """Say whether a file system can hold a store; nothing where it can; pure."""
    advice = "choose a server.dataDir on a disk of this machine"
    if mount.read_only:
        text = f"{mount.point}, where {folder} lies, can only be read: mount it for writing, or look what ails its disk"
        return [Finding(Level.ERROR, "disk", text)]
    if _NETWORK.fullmatch(mount.kind):
        text = f"{folder} lies on another machine ({mount.kind}), where a store can be damaged: {advice}"
    elif mount.kind in _NO_RIGHTS:
        text = f"{folder} lies on {mount.kind}, which keeps no rights: every user could read the store. {advice}"
    elif mount.kind in _GONE:
        text = f"{folder} {_GONE[mount.kind]} ({mount.kind}): its data may be gone with the next start. {advice}"
    else:
        return []
    return [Finding(Level.WARNING, "disk", text)]


def mount_of(folder: str, mounts: list[Mount]) -> Mount | None:
    """Return the mount that a folder without links in its path lies on, ``None`` where it is not known; pure."""
    holding = [mount for mount in mounts if folder == mount.point or folder.startswith(mount.point.rstrip("/") + "/")]
    # Of two at one place the later one is what is seen.
    return max(reversed(holding), key=lambda mount: len(mount.point), default=None)


def read_mounts(path: Path = MOUNTS) -> list[Mount]:
    """Return all mounts that this process sees, none where that is not known (proc_pid_mountinfo(5))."""
    try:
        lines = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []
    mounts: list[Mount] = []
    for line in lines:
        before, _, after = line.partition(" - ")
        fields, system = before.split(" "), after.split(" ")
        if len(fields) < 6 or len(system) < 3:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), fields[4])
        options = {*fields[5].split(","), *system[2].split(",")}
        mounts.append(Mount(point, system[0], "ro" in options))
    return mounts


def nearest_existing(path: Path) -> Path:
    """Return a path, or the nearest one above it that is there."""
    while not os.path.exists(path):  # noqa: PTH110 - that of Path raises where a folder above is closed to this user
        path = path.parent
    return path


PRODUCERS: tuple[Callable[[Situation], list[Finding]], ...] = (find_disk,)
