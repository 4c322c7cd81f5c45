import json
import subprocess
import sys

import pytest

from shine_node.cli import export
from shine_node.store.layout import Table
from tests.cli.program import LAUNCHER, run_program
from tests.cli.stores import Commands, names


@pytest.fixture
def home(tmp_path, capsys):
    return Commands(tmp_path / "home", capsys)


def lines_of(path):
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_a_file_that_only_its_owner_can_read(home, tmp_path):
    target = tmp_path / "store.jsonl"
    before = home.store.read_bytes()
    assert home("export", target) == 0
    assert (home.shown, home.said) == ("", "")
    assert target.stat().st_mode & 0o777 == 0o600
    lines = lines_of(target)
    assert (lines[0]["type"], lines[0]["serverLogin"], lines[-1]["type"]) == ("header", "own.server", "end")
    assert {"record", "session", "item"} <= {line["type"] for line in lines}
    assert home.store.read_bytes() == before


def test_without_sessions(home, tmp_path):
    target = tmp_path / "store.jsonl"
    assert home("export", "--no-sessions", target) == 0
    assert "session" not in {line["type"] for line in lines_of(target)}


def test_the_standard_output(home, tmp_path):
    done = run_program("export", "--config", home.config, "-")
    assert (done.returncode, done.stderr) == (0, "")
    assert home("export", "-") == 0
    assert home.shown.splitlines()[1:-1] == done.stdout.splitlines()[1:-1]
    target = tmp_path / "store.jsonl"
    assert home("export", target) == 0
    assert done.stdout.splitlines()[1:-1] == target.read_text().splitlines()[1:-1]


def test_nobody_reads_on(home, monkeypatch, tmp_path):
    monkeypatch.setattr(export, "PIECE_BYTES", 1000)
    with subprocess.Popen(
        [sys.executable, str(LAUNCHER), "export", "--config", str(home.config), "-"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as program:
        program.stdout.close()
        assert program.wait(60) == 1
        assert program.stderr.read() == b""
    assert home("export", tmp_path / "x") == 0, "in small pieces too"
    assert lines_of(tmp_path / "x")[-1]["type"] == "end"


def test_what_is_there_is_not_replaced_by_mistake(home, tmp_path):
    target = tmp_path / "store.jsonl"
    target.write_text("mine")
    assert home("export", target) == 1
    assert target.read_text() == "mine"
    assert home("export", "--force", target) == 0
    assert home("export", "--force", home.store) == 1
    assert "is in the data folder" in home.said


def test_a_store_that_is_damaged_leaves_no_file(home, tmp_path):
    home.write((Table.HISTORY, b"x", b"y"))
    assert home("export", tmp_path / "store.jsonl") == 1
    assert "a row of the store cannot be read" in home.said and "run `shine-node verify`" in home.said
    assert names(tmp_path) == ["home"]


def test_no_store_yet(tmp_path, capsys):
    home = Commands(tmp_path / "home", capsys, filled=False)
    assert home("export", "-") == 1
    assert "is not there yet" in home.said


@pytest.mark.parametrize("error", [BrokenPipeError(32, "Broken pipe"), OSError(28, "No space left on device")])
def test_a_standard_output_without_room(home, monkeypatch, tmp_path, error):
    class Full:
        def write(self, data):
            raise error

    class Output:
        buffer = Full()

        def flush(self):
            pass

        def fileno(self):
            return stream.fileno()

    with (tmp_path / "out").open("w") as stream:
        monkeypatch.setattr(sys, "stdout", Output())
        status = home("export", "-")
    assert status == 1
    if not isinstance(error, BrokenPipeError):
        assert "the standard output cannot be written (No space left on device): it holds no whole export" in home.said
