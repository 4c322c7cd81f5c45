"""Asking the node: a real one, none at all, and ones that answer badly."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from shine_node.cli import control
from shine_node.cli.control import AskRefused, NodeNotRunning, ask
from shine_node.cli.node_process import NodeProcess
from shine_node.config import load_config
from shine_node.control.place import ControlError, Place
from shine_node.store.recovery.state import State, write_state
from tests.cli.program import write_config
from tests.control.test_place import as_user
from tests.support.nodes import run

SECONDS = 30.0


def void(anything: object) -> None:
    """For what only has to happen."""


class Asking:
    """Whoever asks the node of one configuration."""

    def __init__(self, folder: Path) -> None:
        self.config_path = write_config(folder)
        self.data = folder / "data"

    def __call__(self, op: str = "Status", *, seconds: float = SECONDS, **payload: object) -> dict[str, Any]:
        return ask(load_config(self.config_path), self.config_path, op, payload, seconds=seconds)

    @contextmanager
    def answered_by(self, behave: Callable[[socket.socket], None]) -> Iterator[None]:
        """Have somebody listen where the node would, who does as told with the one who comes."""
        self.data.mkdir()
        with Place(self.data / "control.sock", self.data) as place:
            place.socket.settimeout(SECONDS)
            place.socket.listen()

            def serve() -> None:
                connection, _ = place.socket.accept()
                with connection:
                    connection.settimeout(SECONDS)
                    behave(connection)

            thread = threading.Thread(target=serve)
            thread.start()
            try:
                yield
            finally:
                thread.join(SECONDS)
            assert not thread.is_alive()


@pytest.fixture
def asking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asking:
    monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
    return Asking(tmp_path)


@pytest.mark.parametrize("folder", ["short", "n" * 110])
def test_a_node_that_runs_answers(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir()
    asking = Asking(tmp_path / folder)

    async def story() -> None:
        node = await NodeProcess.start(asking.config_path)
        try:
            status = await asyncio.to_thread(asking)
            assert (status["login"], status["listening"]) == ("home", [node.url])
            with pytest.raises(AskRefused) as caught:
                await asyncio.to_thread(asking, "AddUser", record={})
            assert (caught.value.code, str(caught.value)) == ("BAD_FIELDS", "BAD_FIELDS: login is missing")
            with pytest.raises(AskRefused, match="UNKNOWN_OP"):
                await asyncio.to_thread(asking, "Dance")
        finally:
            await node.stop()

    run(story())


def test_no_node_runs_and_its_store_is_gone(asking: Asking) -> None:
    asking.data.mkdir(exist_ok=True)
    write_state(asking.data / "shine.mdb", State(known=True))
    with pytest.raises(NodeNotRunning, match=r"is a service\. Of its store: there was a store .* put it back"):
        asking()


def test_no_node_runs(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    def complaint() -> str:
        with pytest.raises(NodeNotRunning) as caught:
            asking()
        return str(caught.value)

    path = asking.data / "control.sock"
    start = (
        f"Start the node with `shine-node run --config {asking.config_path}`,"
        " or `systemctl start shine-node` where it is a service"
    )
    moved = (
        f". There is no store in {asking.data} yet: a node that runs while server.dataDir was changed answers at its"
        " folder of before, and has to be restarted, or stopped there"
    )
    assert complaint() == f"nobody answers at {path}. {start}{moved}"
    asking.data.write_text("no folder")
    assert complaint() == f"nobody answers at {path}. {start}"
    asking.data.unlink()
    asking.data.mkdir()
    left = Place(path, asking.data)
    assert complaint() == f"nobody answers at {path}. {start}{moved}"
    (asking.data / "shine.mdb").touch()
    assert complaint() == f"nobody answers at {path}. {start}"
    left.leave()
    monkeypatch.setenv("RUNTIME_DIRECTORY", "/nowhere")
    assert f"nobody answers at /nowhere/control.sock or {path}." in complaint()


def test_the_socket_may_lie_where_the_environment_says(
    asking: Asking, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with asking.answered_by(lambda connection: connection.sendall(b'{"status":200,"payload":{"here":true}}\n')):
        monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path / "none"))
        assert asking() == {"here": True}  # nobody is there: the data folder is next


def test_the_request(asking: Asking) -> None:
    heard: list[bytes] = []

    def behave(connection: socket.socket) -> None:
        heard.append(connection.recv(10_000))
        connection.sendall(b'{"status":200,"pay')
        connection.sendall(b'load":{}}\n')

    with asking.answered_by(behave):
        assert asking("Count", upTo=3) == {}
    assert heard == [b'{"op":"Count","requestId":"1","payload":{"upTo":3}}\n']


@pytest.mark.parametrize("answer", [b"", b'{"status":200', b"no JSON\n", b'{"event":true}\n'])
def test_no_answer_that_can_be_read(asking: Asking, answer: bytes) -> None:
    def behave(connection: socket.socket) -> None:
        connection.recv(10_000)
        connection.sendall(answer)

    with (
        asking.answered_by(behave),
        pytest.raises(ControlError, match="no answer that can be read: look whether it runs, and ask again"),
    ):
        asking()


def test_an_answer_that_never_ends(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "MAX_ANSWER_BYTES", 1000)

    def behave(connection: socket.socket) -> None:
        connection.recv(10_000)
        connection.sendall(b"x" * 2000)

    with asking.answered_by(behave), pytest.raises(ControlError, match="no answer that can be read"):
        asking()


def test_a_node_that_says_nothing(asking: Asking) -> None:
    enough = threading.Event()
    with asking.answered_by(lambda connection: void(enough.wait(SECONDS))):
        with pytest.raises(ControlError, match=r"has not answered within 0\.1 s: look at its log"):
            asking(seconds=0.1)
        enough.set()


def test_a_node_that_refuses_before_it_has_heard_all(asking: Asking) -> None:
    gone = threading.Event()

    def behave(connection: socket.socket) -> None:
        connection.sendall(b'{"status":503,"error":"SERVER_BUSY","message":"try again"}\n')
        connection.shutdown(socket.SHUT_RD)
        gone.wait(SECONDS)

    with asking.answered_by(behave):
        with pytest.raises(AskRefused, match="SERVER_BUSY: try again"):
            asking(much="x" * 5_000_000)
        gone.set()


def test_a_node_that_leaves(asking: Asking) -> None:
    def behave(connection: socket.socket) -> None:
        connection.recv(1)  # what is not read makes its end a reset

    with asking.answered_by(behave), pytest.raises(ControlError, match=r"the node has left .*reset"):
        asking(much="x" * 10_000)


def test_a_node_that_takes_nobody(asking: Asking) -> None:
    asking.data.mkdir()
    path = asking.data / "control.sock"
    with Place(path, asking.data) as place:
        place.socket.listen(0)
        with control.connect_to(path, SECONDS), pytest.raises(ControlError, match=r"cannot be used .*try again in a"):
            asking()


def test_a_user_who_may_not_ask(asking: Asking) -> None:
    asking.data.mkdir(mode=0)
    text = "this user may not open .*control.sock: ask as the user that runs the node, or one of its group"
    if os.geteuid():
        with pytest.raises(ControlError, match=text):
            asking()
        return
    config = load_config(asking.config_path)
    with as_user(65531, 65531), pytest.raises(ControlError, match=text):
        ask(config, asking.config_path, "Status", {})
