"""Nodes as processes of their own on loopback, on ports that stay theirs: for the demo, tests and benchmarks."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import shine_node
from shine_node.protocol.errors import ShineError

__all__ = ["NodeFailed", "NodeProcess", "ReservedPort"]

START_SECONDS = 60.0
STOP_SECONDS = 30.0
_LISTENING = re.compile(r"listening on (wss?://[^\s\"]+)")
"""A line of text, or the message of one that is JSON (``log.format``)."""
_PROGRAM = "import sys; from shine_node.cli import main; sys.exit(main())"
_FOLDER = str(Path(shine_node.__file__).resolve().parents[1])
_LOG_LINES_SHOWN = 10


class NodeFailed(ShineError):
    """A node did not start, or did not stop when it was told to; the text holds the end of its log."""


class ReservedPort:
    """A free TCP port of 127.0.0.1 that nobody else is given while this object is open.

    It is bound and does not listen: connections to it are refused, until a node that is told its number listens there
    (servers set ``SO_REUSEADDR``, and the system allows the second binding as long as only one of the two listens).
    """

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.number: int = self._socket.getsockname()[1]

    def close(self) -> None:
        """Give the port back."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class NodeProcess:
    """A node that runs as ``shine-node run`` in a process of its own; made by ``start``."""

    def __init__(self, process: asyncio.subprocess.Process, log_file: Path) -> None:
        self.url = ""
        """Where it listens, as it said so itself."""
        self._process = process
        self._log_file = log_file

    @classmethod
    async def start(
        cls,
        config_file: Path,
        *,
        core: int | None = None,
        through: Sequence[str] = (),
        timeout: float = START_SECONDS,
    ) -> Self:
        """Start a node and return once it listens; its log goes to a file beside the configuration, ``….log``.

        Args:
            config_file: its configuration.
            core: the only processor core that it may use; ``None`` for all.
            through: a command that becomes the one that follows it, such as ``ip netns exec NAME``.
            timeout: seconds until it must listen.

        Raises:
            NodeFailed: it ended, or said nothing in time; it does not run then.
        """
        log_file = config_file.with_suffix(".log")
        paths = [_FOLDER, *filter(None, [os.environ.get("PYTHONPATH")])]
        environ = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
        environ.pop("RUNTIME_DIRECTORY", None)  # several nodes would have their control sockets at one place
        with log_file.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *through,
                sys.executable,
                "-c",
                _PROGRAM,
                "run",
                "--config",
                str(config_file),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=environ,
            )
        node = cls(process, log_file)
        try:
            if core is not None:
                os.sched_setaffinity(process.pid, {core})  # it has one thread yet; later ones inherit this
            node.url = await node._read_url(timeout)
        except BaseException:
            await node.kill()
            raise
        return node

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended yet, as far as is known."""
        return self._process.returncode is None

    def log_tail(self, lines: int = _LOG_LINES_SHOWN) -> str:
        """Return the last lines of its log."""
        return "\n".join(self._log_file.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])

    async def stop(self, *, timeout: float = STOP_SECONDS) -> None:
        """Stop it in order (``SIGTERM``) and check that it ended well.

        Raises:
            NodeFailed: it did not end in time (it is killed then), or with another exit status than 0; also where it
                had ended so before.
        """
        if self.running:
            self._process.terminate()
        try:
            status = await asyncio.wait_for(self._process.wait(), timeout)
        except TimeoutError:
            await self.kill()
            raise NodeFailed(f"the node did not stop within {timeout:g} s; its log ends:\n{self.log_tail()}") from None
        if status != 0:
            raise NodeFailed(f"the node ended with status {status}; its log ends:\n{self.log_tail()}")

    async def kill(self) -> None:
        """End it at once (``SIGKILL``), as a loss of power would; harmless if it has ended."""
        if self.running:
            self._process.kill()
        await self._process.wait()

    async def _read_url(self, timeout: float) -> str:
        output = self._process.stdout
        if output is None:
            raise AssertionError("the standard output is a pipe")
        try:
            line = (await asyncio.wait_for(output.readline(), timeout)).decode("utf-8", "replace")
        except TimeoutError:
            raise NodeFailed(f"the node did not listen within {timeout:g} s:\n{self.log_tail()}") from None
        found = _LISTENING.search(line)
        if found is None:
            raise NodeFailed(f"the node did not start; it said: {line.strip()}\n{self.log_tail()}")
        return found[1]
