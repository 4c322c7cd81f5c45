"""A service manager for tests: the socket that a service tells how it is, and what it has been told."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.nodes import PATIENCE

__all__ = ["Manager"]


class Manager:
    """Listens at a real datagram socket.

    Args:
        path: where; one that begins with ``@`` is a name of the abstract namespace.
    """

    def __init__(self, path: Path | str) -> None:
        self.name = str(path)
        self.told: list[str] = []
        """Every line so far, in order, of those that were taken in."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(self.name.replace("@", "\0", 1) if self.name.startswith("@") else self.name)

    def take(self) -> list[str]:
        """Take in what has come, and return all that was told so far."""
        while True:
            try:
                self.told += self._socket.recv(65536).decode().splitlines()
            except BlockingIOError:
                return self.told

    async def until(self, check: Callable[[list[str]], bool], *, timeout: float = PATIENCE) -> list[str]:
        """Wait until what was told is as it should be."""
        deadline = time.monotonic() + timeout
        while not check(self.take()):
            if time.monotonic() > deadline:
                raise AssertionError(f"not told within {timeout:g} s; told: {self.told}")
            await asyncio.sleep(0.02)
        return self.told

    def beats(self) -> int:
        """Return how many signs of life have come so far."""
        return self.take().count("WATCHDOG=1")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()
