"""Strangers who send as much as they can of what costs a node most, while somebody else wants an answer."""

from __future__ import annotations

import os
import select
import socket
import statistics
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from shine_node.cli.node_process import NodeProcess
from tests.api.talk import Talk
from tests.support.nodes import PATIENCE, node_settings, run, toml_text

MIB = 2**20
PINGS = 40
MEDIAN_SECONDS = 0.5
"""Seconds; a node that is held up needs one and more for each, one that is not some thousandths."""


def frame(payload: bytes, *, first: int = 0x81) -> bytes:
    """Return a frame as a client writes it, with a mask that changes nothing."""
    size = len(payload)
    if size < 126:
        head = bytes([first, 0x80 | size])
    elif size < 65536:
        head = bytes([first, 0xFE]) + size.to_bytes(2, "big")
    else:
        head = bytes([first, 0xFF]) + size.to_bytes(8, "big")
    return head + bytes(4) + payload


def many(unit: str, characters: int = MIB - 100) -> bytes:
    """Return a frame that holds something very often."""
    units = unit * (characters // len(unit))
    return frame(f'{{"op":"Ping","requestId":"r","payload":{{"a":[{units}0]}}}}'.encode())


FLOODS = {
    "lists": many("[],"),
    "lists in lists": many("[" * 60 + "]" * 60 + ","),
    "names": many('{"a":1},'),
    "lists, in smaller frames": many("[],", 16_000) * 64,
    "requests": frame(b'{"op":"Ping","requestId":"r","payload":{}}') * 5000,
    "empty texts": frame(b"") * 40_000,
    "pings": frame(b"", first=0x89) * 40_000,
    "pongs": frame(b"", first=0x8A) * 40_000,
    "a message without end": frame(b"x", first=0x01) + frame(b"", first=0x00) * 40_000,
}


def shake_hands(host: str, port: int) -> socket.socket:
    sock = socket.create_connection((host, port), PATIENCE)
    key = b64encode(os.urandom(16)).decode()
    sock.sendall(
        f"GET /ws HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
    )
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += sock.recv(4096)
    assert b" 101 " in answer
    return sock


def send_much(sock: socket.socket, data: bytes, stop: threading.Event) -> None:
    """Send the same again and again, and read what comes: it is not for that that one is to be cut."""
    sock.setblocking(False)
    rest = memoryview(data)
    while not stop.is_set():
        readable, writable, _ = select.select([sock], [sock], [], 0.05)
        if readable and not sock.recv(MIB):
            return
        if writable:
            rest = rest[sock.send(rest) :] or memoryview(data)


def be_a_nuisance(host: str, port: int, data: bytes, stop: threading.Event) -> None:
    """Flood, and come again when cut."""
    while not stop.is_set():
        with suppress(OSError), shake_hands(host, port) as sock:
            send_much(sock, data, stop)


@contextmanager
def strangers(url: str, data: bytes, number: int) -> Iterator[None]:
    host, port = url.removeprefix("ws://").removesuffix("/ws").split(":")
    stop = threading.Event()
    threads = [threading.Thread(target=be_a_nuisance, args=(host, int(port), data, stop)) for _ in range(number)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("kind", FLOODS)
def test_somebody_else_is_answered_while_strangers_flood(tmp_path: Path, kind: str) -> None:
    async def story() -> None:
        file = tmp_path / "node.toml"
        file.write_text(toml_text(node_settings("server1", tmp_path)), encoding="utf-8")
        process = await NodeProcess.start(file)
        try:
            with strangers(process.url, FLOODS[kind], 3):
                async with await Talk.open(process.url) as talk:
                    seconds = []
                    for _ in range(PINGS):
                        began = time.monotonic()
                        await talk.succeed("Ping")
                        seconds.append(time.monotonic() - began)
                assert statistics.median(seconds) < MEDIAN_SECONDS
            await process.stop()
        finally:
            await process.kill()

    run(story())
