"""Files of exports: whole ones, and those that were cut or changed or are something else."""

from __future__ import annotations

import io
from pathlib import Path

import orjson
import pytest

from shine_node.protocol.errors import Refusal
from shine_node.store import export_file
from shine_node.store.export_file import ExportError, check_whole, read_header, read_lines
from shine_node.store.exporting import export_store
from tests.store.rich import EVERYTHING, do, found
from tests.store.rooms import NOW, OWN, opened

pytestmark = pytest.mark.core


@pytest.fixture
def lines(tmp_path: Path) -> list[bytes]:
    with opened(tmp_path / "shine.mdb") as store:
        found(store)
        for number, step in enumerate(EVERYTHING):
            do(store, number, step)
        with store.read() as txn:
            return list(export_store(txn, own_login=OWN.upper(), at_ms=NOW, program="x"))


def stream(lines: list[bytes]) -> io.BytesIO:
    return io.BytesIO(b"".join(lines))


def test_a_whole_file(lines: list[bytes]) -> None:
    assert check_whole(stream(lines)) == len(lines) - 2
    file = stream(lines)
    assert read_header(file).server_login == OWN
    pieces = list(read_lines(file))
    assert [(line.number, line.data) for piece in pieces for line in piece] == list(enumerate(lines[1:-1], start=2))


def test_some_lines_at_a_time(lines: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("MAX_LINES", 3), ("MAX_BYTES", 1)):
        monkeypatch.setattr(export_file, name, value)
        file = stream(lines)
        read_header(file)
        pieces = list(read_lines(file))
        assert [len(piece) for piece in pieces[:-1]] == [value] * (len(pieces) - 1)
        assert sum(map(len, pieces)) == len(lines) - 2
    file = stream(lines[:4])
    read_header(file)
    assert [len(piece) for piece in read_lines(file)] == [1, 1, 1]


def test_a_line_that_is_too_long_is_passed_over_and_told_of(
    lines: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_file, "MAX_LINE_BYTES", most := max(map(len, lines)))
    monkeypatch.setattr(export_file, "CHUNK_BYTES", 100)
    for length in (most, 5 * most + 17):  # the last byte of what was read is its end, or lies in the middle of it
        long = b"x" * length + b"\n"
        told: list[tuple[int, str]] = []

        def tell(number: int, refusal: Refusal, told: list[tuple[int, str]] = told) -> None:
            told.append((number, refusal.detail))

        file = stream([*lines[:3], long, *lines[3:-1], long])
        read_header(file)
        with pytest.raises(ExportError, match=f"line 4 is longer than {most} bytes"):
            list(read_lines(file))
        file.seek(len(lines[0]))
        found = [(line.number, line.data) for piece in read_lines(file, too_long=tell) for line in piece]
        numbers = [2, 3, *range(5, len(lines) + 1)]
        assert found == list(zip(numbers, lines[1:-1], strict=True))
        assert told == [(number, f"a line is at most {most} bytes long") for number in (4, len(lines) + 1)]
    file = stream([*lines[:2], b"x" * 5 * most])  # it ends within the line
    read_header(file)
    assert [len(piece) for piece in read_lines(file, too_long=tell)] == [1]


def test_any_line_that_is_missing_changed_or_too_many_is_noticed(lines: list[bytes]) -> None:
    for number in range(1, len(lines) - 1):
        for changed in (
            lines[:number] + lines[number + 1 :],
            [*lines[:number], lines[number].replace(b":", b": ", 1), *lines[number + 1 :]],
            lines[:number] + lines[number : number + 1] * 2 + lines[number + 1 :],
        ):
            with pytest.raises(ExportError, match="some were changed or lost"):
                check_whole(stream(changed))
    with pytest.raises(ExportError, match=f"line {len(lines) + 1}: something follows the end"):
        check_whole(stream([*lines, b"x"]))


def test_a_file_that_was_cut_anywhere(lines: list[bytes]) -> None:
    data = b"".join(lines)
    for length in range(0, len(data) - 1, 97):
        with pytest.raises(ExportError, match=r"^there is nothing in it|^line 1: |it was cut"):
            check_whole(io.BytesIO(data[:length]))


def test_an_end_that_was_cut(lines: list[bytes]) -> None:
    with pytest.raises(ExportError, match=f"line {len(lines)}: this is not JSON: it was cut"):
        check_whole(stream([*lines[:-1], lines[-1][:-9]]))
    with pytest.raises(ExportError, match="some were changed"):
        check_whole(stream([*lines[:-1], b'{"type":"end","counts":{}}']))


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (b"", "not the header"),
        (b"SQLite format 3\0\n", "line 1: this is not JSON"),
        (b'{"type":"record"}\n', "not the header"),
        (b'{"type":"header","format":"other"}\n', "not the header"),
        ({"version": 2}, "an export of version 2 of a store of schema 1, this program knows 1 and 1"),
        ({"schema": 99}, "of a store of schema 99"),
        ({"schema": None}, "of a store of schema None"),
        ({"serverLogin": ""}, "line 1: serverLogin is missing or empty"),
    ],
)
def test_what_is_no_export_for_this_program(lines: list[bytes], header: bytes | dict[str, object], said: str) -> None:
    first = header if isinstance(header, bytes) else orjson.dumps({**orjson.loads(lines[0]), **header}) + b"\n"
    for read in (read_header, check_whole):
        with pytest.raises(ExportError, match=said):
            read(stream([first, *lines[1:]]))


def test_a_line_longer_than_any(lines: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_file, "MAX_LINE_BYTES", max(map(len, lines)) - 1)
    with pytest.raises(ExportError, match="is longer than"):
        check_whole(stream(lines))


def test_an_empty_file_is_called_that() -> None:
    for read in (read_header, check_whole):
        with pytest.raises(ExportError, match=r"^there is nothing in it"):
            read(io.BytesIO())
