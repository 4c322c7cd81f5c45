"""A small disk that other programs fill: what is new is refused before it is full, and also when it is full.

Reading, ``status`` and acknowledgements go on, and all is well again when there is room, without a restart. The disk is
one in memory; where the tests may not mount one they are passed over (``test_store_full_disk.py`` is not).
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from shine_node.cli.control import ask
from shine_node.client.connection import Connection, RequestRefused
from shine_node.client.identity import Identity
from shine_node.client.messages import make_message
from shine_node.client.session import begin_session
from shine_node.clock import SystemClock
from shine_node.config import config_from_mapping
from shine_node.store.guard import free_bytes
from tests.faults.test_store_full_disk import mounted_in_memory
from tests.support.nodes import PATIENCE, ServerProcess, eventually, now_ms, register, run, toml_text

MIB = 2**20
DISK_BYTES = 112 * MIB
LEAST = 24
CLIENTS = 4


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with mounted_in_memory(tmp_path / "disk", DISK_BYTES) as mounted:
        if not mounted:
            pytest.skip("a disk in memory cannot be mounted here")
        yield tmp_path / "disk"


async def send(client: Connection, author: Identity, body: bytes) -> str:
    """Send a message to carol; return its state, or how it was refused."""
    try:
        answer = await client.request("SendMessagePair", make_message(author, "carol", body, time_ms=now_ms()).payload)
    except RequestRefused as refused:
        assert refused.retryable
        return f"{refused.status} {refused.code}"
    return str(answer["deliveryState"])


async def fill(server: ServerProcess, author: Identity) -> None:
    """Have several clients send large messages as fast as they can, until each is refused."""

    async def one() -> None:
        async with await server.connect() as client:
            while (said := await send(client, author, os.urandom(60_000))) == "delivered":
                pass
            assert said == "507 STORAGE_FULL"

    async with asyncio.timeout(PATIENCE * 4):
        await asyncio.gather(*(one() for _ in range(CLIENTS)))


async def warnings(server: ServerProcess) -> list[str]:
    """What ``status`` says of the disk."""
    config = config_from_mapping(server.settings)
    status = await asyncio.to_thread(ask, config, server.folder / "node.toml", "Status", {})
    return [warning for warning in status["warnings"] if "free on the disk" in warning]


async def history(client: Connection) -> int:
    page = await client.request("GetDirectMessages", {"peerLogin": "carol", "limit": 5})
    return len(page["messages"])


def fill_up(ballast: Path) -> None:
    """Take all that is free on the disk."""
    with ballast.open("ab", buffering=0) as file:
        try:
            while True:
                file.write(bytes(MIB // 16))
        except OSError:
            pass


def test_a_small_disk_refuses_in_time_and_a_full_one_too_and_both_heal(disk: Path) -> None:
    async def story() -> None:
        server = ServerProcess(
            "home",
            disk,
            storage={"mapSizeMiB": 256, "minFreeMiB": LEAST},
            limits={"requestsPerSecond": 100_000, "messagesPerMinutePerSender": 0},
        )
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(32 * MIB))  # enough to open again, however late it was refused
        try:
            await server.start()
            alice, carol = Identity.generate("alice"), Identity.generate("carol")
            await register(alice, [server])
            await register(carol, [server])
            async with await server.connect() as client:
                await begin_session(client, alice, None, clock=SystemClock(), client_info="")
                assert await send(client, alice, b"first") == "delivered"

                # Filled by clients: refused while there is room.
                await fill(server, alice)
                assert free_bytes(disk) > MIB, "before it was full"
                assert await history(client) == 5
                [warning] = await warnings(server)
                assert warning.startswith(f"less than {LEAST} MiB are free"), "and it is said once"
                ballast.unlink()

                async def taken() -> bool:
                    return await send(client, alice, b"there is room") == "delivered"

                await eventually(taken)

                # Filled by another program, with no rule of this one: refused when it is full.
                server.settings["storage"]["minFreeMiB"] = 0
                (server.folder / "node.toml").write_text(toml_text(server.settings), encoding="utf-8")
                os.kill(server.process.pid, signal.SIGHUP)

                async def reloaded() -> bool:
                    return "storage.minFreeMiB" in server.process.log_tail(50)

                await eventually(reloaded)
                fill_up(ballast)
                await fill(server, alice)
                assert await history(client) == 5
                assert len(await warnings(server)) == 1
                assert (await client.request("Ping", {}))["ts"] > 0
                ballast.unlink()
                await eventually(taken)
            log = server.process.log_tail(10_000)
            assert "Traceback" not in log
            assert len(log.splitlines()) < 60, f"the log was not flooded:\n{log}"
            await server.restart()
            async with await server.connect() as client:
                await begin_session(client, alice, None, clock=SystemClock(), client_info="")
                assert await history(client) == 5
                assert await send(client, alice, b"and after a restart") == "delivered"
        finally:
            await server.discard()

    run(story())
