"""Two network namespaces of this machine, and a wire between them on which every packet can be dropped.

The process of the test reaches either of them by another wire of its own, so that it can watch both while they cannot
see each other. Needs root, ``ip`` (iproute2) and ``nft`` (nftables).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from contextlib import suppress
from types import TracebackType
from typing import Self

__all__ = ["End", "Wire", "why_no_wires"]

TABLE = "shine_test"
LIMIT_SECONDS = 30


class WireFailed(Exception):
    """A command failed; the text is what it said."""


def _run(*command: str) -> str:
    """Run a command and return what it says.

    Raises:
        WireFailed: it ended with an error, or did not end in time.
    """
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise WireFailed(f"{' '.join(command)}: {error}") from None
    if ran.returncode:
        raise WireFailed(f"{' '.join(command)}: {ran.stderr.strip()}")
    return ran.stdout


def why_no_wires() -> str:
    """Say why this machine cannot have such a wire; empty where it can."""
    missing = [program for program in ("ip", "nft") if shutil.which(program) is None]
    if missing:
        return f"{', '.join(missing)} is missing: install iproute2 and nftables"
    if os.geteuid() != 0:
        return "only root can make network namespaces"
    try:
        with Wire() as wire:
            wire.cut()
    except WireFailed as failed:
        return f"this system does not allow it: {failed}"
    return ""


class End:
    """One end of the wire: a namespace, with an address for the other end and one for the test."""

    def __init__(self, name: str, number: int, subnet: str) -> None:
        self.namespace = f"shine-{os.getpid()}-{name}"
        self.address = f"198.18.{subnet}.{249 + number}"
        """Where the other end reaches it."""
        self.watch_address = f"198.18.{subnet}.{2 + 4 * number}"
        """Where the test reaches it."""
        self._outside_address = f"198.18.{subnet}.{1 + 4 * number}"
        self._outside_device = f"sh{os.getpid()}{name}"[:15]

    @property
    def within(self) -> tuple[str, ...]:
        """What a command is put behind to run there."""
        return "ip", "netns", "exec", self.namespace

    def make(self) -> None:
        """Make the namespace and the way to it from here."""
        _run("ip", "netns", "add", self.namespace)
        self.ip("link", "set", "lo", "up")
        _run(
            "ip", "link", "add", self._outside_device, "type", "veth", "peer", "name", "watch", "netns", self.namespace
        )
        _run("ip", "address", "add", f"{self._outside_address}/30", "dev", self._outside_device)
        _run("ip", "link", "set", self._outside_device, "up")
        self.ip("address", "add", f"{self.watch_address}/30", "dev", "watch")
        self.ip("link", "set", "watch", "up")

    def connect(self) -> None:
        """Give the wire's end its address."""
        self.ip("address", "add", f"{self.address}/30", "dev", "wire")
        self.ip("link", "set", "wire", "up")

    def remove(self) -> None:
        """Remove all of it; what is not there is no harm."""
        for command in (("ip", "link", "delete", self._outside_device), ("ip", "netns", "delete", self.namespace)):
            with suppress(WireFailed):
                _run(*command)

    def ip(self, *arguments: str) -> None:
        """Run ``ip`` there."""
        _run("ip", "-netns", self.namespace, *arguments)

    def deafen(self) -> None:
        """Drop every packet that comes by the wire, whatever it is, without a word to its sender."""
        hook = "type filter hook ingress device wire priority 0"
        self._nft(f"table netdev {TABLE} {{ chain dropped {{ {hook}; counter drop; }}; }}")

    def hear(self) -> None:
        """Take packets again."""
        self._nft(f"delete table netdev {TABLE}")

    @property
    def dropped(self) -> int:
        """How many packets were dropped since it does not hear."""
        listed = json.loads(self._nft("list", "chain", "netdev", TABLE, "dropped", options=("-j",)))
        [rule] = [entry["rule"] for entry in listed["nftables"] if "rule" in entry]
        return int(rule["expr"][0]["counter"]["packets"])

    def _nft(self, *command: str, options: tuple[str, ...] = ()) -> str:
        return _run(*self.within, "nft", *options, *command)


class Wire:
    """Two ends and what is between them, while the block lasts."""

    def __init__(self) -> None:
        subnet = str(os.getpid() % 251)
        self.one = End("a", 0, subnet)
        self.two = End("b", 1, subnet)

    def __enter__(self) -> Self:
        try:
            for end in self.ends:
                end.make()
            names = ("wire", "netns", self.one.namespace), ("wire", "netns", self.two.namespace)
            _run("ip", "link", "add", *names[0], "type", "veth", "peer", "name", *names[1])
            for end in self.ends:
                end.connect()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    @property
    def ends(self) -> tuple[End, End]:
        """Both ends."""
        return self.one, self.two

    def cut(self) -> None:
        """Drop every packet both ways."""
        for end in self.ends:
            end.deafen()

    def mend(self) -> None:
        """Let packets through again."""
        for end in self.ends:
            end.hear()

    def _remove(self) -> None:
        for end in self.ends:
            end.remove()
