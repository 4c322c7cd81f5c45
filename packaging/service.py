"""What ``packaging/try.py`` does with the service in a machine: asks it, changes its unit, sends messages."""

from __future__ import annotations

import base64
import contextlib
import json
import shlex
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from machine import Machine, expect, proved, run
from nacl.signing import SigningKey
from packages import TOP

__all__ = [
    "CONF_D",
    "NAMED",
    "URL",
    "USERS",
    "Client",
    "answers",
    "client_here",
    "client_there",
    "drop_in",
    "prove_message",
    "ready",
    "some_keys",
]

URL = "ws://127.0.0.1:7070/ws"
OUTSIDE = "127.0.0.2"
"""Where the node outside of the machine listens."""
DROP_INS = "/etc/systemd/system/shine-node.service.d"
CONF_D = "/etc/shine-node/conf.d"
NAMED = f"{CONF_D}/10-this-server.toml"
USERS = "runuser -u shine-node -- shine-node user list"

Client = Callable[..., str]
"""Runs a command of the client as alice, and returns what it printed."""


def client_there(machine: Machine) -> Client:
    """Return a client in the machine, of the package; it needs what the package recommends."""
    return lambda *words: machine.do(shlex.join(["shine-node", *words, "--keys", "/srv/alice.json"]))


def client_here(work: Path) -> Client:
    """Return a client on this system, of the source tree."""
    return lambda *words: program(*words, "--keys", work / "alice.json")


def answers(port: int = 7070) -> bool:
    """Whether the node serves its page."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=2) as page:
            return bool(page.status == 200)
    except OSError:
        return False


def ready(machine: Machine) -> bool:
    """Whether the service has said that it is ready."""
    return machine.show("ActiveState") == "active" and machine.show("SubState") == "running"


def drop_in(machine: Machine, text: str) -> None:
    """Change the unit as an owner would, or undo that."""
    folder = machine.root / DROP_INS.lstrip("/")
    if text:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "try.conf").write_text(text)
    else:
        shutil.rmtree(folder)
    machine.do("systemctl daemon-reload && systemctl restart shine-node")


def prove_message(machine: Machine, work: Path, client: Client) -> None:
    """Register a user and a client, and send a message to a node outside of the machine.

    Args:
        work: an empty folder, for what lies outside of it.
    """
    with node_outside(work) as url:
        settings = (
            '[server]\nurl = "ws://127.0.0.1:7070/ws"\n[server.pool]\nallowInsecurePeers = true\n'
            'allowPrivatePeers = true\n[registration]\nmode = "open"\n'
            f'[[sync_servers]]\nlogin = "outside"\nurl = "{url}"\n'
        )
        machine.write(f"{CONF_D}/20-try.toml", settings)
        machine.do("systemctl restart shine-node")
        machine.do(f"shine-node user add --login carol {some_keys()}")
        client("account", "new", "alice", "--server", URL)
        users = machine.do(USERS)
        expect("alice" in users and "carol" in users, users)
        proved("a user is added by `user add`, a client by `account new`")
        bob = work / "bob.json"
        program("account", "new", "bob", "--server", url, "--keys", bob)
        began = time.monotonic()
        client("send", "bob", "hello from the box", "--wait", "delivered", "--timeout", "60")
        seconds = time.monotonic() - began
        inbox = [json.loads(line) for line in program("inbox", "--json", "--keys", bob).splitlines()]
        expect([one["text"] for one in inbox] == ["hello from the box"], f"bob has {inbox}")
        proved("a message is delivered to a node outside of the machine, and read there", f"{seconds:.1f} s with start")


def some_keys() -> str:
    """Return the keys of a user as options of ``user add``."""
    names = ("solana", "blockchain", "device")
    keys = [base64.b64encode(bytes(SigningKey.generate().verify_key)).decode() for _ in names]
    return " ".join(f"--{name}-key={key}" for name, key in zip(names, keys, strict=True))


@contextlib.contextmanager
def node_outside(work: Path) -> Iterator[str]:
    """Run a node from the source tree on this system, and yield its url."""
    with socket.socket() as free:
        free.bind((OUTSIDE, 0))
        port = free.getsockname()[1]
    url = f"ws://{OUTSIDE}:{port}/ws"
    config = work / "outside.toml"
    config.write_text(
        f'[server]\nlogin = "outside"\nurl = "{url}"\nlisten = "{OUTSIDE}:{port}"\ndataDir = "outside"\n[server.pool]\n'
        'allowInsecurePeers = true\nallowPrivatePeers = true\n[registration]\nmode = "open"\n'
    )
    node = subprocess.Popen(
        [sys.executable, TOP / "shine_node.py", "run", "--config", config],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with node:
        try:
            expect(
                node.stdout is not None and "listening on" in node.stdout.readline(), "the node outside does not start"
            )
            yield url
        finally:
            node.terminate()


def program(*words: str | Path) -> str:
    """Run a command of the source tree."""
    return run(sys.executable, TOP / "shine_node.py", *words)
