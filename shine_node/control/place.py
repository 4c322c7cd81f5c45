"""Where the control socket of a node lies, and how the node and those who ask it get there."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from shine_node.protocol.errors import ShineError

__all__ = ["ControlError", "Place", "connect_to", "own_path", "paths_to_ask"]

SOCKET_NAME: Final = "control.sock"
SOCKET_MODE: Final = 0o660
MAX_ADDRESS_BYTES: Final = 107
"""The longest path that the address of a Unix socket holds."""
PACKAGED: Final = {Path("/var/lib/shine-node"): Path("/run/shine-node")}
"""The data folder of the packaged service and its runtime folder, which the service's group can reach."""


class ControlError(ShineError):
    """The control socket cannot be made, or the node cannot be asked; the text says what to do."""


def own_path(data_dir: Path, environ: Mapping[str, str]) -> Path:
    """Return where a node has its socket: in ``RUNTIME_DIRECTORY``, the first of several, or else in its data folder.

    Pure, as is ``paths_to_ask``.
    """
    runtime = environ.get("RUNTIME_DIRECTORY", "").partition(":")[0]
    return Path(runtime or data_dir) / SOCKET_NAME


def paths_to_ask(data_dir: Path, environ: Mapping[str, str]) -> list[Path]:
    """Return where the socket of the node of a data folder may be, likeliest first.

    Who asks need not have the ``RUNTIME_DIRECTORY`` of the node: the data folder leads to it (see ``Place``), and that
    of the packaged service is known.
    """
    folders = [data_dir, PACKAGED.get(data_dir, data_dir)]
    return list(dict.fromkeys([own_path(data_dir, environ), *(folder / SOCKET_NAME for folder in folders)]))


class Place:
    """The socket of a node: bound to its path and private, from the beginning until it is left.

    It does not listen yet, so nobody connects before its mode is set. What a node that was killed has left there is
    replaced. Where the socket lies outside of the data folder, a symbolic link there leads to it.

    Args:
        path: where; its folder must exist. Paths of any length will do.
        data_dir: of the node, which holds the lock of its store.

    Raises:
        ControlError: another node answers there, something else lies there, or this user may not.
    """

    def __init__(self, path: Path, data_dir: Path) -> None:
        self.path = path
        link = data_dir / SOCKET_NAME
        try:
            with contextlib.ExitStack() as undo:
                folder = _open_folder(path.parent)
                undo.callback(os.close, folder)
                _clear(path, folder)
                self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                undo.callback(self.socket.close)
                self.socket.bind(_address(path, folder))
                undo.callback(_remove, path.name, folder, _identity(path.name, folder))
                os.chmod(path.name, SOCKET_MODE, dir_fd=folder)
                if not path.parent.samefile(data_dir):
                    _point(link, path)
                    undo.callback(_remove_link, link, path)
                self._undo = undo.pop_all()
        except OSError as error:
            raise ControlError(
                f"the control socket {path} cannot be made ({error.strerror}): correct the owner of {path.parent}, or"
                " set RUNTIME_DIRECTORY to another folder for it"
            ) from None

    def leave(self) -> None:
        """Remove the socket, unless another one lies there by now, and close it; to do so twice does nothing."""
        self._undo.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()


def connect_to(path: Path, seconds: float) -> socket.socket:
    """Connect to a socket at a path of any length.

    Args:
        seconds: the bound of this and of each later call of the socket.

    Raises:
        OSError: nobody listens there, this user may not, or the one who listens is not taking anybody now.
    """
    with contextlib.ExitStack() as undo:
        folder = _open_folder(path.parent)
        try:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            undo.callback(connection.close)
            connection.settimeout(seconds)
            connection.connect(_address(path, folder))
        finally:
            os.close(folder)
        undo.pop_all()
    return connection


def _open_folder(folder: Path) -> int:
    return os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def _address(path: Path, folder: int) -> str:
    """Return what to bind or connect to while the descriptor of the folder is open."""
    return str(path) if len(os.fsencode(path)) <= MAX_ADDRESS_BYTES else f"/proc/self/fd/{folder}/{path.name}"


def _clear(path: Path, folder: int) -> None:
    """Remove what a node that was killed has left."""
    try:
        mode = os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISSOCK(mode):
        try:
            connect_to(path, 1).close()
        except ConnectionRefusedError:
            pass  # whoever made it is gone
        except BlockingIOError:  # its queue of those who wait is full: it lives
            raise _taken(path) from None
        else:
            raise _taken(path)
    elif not stat.S_ISLNK(mode):
        raise ControlError(f"{path} is in the way of the control socket: move it elsewhere")
    os.unlink(path.name, dir_fd=folder)


def _taken(path: Path) -> ControlError:
    return ControlError(f"another node answers at {path}: give each node a RUNTIME_DIRECTORY of its own")


def _identity(name: str, folder: int) -> tuple[int, int]:
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    return status.st_dev, status.st_ino


def _remove(name: str, folder: int, identity: tuple[int, int]) -> None:
    """Remove a socket that is still open, so that nothing else can have its identity."""
    with contextlib.suppress(OSError):  # it is gone, or the folder is closed to this user now: it is stale anyway
        if _identity(name, folder) == identity:
            os.unlink(name, dir_fd=folder)


def _point(link: Path, path: Path) -> None:
    """Let the data folder lead to the socket; the lock of its store says that nobody else's is there."""
    if link.is_symlink() or link.is_socket():
        link.unlink()
    link.symlink_to(path)


def _remove_link(link: Path, path: Path) -> None:
    with contextlib.suppress(OSError):
        if link.readlink() == path:
            link.unlink()
