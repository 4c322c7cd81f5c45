import contextlib
import io
import json
import sys

import pytest

from shine_node.cli import import_
from shine_node.store import export_file
from shine_node.store.owner import read_owner
from tests.cli.stores import Commands, names, tables
from tests.store.rooms import check_indexes


@pytest.fixture
def home(tmp_path, capsys):
    return Commands(tmp_path / "home", capsys)


@pytest.fixture
def other(tmp_path, capsys):
    """The same server on another machine, where nothing is yet."""
    return Commands(tmp_path / "other", capsys, filled=False)


@pytest.fixture
def file(home, tmp_path):
    path = tmp_path / "store.jsonl"
    assert home("export", path) == 0
    return path


def exported(commands):
    path = commands.folder / "again.jsonl"
    assert commands("export", "--force", path) == 0
    return path.read_bytes().splitlines()[1:-1]


def test_there_and_back_again(home, other, file):
    lines = file.read_bytes().splitlines()[1:-1]
    assert other("import", file) == 0
    assert (other.shown, other.said) == (f"{len(lines)} lines stored, 0 passed over, 0 refused\n", "")
    assert exported(other) == lines
    assert read_owner(other.store) == "own.server"
    assert b"server_login" not in file.read_bytes()
    assert {path.stat().st_mode & 0o077 for path in other.data.iterdir()} == {0}
    with contextlib.closing(other.open()) as store, store.read() as txn:
        check_indexes(txn)
    before = tables(other.store)
    assert other("import", file) == 0
    assert other.shown == f"0 lines stored, {len(lines)} passed over, 0 refused\n"
    assert tables(other.store) == before


def test_the_standard_input(other, file, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(file.read_bytes())))
    assert other("import", "-") == 0
    assert exported(other) == file.read_bytes().splitlines()[1:-1]
    assert names(other.data) == ["shine.mdb", "shine.mdb-lock", "shine.mdb.pid"]


def test_a_node_that_runs_is_left_alone(home, file):
    with contextlib.closing(home.open()):
        assert home("import", file) == 1
    assert "is in use by another process" in home.said


def test_a_line_that_is_too_long_is_refused_like_any_other(other, file, monkeypatch):
    lines = file.read_bytes().splitlines(keepends=True)
    monkeypatch.setattr(export_file, "MAX_LINE_BYTES", most := max(map(len, lines)))
    file.write_bytes(b"".join([*lines[:3], b"x" * 3 * most + b"\n", *lines[3:]]))
    assert other("import", file) == 1
    assert f"line 4 is longer than {most} bytes: this is no export" in other.said
    assert other("import", "--force", file) == 1
    assert f"line 4: BAD_FIELDS: a line is at most {most} bytes long" in other.said
    assert other.shown.endswith(" passed over, 1 refused\n")
    items = [line for line in lines if line.startswith(b'{"type":"item"')]
    assert [line for line in exported(other) if line.startswith(b'{"type":"item"')] == [line.strip() for line in items]


@pytest.mark.parametrize("damage", ["cut", "changed", "other", "gone"])
def test_a_bad_file_changes_nothing(other, file, damage):
    data = file.read_bytes()
    if damage == "cut":
        file.write_bytes(data[:-500])
    if damage == "changed":
        file.write_bytes(data.replace(b'"delivered"', b'"failed"', 1))
    if damage == "other":
        file.write_text("a picture of a cat")
    if damage == "gone":
        file.unlink()
    assert other("import", file) == 1
    said = {
        "cut": "was cut",
        "changed": "some were changed or lost",
        "other": "line 1: this is not JSON",
        "gone": "cannot be read: No such file",
    }
    assert said[damage] in other.said
    assert not other.store.exists()


def test_what_is_left_of_a_cut_file_can_be_had(other, file):
    data = file.read_bytes()
    lines = data.splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:-3]) + lines[-3][:20])
    assert other("import", "--force", file) == 1
    assert other.said == f"shine-node: line {len(lines) - 2}: BAD_JSON: this is not JSON\n"
    assert other.shown == "29 lines stored, 3 passed over, 1 refused\n", (
        "what it knows of other servers is for a whole one"
    )


def test_refused_lines_are_named_up_to_a_number(other, file, monkeypatch):
    monkeypatch.setattr(import_, "MOST_TOLD", 2)
    monkeypatch.setattr(export_file, "MAX_LINES", 3)
    monkeypatch.setattr(import_, "CHECKS_A_JOB", 2)
    lines = file.read_bytes().splitlines(keepends=True)
    items = [number for number, line in enumerate(lines) if b'"outgoingB64"' in line]
    for number in items[:4]:
        line = json.loads(lines[number])
        blob = line["outgoingB64"]
        line["outgoingB64"] = blob[:-12] + ("A" if blob[-12] != "A" else "B") + blob[-11:]
        lines[number] = json.dumps(line).encode() + b"\n"
    file.write_bytes(b"".join(lines))
    assert other("import", "--force", file) == 1
    said = other.said.splitlines()
    assert [line.split(": ")[1:3] for line in said[:2]] == [
        [f"line {number + 1}", "BAD_SIGNATURE"] for number in items[:2]
    ]
    assert said[2:] == ["shine-node: more lines are refused, which are not named"]
    assert "4 refused" in other.shown


def test_an_export_of_another_server(tmp_path, capsys, file):
    stranger = Commands(tmp_path / "stranger", capsys, login="far", filled=False)
    assert stranger("import", file) == 1
    assert "this is an export of own.server, not of far" in stranger.said
    assert not stranger.store.exists()
    assert stranger("import", "--force", file) == 1
    assert "this user is of another server alone" in stranger.said
    with contextlib.closing(stranger.open()) as store, store.read() as txn:
        assert {key.owner for key in check_indexes(txn, "far")} <= {"carol"}


def test_an_input_that_cannot_be_read(other, monkeypatch):
    class Broken(io.RawIOBase):
        def readable(self):
            return True

        def readinto(self, buffer):
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(Broken())))
    assert other("import", "-") == 1
    assert "- cannot be read: Input/output error" in other.said
