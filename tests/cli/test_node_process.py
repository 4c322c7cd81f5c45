"""Nodes as processes of their own."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path

import pytest

from shine_node.cli import node_process
from shine_node.cli.node_process import NodeFailed, NodeProcess, ReservedPort
from shine_node.client.connection import Connection
from tests.support.nodes import PATIENCE, eventually, node_settings, run, toml_text


def config(folder: Path, **sections: dict[str, object]) -> Path:
    path = folder / "node.toml"
    path.write_text(toml_text(node_settings("server1", folder, **sections)), encoding="utf-8")
    return path


def program(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Start something else than a node."""
    monkeypatch.setattr(node_process, "_PROGRAM", text)


def test_a_node_runs_and_stops_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path / "of a service"))
    core = min(os.sched_getaffinity(0))

    async def story() -> None:
        node = await NodeProcess.start(config(tmp_path), core=core)
        assert node.running
        assert (tmp_path / "data" / "control.sock").is_socket()
        assert node.url.startswith("ws://127.0.0.1:")
        assert os.sched_getaffinity(node.pid) == {core}
        async with await Connection.open(node.url) as client:
            assert "ts" in await client.request("Ping", {}, timeout=PATIENCE)
        await node.stop()
        assert not node.running
        await node.stop()

    run(story())


def test_a_node_can_be_started_through_another_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(
        monkeypatch,
        "import os, time; print(f'listening on ws://{os.environ[\"PLACE\"]}:1/ws', flush=True); time.sleep(600)",
    )

    async def story() -> None:
        node = await NodeProcess.start(config(tmp_path), through=("env", "PLACE=far.away"))
        assert node.url == "ws://far.away:1/ws"
        await node.kill()

    run(story())


def test_a_killed_node_is_gone_and_did_not_stop_in_order(tmp_path: Path) -> None:
    async def story() -> None:
        node = await NodeProcess.start(config(tmp_path))
        await node.kill()
        await node.kill()
        assert not node.running
        with pytest.raises(NodeFailed, match="ended with status -9"):
            await node.stop()

    run(story())


def test_a_configuration_with_a_mistake_is_told(tmp_path: Path) -> None:
    async def story() -> None:
        with pytest.raises(NodeFailed, match=r"the node did not start(?s:.*)workerIntervalMs"):
            await NodeProcess.start(config(tmp_path, delivery={"workerIntervalMs": 1}))

    run(story())


def test_one_that_says_nothing_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(monkeypatch, "import time; time.sleep(600)")

    async def story() -> None:
        with pytest.raises(NodeFailed, match=r"did not listen within 0\.2 s"):
            await NodeProcess.start(config(tmp_path), timeout=0.2)

    run(story())


def test_one_that_does_not_stop_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(
        monkeypatch,
        "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('busy', file=sys.stderr);"
        "print('listening on ws://127.0.0.1:1/ws', flush=True); time.sleep(600)",
    )

    async def story() -> None:
        node = await NodeProcess.start(config(tmp_path))
        with pytest.raises(NodeFailed, match=r"did not stop within 0\.2 s(?s:.*)busy"):
            await node.stop(timeout=0.2)
        assert not node.running

    run(story())


def test_a_start_that_is_given_up_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(
        monkeypatch,
        f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(f'{{os.getpid()}} '); time.sleep(600)",
    )

    async def written() -> str:
        return (tmp_path / "pid").read_text() if (tmp_path / "pid").is_file() else ""

    async def story() -> int:
        starting = asyncio.create_task(NodeProcess.start(config(tmp_path)))
        pid = await eventually(written)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        return int(pid)

    with pytest.raises(ProcessLookupError):
        os.kill(run(story()), signal.SIGCONT)


def test_a_reserved_port_refuses_until_a_node_listens_there(tmp_path: Path) -> None:
    async def story() -> None:
        with ReservedPort() as first, ReservedPort() as second:
            assert first.number != second.number
            with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", first.number)):
                pass
            server = {"listen": f"127.0.0.1:{first.number}"}
            for _ in range(2):
                node = await NodeProcess.start(config(tmp_path, server=server))
                assert node.url == f"ws://127.0.0.1:{first.number}/ws"
                await node.stop()
            taken = first.number
        with socket.create_server(("127.0.0.1", taken)):  # given back
            pass

    run(story())
