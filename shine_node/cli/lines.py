"""Messages and changes as lines: JSON for scripts, text for a terminal that no message may play tricks with."""

from __future__ import annotations

import datetime
import json
import unicodedata
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shine_node.client.history import Message
    from shine_node.client.ledger import Change

__all__ = ["change_fields", "change_line", "json_line", "message_fields", "message_line", "visible"]

HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode's control and format characters (the latter turn the direction of text), surrogates, and other line ends."""
JOINERS = frozenset("\u200c\u200d")
"""Format characters that words and emoji need, and that move nothing."""


def visible(text: str) -> str:
    """Return a text on one line, with an escape for every character that would act on the terminal, not stand on it."""
    return "".join(_escape(character) for character in text)


def json_line(fields: Mapping[str, object]) -> str:
    """Return an object as one line of JSON in ASCII, so that it is safe to print too."""
    return json.dumps(fields)


def message_fields(message: Message, kind: str = "message") -> dict[str, object]:
    """Return what a JSON line says of a message."""
    return {
        "type": kind,
        "key": message.key.base_key,
        "peer": message.peer,
        "out": message.out,
        "timeMs": message.time_ms,
        "revisionMs": message.revision_ms,
        "text": message.text,
        "state": message.state,
        "read": message.read,
        "deleted": message.deleted,
        "problem": message.problem,
    }


def change_fields(change: Change) -> dict[str, object]:
    """Return what a JSON line says of a change."""
    if change.message is not None:
        return message_fields(change.message, change.kind)
    fields: dict[str, object] = {
        "type": change.kind,
        "key": change.key.base_key,
        "peer": change.peer,
        "out": change.out,
        "timeMs": change.key.time_ms,
    }
    return {**fields, "state": change.state} if change.kind == "state" else fields


def message_line(message: Message) -> str:
    """Return a message as a line for a person; what this program says of it stands before the colon."""
    whose = f"to {message.peer}" if message.out else message.peer
    marks = ", ".join(_marks(message))
    return f"{_when(message.time_ms)}  {whose}{f' [{marks}]' if marks else ''}: {visible(message.text or '')}".rstrip()


def change_line(change: Change) -> str:
    """Return a change as a line for a person."""
    if change.message is not None:
        return message_line(change.message)
    whose = f"to {change.peer}" if change.out else f"from {change.peer}"
    what = {"deleted": "deleted", "read": "read, and all before it"}.get(change.kind, change.state)
    return f"{_when(change.key.time_ms)}  the message {whose} is {visible(what or '')}"


def _marks(message: Message) -> Iterator[str]:
    if message.deleted:
        yield "deleted"
    elif message.revision_ms:
        yield "edited"
    if message.out and message.state:
        yield visible(message.state)
    if message.read:
        yield "read"
    if message.problem:
        yield f"cannot be shown: {message.problem}"


def _when(time_ms: int) -> str:
    try:
        return datetime.datetime.fromtimestamp(time_ms // 1000).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):  # beyond the calendar
        return f"{time_ms} ms"


def _escape(character: str) -> str:
    if unicodedata.category(character) in HIDDEN and character not in JOINERS:
        return character.encode("unicode_escape").decode("ascii")
    return character
