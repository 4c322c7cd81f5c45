"""What ``check`` finds on the machine: the data folder, the authorities of peers, who may read what."""

from __future__ import annotations

import os
import ssl
import stat
from collections.abc import Callable
from pathlib import Path

from shine_node.cli.check_disk import nearest_existing
from shine_node.cli.findings import Finding, Level, Situation

__all__ = ["PRODUCERS", "judge_folder"]


def find_data_dir(situation: Situation) -> list[Finding]:
    """Look whether the data folder can be used, or made."""
    folder = situation.config.server.data_dir
    try:
        status = folder.stat()
    except FileNotFoundError:
        return [_missing_folder(folder)]
    except OSError as error:
        return [_data_dir(Level.ERROR, f"{folder} cannot be reached ({error.strerror}): correct server.dataDir")]
    if not stat.S_ISDIR(status.st_mode):
        return [_data_dir(Level.ERROR, f"{folder} is no folder: correct server.dataDir")]
    if not _may_write(folder):
        hint = "run the check as the user that runs the node, or give that user the folder"
        return [_data_dir(Level.ERROR, f"{folder} cannot be written by this user: {hint}")]
    findings = judge_folder(folder, mode=status.st_mode, owner=status.st_uid, user=os.geteuid())
    return findings or [_data_dir(Level.OK, str(folder))]


def judge_folder(folder: Path, *, mode: int, owner: int, user: int) -> list[Finding]:
    """Say whether a data folder is private to its owner, and whether this user can judge that owner's rights; pure.

    Args:
        mode: the permissions, as ``stat`` has them.
        owner: the user id that the folder belongs to.
        user: the effective user id of this process.
    """
    findings: list[Finding] = []
    if mode & 0o077:
        text = f"{folder} is open to other users of this machine: chmod 700 {folder}"
        findings.append(_data_dir(Level.WARNING, text))
    if user == 0 != owner:
        text = f"{folder} belongs to another user, and root, who looks, may do what the node may not"
        findings.append(_data_dir(Level.OK, text))
    return findings


def find_ca_file(situation: Situation) -> list[Finding]:
    """Look whether the authorities that peers are checked against can be read."""
    path = situation.config.server.pool.ca_file
    if path is None:
        return []
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except OSError as error:  # ssl.SSLError is one
        text = f"server.pool.caFile = {path} cannot be used ({error}): it must hold certificates in PEM"
        return [Finding(Level.ERROR, "caFile", text)]
    return [Finding(Level.OK, "caFile", str(path))]


def find_readable_token(situation: Situation) -> list[Finding]:
    """Look whether other users of the machine can read the registration token."""
    if not situation.config.registration.token:
        return []
    main = situation.config_path
    files = [main, *sorted((main.parent / "conf.d").glob("*.toml"))]
    return [
        Finding(
            Level.WARNING,
            "registration",
            f"{path} can be read by every user of this machine, and a token is set: chmod o-r {path}",
        )
        for path in files
        if path.stat().st_mode & stat.S_IROTH
    ]


PRODUCERS: tuple[Callable[[Situation], list[Finding]], ...] = (
    find_data_dir,
    find_ca_file,
    find_readable_token,
)


def _missing_folder(folder: Path) -> Finding:
    parent = nearest_existing(folder)
    if _may_write(parent):
        return _data_dir(Level.OK, f"{folder} will be made at the first start")
    text = f"{folder} is not there and this user cannot make it in {parent}: make it, and give it to the node's user"
    return _data_dir(Level.ERROR, text)


def _may_write(folder: Path) -> bool:
    return os.access(folder, os.R_OK | os.W_OK | os.X_OK, effective_ids=True)


def _data_dir(level: Level, text: str) -> Finding:
    return Finding(level, "dataDir", text)
