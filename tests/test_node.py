"""A whole node: what it needs to start, what it does while it runs, and how it stops."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from shine_node import node as node_module
from shine_node.client.messages import make_message
from shine_node.config import config_from_mapping, load_config
from shine_node.control.place import ControlError
from shine_node.control.reload import BadConfiguration
from shine_node.node import STORE_FILE, Node, StartError, StartMistake
from shine_node.peers.snapshot import LinkState
from shine_node.protocol.access import AccessServer, record_payload
from shine_node.protocol.errors import ShineError
from shine_node.store.environment import StoreError
from shine_node.store.owner import read_owner
from shine_node.store.recovery.state import State, write_state
from shine_node.store.refill import begin_refill
from shine_node.tls import CHECK_SECONDS
from tests.api.talk import Talk, asked, node
from tests.cli.certificates import KEY_WITH_A_PASS_PHRASE, write_certificate
from tests.control.conftest import Asker
from tests.peers.certificates import Authority
from tests.support.clock import ManualClock
from tests.support.nodes import PATIENCE, eventually, node_settings, now_ms, run, toml_text
from tests.support.scripted_peer import PeerConnection, ScriptedPeer
from tests.support.whole_node import (
    ALICE,
    BOB,
    FAILING,
    FailingClock,
    add_users,
    config,
    silence,
    threads_of_a_node,
    was_brought_a_message,
)

# --- start ---


def test_a_node_that_has_started_answers_and_one_that_has_stopped_leaves_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        one = Node(config(tmp_path))
        await one.start()
        [(host, port)] = one.addresses
        assert one.urls == [one.url] == [f"ws://{host}:{port}/ws"]
        assert threads_of_a_node()
        assert (await one.status())["listening"] == one.urls
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


def test_a_store_says_which_server_serves_it(tmp_path: Path) -> None:
    async def story() -> None:
        one = Node(config(tmp_path))
        await one.start()
        await one.stop()

    run(story())
    assert read_owner(config(tmp_path).server.data_dir / STORE_FILE) == config(tmp_path).server.login.lower()


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


def test_a_port_that_this_user_may_not_have_is_a_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*arguments: object) -> None:
        await asyncio.sleep(0)  # the parts that run already begin
        raise PermissionError(13, "Permission denied")

    async def story() -> None:
        one = Node(config(tmp_path))
        monkeypatch.setattr(one._endpoint, "start", refuse)
        with pytest.raises(StartMistake, match=r"Permission denied\. Choose another server\.listen"):
            await one.start()

    run(story())


def test_authorities_that_cannot_be_read_are_told_and_nothing_is_left_running(tmp_path: Path) -> None:
    broken = tmp_path / "authorities.pem"
    broken.write_text("no certificate")

    async def story() -> None:
        one = Node(config(tmp_path, server={"pool": {"caFile": str(broken)}}))
        with pytest.raises(StartMistake, match=r"server\.pool\.caFile"):
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
                with pytest.raises(BadConfiguration, match=r"server\.pool\.caFile = .* cannot be used"):
                    await server.node.reloader.reload({})
                assert "nothing was reloaded, all stays as it is: server.pool.caFile" in caplog.text
                old.ca_file.write_text(good)
                assert (await server.node.reloader.reload({}))["changed"] == ["authorities"]
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


def test_a_long_reading_does_not_keep_the_node_from_stopping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(node_module, "CLOSE_SECONDS", 0.05)
    began, go_on = threading.Event(), threading.Event()

    def read(txn: object) -> None:
        began.set()
        assert go_on.wait(PATIENCE)

    async def story() -> None:
        server = Node(config(tmp_path))
        await server.start()
        reading = server._readers.begin(read)
        await asyncio.to_thread(began.wait, PATIENCE)
        await server.stop()
        assert "a long reading of the store is given up" in caplog.text
        go_on.set()
        await reading
        await server.stop()  # now it can be closed

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


def test_what_became_of_a_damaged_store_is_told(tmp_path: Path) -> None:
    async def story() -> None:
        one = Node(config(tmp_path))
        await one.start()
        try:
            assert one._problems() == []
            await one.store.write(lambda txn: begin_refill(txn, ["friend"]))
            path = one.store.path
            kept = path.with_name(f"{path.name}.damaged-1")
            kept.touch()
            write_state(path, State(recovered_from="the backup x", kept=kept.name))
            first, second = one._problems()
            assert "goes on with the backup x" in first
            assert second == "the store began empty: friend must yet tell who the users here are"
        finally:
            await one.stop()

    run(story())
