"""What the node tells the service manager that started it: systemd's notification protocol, ``sd_notify(3)``."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Mapping

__all__ = ["Notifier", "address_of", "watchdog_seconds"]

MAX_STATUS_CHARACTERS = 200
SEND_SECONDS = 1.0
"""How long a manager whose queue is full may hold up the node."""
EXTEND_EVERY_SECONDS = 20.0
EXTEND_BY_SECONDS = 60.0
LONGEST_START_SECONDS = 3600.0
"""Of a start that goes on for as long, such as the migration of a store, the manager may judge by itself."""


def address_of(environ: Mapping[str, str]) -> str:
    """Return the address of the manager's socket as ``socket`` takes it; empty where nobody listens. Pure.

    A name that begins with ``@`` is one of the abstract namespace. Anything else than these and absolute paths, such as
    ``vsock:``, is none of ours.
    """
    name = environ.get("NOTIFY_SOCKET", "")
    if name.startswith("@") and len(name) > 1:
        return "\0" + name[1:]
    return name if name.startswith("/") else ""


def watchdog_seconds(environ: Mapping[str, str], pid: int) -> float | None:
    """Return within how many seconds the manager wants each sign of life; ``None`` where it wants none. Pure.

    Args:
        pid: of this process; the manager may mean another one.
    """
    text, whom = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", str(pid))
    if not (text.isascii() and text.isdigit()) or whom != str(pid):
        return None
    return int(text) / 1e6 or None


class Notifier:
    """Tells the service manager how the node is; without one it does nothing.

    Nothing here fails: a message that the manager does not take within ``SEND_SECONDS`` is lost.

    Args:
        environ: the environment of the process.
        pid: of this process.
    """

    def __init__(self, environ: Mapping[str, str], pid: int) -> None:
        self._address = address_of(environ)
        self.watchdog_seconds = watchdog_seconds(environ, pid) if self._address else None
        """Within how many seconds the manager wants each ``alive``; ``None`` where it wants none."""
        self._status = ""

    @property
    def active(self) -> bool:
        """Whether there is a manager."""
        return bool(self._address)

    def ready(self) -> None:
        """The node listens."""
        self._send("READY=1")

    def stopping(self) -> None:
        """The node has begun to stop."""
        self._send("STOPPING=1")

    def alive(self) -> None:
        """A sign of life, for the watchdog."""
        self._send("WATCHDOG=1")

    def status(self, text: str) -> None:
        """Show a line in ``systemctl status``; the same one again is not sent."""
        line = " ".join(text.split())[:MAX_STATUS_CHARACTERS]
        if line != self._status:
            self._status = line
            self._send(f"STATUS={line}")

    @contextlib.contextmanager
    def starting(
        self, *, every: float = EXTEND_EVERY_SECONDS, longest: float = LONGEST_START_SECONDS
    ) -> Iterator[None]:
        """Ask for more time again and again while the block runs, which may hold up the loop.

        Args:
            every: seconds between two requests.
            longest: seconds after which no more time is asked for.
        """
        if not self.active:
            yield
            return
        done = threading.Event()

        def ask() -> None:
            for _ in range(round(longest / every)):
                if done.wait(every):
                    return
                self._send(f"EXTEND_TIMEOUT_USEC={EXTEND_BY_SECONDS * 1e6:.0f}")

        thread = threading.Thread(target=ask, name="start-extender", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _send(self, line: str) -> None:
        if not self._address:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(SEND_SECONDS)
            sender.sendto(line.encode(), self._address)
