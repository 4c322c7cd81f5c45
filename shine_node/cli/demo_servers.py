"""The servers of the demo: real nodes as processes of their own, and what each has on its own disk."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from shine_node.cli.node_process import NodeProcess, ReservedPort
from shine_node.client.connection import Connection, RequestRefused
from shine_node.client.identity import Identity
from shine_node.client.messages import SignedPair
from shine_node.protocol.access import AccessServer, record_payload
from shine_node.protocol.keys import MessageId
from shine_node.store.layout import Direction, ItemKey
from shine_node.store.marks import read_up_to_ms
from shine_node.store.messages import get_blobs, get_row
from shine_node.store.view import view_store

__all__ = ["DemoServer"]

REQUEST_SECONDS = 15.0
STOP_SECONDS = 10.0

_CONFIGURATION = """\
[server]
login = {login}
url = {url}
listen = {listen}
dataDir = {data}

[server.pool]
allowInsecurePeers = true
allowPrivatePeers = true

[storage]
mapSizeMiB = 64

[registration]
mode = "open"

[delivery]
scheduleSeconds = {schedule}
workerIntervalMs = 100
"""


class DemoServer:
    """One server; it keeps its port and its data while it is stopped.

    Args:
        login: its name.
        parent: the folder that its folder is made in.
        schedule: ``delivery.scheduleSeconds``.
    """

    def __init__(self, login: str, parent: Path, schedule: Sequence[int]) -> None:
        self.login = login
        self._folder = parent / login
        self._folder.mkdir()
        self._port = ReservedPort()
        self._schedule = schedule
        self._process: NodeProcess | None = None

    @property
    def access(self) -> AccessServer:
        """Its entry in an access record."""
        return AccessServer(self.login, f"ws://127.0.0.1:{self._port.number}/ws")

    @property
    def running(self) -> bool:
        """Whether it was started and not stopped since."""
        return self._process is not None

    def configure(self, peers: Sequence[DemoServer]) -> None:
        """Write its configuration file, in which it knows the other servers."""
        values = {
            "login": self.login,
            "url": self.access.url,
            "listen": f"127.0.0.1:{self._port.number}",
            "data": str(self._folder / "data"),
            "schedule": list(self._schedule),
        }
        # JSON writes these texts and lists as TOML does.
        text = _CONFIGURATION.format(**{name: json.dumps(value) for name, value in values.items()})
        for peer in peers:
            text += f'\n[[sync_servers]]\nlogin = "{peer.login}"\nurl = "{peer.access.url}"\n'
        self._config_file.write_text(text, encoding="utf-8")

    async def start(self) -> None:
        """Start it; it listens afterwards."""
        self._process = await NodeProcess.start(self._config_file)

    async def stop(self) -> None:
        """Stop it in order, as ``SIGTERM`` does."""
        process, self._process = self._process, None
        if process is not None:
            await process.stop(timeout=STOP_SECONDS)

    async def discard(self) -> None:
        """End it at once if it still runs, and give back its port."""
        process, self._process = self._process, None
        if process is not None:
            await process.kill()
        self._port.close()

    # -- asked over its WebSocket -------------------------------------------------------------------------------

    async def add_user(self, identity: Identity, homes: Sequence[DemoServer], *, time_ms: int) -> None:
        """Register a user here whose access servers are ``homes``; another server may have told of the user already."""
        record = identity.access_record((home.access for home in homes), time_ms=time_ms)
        async with await self._connect() as client:
            try:
                await client.request("AddUser", record_payload(record), timeout=REQUEST_SECONDS)
            except RequestRefused as refused:
                if refused.code != "USER_ALREADY_EXISTS":
                    raise

    async def send(self, pair: SignedPair) -> str:
        """Submit a pair and return the delivery state that is answered; the same pair again only asks (§5.2)."""
        async with await self._connect() as client:
            answer = await client.request("SendMessagePair", pair.payload, timeout=REQUEST_SECONDS)
        return str(answer["deliveryState"])

    async def knows(self, pair: SignedPair) -> bool:
        """Ask whether it has a delivery of this pair."""
        async with await self._connect() as client:
            payload = {"messageKey": pair.outgoing_key}
            return bool((await client.request("GetDmDeliveryStatus", payload, timeout=REQUEST_SECONDS))["known"])

    async def _connect(self) -> Connection:
        return await Connection.open(self.access.url, open_timeout=REQUEST_SECONDS)

    # -- read from its disk -------------------------------------------------------------------------------------

    def has_pair(self, pair: SignedPair) -> bool:
        """Say whether both copies are in its store, byte for byte, as the sender's."""
        return self._stored(ItemKey.outgoing(pair.message, pair.incoming_type)) == (pair.incoming, pair.outgoing)

    def has_copy(self, pair: SignedPair) -> bool:
        """Say whether the recipient's copy is in its store, byte for byte, as the recipient's."""
        return self._stored(ItemKey.incoming(pair.message, pair.incoming_type)) == (pair.incoming, b"")

    def shows_read(self, message: MessageId) -> bool:
        """Say whether a read receipt in its store covers a message of its sender (§4)."""
        with view_store(self._store_file) as txn:
            up_to_ms = read_up_to_ms(txn, message.from_login, message.to_login, Direction.OUT)
        return up_to_ms is not None and message.time_ms <= up_to_ms

    def _stored(self, key: ItemKey) -> tuple[bytes, bytes] | None:
        with view_store(self._store_file) as txn:
            row = get_row(txn, key)
            return get_blobs(txn, row) if row is not None else None

    @property
    def _config_file(self) -> Path:
        return self._folder / "node.toml"

    @property
    def _store_file(self) -> Path:
        return self._folder / "data" / "shine.mdb"
