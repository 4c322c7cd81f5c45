"""``watch``: lines as things happen, and a clean end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from shine_node.cli import output
from shine_node.cli.commands import run_command
from shine_node.client.keyfile import Account, create_key_file
from shine_node.protocol.access import AccessServer
from tests.cli.homes import Person, home
from tests.cli.program import LAUNCHER, SECONDS, run_program
from tests.client.scripted import Refuse, Script, served
from tests.support.nodes import PATIENCE


@contextmanager
def watching(keys: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Run the command as a process; it is connected when the block begins."""
    with subprocess.Popen(
        [sys.executable, str(LAUNCHER), "watch", "--keys", str(keys), *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline().startswith("shine-node: watching")
            yield process
        finally:
            process.kill()


def read_line(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line: dict[str, Any] = json.loads(process.stdout.readline())
    return line


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_when_it_is_told_to(number: signal.Signals, tmp_path: Path, capsys: Any) -> None:
    with home(tmp_path / "home") as url:
        alice = Person("Alice", tmp_path, url, capsys)
        with watching(alice.keys) as process:
            process.send_signal(number)
            assert process.communicate(timeout=SECONDS) == ("", "")
            assert process.returncode == 0


def test_it_ends_when_nobody_reads_on(tmp_path: Path, capsys: Any) -> None:
    with home(tmp_path / "home") as url:
        alice = Person("Alice", tmp_path, url, capsys)
        with watching(alice.keys) as process:
            assert process.stdout is not None and process.stderr is not None
            process.stdout.close()
            assert process.wait(SECONDS) == 0
            assert process.stderr.read() == ""


def test_all_that_happens_in_one_chat(tmp_path: Path, capsys: Any) -> None:
    with home(tmp_path / "home") as url:
        alice, bob = (Person(login, tmp_path, url, capsys) for login in ("Alice", "Bob"))
        assert bob("send", "alice", "before")[0] == 0
        with watching(alice.keys, "--json") as process:
            assert bob("send", "alice", "hello\x1b[2J")[0] == 0
            hello = read_line(process)
            assert (hello["type"], hello["peer"], hello["out"], hello["text"]) == (
                "message",
                "bob",
                False,
                "hello\x1b[2J",
            )
            assert alice("send", "bob", "answer")[0] == 0
            answer = read_line(process)
            assert (answer["type"], answer["peer"], answer["out"], answer["text"]) == ("message", "bob", True, "answer")
            assert bob("inbox", "--mark-read")[0] == 0
            later = read_line(process)
            while later["type"] == "state":  # that of the answer, if it was not delivered when it was told
                assert (later["key"], later["state"]) == (answer["key"], "delivered")
                later = read_line(process)
            assert (later["type"], later["key"], later["out"]) == ("read", answer["key"], True)


def test_what_comes_while_the_connection_is_lost(tmp_path: Path, capsys: Any) -> None:
    with home(tmp_path / "home") as url:
        alice, bob = (Person(login, tmp_path, url, capsys) for login in ("Alice", "Bob"))
        port = url.rpartition(":")[2].removesuffix("/ws")
    fixed: dict[str, Any] = {"server": {"listen": f"127.0.0.1:{port}"}}
    with home(tmp_path / "home", **fixed), watching(alice.keys, "--json") as process:
        session = json.loads(alice.keys.read_text())["sessions"][url]["sessionId"]
        assert process.stderr is not None
        closing = run_program("inbox", "--keys", alice.keys)  # another program with the same session does no harm
        assert closing.returncode == 0 and session
        assert bob("send", "alice", "hello")[0] == 0
        assert read_line(process)["text"] == "hello"


class Files:
    """The standard streams of this process as files, which can be read while a command runs."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.out, self.err = folder / "out", folder / "err"
        for name, path in (("stdout", self.out), ("stderr", self.err)):
            patch.setattr(sys, name, path.open("w", buffering=1))

    def close(self) -> None:
        sys.stdout.close()
        sys.stderr.close()


def meanwhile(act: Callable[[], None]) -> threading.Thread:
    """Do something on a thread while a command runs on this one, and end the command then."""

    def run() -> None:
        try:
            act()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def until(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("as_json", [False, True])
def test_in_this_process(as_json: bool, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with home(tmp_path / "home") as url:
        alice, bob = (Person(login, tmp_path, url, capsys) for login in ("Alice", "Bob"))
        with monkeypatch.context() as patched:
            files = Files(tmp_path, patched)

            def act() -> None:
                until(lambda: "watching Alice" in files.err.read_text())
                run_program("send", "alice", "hello", "--keys", bob.keys)
                until(lambda: files.out.read_text().endswith("\n"))

            thread = meanwhile(act)
            assert run_command(["watch", "--keys", str(alice.keys), *(["--json"] if as_json else [])]) == 0
            thread.join()
            files.close()
        [line] = files.out.read_text().splitlines()
        assert json.loads(line)["text"] == "hello" if as_json else line[21:] == "bob: hello"


def test_a_reader_who_has_gone_when_a_line_is_written(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "LOOK_SECONDS", 10_000.0)
    with home(tmp_path / "home") as url:
        alice, bob = (Person(login, tmp_path, url, capsys) for login in ("Alice", "Bob"))
        reader, writer = os.pipe()
        with monkeypatch.context() as patched, os.fdopen(writer, "w") as stream:
            files = Files(tmp_path, patched)
            patched.setattr(sys, "stdout", stream)

            def act() -> None:
                until(lambda: "watching Alice" in files.err.read_text())
                os.close(reader)
                run_program("send", "alice", "hello", "--keys", bob.keys)

            thread = threading.Thread(target=act)
            thread.start()
            assert run_command(["watch", "--keys", str(alice.keys)]) == 0
            thread.join()
            sys.stderr.close()


def test_a_server_that_does_not_let_it_in(tmp_path: Path, capfd: Any) -> None:
    script: Script = {"AuthChallenge": lambda payload: Refuse(422, "UNKNOWN_USER")}
    keys = tmp_path / "keys.json"
    with served(script) as url:
        create_key_file(keys, Account("alice", bytes(32), (AccessServer("home", url),), True, {}, {}))
        assert run_command(["watch", "--keys", str(keys)]) == 1
    assert "422 UNKNOWN_USER" in capfd.readouterr().err
