"""What ``check`` finds of the addresses to listen on: free, used by the node itself, used by others, or not allowed."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

from shine_node.cli.findings import Finding, Level, Situation
from shine_node.cli.node_user import as_node, own_user
from shine_node.config import ListenAddress

__all__ = ["PRODUCERS", "judge_listening"]

PROC = Path("/proc")
SYSTEMD = Path("/run/systemd/system")
"""It is there where systemd runs the machine, and a unit may have rights that its user has not."""
LISTENS = "0A"
"""The state of a socket that listens, in ``/proc/net/tcp``."""


def find_ports(situation: Situation) -> list[Finding]:
    """Look whether each address can be listened on, by binding it for a moment."""
    own = {url.removesuffix("/ws").rpartition(":")[2] for url in situation.listening}
    sure = situation.unit is not None or own_user() == situation.node or not SYSTEMD.exists()
    return [
        judge_listening(
            address,
            _problem_of_node(address, situation),
            running=str(address.port) in own,
            user=_user_of(address.port),
            sure=sure,
        )
        for address in situation.config.server.listen
        if address.port
    ]


def judge_listening(address: ListenAddress, problem: int, *, running: bool, user: str, sure: bool = True) -> Finding:
    """Say whether an address can be listened on; pure.

    Args:
        problem: the number of the error that binding it met, 0 for none.
        running: whether the node runs and listens on this port itself.
        user: who listens there, as far as is known; empty if it is not.
        sure: whether it is known that the node has no rights but those of its user.
    """
    if problem == 0:
        return _port(Level.OK, f"{address} is free")
    if problem in (errno.EADDRINUSE, errno.EACCES) and running:
        return _port(Level.OK, f"{address} is used by the running node itself")
    if problem == errno.EADDRINUSE:
        who = user or "another program (root can see which)"
        return _port(Level.ERROR, f"{address} is used by {who}: stop that, or choose another server.listen")
    if problem == errno.EACCES:
        text = (
            f"{address} is not allowed to the node's user, as ports below 1024 mostly are not: choose a greater one and"
            " let the router or a proxy pass to it, or give the service AmbientCapabilities=CAP_NET_BIND_SERVICE with"
            " PrivateUsers=no, as the example tls.conf of the package does"
        )
        return _port(Level.ERROR if sure else Level.WARNING, text + ("" if sure else ", unless it has that already"))
    if problem == errno.EADDRNOTAVAIL:
        text = f"{address} is no address of this machine: correct server.listen, or bring its network up first"
        return _port(Level.ERROR, text)
    return _port(Level.ERROR, f"{address} cannot be listened on ({os.strerror(problem)}): correct server.listen")


PRODUCERS: tuple[Callable[[Situation], list[Finding]], ...] = (find_ports,)


def _problem_of_node(address: ListenAddress, situation: Situation) -> int:
    """Return the number of the error that the node would meet; root alone meets one of an address that is taken."""
    problem = _problem(address)
    if problem == 0:
        with as_node(situation.node):
            problem = _problem(address)
    allowed = situation.unit is not None and situation.unit.low_ports
    return 0 if problem == errno.EACCES and allowed else problem


def _problem(address: ListenAddress) -> int:
    """Return the number of the error that binding an address meets, 0 if it meets none."""
    hosts = [address.host] if address.host else ["0.0.0.0", "::"]  # noqa: S104 - it is bound and does not listen
    problems: list[int] = []
    for host in hosts:
        try:
            [(family, *_, place), *_] = socket.getaddrinfo(host, address.port, type=socket.SOCK_STREAM)
            with socket.socket(family, socket.SOCK_STREAM) as bound:
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                bound.bind(place)
        except socket.gaierror:
            problems.append(errno.EADDRNOTAVAIL)
        except OSError as error:
            if error.errno != errno.EAFNOSUPPORT or address.host:  # a machine without IPv6 listens on the rest
                problems.append(error.errno or errno.EINVAL)
    return next(iter(problems), 0)


def _user_of(port: int) -> str:
    """Return the name and number of the process that listens on a port, empty if this user cannot see it."""
    inodes = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    if inodes:
        for process in PROC.glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended, or is another user's
                if any(str(entry.readlink()) in inodes for entry in (process / "fd").iterdir()):
                    return f"{(process / 'comm').read_text(encoding='utf-8').strip()} (PID {process.name})"
    return ""


def _listening_inodes(port: int) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (PROC / "net" / table).read_text(encoding="ascii").splitlines()[1:]:
                fields = line.split()
                if fields[3] == LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                    yield fields[9]


def _port(level: Level, text: str) -> Finding:
    return Finding(level, "port", text)
