"""What the tests of the directory share: a server's store, signatures and users, with real links to scripted peers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from shine_node.crypto.pool import CryptoPool
from shine_node.directory.lookup import Lookup
from shine_node.directory.users import Users
from shine_node.peers.directory import KnownPeer
from shine_node.peers.pool import Pool
from shine_node.protocol.access import AccessRecord, AccessServer, record_payload
from shine_node.store.layout import Table
from tests.delivery.rooms import MoodyStore, until
from tests.peers.links import make_settings
from tests.store.rooms import MAP_SIZE, NOW, OWN, identity, servers
from tests.support.clock import ManualClock
from tests.support.scripted_peer import PeerConnection, ScriptedPeer

OWN_URL = "ws://127.0.0.1:9/ws"
LOOK_UP = "GetUserAccess"


class House:
    """One server without its endpoint. Links to ``peers`` are permanent; ``configured`` are its ``sync_servers``."""

    def __init__(self, folder: Path, *peers: ScriptedPeer) -> None:
        self.clock = ManualClock(NOW)
        self.store = MoodyStore(folder / "shine.mdb", map_size=MAP_SIZE)
        self.crypto = CryptoPool(threads=1, max_queue=1024)
        self.users = Users(store=self.store, crypto=self.crypto, clock=self.clock, own_login=OWN)
        self.known = self.known_of(*peers)
        self.configured: list[AccessServer] = []
        self.takes_anyone = True
        self.pool = Pool(
            own_login=OWN, own_url=OWN_URL, settings=make_settings(), clock=self.clock, known_peers=lambda: self.known
        )
        self.lookup = Lookup(
            peers=self.pool,
            users=self.users,
            clock=self.clock,
            connected=lambda: [AccessServer(peer.server_login, peer.url) for peer in self.pool.connected()],
            sync_servers=lambda: self.configured,
            allow_insecure=True,
            takes_anyone=lambda: self.takes_anyone,
        )

    @staticmethod
    def known_of(*peers: ScriptedPeer) -> list[KnownPeer]:
        """Return peers as those who are known, by permanent links."""
        return [KnownPeer(peer.login, peer.url, True) for peer in peers]

    @property
    def records(self) -> int:
        """How many access records are stored."""
        with self.store.read() as txn:
            return txn.count(Table.ACCESS_RECORDS)

    async def until_connected(self) -> None:
        """Wait until all links are up."""
        await until(lambda: len(self.pool.connected()) == len(self.known))


@asynccontextmanager
async def house_in(folder: Path, *peers: ScriptedPeer) -> AsyncIterator[House]:
    """Have a server that is connected with these peers; all of them end with the block."""
    async with AsyncExitStack() as stack:
        for peer in peers:
            await stack.enter_async_context(peer)
        house = House(folder, *peers)
        stack.callback(house.store.close)
        house.store.start()
        house.crypto.start()
        stack.callback(house.crypto.close)
        await house.pool.start()
        stack.push_async_callback(house.pool.close)
        stack.push_async_callback(house.lookup.close)
        await house.until_connected()
        yield house


def record_of(login: str, *server_logins: str, time_ms: int = NOW, url: str = "") -> AccessRecord:
    """Return a signed record of a user whose keys follow from the login; all its servers at ``url``, if given."""
    places = servers(*server_logins)
    return identity(login).access_record([place._replace(url=url or place.url) for place in places], time_ms=time_ms)


def as_answer(*records: AccessRecord) -> dict[str, Any]:
    """Return what a server answers that knows these records of one user, the newest last."""
    *older, newest = (record_payload(record) for record in records)
    return {"exists": True, **newest, "history": older}


class Knows:
    """A peer's ``GetUserAccess``: it knows these users, by all their records, oldest first."""

    def __init__(self, *records: AccessRecord) -> None:
        self.records = list(records)
        self.answers: dict[str, dict[str, Any]] = {}
        """What is answered for a login instead."""

    async def __call__(self, connection: PeerConnection, request: dict[str, Any]) -> None:
        login = request["payload"]["login"]
        found = [record for record in self.records if record.key == login]
        answer = self.answers.get(login) or (as_answer(*found) if found else {"exists": False})
        await connection.answer(request, answer)


def asked(peer: ScriptedPeer, op: str = LOOK_UP) -> list[dict[str, Any]]:
    """Return the payloads of the requests of an operation that a peer got."""
    return [request["payload"] for request in peer.requests if request["op"] == op]


async def cuts(connection: PeerConnection, request: dict[str, Any]) -> None:
    """Cut the connection instead of answering."""
    connection.cut()


def refuses(status: int, code: str) -> Any:
    """Return a behaviour that answers with an error."""

    async def refuse(connection: PeerConnection, request: dict[str, Any]) -> None:
        await connection.refuse(request, status, code)

    return refuse


async def soon(task: asyncio.Future[Any]) -> Any:
    """Return what a task comes to, with a bound."""
    return await asyncio.wait_for(task, 20)
