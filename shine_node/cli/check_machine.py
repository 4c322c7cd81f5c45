"""What ``check`` finds on the machine: the data folder, that of backups, and the authorities of peers."""

from __future__ import annotations

import os
import ssl
import stat
from collections.abc import Callable
from pathlib import Path

from shine_node.cli.check_access import find_closed, let_in
from shine_node.cli.check_disk import nearest_existing
from shine_node.cli.findings import Finding, Level, Situation
from shine_node.cli.node_user import as_node
from shine_node.cli.unit import why_not_written, without_links

__all__ = ["PRODUCERS", "judge_folder"]


def find_data_dir(situation: Situation) -> list[Finding]:
    """Look whether the data folder can be used, or made."""
    with as_node(situation.node):
        return _look_at_data_dir(situation)


def _look_at_data_dir(situation: Situation) -> list[Finding]:
    folder = situation.config.server.data_dir
    try:
        status = folder.stat()
    except FileNotFoundError:
        return [_missing_folder(folder, situation)]
    except OSError as error:
        return [_data_dir(Level.ERROR, f"{folder} cannot be reached ({error.strerror}): correct server.dataDir")]
    if not stat.S_ISDIR(status.st_mode):
        return [_data_dir(Level.ERROR, f"{folder} is no folder: correct server.dataDir")]
    if not _may_write(folder):
        return [_closed_folder(folder, situation)]
    return judge_folder(folder, mode=status.st_mode) or [_data_dir(Level.OK, str(folder))]


def judge_folder(folder: Path, *, mode: int) -> list[Finding]:
    """Say whether a data folder is private to its owner; pure.

    Args:
        mode: the permissions, as ``stat`` has them.
    """
    if mode & 0o077:
        text = f"{folder} is open to other users of this machine: chmod 700 {folder}"
        return [_data_dir(Level.WARNING, text)]
    return []


def find_protected(situation: Situation) -> list[Finding]:
    """Look whether the unit of the packaged service keeps it from the folders of the configuration."""
    if situation.unit is None:
        return []
    unit, config = without_links(situation.unit), situation.config
    findings: list[Finding] = []
    folder = Path(os.path.realpath(config.server.data_dir))
    if setting := why_not_written(unit, folder):
        rest = " and ProtectHome=no" if setting == "ProtectHome" else ""
        text = (
            f"the service may not write {folder} ({setting}= of its unit): copy the package's example data-dir.conf to"
            f" /etc/systemd/system/shine-node.service.d/, with ReadWritePaths={folder}{rest}"
        )
        findings.append(_data_dir(Level.ERROR, text))
    backups = config.storage.backup_dir
    if backups is not None and why_not_written(unit, Path(os.path.realpath(backups))) == "ProtectHome":
        text = (
            f"the service does not see {backups} (ProtectHome= of its unit), nor backups there: choose another folder"
        )
        findings.append(Finding(Level.WARNING, "backupDir", text))
    return findings


def find_backup_dir(situation: Situation) -> list[Finding]:
    """Look whether backups can be put into ``storage.backupDir``."""
    folder, user = situation.config.storage.backup_dir, situation.node
    if folder is None:
        return []
    give = f"chown {user.name}:{user.group} {folder}"
    if os.path.lexists(folder) and not folder.is_dir():
        return [Finding(Level.WARNING, "backupDir", f"{folder} is no folder: correct storage.backupDir")]
    parent = nearest_existing(folder)
    with as_node(user):
        written = _may_write(parent)
    if written:
        return [Finding(Level.OK, "backupDir", str(folder))]
    if parent != folder:
        text = f"{folder} is not there, and {user.name}, whom the node runs as, cannot make it: make it, and {give}"
        return [Finding(Level.WARNING, "backupDir", text)]
    if os.geteuid() == 0:  # as whom `backup` may run
        return [Finding(Level.OK, "backupDir", f"{folder}, where root alone can put backups")]
    text = f"{folder} cannot be written by this user: let root make the backups, or {give}"
    return [Finding(Level.WARNING, "backupDir", text)]


def find_ca_file(situation: Situation) -> list[Finding]:
    """Look whether the authorities that peers are checked against can be read."""
    path = situation.config.server.pool.ca_file
    if path is None:
        return []
    user = situation.node
    closed = find_closed(path, user)
    if closed is not None:
        text = (
            f"server.pool.caFile = {path} cannot be read by {user.name}, whom the node runs as: {let_in(closed, user)}"
        )
        return [Finding(Level.ERROR, "caFile", text)]
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except OSError as error:  # ssl.SSLError is one
        text = f"server.pool.caFile = {path} cannot be used ({error}): it must hold certificates in PEM"
        return [Finding(Level.ERROR, "caFile", text)]
    return [Finding(Level.OK, "caFile", str(path))]


PRODUCERS: tuple[Callable[[Situation], list[Finding]], ...] = (
    find_data_dir,
    find_protected,
    find_backup_dir,
    find_ca_file,
)


def _missing_folder(folder: Path, situation: Situation) -> Finding:
    parent = nearest_existing(folder)
    if _may_write(parent) or (situation.unit is not None and folder in situation.unit.made):
        return _data_dir(Level.OK, f"{folder} will be made at the first start")
    user = situation.node
    if _is_looking(situation):
        text = (
            f"{folder} is not there and this user cannot make it in {parent}: make it, and give it to the node's user"
        )
    else:
        text = (
            f"{folder} is not there, and {user.name}, whom the node runs as, cannot make it in {parent}: make it, and"
            f" chown {user.name}:{user.group} {folder}"
        )
    return _data_dir(Level.ERROR, text)


def _closed_folder(folder: Path, situation: Situation) -> Finding:
    user = situation.node
    if _is_looking(situation):
        hint = "run the check as the user that runs the node, or give that user the folder"
        return _data_dir(Level.ERROR, f"{folder} cannot be written by this user: {hint}")
    hint = f"chown {user.name}:{user.group} {folder}"
    return _data_dir(Level.ERROR, f"{folder} cannot be written by {user.name}, whom the node runs as: {hint}")


def _is_looking(situation: Situation) -> bool:
    """Say whether who has started this is the node's user; also where root has the rights of somebody else now."""
    return situation.user is None or situation.user.uid == os.getuid()


def _may_write(folder: Path) -> bool:
    return os.access(folder, os.R_OK | os.W_OK | os.X_OK, effective_ids=True)


def _data_dir(level: Level, text: str) -> Finding:
    return Finding(level, "dataDir", text)
