import argparse
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shine_node import __version__
from shine_node.cli import commands, demo
from shine_node.cli.commands import build_parser, run_command
from tests.cli.program import LAUNCHER, run_program, write_config
from tests.cli.stores import Commands


def test_help_names_every_command(capsys):
    assert run_command(["--help"]) == 0
    shown = capsys.readouterr().out
    names = ("run", "init", "check", "demo", "user", "status", "reload", "backup", "restore", "recover", "verify")
    names += ("export", "import", "account", "send", "inbox", "watch", "block")
    assert all(f"\n    {name} " in shown for name in names)
    assert run_command(["--version"]) == 0
    assert capsys.readouterr().out == f"shine-node {__version__}\n"


@pytest.mark.parametrize("words", [[], ["dance"], ["run", "--nothing"], ["user"], ["init"], ["account"], ["send"]])
def test_a_wrong_command_line(words, capsys):
    assert run_command(words) == 2
    shown, said = capsys.readouterr()
    assert shown == "" and said.startswith("usage: shine-node")


def test_the_command_line_of_this_process(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["shine-node", "--version"])
    assert run_command() == 0
    assert __version__ in capsys.readouterr().out


def test_a_wrong_configuration(tmp_path, capsys):
    path = write_config(tmp_path, "[log]\nlevel = 1\nformat = 2")
    assert run_command(["run", "--config", str(path)]) == 2
    shown, said = capsys.readouterr()
    assert shown == ""
    assert [line.partition(" = ")[0] for line in said.splitlines()] == [
        f"shine-node: {path}:6: log.level",
        f"shine-node: {path}:7: log.format",
    ]


def test_a_refusal(tmp_path, capsys):
    path = write_config(tmp_path)
    assert run_command(["user", "list", "--config", str(path)]) == 1
    assert "is not there yet" in capsys.readouterr().err


def test_demo_is_loaded_when_it_is_asked_for(monkeypatch):
    monkeypatch.setattr(demo, "run", lambda arguments: 0 if isinstance(arguments, argparse.Namespace) else 1)
    assert run_command(["demo"]) == 0


def end_with(error, monkeypatch):
    def run(arguments):
        raise error

    parser = argparse.ArgumentParser()
    parser.set_defaults(run=run)
    monkeypatch.setattr(commands, "build_parser", lambda: parser)
    return run_command([])


def test_interruption(monkeypatch):
    assert end_with(KeyboardInterrupt(), monkeypatch) == 130


def test_nobody_reads_what_is_printed(monkeypatch, tmp_path):
    with (tmp_path / "out").open("w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert end_with(BrokenPipeError(), monkeypatch) == 1
        stream.write("this goes nowhere")
    assert (tmp_path / "out").read_text() == ""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(28, "No space left on device"), "it was not done: No space left on device"),
        (FileNotFoundError(2, "No such file or directory", "here"), "here: No such file or directory"),
        (PermissionError(1, "Operation not permitted", "a", None, "b"), "a and b: Operation not permitted"),
        (OSError(), "it was not done: OSError"),
    ],
)
def test_what_the_system_refuses(error, said, monkeypatch, capsys):
    assert end_with(error, monkeypatch) == 1
    assert capsys.readouterr().err == f"shine-node: {said}\n"


@pytest.mark.parametrize("words", [("export", "-"), ("check", "--offline"), ("user", "list")])
def test_a_full_disk_behind_what_is_printed(tmp_path, capsys, words):
    home = Commands(tmp_path / "home", capsys)
    words = [*words, "--config", home.config]
    with Path("/dev/full").open("w") as full:
        found = run_program(*words, stdout=full)
        assert found.returncode in (1, 2)
        assert "Traceback" not in found.stderr and "Exception" not in found.stderr
        assert "No space left on device" in found.stderr
        assert run_program(*words, stdout=full, stderr=full).returncode in (1, 2)


def test_nobody_reads_what_a_process_prints(tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    found = subprocess.run(
        [sys.executable, str(LAUNCHER), "check", "--config", str(write_config(tmp_path))],
        stdout=writer,
        stderr=subprocess.PIPE,
        timeout=120,
        check=False,
    )
    os.close(writer)
    assert (found.returncode, found.stderr) == (1, b"")


def test_a_stream_that_is_no_file(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert run_command(["--version"]) == 0
    assert __version__ in sys.stdout.getvalue()


def test_a_terminal_that_lacks_the_letters(tmp_path):
    folder = tmp_path / os.fsdecode(b"\xd0\x96 \xff")  # a letter that ASCII lacks, and what is no text at all
    folder.mkdir()
    path = write_config(folder)
    environ = {**os.environ, "PYTHONIOENCODING": "ascii"}
    found = run_program("check", "--offline", "--config", path, env=environ)
    assert found.returncode in (0, 1)  # there may be warnings of this machine's clock or disk
    assert found.stderr == ""
    assert "\\u0416 \\udcff/node.toml has no mistakes" in found.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["account", "new"], "Prints the recovery key."),
        (["account", "recover"], "Reads a recovery key from the terminal or the standard input"),
        (["account", "show"], "asked only where it was not registered yet"),
        (["send"], "Exit status: 0 accepted or delivered (with --wait: delivered), 1 refused, failed, or no answer"),
        (["inbox"], "with --unread the oldest of those that came in and are unread"),
        (["watch"], "misses nothing and shows nothing twice"),
    ],
)
def test_help_of_the_client(words, told, capsys):
    assert run_command([*words, "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert told in shown
    assert "--keys FILE" in shown


def test_help_needs_no_libraries():
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); from shine_node.cli import main; main(['--help']);"
        "print(sorted({'nacl', 'lmdb', 'orjson', 'uvloop', 'websockets', 'cryptography'} & set(sys.modules)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", program, str(LAUNCHER.parent)], capture_output=True, text=True, timeout=60, check=True
    )
    assert found.stdout.endswith("[]\n")


def test_the_parser_gives_what_runs():
    assert build_parser().parse_args(["check"]).run.__module__ == "shine_node.cli.check"
    assert build_parser().parse_args(["run"]).run.__module__ == "shine_node.cli.run"


@pytest.mark.parametrize(("error", "said"), [(BrokenPipeError(), ""), (OSError(28, "No space"), "written: No space")])
def test_what_is_still_to_be_printed_cannot_be(error, said, monkeypatch, tmp_path, capsys):
    class Full(io.StringIO):
        def flush(self):
            raise error

        def fileno(self):
            return stream.fileno()

    parser = argparse.ArgumentParser()
    parser.set_defaults(run=lambda arguments: 0)
    monkeypatch.setattr(commands, "build_parser", lambda: parser)
    with (tmp_path / "out").open("w") as stream:
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", Full())
            assert run_command([]) == 1
        stream.write("this goes nowhere")
    assert said in capsys.readouterr().err
    assert (tmp_path / "out").read_text() == ""
