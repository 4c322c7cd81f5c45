"""Reads the file of an export: whether it is whole, and its lines some at a time."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Final, NamedTuple

from shine_node.protocol.encoding import read_text
from shine_node.protocol.errors import BadFields, Refusal, ShineError
from shine_node.store.importing import Line
from shine_node.store.layout import SCHEMA_VERSION
from shine_node.store.portable import FORMAT, MAX_LINE_BYTES, VERSION, parse_line

__all__ = ["ExportError", "Header", "check_whole", "read_header", "read_lines"]

MAX_LINES: Final = 512
MAX_BYTES: Final = 2 * 2**20
"""Of some lines, about: it bounds a transaction, and what is in memory."""
CHUNK_BYTES: Final = 2**20
_END = b'{"type":"end",'


class ExportError(ShineError):
    """This is no export that can be imported; the text says why, and in which line."""


class Header(NamedTuple):
    """The first line: which server was exported, in lower case."""

    server_login: str


def read_header(stream: BinaryIO) -> Header:
    """Read the first line of an export.

    Raises:
        ExportError: it is none, or of a later version of this program.
    """
    first = _read_line(stream, 1)
    if not first:
        raise ExportError("there is nothing in it: an export that failed, or was not begun, leaves such a file")
    try:
        line = parse_line(first)
        if line["type"] != "header" or line.get("format") != FORMAT:
            raise BadFields("this is not the header of an export")
        version, schema = line.get("version"), line.get("schema")
        if version != VERSION or type(schema) is not int or schema > SCHEMA_VERSION:
            raise ExportError(
                f"this is an export of version {version} of a store of schema {schema}, this program knows {VERSION}"
                f" and {SCHEMA_VERSION}: install the version that wrote it, or a later one"
            )
        return Header(read_text(line, "serverLogin").lower())
    except Refusal as refusal:
        raise ExportError(f"line 1: {refusal.detail}") from None


def check_whole(stream: BinaryIO) -> int:
    """Read a whole export from its beginning, and check that nothing of it is missing or was changed.

    Returns:
        How many lines there are between the first and the last one.

    Raises:
        ExportError: the text says what is wrong.
    """
    digest, counts = hashlib.sha256(), Counter[str]()
    number = 1
    read_header(stream)
    stream.seek(0)
    digest.update(_read_line(stream, number))
    while data := _read_line(stream, number + 1):
        number += 1
        if data.startswith(_END):
            _check_end(number, data, digest.hexdigest(), counts)
            if stream.read(1):
                raise ExportError(f"line {number + 1}: something follows the end")
            return number - 2
        digest.update(data)
        counts[data[9 : data.find(b'"', 9)].decode("ascii", "replace")] += 1  # behind {"type":"
    raise ExportError(f"it ends after line {number} without its last line: it was cut, copy or export it again")


def read_lines(stream: BinaryIO, *, too_long: Callable[[int, Refusal], object] | None = None) -> Iterator[list[Line]]:
    """Yield the lines between the first and the last one, some at a time; from the second line of a stream on.

    Args:
        too_long: is told of each line that is longer than any can be, which is passed over then.

    Raises:
        ExportError: a line is longer than any can be, and nobody is to be told.
    """
    lines: list[Line] = []
    number, size = 2, 0
    while (data := stream.readline(MAX_LINE_BYTES + 1)) and not data.startswith(_END):
        if len(data) > MAX_LINE_BYTES:
            if too_long is None:
                raise _longer(number)
            _pass_over(stream, data)
            too_long(number, BadFields(f"a line is at most {MAX_LINE_BYTES} bytes long"))
            number += 1
            continue
        lines.append(Line(number, data))
        number, size = number + 1, size + len(data)
        if len(lines) == MAX_LINES or size >= MAX_BYTES:
            yield lines
            lines, size = [], 0
    if lines:
        yield lines


def _read_line(stream: BinaryIO, number: int) -> bytes:
    data = stream.readline(MAX_LINE_BYTES + 1)
    if len(data) > MAX_LINE_BYTES:
        raise _longer(number)
    return data


def _longer(number: int) -> ExportError:
    return ExportError(f"line {number} is longer than {MAX_LINE_BYTES} bytes: this is no export")


def _pass_over(stream: BinaryIO, data: bytes) -> None:
    """Read to the end of a line of which some was read, and keep nothing of it."""
    while data and not data.endswith(b"\n"):
        data = stream.readline(CHUNK_BYTES)


def _check_end(number: int, data: bytes, found: str, counts: Counter[str]) -> None:
    try:
        end: dict[str, Any] = parse_line(data)
    except Refusal as refusal:
        raise ExportError(f"line {number}: {refusal.detail}: it was cut, copy or export it again") from None
    if end.get("counts") != dict(counts) or end.get("sha256") != found:
        raise ExportError(
            f"the {number - 1} lines are not those that line {number} speaks of: some were changed or lost"
        )
