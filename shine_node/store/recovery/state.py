"""What is remembered of a store from one start to the next, beside it: how it ended, and what has happened to it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from shine_node.protocol.errors import ShineError
from shine_node.store.structure import read_file_head

__all__ = [
    "UNKNOWN",
    "State",
    "boot_id",
    "clear_damage",
    "is_marked",
    "mark_damage",
    "read_state",
    "state_file",
    "write_state",
]

UNKNOWN = "unknown"
"""In the place of a start of the machine: it may be this one."""
MAX_NAME_BYTES = 255
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class State(NamedTuple):
    """What is remembered; all of it empty for a store that is new.

    ``running`` is the start of the machine in which a node has the store open, empty once it has ended in order. A
    damage is remembered with the file that has it: a file that takes its place is not damaged by it.
    """

    known: bool = False
    """Whether a node has had the store open."""
    running: str = ""
    damage: str = ""
    damaged_inode: int = 0
    damaged_position: int = 0
    doubted_at_ms: int = 0
    """When LMDB had met damage, and every page was found to fit."""
    recovered_at_ms: int = 0
    recovered_from: str = ""
    kept: str = ""
    """The name of the damaged file that was set aside then."""
    starts: int = 0
    """How many starts in a row, up to the last one, have neither come as far as listening, nor ended in order."""
    placing: str = ""
    """The name that the store's file is given while another takes its place, where there is no store for a moment."""
    looking: str = ""
    """The start of the machine in which a node looks at the store, empty once it has seen what there is to see."""


def state_file(store: Path) -> Path:
    """Return the file that holds the state of a store."""
    return store.with_name(store.name + ".state")


def read_state(store: Path) -> State:
    """Return what is remembered of a store, nothing where that cannot be read."""
    try:
        fields = orjson.loads(state_file(store).read_bytes())
    except (OSError, ValueError):
        return State()
    if not isinstance(fields, dict):
        return State()
    default = State()._asdict()
    usable: dict[str, Any] = {
        name: fields[name] for name, value in default.items() if type(fields.get(name)) is type(value)
    }
    for name in ("kept", "placing"):
        if not _is_beside(store, usable.get(name, "")):
            usable[name] = ""
    return State(**usable)


def write_state(store: Path, state: State) -> None:
    """Remember something of a store; it is on the disk when this returns.

    Raises:
        OSError: it cannot be written.
    """
    path = state_file(store)
    new = path.with_name(path.name + ".new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, orjson.dumps(state._asdict(), option=orjson.OPT_INDENT_2) + b"\n")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    new.replace(path)


def mark_damage(store: Path, reason: str) -> None:
    """Remember that LMDB met damage in the file that is there, so that the next start does not open it again.

    Raises:
        OSError: that cannot be written.
    """
    status = store.stat()
    state = read_state(store)._replace(
        running="", damage=reason, damaged_inode=status.st_ino, damaged_position=_position(store)
    )
    write_state(store, state)


def clear_damage(store: Path) -> None:
    """Forget a damage that was mended.

    Raises:
        OSError: that cannot be written.
    """
    state = read_state(store)
    if state.damage:
        write_state(store, state._replace(damage="", damaged_inode=0, damaged_position=0))


def is_marked(store: Path, state: State) -> bool:
    """Say whether the file that is there is the one in which LMDB met damage, as it was then."""
    if not state.damage or not state.damaged_inode:
        return False
    try:
        inode = store.stat().st_ino
    except OSError:
        return False
    return inode == state.damaged_inode and _position(store) >= state.damaged_position


def boot_id() -> str:
    """Return what tells this start of the machine from others, empty where the system does not say."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def _is_beside(store: Path, name: str) -> bool:
    """Say whether a name can be that of a file that was set aside beside the store: a bit may have flipped. Pure."""
    begins = name.startswith(store.name + ".")
    return begins and "/" not in name and "\0" not in name and len(os.fsencode(name)) <= MAX_NAME_BYTES


def _position(store: Path) -> int:
    try:
        return read_file_head(store).position
    except (ShineError, OSError):
        return 0
