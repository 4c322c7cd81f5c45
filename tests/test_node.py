"""A whole node: what it needs to start, how it stops, and the exit status of its process."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect as connect_sync

from shine_node import node as node_module
from shine_node.cli.node_process import NodeProcess, ReservedPort
from shine_node.client.connection import Connection
from shine_node.client.identity import Identity
from shine_node.client.messages import make_message
from shine_node.clock import SystemClock
from shine_node.config import Config, config_from_mapping, load_config
from shine_node.control.place import ControlError
from shine_node.node import STORE_FILE, Node, StartError, run_node
from shine_node.peers.snapshot import LinkState
from shine_node.protocol.access import AccessServer, record_payload
from shine_node.protocol.errors import ShineError
from shine_node.store.environment import StoreError
from shine_node.tls import CHECK_SECONDS
from tests.api.talk import Talk, asked, node
from tests.cli.certificates import KEY_WITH_A_PASS_PHRASE, write_certificate
from tests.control.conftest import Asker
from tests.peers.certificates import Authority
from tests.support.clock import ManualClock
from tests.support.nodes import PATIENCE, LocalServer, eventually, node_settings, run, toml_text
from tests.support.scripted_peer import PeerConnection, ScriptedPeer

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = "import sys; from shine_node.cli import main; sys.exit(main())"
ALICE, BOB = Identity.generate("alice"), Identity.generate("bob")


def config(folder: Path, **sections: Any) -> Config:
    """Return the configuration of a node on a free port."""
    return config_from_mapping(node_settings("server1", folder, **({"storage": {"mapSizeMiB": 16}} | sections)))


def threads_of_a_node() -> list[str]:
    """Return the names of the threads that a node has and this process has them now."""
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name == "store-writer" or name.startswith("crypto-")]


async def silence(connection: PeerConnection, request: dict[str, Any]) -> None:
    """Do not answer."""


# --- start ---


def test_a_node_that_has_started_answers_and_one_that_has_stopped_leaves_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        one = Node(config(tmp_path))
        await one.start()
        [(host, port)] = one.addresses
        assert one.urls == [one.url] == [f"ws://{host}:{port}/ws"]
        assert threads_of_a_node()
        async with await Talk.open(one.url) as talk:
            await talk.succeed("Ping")
            stopping = asyncio.ensure_future(one.stop())
            assert await talk.end() == 1001
        await stopping
        assert not threads_of_a_node()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(host, port)
        assert not one.fatal.is_set()

    run(story())


def test_what_was_stored_is_there_after_a_restart(tmp_path: Path) -> None:
    async def story() -> None:
        async with node(tmp_path) as server:
            record = record_payload(ALICE.access_record([server.access], time_ms=1))
            await server.request("AddUser", record)
            await server.restart()
            assert (await server.request("GetUser", {"login": "alice"}))["exists"] is True

    run(story())


def test_the_urls_of_several_addresses(tmp_path: Path) -> None:
    listen = ["127.0.0.1:0", "localhost:0"]
    try:
        with socket.socket(socket.AF_INET6) as six:
            six.bind(("::1", 0))
        listen.append("[::1]:0")
    except OSError:
        pass

    async def story() -> None:
        one = Node(config(tmp_path, server={"listen": listen}))
        await one.start()
        try:
            assert len(one.urls) >= len(listen)
            assert any("[::1]" in url for url in one.urls) is (len(listen) == 3)
            for url in one.urls:
                async with await Talk.open(url) as talk:
                    await talk.succeed("Ping")
        finally:
            await one.stop()

    run(story())


def test_the_data_are_for_the_nodes_own_user_only(tmp_path: Path) -> None:
    async def story() -> None:
        async with node(tmp_path, server={"dataDir": str(tmp_path / "new" / "data")}) as server:
            folder = tmp_path / "new" / "data"
            assert folder.stat().st_mode & 0o777 == 0o700
            assert (folder / STORE_FILE).stat().st_mode & 0o777 == 0o600
            assert server.node.store.path == folder / STORE_FILE

    run(story())


def test_a_data_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StartError, match=r"file/data cannot be made: .*Fix server\.dataDir"):
        Node(config(tmp_path, server={"dataDir": str(tmp_path / "file" / "data")}))


def test_a_second_node_on_one_folder_is_refused_and_the_first_lives_on(tmp_path: Path) -> None:
    async def story() -> None:
        async with node(tmp_path) as server:
            with pytest.raises(StoreError, match=f"in use by another process .PID {os.getpid()}.: stop it"):
                Node(config_from_mapping(server.settings))
            await server.request("Ping", {})

    run(story())


def test_an_address_in_use_is_told_and_nothing_is_left_running(tmp_path: Path) -> None:
    async def story() -> None:
        with closing(socket.create_server(("127.0.0.1", 0))) as other:
            taken = other.getsockname()[1]
            one = Node(config(tmp_path, server={"listen": f"127.0.0.1:{taken}"}))
            with pytest.raises(StartError, match=rf"{taken}.*in use.*Choose another server\.listen"):
                await one.start()
        assert not threads_of_a_node()
        again = Node(config(tmp_path))  # the store is free again
        await again.start()
        await again.stop()

    run(story())


def test_authorities_that_cannot_be_read_are_told_and_nothing_is_left_running(tmp_path: Path) -> None:
    broken = tmp_path / "authorities.pem"
    broken.write_text("no certificate")

    async def story() -> None:
        one = Node(config(tmp_path, server={"pool": {"caFile": str(broken)}}))
        with pytest.raises(StartError, match=r"server\.pool\.caFile"):
            await one.start()
        assert not threads_of_a_node()

    run(story())


# --- TLS ---


def test_a_node_with_a_certificate_speaks_tls(tmp_path: Path) -> None:
    cert, key = write_certificate(tmp_path)
    trust = ssl.create_default_context(cafile=str(cert))

    async def story() -> None:
        one = Node(config(tmp_path, server={"tlsCert": str(cert), "tlsKey": str(key)}))
        await one.start()
        try:
            assert one.url.startswith("wss://127.0.0.1:")
            async with await Talk.open(one.url, ssl=trust, server_hostname="localhost") as talk:
                await talk.succeed("Ping")
            with pytest.raises(ssl.SSLCertVerificationError):
                await Talk.open(one.url)
        finally:
            await one.stop()

    run(story())


@pytest.mark.parametrize(
    ("cert", "key"),
    [
        ("tls.crt", "missing.key"),
        ("missing.crt", "tls.key"),
        ("nonsense", "tls.key"),
        ("tls.crt", "nonsense"),
        ("tls.crt", "other.key"),
        ("tls.crt", "locked.key"),
        ("tls.key", "tls.crt"),
    ],
)
def test_a_certificate_that_cannot_be_used_is_told_before_anything_is_begun(
    tmp_path: Path, cert: str, key: str
) -> None:
    write_certificate(tmp_path)
    write_certificate(tmp_path, name="other", seed=b"\1" * 32)
    (tmp_path / "nonsense").write_text("-----BEGIN CERTIFICATE-----\nno\n-----END CERTIFICATE-----\n")
    (tmp_path / "locked.key").write_text(KEY_WITH_A_PASS_PHRASE)
    files = {"tlsCert": str(tmp_path / cert), "tlsKey": str(tmp_path / key)}
    with pytest.raises(ShineError, match=r"cannot be (used|read)"):
        Node(config(tmp_path, server=files))
    assert not (tmp_path / "data").exists()


# --- the control socket and what is read anew ---


def test_the_control_socket_tells_how_the_node_is_and_adds_users(tmp_path: Path) -> None:
    async def story() -> None:
        async with ScriptedPeer("server2", {"ReceiveIncomingMessage": silence}) as peer:
            peers = [{"login": "server2", "url": peer.url}]
            async with node(tmp_path, sync_servers=peers) as server, await Talk.open(server.url) as talk:
                await peer.until(lambda: bool(peer.live) and bool(peer.live[0].requests))
                path = server.folder / "data" / "control.sock"
                assert path.stat().st_mode & 0o777 == 0o660
                await talk.succeed("Ping")
                async with Asker(path) as asker:
                    added = await asker.ask(
                        "AddUser", {"record": record_payload(ALICE.access_record([server.access], time_ms=1))}
                    )
                    assert added["payload"]["applied"] is True
                    await talk.succeed(
                        "AddUser", record_payload(BOB.access_record([AccessServer("server2", peer.url)], time_ms=1))
                    )
                    await talk.say(
                        asked("SendMessagePair", make_message(ALICE, "bob", "hello", time_ms=now_ms()).payload)
                    )
                    await peer.until(lambda: was_brought_a_message(peer))
                    status = (await asker.ask("Status"))["payload"]
                assert (status["login"], status["listening"]) == ("server1", [server.url])
                assert status["connections"] == 1
                assert status["queues"] == {"crypto": 0, "writer": 0, "attempts": 1, "openDeliveries": 1}
                assert (status["store"]["users"], status["store"]["messages"]) == (2, 1)
                [link] = status["peers"]["links"]
                assert (link["serverLogin"], link["state"], link["inFlight"]) == (
                    "server2",
                    "connected",
                    "ReceiveIncomingMessage",
                )
                assert status["warnings"] == []
            assert not path.exists()

    run(story())


def test_a_control_socket_that_cannot_be_made_is_told_and_nothing_is_left_running(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "control.sock").write_text("a letter")

    async def story() -> None:
        one = Node(config(tmp_path))
        with pytest.raises(ControlError, match="is in the way of the control socket"):
            await one.start()
        assert not threads_of_a_node()

    run(story())


@pytest.mark.usefixtures("process_of_before")
def test_settings_that_are_read_anew_are_in_force(tmp_path: Path) -> None:
    async def story() -> None:
        async with ScriptedPeer("server2") as peer:
            file = tmp_path / "node.toml"
            settings = node_settings("server1", tmp_path, server={"pool": {"refreshSeconds": 1}})
            file.write_text(toml_text(settings), encoding="utf-8")
            one = Node(load_config(file), config_path=file)
            await one.start()
            try:
                async with await Talk.open(one.url) as before, Asker(tmp_path / "data" / "control.sock") as asker:
                    changes = {
                        "limits": {"maxConnections": 1, "peerRequestsPerSecond": 1},
                        "sync_servers": [{"login": "server2", "url": peer.url}],
                        "log": {"level": "error"},
                    }
                    file.write_text(toml_text(settings | changes), encoding="utf-8")
                    level = logging.getLogger().level
                    answer = (await asker.ask("Reload"))["payload"]
                    assert answer["needRestart"] == []
                    assert answer["changed"] == [
                        "limits.maxConnections",
                        "limits.peerRequestsPerSecond",
                        "log.level",
                        "sync_servers",
                    ]
                    assert logging.getLogger().level == logging.ERROR != level
                    await peer.until(lambda: bool(peer.live))  # there is a link to the new peer
                    with pytest.raises(InvalidStatus):
                        await Talk.open(one.url)
                    hello = {"serverLogin": "server2", "protocolVersion": 1, "capabilities": []}
                    await before.succeed("ServerHello", hello)  # it may bring users now, and slowly
                    record = BOB.access_record([AccessServer("server3", "ws://127.0.0.1:1/ws")], time_ms=1)
                    answers = [await before.ask("SetUserAccess", record_payload(record)) for _ in range(3)]
                    assert {"applied": True} in [answer["payload"] for answer in answers]

                    file.write_text("a mistake", encoding="utf-8")
                    assert (await asker.ask("Reload"))["error"] == "BAD_CONFIGURATION"
                    with pytest.raises(InvalidStatus):
                        await Talk.open(one.url)
            finally:
                await one.stop()

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
                await until_logged(process, "reloaded; changed: limits.maxConnections; for a restart: nothing")
                async with await Talk.open(process.url, ssl=new, server_hostname="localhost") as talk:
                    await talk.succeed("Ping")
                await before.succeed("Ping")
            await process.stop()
        finally:
            await process.kill()

    run(story())


def test_the_authorities_of_peers_are_read_anew_and_those_of_before_stay_where_they_cannot_be(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")

    async def story() -> None:
        async with ScriptedPeer("server2", tls=new.server_context("127.0.0.1")) as peer:
            pool = {"caFile": str(old.ca_file)}
            async with node(
                tmp_path, server={"pool": pool}, sync_servers=[{"login": "server2", "url": peer.url}]
            ) as server:

                async def refused() -> bool:
                    return [link.state for link in server.node.pool.snapshot().peers] == [LinkState.PAUSE]

                await eventually(refused)
                good = new.ca_file.read_text()
                old.ca_file.write_text("no certificate")
                assert await server.node.reloader.reload({}) == {"changed": [], "needRestart": []}
                assert "the authorities of before stay in use" in caplog.text
                old.ca_file.write_text(good)
                await server.node.reloader.reload({})
                await peer.until(lambda: bool(peer.live))

    run(story())


@pytest.mark.parametrize("mode", ["closed", "open"])
def test_a_record_that_was_looked_up_is_a_registration_only_at_an_open_server(tmp_path: Path, mode: str) -> None:
    async def story() -> None:
        here = AccessServer("server1", "ws://127.0.0.1:1/ws")
        bob = BOB.access_record([here, AccessServer("server2", "ws://127.0.0.1:2/ws")], time_ms=1)

        async def knows_bob(connection: PeerConnection, request: dict[str, Any]) -> None:
            await connection.answer(request, {"exists": True, **record_payload(bob), "history": []})

        async with ScriptedPeer("server2", {"GetUserAccess": knows_bob}) as peer:
            friends = [{"login": "server2", "url": peer.url}]
            async with node(tmp_path, registration={"mode": mode}, sync_servers=friends) as server:

                async def connected() -> bool:
                    return bool(server.node.pool.connected())

                await eventually(connected)
                found = await server.request("GetUser", {"login": "bob"})
                assert found["exists"] is (mode == "open")

    run(story())


def test_a_certificate_that_is_replaced_is_found_without_a_signal(tmp_path: Path) -> None:
    cert, key = write_certificate(tmp_path)
    other_cert, other_key = write_certificate(tmp_path, name="other", seed=b"\1" * 32)
    new = ssl.create_default_context(cafile=str(other_cert))

    async def story() -> None:
        clock = ManualClock()
        one = Node(config(tmp_path, server={"tlsCert": str(cert), "tlsKey": str(key)}), clock)
        await one.start()
        try:
            other_cert.rename(cert)
            await clock.advance(2 * CHECK_SECONDS)
            async with Asker(tmp_path / "data" / "control.sock") as asker:
                [warning] = (await asker.ask("Status"))["payload"]["warnings"]
                assert "they do not belong together" in warning
            other_key.rename(key)
            await clock.advance(2 * CHECK_SECONDS)
            async with await Talk.open(one.url, ssl=new, server_hostname="localhost") as talk:
                await talk.succeed("Ping")
        finally:
            await one.stop()

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


# --- what it does while it runs ---


def test_a_node_keeps_a_link_to_the_peers_of_its_configuration(tmp_path: Path) -> None:
    async def story() -> None:
        async with ScriptedPeer("server2") as peer:
            async with node(tmp_path, sync_servers=[{"login": "server2", "url": peer.url}]):
                await peer.until(lambda: bool(peer.live) and bool(peer.live[0].requests))
                [hello] = peer.live[0].requests
                assert (hello["op"], hello["payload"]["serverLogin"]) == ("ServerHello", "server1")
            await peer.until(lambda: not peer.live)

    run(story())


class FailingClock(SystemClock):
    """A clock that stands for any defect of a part that must never end: the renewal of leases cannot wait by it."""

    async def sleep(self, seconds: float) -> None:
        """Wait, or fail where a lease's third is waited for."""
        if seconds == 259.0:
            raise RuntimeError("the cause")
        await super().sleep(seconds)


FAILING = {"leaseMs": 777_000}


def test_a_node_with_a_part_that_has_failed_says_that_it_cannot_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with node(tmp_path, clock=FailingClock(), delivery=FAILING) as server:
            await asyncio.wait_for(server.node.fatal.wait(), PATIENCE)

    with caplog.at_level(logging.CRITICAL, logger="shine_node"):
        run(story())
    [record] = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert "the node stops" in record.getMessage()
    assert record.exc_info and "the cause" in str(record.exc_info[1])


# --- stop ---


def was_brought_a_message(peer: ScriptedPeer) -> bool:
    return any(request["op"] == "ReceiveIncomingMessage" for request in peer.requests)


async def add_users(server: LocalServer | NodeProcess, peer: ScriptedPeer) -> None:
    """Register a user of this server, and one whose server is the peer."""
    async with await Connection.open(server.url) as client:
        for user, access in ((ALICE, AccessServer("server1", server.url)), (BOB, AccessServer("server2", peer.url))):
            await client.request("AddUser", record_payload(user.access_record([access], time_ms=1)))


def now_ms() -> int:
    return SystemClock().now_ms()


def test_who_waits_for_an_attempt_when_the_node_stops_is_answered_and_the_message_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_module, "GRACE_SECONDS", 0.1)

    async def story() -> None:
        async with ScriptedPeer("server2", {"ReceiveIncomingMessage": silence}) as peer, node(tmp_path) as server:
            await add_users(server, peer)
            one = make_message(ALICE, "bob", "wait for it", time_ms=now_ms())
            async with await Talk.open(server.url) as talk:
                await talk.say(asked("SendMessagePair", one.payload))
                await peer.until(lambda: bool(peer.requests))
                stopping = asyncio.ensure_future(server.stop())
                answer = await talk.hear()
                assert (answer["status"], answer["payload"]["deliveryState"]) == (200, "accepted")
                assert await talk.end() == 1001
                await stopping
            await server.start()
            told = await server.request("GetDmDeliveryStatus", {"messageKey": one.outgoing_key})
            assert (told["known"], told["delivered"]) == (True, False)

    run(story())


def test_a_request_that_needs_a_moment_has_it_when_the_node_stops(tmp_path: Path) -> None:
    async def story() -> None:
        go_on = asyncio.Event()

        async def slowly(connection: PeerConnection, request: dict[str, Any]) -> None:
            await go_on.wait()
            await connection.answer(request)

        async with ScriptedPeer("server2", {"ReceiveIncomingMessage": slowly}) as peer, node(tmp_path) as server:
            await add_users(server, peer)
            one = make_message(ALICE, "bob", "just in time", time_ms=now_ms())
            async with await Talk.open(server.url) as talk:
                await talk.say(asked("SendMessagePair", one.payload))
                await peer.until(lambda: bool(peer.requests))
                stopping = asyncio.ensure_future(server.stop())
                await asyncio.sleep(0)
                go_on.set()
                assert (await talk.hear())["payload"]["deliveryState"] == "delivered"
                await stopping

    run(story())


# --- the process ---


@pytest.fixture
def process_of_before() -> Iterator[None]:
    """Put back what a node sets for its whole process."""
    root, wire = logging.getLogger(), logging.getLogger("websockets")
    before = root.level, list(root.handlers), wire.level, sys.getswitchinterval(), gc.get_threshold()
    root.handlers.clear()
    yield
    root.handlers[:] = before[1]
    root.setLevel(before[0])
    wire.setLevel(before[2])
    sys.setswitchinterval(before[3])
    gc.set_threshold(*before[4])
    gc.unfreeze()


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
    assert "CRITICAL shine_node.node: cannot listen" in said.err
    assert "Traceback" not in said.err


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


def test_processes_that_cannot_start_end_with_status_1_and_a_sentence(tmp_path: Path) -> None:
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
            assert [status for status, _ in ends] == [1, 1, 1]
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
