"""Asks the running node over its control socket."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shine_node.config import Config
from shine_node.control.place import ControlError, connect_to, paths_to_ask
from shine_node.control.recovery import STORE_FILE
from shine_node.protocol.envelope import decode_answer, encode_request
from shine_node.protocol.errors import ShineError

__all__ = ["AskRefused", "NodeNotRunning", "ask"]

SECONDS = 60.0
"""How long the node may say nothing; it ends all that takes longer before that."""
MAX_ANSWER_BYTES = 64 * 2**20
CHUNK_BYTES = 65536


class NodeNotRunning(ControlError):
    """Nobody listens at any place where the node would have its control socket."""


class AskRefused(ShineError):
    """The node answered with an error; ``code`` is that of §2, or of the operation."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


def ask(
    config: Config, config_path: Path, op: str, payload: Mapping[str, object], *, seconds: float = SECONDS
) -> dict[str, Any]:
    """Make one request to the node of a configuration and return the payload of its answer.

    Args:
        config_path: the file of the configuration, for messages.
        seconds: how long the node may say nothing.

    Raises:
        NodeNotRunning: the text says how to start it.
        ControlError: it cannot be asked, or has not answered.
        AskRefused: it refused.
    """
    with _connect(config, config_path, seconds) as connection:
        try:
            line = _exchange(connection, encode_request(op, "1", payload).encode() + b"\n")
        except TimeoutError:
            raise ControlError(f"the node has not answered within {seconds:g} s: look at its log") from None
        except OSError as error:
            raise ControlError(f"the node has left ({error.strerror}): look whether it runs, and ask again") from None
    answer = decode_answer(line) if line.endswith(b"\n") else None
    if answer is None:
        raise ControlError("the node has given no answer that can be read: look whether it runs, and ask again")
    if not answer.ok:
        raise AskRefused(answer.error, answer.message)
    return answer.payload


def _connect(config: Config, config_path: Path, seconds: float) -> socket.socket:
    paths = paths_to_ask(config.server.data_dir, os.environ)
    closed: Path | None = None
    for path in paths:
        try:
            return connect_to(path, seconds)
        except PermissionError:
            closed = path
        except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
            continue
        except OSError as error:
            raise ControlError(f"{path} cannot be used ({error.strerror}): try again in a moment") from None
    if closed is not None:
        raise ControlError(f"this user may not open {closed}: ask as the user that runs the node, or one of its group")
    raise NodeNotRunning(
        f"nobody answers at {' or '.join(map(str, paths))}. Start the node with `shine-node run --config {config_path}`"
        f", or `systemctl start shine-node` where it is a service{_if_moved(config)}"
    )


def _if_moved(config: Config) -> str:
    """Return what to think of where no node has used the data folder yet."""
    from shine_node.store.files import StoreError
    from shine_node.store.recovery.presence import refuse_gone

    folder = config.server.data_dir
    store = folder / STORE_FILE
    try:
        refuse_gone(store)
        store.stat()
    except StoreError as error:
        return f". Of its store: {error}"
    except FileNotFoundError:
        return (
            f". There is no store in {folder} yet: a node that runs while server.dataDir was changed answers at its"
            " folder of before, and has to be restarted, or stopped there"
        )
    except OSError:  # this user may not look, or it is no folder: that says nothing
        pass
    return ""


def _exchange(connection: socket.socket, line: bytes) -> bytes:
    with contextlib.suppress(BrokenPipeError):  # it would not hear all of it: what it says to that can be read
        connection.sendall(line)
    received = bytearray()
    while not received.endswith(b"\n") and len(received) < MAX_ANSWER_BYTES:
        chunk = connection.recv(CHUNK_BYTES)
        if not chunk:
            break
        received += chunk
    return bytes(received)
