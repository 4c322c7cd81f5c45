"""Where the control socket lies: on real folders, with real sockets, of paths of any length."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from shine_node.control import place
from shine_node.control.place import MAX_ADDRESS_BYTES, ControlError, Place, connect_to, own_path, paths_to_ask

SECONDS = 30


@pytest.fixture(params=["short", "long"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder whose sockets have an address of their own, and one whose path no address can hold."""
    if request.param == "long":
        tmp_path = tmp_path / ("n" * 100) / ("o" * 100)
        tmp_path.mkdir(parents=True)
    return tmp_path


@pytest.fixture
def umask() -> Iterator[None]:
    """Let files be made as openly as the most careless system does."""
    before = os.umask(0)
    yield
    os.umask(before)


def meets(path: Path, own: socket.socket) -> bool:
    """Whether a connection to the path arrives at a socket that listens."""
    with connect_to(path, SECONDS) as connection:
        other, _ = own.accept()
        with other:
            other.sendall(b"you are here")
            return connection.recv(100) == b"you are here"


def test_where_a_node_has_it() -> None:
    data = Path("/srv/data")
    assert own_path(data, {}) == Path("/srv/data/control.sock")
    assert own_path(data, {"RUNTIME_DIRECTORY": ""}) == Path("/srv/data/control.sock")
    assert own_path(data, {"RUNTIME_DIRECTORY": "/run/node"}) == Path("/run/node/control.sock")
    assert own_path(data, {"RUNTIME_DIRECTORY": "/run/node:/run/other"}) == Path("/run/node/control.sock")


def test_where_it_is_looked_for() -> None:
    data, packaged = Path("/srv/data"), Path("/var/lib/shine-node")
    assert paths_to_ask(data, {}) == [Path("/srv/data/control.sock")]
    assert paths_to_ask(data, {"RUNTIME_DIRECTORY": "/run/node"}) == [
        Path("/run/node/control.sock"),
        Path("/srv/data/control.sock"),
    ]
    assert paths_to_ask(packaged, {}) == [
        Path("/var/lib/shine-node/control.sock"),
        Path("/run/shine-node/control.sock"),
    ]


def test_nobody_connects_before_it_is_private(folder: Path, umask: None) -> None:
    path = folder / "control.sock"
    with Place(path, folder) as own:
        assert len(os.fsencode(path)) > MAX_ADDRESS_BYTES or not folder.name.startswith("o")
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        with pytest.raises(ConnectionRefusedError):
            connect_to(path, SECONDS)
        own.socket.listen()
        assert meets(path, own.socket)
    assert list(folder.iterdir()) == []
    own.leave()


def test_what_a_killed_node_left_is_replaced(folder: Path) -> None:
    path = folder / "control.sock"
    left = Place(path, folder)
    left.socket.listen()
    left.socket.close()  # as its process ends
    with Place(path, folder) as own:
        own.socket.listen()
        assert meets(path, own.socket)
    left.leave()


def test_what_lies_there_by_then_is_another_ones(folder: Path) -> None:
    path = folder / "control.sock"
    lost = Place(path, folder)
    path.unlink()  # somebody has cleaned up
    lost.leave()
    lost = Place(path, folder)
    path.unlink()
    with Place(path, folder) as own:
        own.socket.listen()
        lost.leave()
        assert meets(path, own.socket)


@pytest.mark.parametrize("waiting", [0, 1])
def test_that_of_a_living_node_is_left_alone(folder: Path, waiting: int) -> None:
    path = folder / "control.sock"
    with Place(path, folder) as own:
        own.socket.listen(0)  # one may wait to be accepted
        connections = [connect_to(path, SECONDS) for _ in range(waiting)]
        with pytest.raises(ControlError, match=r"another node answers at .* give each node a RUNTIME_DIRECTORY"):
            Place(path, folder)
        for connection in connections:
            connection.close()
            own.socket.accept()[0].close()
        if not waiting:
            own.socket.accept()[0].close()
        assert meets(path, own.socket)


def test_what_is_no_socket_is_left_alone(folder: Path) -> None:
    path = folder / "control.sock"
    path.write_text("a letter")
    with pytest.raises(ControlError, match="is in the way of the control socket: move it elsewhere"):
        Place(path, folder)
    assert path.read_text() == "a letter"


def test_the_data_folder_leads_to_a_socket_elsewhere(folder: Path) -> None:
    data, runtime = folder / "data", folder / "run"
    data.mkdir()
    runtime.mkdir()
    path, link = runtime / "control.sock", data / "control.sock"
    with Place(path, data) as own:
        own.socket.listen()
        assert link.readlink() == path
        assert meets(link, own.socket)
    assert (list(data.iterdir()), list(runtime.iterdir())) == ([], [])


def test_what_led_elsewhere_before_leads_here_now(folder: Path) -> None:
    data, runtime, other = folder / "data", folder / "run", folder / "other"
    for each in (data, runtime, other):
        each.mkdir()
    path, link = runtime / "control.sock", data / "control.sock"

    link.symlink_to(other / "control.sock")  # of a start that was killed
    with Place(path, data):
        assert link.readlink() == path
        link.unlink()
        link.symlink_to(other / "control.sock")
    assert link.readlink() == other / "control.sock"  # somebody else's by then

    with Place(link, data):  # now without a runtime folder
        assert link.is_socket() and not link.is_symlink()
        os.link(link, data / "kept")
    (data / "kept").rename(link)  # a socket of a node that was killed, where the link is to lie
    with Place(path, data):
        assert link.readlink() == path
        link.unlink()
    assert list(data.iterdir()) == []


def test_a_place_that_cannot_be_had(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ControlError, match=r"cannot be made \(No such file or directory\): correct the owner of"):
        Place(folder / "none" / "control.sock", folder)

    def refuse(*arguments: object, **options: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(place.os, "chmod", refuse)
    with pytest.raises(ControlError, match="or set RUNTIME_DIRECTORY to another folder for it"):
        Place(folder / "control.sock", folder)
    assert list(folder.iterdir()) == []  # one that is open to others does not stay


def test_a_letter_in_the_way_of_the_link(folder: Path) -> None:
    (folder / "run").mkdir()
    (folder / "control.sock").write_text("a letter")
    with pytest.raises(ControlError, match=r"cannot be made \(File exists\)"):
        Place(folder / "run" / "control.sock", folder)
    assert list((folder / "run").iterdir()) == []
    assert (folder / "control.sock").read_text() == "a letter"


@contextmanager
def as_user(user: int, group: int) -> Iterator[None]:
    """Have the rights of another user for a moment."""
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(group)
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as several users")
def test_only_the_user_and_the_group_of_the_node_can_open_it(umask: None) -> None:
    stranger, node_user, node_group, member = 65531, 65532, 65533, 65534
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        path = folder / "control.sock"
        with as_user(node_user, node_group):
            own = Place(path, folder)
        with own:
            own.socket.listen()
            for user, group in ((node_user, node_group), (member, node_group)):
                with as_user(user, group):
                    assert meets(path, own.socket)
            with as_user(stranger, stranger), pytest.raises(PermissionError):
                connect_to(path, SECONDS)


def test_nobody_is_there(folder: Path) -> None:
    with pytest.raises(FileNotFoundError):
        connect_to(folder / "control.sock", SECONDS)
    with pytest.raises(FileNotFoundError):
        connect_to(folder / "none" / "control.sock", SECONDS)


def test_it_needs_no_descriptor_afterwards(folder: Path) -> None:
    path = folder / "control.sock"
    before = set(Path("/proc/self/fd").iterdir())
    with Place(path, folder) as own:
        own.socket.listen()
        assert meets(path, own.socket)
        with pytest.raises(ControlError):
            Place(path, folder)
    with pytest.raises(FileNotFoundError):
        connect_to(path, SECONDS)
    assert set(Path("/proc/self/fd").iterdir()) == before
