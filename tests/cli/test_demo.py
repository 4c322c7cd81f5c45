"""The demo with real servers: it is true, it is quick enough, it leaves nothing behind, and it can fail."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from shine_node.cli import demo
from shine_node.cli.demo_servers import DemoServer
from tests.support.vectors import REPOSITORY

PROMISED_SECONDS = 30.0


@pytest.fixture(autouse=True)
def folder_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the demo makes, it makes here."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def processes_in(folder: Path) -> list[int]:
    """Every process whose command line names the folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(folder).encode() in command:
                found.append(int(entry.name))
    return found


def test_everything_it_shows_is_true(folder_for_all: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.run(argparse.Namespace()) == 0
    told = capsys.readouterr()
    assert "All of this was checked while it was shown." in told.out
    assert told.err == ""
    assert list(folder_for_all.iterdir()) == []
    assert processes_in(folder_for_all) == []


def test_the_command_ends_by_itself_in_time(folder_for_all: Path) -> None:
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "shine_node.py"), "demo"],
        cwd=folder_for_all,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=2 * PROMISED_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert time.monotonic() - begin < PROMISED_SECONDS
    told = done.stdout.decode()
    for words in ("one grey tick", "one light tick", "two light ticks", "a red mark", "SHORTENED"):
        assert words in told
    assert list(folder_for_all.iterdir()) == []
    assert processes_in(folder_for_all) == []


def test_a_server_that_cannot_start_is_a_failure(folder_for_all: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert asyncio.run(demo.play((5,), demo.LIMIT_SECONDS)) == 1  # a schedule begins with 0
    told = capsys.readouterr()
    assert "The demo has failed: the node did not start" in told.err
    assert "scheduleSeconds" in told.err
    assert "All of this was checked" not in told.out
    assert list(folder_for_all.iterdir()) == []
    assert processes_in(folder_for_all) == []


def test_a_story_that_takes_too_long_is_a_failure(folder_for_all: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert asyncio.run(demo.play(demo.SCHEDULE, 0.5)) == 1
    assert "The demo has failed: it was not over after 0.5 s" in capsys.readouterr().err
    assert list(folder_for_all.iterdir()) == []
    assert processes_in(folder_for_all) == []


def test_it_ends_cleanly_when_it_is_told_to(
    folder_for_all: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stop = DemoServer.stop

    async def stop_and_be_told_to_end(server: DemoServer) -> None:
        await stop(server)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(DemoServer, "stop", stop_and_be_told_to_end)
    assert asyncio.run(demo.play(demo.SCHEDULE, demo.LIMIT_SECONDS)) == 1
    assert "The demo has failed: it was told to end" in capsys.readouterr().err
    assert list(folder_for_all.iterdir()) == []
    assert processes_in(folder_for_all) == []
