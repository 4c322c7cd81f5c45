"""Load from outside at the service in a machine, and what memory it costs there: for ``packaging/try.py``."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where the modules of the tests are

from machine import Failed, Machine, expect, proved, until
from service import CONF_D, URL, answers
from websockets.asyncio.client import ClientConnection, connect

from shine_node.client.identity import Identity
from shine_node.client.messages import make_message
from shine_node.clock import SystemClock
from shine_node.protocol.access import AccessServer, record_payload
from shine_node.protocol.envelope import encode_request
from tests.bench.load import Asking, drive, sign_pairs
from tests.support.devices import make_session

__all__ = ["prove_memory"]

PAIRS, LARGE_PAIRS, LARGE_CHARACTERS = 6000, 400, 40_000
CONNECTIONS, WINDOW, LARGE_WINDOW = 4, 256, 32
SESSIONS, SESSIONS_A_USER = 500, 20
LIMITS = """[limits]
requestsPerSecond = 1000000
requestsPerSecondPerAddress = 1000000
messagesPerMinutePerSender = 0
maxConnectionsPerAddress = 2000
"""
MEMORY_V1 = Path("/sys/fs/cgroup/memory")


class Use(NamedTuple):
    """The greatest memory that the service had, in bytes, and how often the kernel ended a process of it for want."""

    peak: int
    killed: int
    how: str


def prove_memory(machine: Machine) -> None:
    """Send load at the unit: it must not come to its ``MemoryMax``, and must not be started again."""
    settings = machine.write(f"{CONF_D}/50-load.toml", LIMITS)
    limit = int(machine.show("MemoryMax"))
    began = time.monotonic()
    with _watched(machine, limit) as use:
        pid, restarts = machine.show("MainPID"), machine.show("NRestarts")
        rate = asyncio.run(_load())
        used = use()
    seconds = time.monotonic() - began
    expect((machine.show("MainPID"), machine.show("NRestarts")) == (pid, restarts), "the load has ended the node")
    expect(used.killed == 0, f"the kernel has ended {used.killed} processes for want of memory")
    expect(0 < used.peak < limit, f"it had {used.peak} bytes of at most {limit}")
    resident = machine.do(f"grep VmHWM /proc/{pid}/status").split()[1]
    proved(
        f"memory stays below MemoryMax under {PAIRS} small and {LARGE_PAIRS} large pairs and {SESSIONS} idle sessions",
        f"peak {used.peak / 2**20:.0f} MiB with files ({used.how}), {int(resident) / 1024:.0f} MiB resident, of at most"
        f" {limit / 2**20:.0f}; 0 killed, 0 restarts; {rate:.0f} small pairs a second, {seconds:.0f} s in all",
    )
    settings.unlink()
    _start(machine)


@contextlib.contextmanager
def _watched(machine: Machine, limit: int) -> Iterator[Callable[[], Use]]:
    """Start the service, and yield what tells of its memory: of its own control group, or of one with the same limit.

    A machine that is booted where the host has its memory controller in control groups of version 1 has none. There
    the service begins in a group of the host, which it has from the machine's first process, that starts it.
    """
    folder = "/sys/fs/cgroup/system.slice/shine-node.service"
    if machine.status(f"test -e {folder}/memory.peak")[0] == 0:
        _start(machine)

        def read() -> Use:
            events = dict(line.split() for line in machine.do(f"cat {folder}/memory.events").splitlines())
            return Use(int(machine.do(f"cat {folder}/memory.peak")), int(events["oom_kill"]), "memory.peak of the unit")

        yield read
        return
    [home] = re.findall(r"^\d+:memory:/(.*)$", Path(f"/proc/{machine.leader}/cgroup").read_text(), re.MULTILINE) or [""]
    if not (MEMORY_V1 / home / "memory.limit_in_bytes").exists():
        raise Failed("this system counts no memory of control groups: switch its memory controller on")
    group = MEMORY_V1 / machine.root.parent.name
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(limit))
        (group / "cgroup.procs").write_text(str(machine.leader))
        _start(machine)
        (MEMORY_V1 / home / "cgroup.procs").write_text(str(machine.leader))

        def read_old() -> Use:
            killed = dict(line.split() for line in (group / "memory.oom_control").read_text().splitlines())
            peak = int((group / "memory.max_usage_in_bytes").read_text())
            return Use(peak, int(killed["oom_kill"]), "in a control group of the host with the unit's MemoryMax")

        yield read_old
    finally:
        for line in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                (MEMORY_V1 / home / "cgroup.procs").write_text(line)
        group.rmdir()


def _start(machine: Machine) -> None:
    machine.do("systemctl restart shine-node")
    until("the node answers", answers)


async def _load() -> float:
    """Open idle sessions, then send pairs; return how many of the small ones were taken in a second."""
    async with AsyncExitStack() as stack:
        first = await _connect(stack)
        info = await Asking(first).ask("GetServerInfo", {})
        here = AccessServer(str(info["serverLogin"]), URL)
        users = [Identity.generate(f"load{number}") for number in range(-(-SESSIONS // SESSIONS_A_USER))]
        now_ms = SystemClock().now_ms()
        for user in users:
            await Asking(first).ask("AddUser", record_payload(user.access_record([here], time_ms=now_ms - 1000)))
        for number in range(SESSIONS):
            link = await _connect(stack)
            await make_session(Asking(link).ask, users[number // SESSIONS_A_USER], SystemClock().now_ms())
        author, reader = users[0], users[-1].login
        small = await drive(
            URL, sign_pairs(author, reader, PAIRS), connections=CONNECTIONS, window=WINDOW, state="delivered"
        )
        large = [
            encode_request(
                "SendMessagePair",
                str(number),
                make_message(author, reader, "x" * LARGE_CHARACTERS, time_ms=SystemClock().now_ms()).payload,
            ).encode()
            for number in range(LARGE_PAIRS)
        ]
        await drive(URL, large, connections=CONNECTIONS, window=LARGE_WINDOW, state="delivered")
        return small.per_second


async def _connect(stack: AsyncExitStack) -> ClientConnection:
    return await stack.enter_async_context(
        connect(URL, proxy=None, compression=None, open_timeout=60, ping_interval=None, max_queue=None)
    )
