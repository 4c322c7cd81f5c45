"""A glance at a frame that is not to be decoded: its ``op`` and ``requestId``, where a client puts them (§2)."""

from __future__ import annotations

import re

__all__ = ["glimpse"]

GLIMPSE_CHARACTERS = 1024
"""So much of either end is looked at, whatever the frame is; both patterns read it in one go."""

_MEMBER = r'[ \t\r\n]*"(op|requestId)"[ \t\r\n]*:[ \t\r\n]*"([^"\\\x00-\x1f]*)"[ \t\r\n]*'
_HEAD = re.compile(rf"[ \t\r\n]*\{{{_MEMBER}[,}}](?:{_MEMBER}[,}}])?")
# The last brace ends the object of the envelope, so what stands right before it is a member of that one. In a text,
# where anything may stand, each quotation mark has a backslash before it.
_TAIL = re.compile(rf"(?:,{_MEMBER})?,{_MEMBER}\}}[ \t\r\n]*\Z")


def glimpse(frame: str) -> tuple[str | None, str | None]:
    """Return ``op`` and ``requestId`` of a request without decoding it; ``None`` for what is not plain to see.

    They are found if they are the first members, or the last ones, and hold no escapes. A frame that is no proper
    request may yield anything that it holds. Costs the same for every frame, however long.
    """
    found: dict[str, str] = {}
    for match in (_HEAD.match(frame[:GLIMPSE_CHARACTERS]), _TAIL.search(frame[-GLIMPSE_CHARACTERS:])):
        if match is not None:  # of duplicate names the last one counts
            found.update({name: value for name, value in (match.group(1, 2), match.group(3, 4)) if name is not None})
    return found.get("op"), found.get("requestId")
