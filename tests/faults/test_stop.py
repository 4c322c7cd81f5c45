"""A node that is told to stop while everything is under way: it ends soon, with status 0, and kept what it answered."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from pathlib import Path

import orjson
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from shine_node.cli.node_process import NodeProcess
from shine_node.client.messages import make_message
from shine_node.protocol.envelope import encode_request
from shine_node.protocol.keys import MessageId
from shine_node.store.layout import ItemKey
from shine_node.store.messages import get_row
from tests.store.rooms import opened
from tests.support.nodes import PATIENCE, eventually, node_settings, now_ms, run, toml_text
from tests.support.scripted_peer import ScriptedPeer
from tests.support.whole_node import ALICE, add_users, silence, was_brought_a_message

SECONDS = 10.0
"""Twice what the node may take: the machine of the tests may be slow."""
LOAD = 400
CONNECTIONS = 3


async def load(url: str, number: int, answered: dict[str, str]) -> None:
    """Send many messages to oneself at once, which need no other server, and take note of the answers."""
    async with connect(url, proxy=None, compression=None, ping_interval=None) as link:
        keys: dict[str, str] = {}

        async def send() -> None:
            for count in range(LOAD):
                pair = make_message(ALICE, "alice", f"{number} {count}", time_ms=now_ms())
                keys[str(count)] = pair.outgoing_key
                await link.send(encode_request("SendMessagePair", str(count), pair.payload))

        sending = asyncio.ensure_future(send())
        try:
            while True:
                answer = orjson.loads(await link.recv())
                if answer["status"] == 200:
                    answered[keys[answer["requestId"]]] = answer["payload"]["deliveryState"]
        except ConnectionClosed:
            pass
        finally:
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionClosed):
                await sending


async def deaf(url: str) -> socket.socket:
    """Connect as a client that sends and never reads."""
    host, port = url.removeprefix("ws://").removesuffix("/ws").split(":")
    sock = socket.create_connection((host, int(port)))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.sendall(
        b"GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    await asyncio.to_thread(sock.recv, 1024)
    frame = encode_request("GetServerInfo", "1", {}).encode()
    masked = bytes((0x81, 0x80 | len(frame), 0, 0, 0, 0)) + frame
    sock.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        for _ in range(2000):
            sock.send(masked)
    return sock


def test_a_node_under_load_ends_soon_and_has_kept_what_it_answered(tmp_path: Path) -> None:
    answered: dict[str, str] = {}

    async def story() -> None:
        async with ScriptedPeer("server2", {"ReceiveIncomingMessage": silence}) as peer:
            file = tmp_path / "node.toml"
            settings = node_settings(
                "server1",
                tmp_path,
                crypto={"threads": 1, "maxQueue": 64},
                limits={"requestsPerSecond": 100_000},
                server={"info": {"description": "x" * 1000}},
            )
            file.write_text(toml_text(settings), encoding="utf-8")
            process = await NodeProcess.start(file)
            try:
                await add_users(process, peer)
                quiet = await deaf(process.url)
                hanging = await connect(process.url, proxy=None)
                pair = make_message(ALICE, "bob", "never answered", time_ms=now_ms())
                await hanging.send(encode_request("SendMessagePair", "h", pair.payload))
                await peer.until(lambda: was_brought_a_message(peer))
                loads = [asyncio.ensure_future(load(process.url, n, answered)) for n in range(CONNECTIONS)]
                await eventually(lambda: enough(answered))
                begin = time.monotonic()
                await process.stop(timeout=PATIENCE)  # it checks the exit status
                took = time.monotonic() - begin
                await asyncio.wait_for(asyncio.gather(*loads), PATIENCE)
                answer = orjson.loads(await hanging.recv())
                assert answer["payload"]["deliveryState"] == "accepted"
                answered[pair.outgoing_key] = "accepted"
                with pytest.raises(ConnectionClosed) as closed:
                    await hanging.recv()
                assert closed.value.rcvd is not None and closed.value.rcvd.code == 1001
                quiet.close()
                assert took < SECONDS, process.log_tail()
            finally:
                await process.kill()

    async def enough(found: dict[str, str]) -> bool:
        return len(found) >= LOAD / 4

    run(story())
    with opened(tmp_path / "data" / "shine.mdb", map_size=2**28) as store, store.read() as txn:
        for outgoing_key in answered:
            sender, recipient, time_ms, nonce, _ = outgoing_key.split("|")
            pair_key = ItemKey.outgoing(MessageId(sender, recipient, int(time_ms), int(nonce)), 2)
            assert get_row(txn, pair_key) is not None, "what was answered is there"


def test_several_signals_at_once_are_one_wish(tmp_path: Path) -> None:
    async def story() -> None:
        async with ScriptedPeer("server2", {"ReceiveIncomingMessage": silence}) as peer:
            file = tmp_path / "node.toml"
            file.write_text(toml_text(node_settings("server1", tmp_path)), encoding="utf-8")
            process = await NodeProcess.start(file)
            try:
                await add_users(process, peer)
                os.kill(process.pid, signal.SIGTERM)
                os.kill(process.pid, signal.SIGINT)  # the same wish
                await process.stop(timeout=PATIENCE)
            finally:
                await process.kill()

    run(story())
