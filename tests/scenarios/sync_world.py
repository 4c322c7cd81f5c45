"""What the stories of synchronisation share: alice with two real servers, and whether they have become equal."""

from __future__ import annotations

import base64
import shutil
from typing import Any

from shine_node.client.messages import SignedPair
from shine_node.protocol.access import AccessServer
from shine_node.protocol.container import parse_container
from tests.scenarios.world import SESSIONS, Home, Person, Scripted, World
from tests.support.clock import ManualClock
from tests.support.scripted_peer import PeerConnection, ScriptedPeer
from tests.sync.history import History, history_of, unsynced_of

__all__ = ["Giver", "alice_at_two", "equal", "history", "item", "keep_copy", "restore_copy", "session", "unsynced"]

DM, SETTINGS, STATUS = "DmSyncBatch", "SettingsSyncBatch", "GetDmDeliveryStatus"


class Giver:
    """A scripted server that gives pages of ``DmSyncBatch`` as it is told, and says yes to everything else.

    Each page is a list of items; what is left when there are no pages is an empty last page. A page may also be an
    exception's name: ``cut`` ends the connection, ``silence`` does not answer.
    """

    def __init__(self, login: str, clock: ManualClock) -> None:
        self.login = login
        self.pages: list[list[dict[str, Any]] | str] = []
        self.delivered: set[str] = set()
        """The keys of which it says that they are delivered."""
        self.asked: list[tuple[str, float, dict[str, Any]]] = []
        """Operation, seconds since it was made, payload; in the order in which requests came."""
        self.cursor: str | None = None
        """Given in every answer, if it is set."""
        self._given = 0
        self._clock = clock
        self._began = clock.monotonic()
        behaviours = dict.fromkeys((DM, SETTINGS, STATUS, "ReceiveOutcomingMessage"), self._behave)
        behaviours["AccessDataSyncBatch"] = self._behave
        self._peer = ScriptedPeer(login, dict(behaviours), capabilities=("dm-sync", "settings-sync", "connection-pool"))

    @property
    def access(self) -> AccessServer:
        """Its entry in an access record."""
        return AccessServer(self.login, self._peer.url)

    @property
    def connections(self) -> int:
        """How many connections it has had."""
        return len(self._peer.connections)

    def batches(self) -> list[dict[str, Any]]:
        """The payloads of all ``DmSyncBatch``, without what they say of the store."""
        return [{k: v for k, v in p.items() if k != "storeMark"} for op, _, p in self.asked if op == DM]

    def times(self, op: str) -> list[float]:
        """When an operation was asked for."""
        return [at for name, at, _ in self.asked if name == op]

    async def until_asked(self, op: str, times: int) -> None:
        """Wait until an operation has been asked for so often."""
        await self._peer.until(lambda: len(self.times(op)) >= times)

    async def until_connected(self, count: int) -> None:
        """Wait until so many connections have come."""
        await self._peer.until_connected(count)

    async def start(self) -> None:
        """Listen."""
        await self._peer.listen()

    async def stop(self) -> None:
        """Cut all connections and listen no more."""
        await self._peer.stop()

    def cut(self) -> None:
        """Cut all connections, and go on listening."""
        for connection in self._peer.live:
            connection.cut()

    async def _behave(self, connection: PeerConnection, request: dict[str, Any]) -> None:
        op, payload = request["op"], request["payload"]
        self.asked.append((op, round(self._clock.monotonic() - self._began, 3), payload))
        if op == STATUS:
            key = payload["messageKey"]
            answer = {"messageKey": key, "known": True, "delivered": key in self.delivered}
            if "revisionMs" in payload:
                answer["revisionMs"] = payload["revisionMs"]
            await connection.answer(request, answer)
        elif op == "AccessDataSyncBatch":
            await connection.answer(request, {"records": [], "nextSeq": 0, "hasMore": False})
        elif op == SETTINGS:
            await connection.answer(request, {"items": [], "cursor": "", "hasMore": False})
        elif op == "ReceiveOutcomingMessage":
            key = make_key(payload["outgoingBlobB64"])
            await connection.answer(request, {"outgoingKey": key})
        else:
            await self._give(connection, request)

    async def _give(self, connection: PeerConnection, request: dict[str, Any]) -> None:
        page = self.pages.pop(0) if self.pages else []
        if page == "cut":
            connection.cut()
        elif page != "silence":
            self._given += bool(page)
            cursor = self.cursor if self.cursor is not None else str(self._given)
            more = bool(self.pages) or self.cursor is not None
            await connection.answer(request, {"items": page, "cursor": cursor, "hasMore": more})


def make_key(blob: str) -> str:
    """The key of a container in Base64."""
    return str(parse_container(base64.b64decode(blob), max_body_bytes=2**20).key)


def item(name: str, pair: SignedPair, *, owner: str = "alice", incoming_only: bool = False) -> dict[str, Any]:
    """An item of ``DmSyncBatch``."""
    blobs = [pair.incoming] if incoming_only else [pair.incoming, pair.outgoing]
    return {"syncId": name, "login": owner, "blobsB64": [base64.b64encode(blob).decode() for blob in blobs]}


async def alice_at_two(world: World, *, bob_at: str = "r1") -> tuple[Home, Home, Scripted, Person]:
    """Alice at the real ``a1`` and ``a2``, which are connected; bob at a server that says yes."""
    a1, a2 = await world.homes("a1", "a2")
    r1 = await world.scripted(bob_at)
    alice = await world.person("alice", a1, a2)
    await world.person("bob", r1, known_at=(a1, a2))
    await world.passes(SESSIONS)
    return a1, a2, r1, alice


def history(home: Home, owner: str = "alice") -> History:
    """What a running server has of an owner."""
    with home.node.store.read() as txn:
        return history_of(txn, owner)


def unsynced(home: Home, owner: str = "alice") -> int:
    """How many entries of an owner a running server has yet to give away."""
    with home.node.store.read() as txn:
        return len(unsynced_of(txn, owner))


def equal(*homes: Home, owner: str = "alice") -> bool:
    """Whether servers have the same history of an owner, and nothing to give any more."""
    first = history(homes[0], owner)
    return all(history(home, owner) == first and not unsynced(home, owner) for home in homes)


async def session(world: World, count: int = 1) -> None:
    """Let time pass until every connected peer has had so many more sessions."""
    await world.passes(SESSIONS * count + 1)


def keep_copy(home: Home) -> None:
    """Copy the store of a server that is stopped, as a backup."""
    shutil.copyfile(home.store_file, home.folder / "backup.mdb")


def restore_copy(home: Home) -> None:
    """Put the copy in the place of the store of a server that is stopped."""
    shutil.copyfile(home.folder / "backup.mdb", home.store_file)
