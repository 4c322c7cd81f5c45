"""On which line of a TOML text each key stands, which the library's parser does not tell."""

from __future__ import annotations

import contextlib
import re
import tomllib
from collections.abc import Mapping

__all__ = ["KeyPath", "find_lines", "line_of"]

KeyPath = tuple[str | int, ...]
"""Keys from the outermost to the innermost; after the name of an array of tables comes the index, from 0."""

_GAP = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*+")
_PART = r"""(?:[A-Za-z0-9_\-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
_KEY = rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*"
_HEADER = re.compile(rf"(\[\[?)[ \t]*({_KEY})[ \t]*\]\]?")
_ASSIGNED = re.compile(rf"({_KEY})[ \t]*=")
_PARTS = re.compile(_PART)
# The pieces of a value: texts of four kinds, comments, brackets, ends of lines, and the rest.
_PIECE = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|#[^\n]*|\n|[\[\]{}]|[^"\'#\[\]{}\n]+',
    re.DOTALL,
)


def find_lines(text: str) -> dict[KeyPath, int]:
    """Return the line, from 1, of each key and each header of a valid TOML text.

    Keys within inline tables are not looked for. Where the text is not valid, what was found before that place is
    returned.
    """
    found: dict[KeyPath, int] = {}
    counts: dict[KeyPath, int] = {}  # arrays of tables, and how many tables each has so far
    current: KeyPath = ()
    line, counted_to, at = 1, 0, 0
    with contextlib.suppress(tomllib.TOMLDecodeError):  # a quoted key with a wrong escape
        while (at := _end_of(_GAP, text, at)) < len(text):
            line += text.count("\n", counted_to, at)
            counted_to = at
            if header := _HEADER.match(text, at):
                current = _resolve(_parts(header[2]), counts, is_array=header[1] == "[[")
                found.setdefault(current, line)
                at = header.end()
            elif assigned := _ASSIGNED.match(text, at):
                path = current + _parts(assigned[1])
                for end in range(len(current) + 1, len(path) + 1):  # a.b = 1 is also the line of a
                    found.setdefault(path[:end], line)
                at = _end_of_value(text, assigned.end())
            else:
                break
    return found


def line_of(lines: Mapping[KeyPath, int], path: KeyPath) -> int:
    """Return the line of a key (of an array of tables: its first), or of what is around it, or 0."""
    while path:
        if line := lines.get(path) or lines.get((*path, 0)):
            return line
        path = path[:-1]
    return 0


def _end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def _end_of_value(text: str, at: int) -> int:
    depth = 0
    while piece := _PIECE.match(text, at):
        if piece[0] == "\n" and depth <= 0:
            break
        if piece[0] in ("[", "{"):
            depth += 1
        elif piece[0] in ("]", "}"):
            depth -= 1
        at = piece.end()
    return at


def _parts(key: str) -> KeyPath:
    return tuple(str(tomllib.loads(f"k = {part}")["k"]) if part[0] in "\"'" else part for part in _PARTS.findall(key))


def _resolve(parts: KeyPath, counts: dict[KeyPath, int], *, is_array: bool) -> KeyPath:
    path: KeyPath = ()
    for number, part in enumerate(parts, start=1):
        path += (part,)
        if is_array and number == len(parts):
            counts[path] = counts.get(path, 0) + 1
        if path in counts:
            path += (counts[path] - 1,)
    return path
