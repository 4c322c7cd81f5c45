"""Which of some backups is the newest: by the time in its name, which a copy or a `touch` does not change; pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime

__all__ = ["newness"]

_DATED = re.compile(r".*?([0-9]{8}-[0-9]{6})(?:-([0-9]{1,4}))?\.[a-z]+")


def newness(name: str, mtime_ns: int) -> tuple[str, int, int, str]:
    """Return what sorts backups by their age, the newest last.

    The time in the name counts first, and the number of those of one second. A name without one stands for the time at
    which the file was written last.

    Args:
        name: of the file, such as ``shine-20260131-031700.mdb`` or ``shine-home-20260131-031700-2.mdb``.
        mtime_ns: when it was written last, Unix nanoseconds.
    """
    found = _DATED.fullmatch(name)
    if found is not None:
        return found[1], int(found[2] or 1), mtime_ns, name
    written = datetime.fromtimestamp(mtime_ns / 1e9, UTC).strftime("%Y%m%d-%H%M%S")
    return written, 0, mtime_ns, name
