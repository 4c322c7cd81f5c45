"""What to go on with when a store is damaged; pure."""

from __future__ import annotations

import enum
from typing import NamedTuple

__all__ = ["QUIET_MS", "Decision", "Way", "decide"]

QUIET_MS = 24 * 3600 * 1000
"""A store that is damaged again so soon lies on a disk that fails; nobody is helped by a copy a minute."""


class Way(enum.Enum):
    """How it goes on."""

    BACKUP = "backup"
    REFILL = "refill"
    STOP = "stop"


class Decision(NamedTuple):
    """The way, and why it is not a better one."""

    way: Way
    why: str = ""


def decide(policy: str, *, has_backup: bool, can_refill: bool, recovered_at_ms: int, now_ms: int) -> Decision:
    """Decide by ``storage.whenDamaged``.

    Args:
        policy: ``backup``: the newest backup that is sound, else stop; ``refill``: the same, and without a backup begin
            empty and be filled by the users' other servers; ``stop``: leave it to the owner.
        has_backup: whether there is a sound one.
        can_refill: whether the configuration names a server that can fill it.
        recovered_at_ms: when a store was put in the place of a damaged one last, Unix milliseconds, 0 for never.
        now_ms: Unix milliseconds.
    """
    if policy == "stop":
        return Decision(Way.STOP, 'storage.whenDamaged is "stop"')
    if recovered_at_ms and abs(now_ms - recovered_at_ms) < QUIET_MS:
        return Decision(Way.STOP, "it was damaged before within a day: the disk or the memory card may be failing")
    if has_backup:
        return Decision(Way.BACKUP)
    if policy == "refill":
        if can_refill:
            return Decision(Way.REFILL)
        return Decision(Way.STOP, "there is no sound backup, and no [[sync_servers]] to be filled from")
    return Decision(Way.STOP, "there is no sound backup")
