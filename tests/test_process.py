"""The process of a node: its signals, what it says, and its exit status."""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import resource
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidHandshake
from websockets.sync.client import connect as connect_sync

from shine_node import __version__
from shine_node import node as node_module
from shine_node import process as process_module
from shine_node.cli.node_process import NodeProcess, ReservedPort
from shine_node.client.messages import make_message
from shine_node.config import Config, config_from_mapping, load_config
from shine_node.node import Node, StartError, StartMistake
from shine_node.process import (
    MISTAKE,
    NEEDS_OWNER,
    LastResort,
    files_needed,
    leave,
    raise_file_limit,
    run_node,
    status_line,
)
from shine_node.protocol.errors import ServerBusy, ShineError
from shine_node.store.environment import Store
from shine_node.store.files import StoreDamaged, StoreError, StoreOutOfReach
from shine_node.store.recovery import start as start_module
from shine_node.store.recovery.state import State, read_state, write_state
from shine_node.store.unreadable import UnreadableRow
from shine_node.tls import CertificateError
from tests.api.talk import Silent, Talk, asked, node
from tests.cli.certificates import write_certificate
from tests.control.conftest import Asker
from tests.support.clock import ManualClock
from tests.support.manager import Manager
from tests.support.nodes import PATIENCE, eventually, node_settings, now_ms, run, toml_text
from tests.support.scripted_peer import ScriptedPeer
from tests.support.whole_node import (
    ALICE,
    FAILING,
    FailingClock,
    add_users,
    config,
    silence,
    threads_of_a_node,
    was_brought_a_message,
)

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = "import sys; from shine_node.cli import main; sys.exit(main())"


def run_here(settings: Config, meanwhile: Callable[[], None]) -> int:
    """Run a node in this thread, and something else in another one; a signal ends the node whatever happens there."""
    failed: list[BaseException] = []

    def other() -> None:
        try:
            meanwhile()
        except BaseException as problem:
            failed.append(problem)
            os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=other)
    watchdog = threading.Timer(3 * PATIENCE, os.kill, (os.getpid(), signal.SIGTERM))
    watchdog.start()
    thread.start()
    status = run_node(settings)
    watchdog.cancel()
    for one in (thread, watchdog):
        one.join()
    if failed:
        raise failed[0]
    return status


def until_it_listens(url: str) -> None:
    """Wait until a node answers."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with connect_sync(url, proxy=None, open_timeout=PATIENCE) as client:
                client.send(asked("Ping"))
                assert '"ok":true' in str(client.recv(PATIENCE))
                return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


@pytest.mark.usefixtures("process_of_before")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_node_in_good_order(
    tmp_path: Path, number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    with ReservedPort() as port:
        url = f"ws://127.0.0.1:{port.number}/ws"

        def meanwhile() -> None:
            until_it_listens(url)
            os.kill(os.getpid(), number)

        assert run_here(config_on(tmp_path, port), meanwhile) == 0
    said = capsys.readouterr()
    assert said.out == f"listening on {url}\n"
    assert "stopping" in said.err
    started = f"SHiNE node {__version__} has started as server1, data in "
    [line] = [line for line in said.err.splitlines() if "has started" in line]
    assert started in line and line.endswith(": 0 users known, 0 copies of messages, 0 open deliveries")
    assert not threads_of_a_node()


@pytest.mark.usefixtures("process_of_before")
def test_a_signal_to_read_anew_ends_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ReservedPort() as port:
        url = f"ws://127.0.0.1:{port.number}/ws"

        def meanwhile() -> None:
            until_it_listens(url)
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGHUP)
                until_it_listens(url)
            os.kill(os.getpid(), signal.SIGTERM)

        assert run_here(config_on(tmp_path, port), meanwhile) == 0
    assert "reloaded; changed: nothing; for a restart: nothing" in capsys.readouterr().err


def config_on(folder: Path, port: ReservedPort, **sections: Any) -> Config:
    return config_from_mapping(
        node_settings("server1", folder, port=port.number, **({"storage": {"mapSizeMiB": 16}} | sections))
    )


@pytest.mark.usefixtures("process_of_before")
def test_a_node_that_cannot_go_on_ends_with_status_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(node_module, "SystemClock", FailingClock)
    assert run_here(config(tmp_path, delivery=FAILING), lambda: None) == 1
    assert "CRITICAL shine_node.node: a part of the node has failed" in capsys.readouterr().err
    assert not threads_of_a_node()


@pytest.mark.usefixtures("process_of_before")
def test_a_node_that_cannot_start_says_why_and_ends_with_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        assert run_node(config(tmp_path, server={"listen": f"127.0.0.1:{other.getsockname()[1]}"})) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "CRITICAL shine_node.process: cannot listen" in said.err
    assert "Traceback" not in said.err


# --- how many files may be open ---


class Limits:
    """A system's two limits of open files."""

    def __init__(self, soft: int, hard: int, *, of_the_kernel: int = 2**20) -> None:
        self.pair = soft, hard
        self._of_the_kernel = of_the_kernel

    def get(self, which: int) -> tuple[int, int]:
        assert which == resource.RLIMIT_NOFILE
        return self.pair

    def set(self, which: int, pair: tuple[int, int]) -> None:
        assert which == resource.RLIMIT_NOFILE
        if pair[0] > self._of_the_kernel:
            raise ValueError("not allowed to raise maximum limit")
        self.pair = pair


ENDLESS = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("limits", "soft_after", "enough"),
    [
        (Limits(1024, 4096), 3000, True),
        (Limits(1024, ENDLESS), 3000, True),
        (Limits(3000, 4096), 3000, True),
        (Limits(ENDLESS, ENDLESS), ENDLESS, True),
        (Limits(1024, 2000), 2000, False),
        (Limits(1024, 1024), 1024, False),
        (Limits(1024, ENDLESS, of_the_kernel=2000), 1024, False),
    ],
)
def test_the_limit_of_open_files_is_raised_as_far_as_it_may_be(
    limits: Limits, soft_after: int, enough: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(resource, "getrlimit", limits.get)
    monkeypatch.setattr(resource, "setrlimit", limits.set)
    hard = limits.pair[1]
    with caplog.at_level(logging.WARNING, logger="shine_node"):
        raise_file_limit(3000)
    assert limits.pair == (soft_after, hard)
    if enough:
        assert caplog.records == []
    else:
        [record] = caplog.records
        for words in (f"may have {soft_after} files", "need 3000", "LimitNOFILE=", "limits.maxConnections"):
            assert words in record.getMessage()


def test_what_a_configuration_needs_grows_with_its_connections(tmp_path: Path) -> None:
    friends = [{"login": f"friend{number}", "url": "ws://127.0.0.1:9/ws"} for number in range(5)]
    few = {"limits": {"maxConnections": 100}, "server": {"pool": {"maxConnections": 10}}}
    least = files_needed(config(tmp_path, **few))
    assert 110 < least < 400
    assert files_needed(config(tmp_path, **few, sync_servers=friends)) == least + 5
    assert files_needed(config(tmp_path, **few | {"server": {"pool": {"maxConnections": 30}}})) == least + 20
    assert files_needed(config(tmp_path, **few | {"limits": {"maxConnections": 1100}})) >= least + 1000


async def read_limit(process: NodeProcess) -> tuple[int, int]:
    return resource.prlimit(process.pid, resource.RLIMIT_NOFILE)


def test_a_process_raises_its_limit_and_says_so_once_when_its_files_are_used_up(tmp_path: Path) -> None:
    async def story() -> None:
        file = tmp_path / "node.toml"
        settings = node_settings("server1", tmp_path, limits={"maxConnections": 500, "maxConnectionsPerAddress": 500})
        file.write_text(toml_text(settings), encoding="utf-8")
        process = await NodeProcess.start(file)
        try:
            soft, hard = await read_limit(process)
            needed = files_needed(load_config(file))
            assert soft >= min(needed, hard if hard != ENDLESS else needed)
            settings["limits"]["maxConnections"] = 600
            file.write_text(toml_text(settings), encoding="utf-8")
            os.kill(process.pid, signal.SIGHUP)
            await until_logged(process, "reloaded; changed: limits.maxConnections")

            async def raised() -> bool:
                return (await read_limit(process))[0] >= min(needed + 100, hard if hard != ENDLESS else needed + 100)

            await eventually(raised)

            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (100, 100))
            async with await Talk.open(process.url) as talk:
                host, port = process.url.removeprefix("ws://").removesuffix("/ws").split(":")
                async with Silent((host, int(port)), 200) as silent:
                    await until_logged(process, "nearly all of the 100 files")

                    async def most_closed() -> bool:
                        return silent.closed > 100

                    await eventually(most_closed)
                    await talk.succeed("Ping")
                    assert process.log_tail(1000).count("nearly all of the 100 files") == 1

            async def room() -> bool:
                try:
                    await (await Talk.open(process.url)).close()
                except (OSError, InvalidHandshake):
                    return False
                return True

            await eventually(room)
            await process.stop()
        finally:
            await process.kill()

    run(story())


async def end_of(settings: dict[str, Any], folder: Path) -> tuple[int, str]:
    """Run a node as a process that ends by itself; return its exit status and what it said on standard error."""
    file = folder / "ends.toml"
    file.write_text(toml_text(settings), encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PROGRAM,
        "run",
        "--config",
        str(file),
        cwd=ROOT,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), PATIENCE)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    assert out == b""
    assert process.returncode is not None
    return process.returncode, err.decode()


def test_processes_that_cannot_start_end_with_a_status_and_a_sentence(tmp_path: Path) -> None:
    async def story() -> None:
        async with node(tmp_path) as server:
            port = int(server.url.split(":")[2].split("/")[0])
            taken = node_settings("server1", tmp_path / "other", port=port)
            same_data = node_settings("server1", server.folder)
            no_certificate = node_settings(
                "server1", tmp_path / "third", server={"tlsCert": "/nowhere.crt", "tlsKey": "/nowhere.key"}
            )
            ends = await asyncio.gather(
                *(
                    end_of(settings, _made(tmp_path / name))
                    for name, settings in (("1", taken), ("2", same_data), ("3", no_certificate))
                )
            )
            assert [status for status, _ in ends] == [1, 1, MISTAKE]
            for (_, said), words in zip(ends, ("in use", "in use by another process", "tlsCert"), strict=True):
                assert words in said
                assert "Traceback" not in said
                assert len(said.splitlines()) == 1
            await server.request("Ping", {})  # nothing has happened to the one that was there

    run(story())


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_a_process_that_is_told_to_stop_answers_what_is_under_way_and_ends_with_status_0(tmp_path: Path) -> None:
    async def story() -> None:
        async with ScriptedPeer("server2", {"ReceiveIncomingMessage": silence}) as peer:
            file = tmp_path / "node.toml"
            file.write_text(toml_text(node_settings("server1", tmp_path)), encoding="utf-8")
            process = await NodeProcess.start(file)
            try:
                await add_users(process, peer)
                idle = await Talk.open(process.url)
                async with await Talk.open(process.url) as talk:
                    one = make_message(ALICE, "bob", "last words", time_ms=now_ms())
                    await talk.say(asked("SendMessagePair", one.payload))
                    await peer.until(lambda: was_brought_a_message(peer))
                    stopping = asyncio.ensure_future(process.stop())  # it checks the exit status
                    assert (await talk.hear())["payload"]["deliveryState"] == "accepted"
                    assert await talk.end() == 1001
                assert await idle.end() == 1001
                await asyncio.wait_for(stopping, PATIENCE)
            finally:
                await process.kill()

    run(story())


async def until_logged(process: NodeProcess, words: str) -> None:
    async def logged() -> bool:
        return words in process.log_tail(1000)

    await eventually(logged)


def test_a_signal_lets_the_process_read_its_certificate_and_configuration_again(tmp_path: Path) -> None:
    cert, key = write_certificate(tmp_path)
    old = ssl.create_default_context(cafile=str(cert))
    other_cert, other_key = write_certificate(tmp_path, name="other", seed=b"\1" * 32)
    new = ssl.create_default_context(cafile=str(other_cert))
    file = tmp_path / "node.toml"
    settings = node_settings("server1", tmp_path, server={"tlsCert": str(cert), "tlsKey": str(key)})

    async def story() -> None:
        file.write_text(toml_text(settings), encoding="utf-8")
        process = await NodeProcess.start(file)
        try:
            async with await Talk.open(process.url, ssl=old, server_hostname="localhost") as before:
                file.write_text(toml_text(settings | {"log": {"level": "loud"}}), encoding="utf-8")
                os.kill(process.pid, signal.SIGHUP)
                await until_logged(process, "nothing was reloaded, all stays as it is")
                assert 'log.level = "loud"' in process.log_tail()

                file.write_text(toml_text(settings | {"limits": {"maxConnections": 7}}), encoding="utf-8")
                other_cert.rename(cert)
                os.kill(process.pid, signal.SIGHUP)
                await until_logged(process, "they do not belong together")
                async with await Talk.open(process.url, ssl=old, server_hostname="localhost") as talk:
                    await talk.succeed("Ping")

                other_key.rename(key)
                os.kill(process.pid, signal.SIGHUP)
                await until_logged(process, "reloaded; changed: limits.maxConnections (")
                async with await Talk.open(process.url, ssl=new, server_hostname="localhost") as talk:
                    await talk.succeed("Ping")
                await before.succeed("Ping")
            await process.stop()
        finally:
            await process.kill()

    run(story())


def test_the_socket_lies_in_the_runtime_directory_and_that_of_a_killed_node_is_replaced(tmp_path: Path) -> None:
    runtime = _made(tmp_path / "run")
    file = tmp_path / "node.toml"
    file.write_text(toml_text(node_settings("server1", tmp_path)), encoding="utf-8")

    async def begin() -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            PROGRAM,
            "run",
            "--config",
            str(file),
            cwd=ROOT,
            env=os.environ | {"RUNTIME_DIRECTORY": f"{runtime}:{tmp_path}"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert process.stdout is not None
        assert (await asyncio.wait_for(process.stdout.readline(), PATIENCE)).startswith(b"listening on ")
        return process

    async def story() -> None:
        for end in (signal.SIGKILL, signal.SIGTERM):
            process = await begin()
            async with Asker(runtime / "control.sock") as asker, Asker(tmp_path / "data" / "control.sock") as other:
                for each in (asker, other):
                    assert (await each.ask("Status"))["payload"]["login"] == "server1"
            process.send_signal(end)
            await asyncio.wait_for(process.wait(), PATIENCE)
            left = [path.name for path in (*runtime.iterdir(), *(tmp_path / "data").glob("*.sock"))]
            assert left == (["control.sock"] * 2 if end is signal.SIGKILL else [])

    run(story())


# --- what the service manager is told ---


BLOCKABLE = """
import signal, sys, time
from shine_node.cli import main
from shine_node.store.environment import Job, Store

stores, start = [], Store.start

def remember(store):
    stores.append(store)
    start(store)

def block_loop(*_):
    print("blocked", flush=True)
    time.sleep(600)

def block_writer(*_):
    [store] = stores
    store.submit([Job(lambda txn: (print("blocked", flush=True), time.sleep(600)), store._loop.create_future())])

Store.start = remember
signal.signal(signal.SIGUSR1, block_loop)
signal.signal(signal.SIGUSR2, block_writer)
sys.exit(main())
"""
"""The node, whose event loop or writer is held up by a signal."""


async def begin_under(manager: Manager, file: Path, program: str = BLOCKABLE) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        program,
        "run",
        "--config",
        str(file),
        cwd=ROOT,
        env=os.environ | {"NOTIFY_SOCKET": manager.name, "WATCHDOG_USEC": "400000"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


def test_the_manager_is_told_from_the_start_to_the_end(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    settings = node_settings("server1", tmp_path, server={"url": "wss://home-12ab.invalid/ws"})
    file.write_text(toml_text(settings), encoding="utf-8")

    async def story() -> None:
        with Manager(tmp_path / "notify") as manager:
            process = await begin_under(manager, file)
            try:
                well = "STATUS=0 users, 0 connections, 0 of 0 links well"
                told = await manager.until(lambda told: told.count("WATCHDOG=1") > 2 and well in told)
                assert told[0] == "READY=1"
                assert process.stdout is not None
                line = (await asyncio.wait_for(process.stdout.readline(), PATIENCE)).decode()
                url = line.removeprefix("listening on ").strip()
                async with await Talk.open(url) as talk:  # ready means that it listens
                    await talk.succeed("Ping")
                process.terminate()
                _, err = await asyncio.wait_for(process.communicate(), PATIENCE)
                assert process.returncode == 0
                assert "wss://home-12ab.invalid/ws stands for an address that is still to be set" in err.decode()
                assert manager.take()[-1] == "STOPPING=1"
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()

    run(story())


# Ending whatever hangs


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The statuses with which the process would have ended at once."""
    statuses: list[int] = []
    monkeypatch.setattr(process_module.os, "_exit", statuses.append)
    monkeypatch.setattr(process_module.logging, "shutdown", lambda: None)
    return statuses


def test_a_stop_that_takes_too_long_is_ended(
    monkeypatch: pytest.MonkeyPatch, ended: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(process_module, "STOP_SECONDS", 0.01)
    resort = LastResort()
    resort.disarm()  # it was never armed
    resort.arm(1)
    deadline = time.monotonic() + PATIENCE
    while not ended:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert ended == [1]
    assert "what was under way is given up" in caplog.text


def test_a_stop_in_time_is_left_alone(ended: list[int]) -> None:
    before = threading.active_count()
    resort = LastResort()
    resort.arm(0)
    resort.disarm()
    deadline = time.monotonic() + PATIENCE
    while threading.active_count() > before:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert ended == []


def test_a_second_signal_after_a_while_ends_the_process_at_once(
    monkeypatch: pytest.MonkeyPatch, ended: list[int]
) -> None:
    clock = ManualClock()
    monkeypatch.setattr(process_module, "SystemClock", lambda: clock)

    async def story() -> None:
        told = process_module._Signals()
        told()
        assert told.stopping.is_set()
        told()  # the same wish, told to a group of processes
        assert ended == []
        await clock.advance(1)
        told()
        assert ended == [0]

    run(story())


@pytest.mark.parametrize("what", ["loop", "writer"])
def test_a_node_that_is_held_up_gives_no_sign_of_life_and_says_where_it_hung(tmp_path: Path, what: str) -> None:
    file = tmp_path / "node.toml"
    file.write_text(toml_text(node_settings("server1", tmp_path)), encoding="utf-8")

    async def story() -> None:
        with Manager(tmp_path / "notify") as manager:
            process = await begin_under(manager, file)
            try:
                await manager.until(lambda told: told.count("WATCHDOG=1") > 2)
                assert process.stdout is not None
                line = (await asyncio.wait_for(process.stdout.readline(), PATIENCE)).decode()
                process.send_signal(signal.SIGUSR1 if what == "loop" else signal.SIGUSR2)
                assert (await asyncio.wait_for(process.stdout.readline(), PATIENCE)) == b"blocked\n"
                beats = manager.beats()
                await asyncio.sleep(2)  # five times what the manager would wait for
                assert manager.beats() <= beats + (what == "writer")  # of an answer that was on its way
                if what == "writer":
                    async with await Talk.open(line.removeprefix("listening on ").strip()) as talk:
                        await talk.succeed("Ping")  # the loop runs
                process.send_signal(signal.SIGABRT)  # as the manager does then
                _, err = await asyncio.wait_for(process.communicate(), PATIENCE)
                assert process.returncode == -signal.SIGABRT
                assert "Fatal Python error: Aborted" in err.decode()
                assert "in block_loop" in err.decode() or "in _write_forever" in err.decode()
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()

    run(story())


@pytest.mark.usefixtures("process_of_before")
def test_a_node_that_cannot_start_tells_the_manager_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Manager(tmp_path / "notify") as manager, closing(socket.create_server(("127.0.0.1", 0))) as other:
        monkeypatch.setenv("NOTIFY_SOCKET", manager.name)
        monkeypatch.setattr(faulthandler, "enable", lambda file: None)  # pytest has its own
        assert run_node(config(tmp_path, server={"listen": f"127.0.0.1:{other.getsockname()[1]}"})) == 1
        [told] = manager.take()
        assert told.startswith("STATUS=cannot listen")


@pytest.mark.usefixtures("process_of_before")
@pytest.mark.parametrize("watched", [True, False])
def test_a_status_that_cannot_be_had_is_told_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], watched: bool
) -> None:
    of_before, asked = node_module.Node.status, []

    async def busy_at_first(node: node_module.Node) -> dict[str, object]:
        asked.append(node)
        if len(asked) == 1:
            raise ServerBusy("the store is read by too many at once")
        return await of_before(node)

    monkeypatch.setattr(node_module.Node, "status", busy_at_first)
    monkeypatch.setattr(process_module, "STATUS_SECONDS", 0.01)
    monkeypatch.setattr(faulthandler, "enable", lambda file: None)  # pytest has its own
    with Manager(tmp_path / "notify") as manager, ReservedPort() as port:
        monkeypatch.setenv("NOTIFY_SOCKET", manager.name)
        if watched:
            monkeypatch.setenv("WATCHDOG_USEC", "100000")
        settings = config_on(tmp_path, port, server={"url": "wss://home-12ab.invalid/ws"})

        def meanwhile() -> None:
            def told(lines: list[str]) -> bool:
                return lines.count("WATCHDOG=1") > 2 if watched else any(line.startswith("STATUS") for line in lines)

            run(manager.until(told), timeout=2 * PATIENCE)
            os.kill(os.getpid(), signal.SIGTERM)

        assert run_here(settings, meanwhile) == 0
        lines = manager.take()
    assert (lines[0], lines[-1]) == ("READY=1", "STOPPING=1")
    assert "STATUS=0 users, 0 connections, 0 of 0 links well" in lines
    assert ("WATCHDOG=1" in lines) is watched
    assert "stands for an address that is still to be set" in capsys.readouterr().err


def test_the_line_of_the_status() -> None:
    status: dict[str, Any] = {
        "store": {"users": 3},
        "connections": 5,
        "peers": {"links": [{"well": True}, {"well": False}]},
        "warnings": [],
    }
    assert status_line(status) == "3 users, 5 connections, 1 of 2 links well"
    status["warnings"] = ["the disk is full"]
    assert status_line(status) == "3 users, 5 connections, 1 of 2 links well; 1 warnings, see `shine-node status`"


def test_a_thread_that_is_left_behind_does_not_keep_the_process(ended: list[int]) -> None:
    assert leave(1) == 1
    assert ended == []
    go_on = threading.Event()
    left = threading.Thread(target=go_on.wait, name="reading_0")
    left.start()
    leave(0)
    go_on.set()
    left.join()
    assert ended == [0]


@pytest.mark.usefixtures("process_of_before")
def test_a_signal_breaks_off_a_start_that_takes_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    """It looks at every page, say, and never comes back to the loop."""
    monkeypatch.setattr(process_module, "START_STOP_SECONDS", 0.01)

    def look(*arguments: object, **options: object) -> None:
        for _ in range(2):  # the second one is the same wish
            os.kill(os.getpid(), signal.SIGTERM)
        deadline = time.monotonic() + PATIENCE
        while not ended and time.monotonic() < deadline:
            time.sleep(0.01)

    monkeypatch.setattr(process_module, "prepare_store", look)
    assert run_node(config_from_mapping(node_settings("home", tmp_path))) == 0  # the test goes on where it had ended
    assert ended[0] == 0
    assert "what was under way is given up" in capsys.readouterr().err


@pytest.mark.usefixtures("process_of_before")
@pytest.mark.parametrize(("long", "starts"), [(0.0, 3), (PATIENCE, 0)])
def test_a_signal_that_comes_after_long_does_not_take_back_the_count_of_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: list[int], long: float, starts: int
) -> None:
    """The time that a service manager gives to a start was over: nobody wanted that."""
    monkeypatch.setattr(process_module, "START_STOP_SECONDS", 0.01)
    monkeypatch.setattr(start_module, "LONG_START_SECONDS", long)
    settings = config_from_mapping(node_settings("home", tmp_path))
    counted: list[int] = []

    def look(store: Path, *arguments: object, **options: object) -> None:
        write_state(store, State(running="b", starts=3))
        os.kill(os.getpid(), signal.SIGTERM)
        deadline = time.monotonic() + PATIENCE
        while not ended and time.monotonic() < deadline:
            time.sleep(0.01)
        counted.append(read_state(store).starts)

    monkeypatch.setattr(process_module, "prepare_store", look)
    run_node(settings)  # the test goes on where it had ended
    assert ended[0] == 0
    assert counted == [starts]


@pytest.mark.usefixtures("process_of_before")
def test_a_signal_in_a_start_that_soon_ends_stops_the_node_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: list[int]
) -> None:
    real = process_module.prepare_store

    def look(*arguments: Any, **options: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        real(*arguments, **options)

    monkeypatch.setattr(process_module, "prepare_store", look)
    settings = config_from_mapping(node_settings("home", tmp_path))
    assert run_node(settings) == 0
    assert ended == []
    state = read_state(settings.server.data_dir / "shine.mdb")
    assert (state.known, state.running, state.starts) == (True, "", 0)


def test_a_start_that_fails_says_nothing_against_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = config_from_mapping(node_settings("home", tmp_path))

    def fail(*arguments: object, **options: object) -> None:
        raise StartError("no certificate")

    monkeypatch.setattr(process_module, "Node", fail)
    before = signal.getsignal(signal.SIGTERM)
    for _ in range(5):
        assert run_node(settings) == 1
        assert signal.getsignal(signal.SIGTERM) is before
    assert read_state(settings.server.data_dir / "shine.mdb") == State()


def test_what_of_the_store_ends_a_start_is_for_the_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = config_from_mapping(node_settings("home", tmp_path))

    async def meet(node: Node) -> None:
        raise UnreadableRow("a row", b"x")

    monkeypatch.setattr(Node, "_start", meet)
    assert run_node(settings) == NEEDS_OWNER
    assert "a row cannot be read: run `shine-node verify --repair`" in capsys.readouterr().err


def damaged(folder: Path, **storage: Any) -> Config:
    """The configuration of a node whose store is cut off."""
    settings = node_settings("home", folder, storage=storage)
    path = Path(settings["server"]["dataDir"]) / "shine.mdb"
    path.parent.mkdir(parents=True)
    Store(path, map_size=2**26).close()
    path.write_bytes(path.read_bytes()[:9000])
    return config_from_mapping(settings)


def test_a_damaged_store_needs_its_owner(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = damaged(tmp_path)
    assert run_node(settings) == NEEDS_OWNER == 78


def test_what_the_look_did_not_see_is_looked_for_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = damaged(tmp_path)
    looks: list[int] = []
    monkeypatch.setattr(process_module, "prepare_store", lambda *arguments, **options: looks.append(1))
    assert run_node(settings) == NEEDS_OWNER
    assert len(looks) == 2
    assert read_state(Path(settings.server.data_dir) / "shine.mdb").damage


def test_a_store_that_cannot_be_looked_at_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = damaged(tmp_path)

    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(process_module, "prepare_store", refuse)
    assert run_node(settings) == 1


def test_a_data_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no folder")
    assert run_node(config_from_mapping(node_settings("home", tmp_path))) == MISTAKE


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (StartMistake("the authorities cannot be read"), MISTAKE),
        (StoreOutOfReach("it cannot be written"), MISTAKE),
        (CertificateError("it cannot be used"), MISTAKE),
        (StoreDamaged(Path("shine.mdb"), "a page"), NEEDS_OWNER),
        (StartError("cannot listen"), 1),
        (StoreError("it is in use"), 1),
    ],
)
def test_the_status_of_a_start_that_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: ShineError, status: int
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(process_module, "open_node", fail)
    assert run_node(config(tmp_path)) == status

    async def fail_later(*arguments: object, **options: object) -> None:
        raise error

    monkeypatch.undo()
    monkeypatch.setattr(node_module.Node, "start", fail_later)
    if status != NEEDS_OWNER:  # the opening alone finds damage
        assert run_node(config(tmp_path)) == status


def test_a_data_folder_of_another_user_is_a_mistake_and_a_disk_that_fails_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = damaged(tmp_path)
    for number, status in ((13, MISTAKE), (5, 1)):

        def refuse(*arguments: object, number: int = number, **options: object) -> None:
            raise OSError(number, "so")

        monkeypatch.setattr(process_module, "prepare_store", refuse)
        assert run_node(settings) == status


@pytest.mark.parametrize(("policy", "status"), [("stop", NEEDS_OWNER), ("backup", 1)])
@pytest.mark.parametrize("when", ["at the start", "later"])
def test_damage_that_is_met(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, status: int, when: str
) -> None:
    """It ends the node in order, and is remembered."""
    settings = config_from_mapping(node_settings("home", tmp_path, storage={"whenDamaged": policy}))

    def meet(node: Node) -> None:
        node.store._trouble.damage = "met"
        node.fatal.set()

    real = Node.start

    async def start(node: Node) -> None:
        if when == "at the start":
            meet(node)
            await node.stop()
            raise StoreDamaged(node.store.path, "met")
        await real(node)
        meet(node)

    monkeypatch.setattr(Node, "start", start)
    assert run_node(settings) == status
    assert read_state(settings.server.data_dir / "shine.mdb").damage == "met"
