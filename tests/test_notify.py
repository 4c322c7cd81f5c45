"""What the service manager is told, over a real socket."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from shine_node.notify import MAX_STATUS_CHARACTERS, Notifier, address_of, watchdog_seconds
from tests.support.manager import Manager
from tests.support.nodes import PATIENCE, run


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("/run/systemd/notify", "/run/systemd/notify"),
        ("@there", "\0there"),
        ("@", ""),
        ("", ""),
        ("vsock:2:1234", ""),
        ("relative", ""),
    ],
)
def test_the_address_of_the_manager(name: str, address: str) -> None:
    assert address_of({"NOTIFY_SOCKET": name}) == address


def test_without_a_manager_nothing_happens() -> None:
    notifier = Notifier({"WATCHDOG_USEC": "1000000"}, 1)
    assert not notifier.active
    assert notifier.watchdog_seconds is None
    notifier.ready()
    notifier.status("well")
    with notifier.starting():
        assert not [thread for thread in threading.enumerate() if thread.name == "start-extender"]


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({"WATCHDOG_USEC": "60000000"}, 60.0),
        ({"WATCHDOG_USEC": "1500000", "WATCHDOG_PID": "7"}, 1.5),
        ({"WATCHDOG_USEC": "1500000", "WATCHDOG_PID": "8"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "٣"}, None),
        ({}, None),
    ],
)
def test_how_often_the_manager_wants_a_sign_of_life(environ: dict[str, str], seconds: float | None) -> None:
    assert watchdog_seconds(environ, 7) == seconds


@pytest.mark.parametrize("abstract", [False, True])
def test_what_is_told(tmp_path: Path, abstract: bool) -> None:
    with Manager(f"@shine-test-{os.getpid()}" if abstract else tmp_path / "notify") as manager:
        notifier = Notifier({"NOTIFY_SOCKET": manager.name, "WATCHDOG_USEC": "1000000"}, 7)
        assert notifier.active and notifier.watchdog_seconds == 1
        notifier.ready()
        for _ in range(2):
            notifier.status("3 users\nREADY=0")
        notifier.status("x" * 1000)
        notifier.alive()
        notifier.stopping()
        assert manager.take() == [
            "READY=1",
            "STATUS=3 users READY=0",
            f"STATUS={'x' * MAX_STATUS_CHARACTERS}",
            "WATCHDOG=1",
            "STOPPING=1",
        ]


def test_a_manager_that_is_gone_or_does_not_read_harms_nobody(tmp_path: Path) -> None:
    gone = Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}, 1)
    gone.ready()
    (tmp_path / "file").touch()
    Notifier({"NOTIFY_SOCKET": str(tmp_path / "file")}, 1).ready()
    with Manager(tmp_path / "notify") as manager:
        full = Notifier({"NOTIFY_SOCKET": manager.name}, 1)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as filler:
            filler.setblocking(False)
            with pytest.raises(BlockingIOError):
                while True:
                    filler.sendto(b"noise", manager.name)
            full.ready()
            assert "READY=1" not in manager.take()


def test_a_long_start_asks_for_more_time_but_not_for_ever(tmp_path: Path) -> None:
    async def story() -> None:
        with Manager(tmp_path / "notify") as manager:
            notifier = Notifier({"NOTIFY_SOCKET": manager.name}, 1)
            with notifier.starting(every=0.02, longest=0.06):
                await manager.until(lambda told: len(told) >= 3)
                for thread in threading.enumerate():
                    if thread.name == "start-extender":
                        thread.join(PATIENCE)
                        assert not thread.is_alive()
            assert manager.take() == ["EXTEND_TIMEOUT_USEC=60000000"] * 3

    run(story())


def test_a_short_start_asks_for_nothing(tmp_path: Path) -> None:
    with Manager(tmp_path / "notify") as manager:
        with Notifier({"NOTIFY_SOCKET": manager.name}, 1).starting():
            pass
        assert manager.take() == []
        assert not [thread for thread in threading.enumerate() if thread.name == "start-extender"]
