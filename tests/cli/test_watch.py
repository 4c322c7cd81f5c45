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
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from shine_node.cli import output
from shine_node.cli.commands import run_command
from shine_node.cli.node_process import ReservedPort
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


def test_over_a_restart_of_the_server(tmp_path: Path, capsys: Any) -> None:
    with ReservedPort() as port, ExitStack() as stack:
        server = {"listen": f"127.0.0.1:{port.number}"}
        with home(tmp_path / "home", server=server) as url:
            alice, bob = (Person(login, tmp_path, url, capsys) for login in ("Alice", "Bob"))
            process = stack.enter_context(watching(alice.keys, "--json"))
            assert bob("send", "alice", "before")[0] == 0
            assert read_line(process)["text"] == "before"
        with home(tmp_path / "home", server=server):
            assert bob("send", "alice", "after")[0] == 0
            assert read_line(process)["text"] == "after"
            process.terminate()
            shown, said = process.communicate(timeout=SECONDS)
            assert (process.returncode, shown) == (0, "")
            assert "trying again in" in said and said.endswith(f"shine-node: watching Alice at {url}\n")


class Files:
    """The standard streams of this process as files, which can be read while a command runs."""

    def __init__(self, folder: Path) -> None:
        self.out, self.err = folder / "out", folder / "err"

    @contextmanager
    def used(self) -> Iterator[None]:
        with (
            self.out.open("w", buffering=1) as out,
            self.err.open("w", buffering=1) as err,
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            yield


@contextmanager
def meanwhile(act: Callable[[], None], *, then_end: bool) -> Iterator[None]:
    """Do something on a thread while the block runs a command on this one, and end the command then if wanted."""
    ended = threading.Event()

    def run() -> None:
        try:
            act()
        finally:
            if then_end and not ended.is_set():
                os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def until(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("as_json", [False, True])
def test_in_this_process(as_json: bool, tmp_path: Path, capsys: Any) -> None:
    with home(tmp_path / "home") as url:
        alice, bob = (Person(login, tmp_path, url, capsys) for login in ("Alice", "Bob"))
        files = Files(tmp_path)
        with files.used():

            def act() -> None:
                until(lambda: "watching Alice" in files.err.read_text())
                run_program("send", "alice", "hello", "--keys", bob.keys)
                until(lambda: files.out.read_text().endswith("\n"))

            with meanwhile(act, then_end=True):
                assert run_command(["watch", "--keys", str(alice.keys), *(["--json"] if as_json else [])]) == 0
        [line] = files.out.read_text().splitlines()
        assert json.loads(line)["text"] == "hello" if as_json else line[21:] == "bob: hello"


def test_a_reader_who_has_gone_when_a_line_is_written(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "LOOK_SECONDS", 10_000.0)
    with home(tmp_path / "home") as url:
        alice, bob = (Person(login, tmp_path, url, capsys) for login in ("Alice", "Bob"))
        reader, writer = os.pipe()
        files = Files(tmp_path)
        with files.used(), os.fdopen(writer, "w") as stream, redirect_stdout(stream):

            def act() -> None:
                until(lambda: "watching Alice" in files.err.read_text())
                os.close(reader)
                run_program("send", "alice", "hello", "--keys", bob.keys)

            with meanwhile(act, then_end=False):
                assert run_command(["watch", "--keys", str(alice.keys)]) == 0


def test_a_server_that_does_not_let_it_in(tmp_path: Path, capfd: Any) -> None:
    script: Script = {"AuthChallenge": lambda payload: Refuse(422, "UNKNOWN_USER")}
    keys = tmp_path / "keys.json"
    with served(script) as url:
        create_key_file(keys, Account("alice", bytes(32), (AccessServer("home", url),), True, {}, {}))
        assert run_command(["watch", "--keys", str(keys)]) == 1
    assert "422 UNKNOWN_USER" in capfd.readouterr().err
