"""The world of a story: some servers, some people, and one clock that moves only when the story says so.

Between two steps of the clock the world comes to rest: whatever a server has begun is over before time goes on, so that
an hour of retries takes seconds and every attempt is made at its very time. A peer that answers nothing keeps the world
from resting; such a story moves the clock by hand.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from websockets.exceptions import ConnectionClosed

from shine_node.client.connection import Connection
from shine_node.client.identity import Identity
from shine_node.client.messages import SignedPair, make_edit, make_message, make_receipt, make_tombstone
from shine_node.peers.snapshot import LinkState
from shine_node.protocol.access import AccessServer, record_payload
from shine_node.protocol.keys import parse_message_key
from shine_node.store.layout import Direction, ItemKey, Row
from shine_node.store.messages import get_blobs, get_row
from shine_node.store.resync import next_resync
from shine_node.sync.resync import LOOK_SECONDS, PAUSE_SECONDS
from tests.store.rooms import check_indexes
from tests.support.clock import ManualClock
from tests.support.nodes import PATIENCE, LocalServer, Server, run
from tests.support.scripted_peer import PeerConnection, ScriptedPeer

__all__ = ["HOUR", "Home", "Person", "Scripted", "World", "submit", "tell", "until"]

HOUR = 3600.0
INTERVAL = 5.0
"""The worker's interval; it tells the worker's sleep from the others."""

SCRIPTED_OPS = ("ReceiveIncomingMessage", "ReceiveOutcomingMessage", "GetDmDeliveryStatus", "SetUserAccess")

SESSIONS = 31.0
"""The interval of sessions, which tells their sleep from the others."""

QUIET_LINKS = {"pool": {"pingIdleSeconds": 86400, "idleCloseSeconds": 86400}}


class Place(Protocol):
    """Whatever an access record can name."""

    @property
    def access(self) -> AccessServer:
        """Its entry in an access record."""


class WatchedClock:
    """The world's clock as one node sees it: it counts who sleeps for how long."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._sleeping: Counter[float] = Counter()

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        self._sleeping[seconds] += 1
        try:
            await self._clock.sleep(seconds)
        finally:
            self._sleeping[seconds] -= 1

    def sleepers(self, seconds: float) -> int:
        """How many sleep for exactly so long."""
        return self._sleeping[seconds]

    def sleeps(self, seconds: float) -> bool:
        """Whether somebody sleeps for exactly so long."""
        return self._sleeping[seconds] > 0


class Home(LocalServer):
    """A real node of the story."""

    def __init__(self, login: str, parent: Path, clock: ManualClock, **sections: Mapping[str, Any]) -> None:
        self._watched = WatchedClock(clock)
        server = {**QUIET_LINKS, **sections.pop("server", {})}
        sync = {"intervalSeconds": round(SESSIONS), **sections.pop("sync", {})}
        super().__init__(login, parent, clock=self._watched, server=server, sync=sync, **sections)

    @property
    def at_rest(self) -> bool:
        """Whether nothing that it has begun is under way."""
        if self._node is None:
            return True
        deliverer, worker = self.node._deliverer, self.node._worker
        if deliverer._background or deliverer.claims.held or worker._attempts or worker._settling:
            return False
        lookup = self.node._lookup
        if lookup._under_way or lookup._refreshing:
            return False
        for link in self.node.pool._links.values():
            if link.busy or link.state is LinkState.CONNECTING or link._ping is not None:
                return False
        sessions = self.node._sessions
        if self._watched.sleepers(sessions._interval_seconds) < len(sessions._tasks):
            return False
        return self.sleeps(INTERVAL) and not self._resyncs()

    def _resyncs(self) -> bool:
        """Whether a step of making entries unsynced is in the writer's thread: sessions must not pass meanwhile."""
        if self.sleeps(LOOK_SECONDS) or self.sleeps(PAUSE_SECONDS):
            return False
        with self.node.store.read() as txn:
            return next_resync(txn) is not None

    def sleeps(self, seconds: float) -> bool:
        """Whether some part of it sleeps for exactly so long."""
        return self._watched.sleeps(seconds)

    async def stop(self) -> None:
        """Stop it in order; what it leaves in its store must fit together."""
        if self._node is not None:
            with self.node.store.read() as txn:
                check_indexes(txn, self.login)
        await super().stop()

    def row(self, key: str) -> Row | None:
        """What is stored of an item, by its ``incomingKey`` or ``outgoingKey``."""
        with self.node.store.read() as txn:
            return get_row(txn, _item(key))

    def blobs(self, key: str) -> tuple[bytes, bytes]:
        """The copies that are stored of an item: of an outgoing one both; empty where there are none."""
        with self.node.store.read() as txn:
            row = get_row(txn, _item(key))
            return get_blobs(txn, row) if row is not None else (b"", b"")

    def has(self, pair: SignedPair) -> bool:
        """Whether the recipient's copy of a pair is stored here, for the recipient."""
        return self.blobs(pair.incoming_key) == (pair.incoming, b"")

    def state(self, pair: SignedPair) -> str:
        """The delivery state of a pair here."""
        row = self.row(pair.outgoing_key)
        assert row is not None, f"{self.login} does not have {pair.base_key}"
        return row.state.wire

    def lease_ms(self, pair: SignedPair) -> int:
        """When the claim of a pair's attempt ends."""
        row = self.row(pair.outgoing_key)
        assert row is not None
        assert row.delivery is not None
        return row.delivery.lease_until_ms

    async def status(self, pair: SignedPair, revision_ms: int | None = None) -> tuple[bool, bool]:
        """What ``GetDmDeliveryStatus`` says: known, delivered."""
        payload: dict[str, object] = {"messageKey": pair.outgoing_key}
        if revision_ms is not None:
            payload["revisionMs"] = revision_ms
        answer = await self.request("GetDmDeliveryStatus", payload)
        assert answer.pop("messageKey") == pair.outgoing_key
        assert answer.pop("revisionMs", None) == revision_ms
        assert set(answer) == {"known", "delivered"}
        return answer["known"], answer["delivered"]


class Scripted:
    """A server of the story that does as it is told: it says yes, or refuses, or keeps its answers for later."""

    def __init__(self, login: str, clock: ManualClock) -> None:
        self.login = login
        self.calls: list[tuple[str, float, dict[str, Any]]] = []
        """Operation, seconds since the story began, payload."""
        self._clock = clock
        self._began = clock.monotonic()
        self._answers: dict[str, tuple[int, str] | dict[str, Any] | asyncio.Event | None] = {}
        self._gates: list[asyncio.Event] = []
        self._kept: list[asyncio.Task[None]] = []
        self._only: frozenset[str] | None = None
        self._peer = ScriptedPeer(login, dict.fromkeys(SCRIPTED_OPS, self._behave))

    @property
    def access(self) -> AccessServer:
        return AccessServer(self.login, self._peer.url)

    def refuses(self, op: str, status: int = 500, code: str = "INTERNAL_ERROR") -> None:
        """Refuse an operation from now on."""
        self._answers[op] = status, code

    def says(self, op: str, **payload: Any) -> None:
        """Answer an operation with a payload from now on; without one, as a server that does what it is asked."""
        self._answers[op] = payload or None

    def keeps(self, op: str) -> asyncio.Event:
        """Answer an operation only when the returned event is set."""
        gate = asyncio.Event()
        self._gates.append(gate)
        self._answers[op] = gate
        return gate

    def accepts_from(self, *logins: str) -> None:
        """Refuse incoming messages from all servers but these."""
        self._only = frozenset(logins)

    def times(self, op: str = "ReceiveIncomingMessage") -> list[float]:
        """When an operation was asked for, in seconds since the story began."""
        return [at for name, at, _ in self.calls if name == op]

    @property
    def ops(self) -> list[str]:
        """All operations that were asked for, in order."""
        return [name for name, _, _ in self.calls]

    async def until_called(self, op: str, times: int = 1) -> None:
        """Wait until an operation has been asked for so often."""
        await self._peer.until(lambda: len(self.times(op)) >= times)

    async def start(self) -> None:
        await self._peer.listen()

    async def stop(self) -> None:
        for gate in self._gates:
            gate.set()
        await asyncio.gather(*self._kept)
        await self._peer.stop()

    async def _behave(self, connection: PeerConnection, request: dict[str, Any]) -> None:
        op, payload = request["op"], request["payload"]
        self.calls.append((op, round(self._clock.monotonic() - self._began, 3), payload))
        answer = self._answers.get(op)
        if op == "ReceiveIncomingMessage" and self._only is not None and payload["sourceServerLogin"] not in self._only:
            answer = 503, "SERVER_BUSY"
        if isinstance(answer, asyncio.Event):
            self._kept.append(asyncio.create_task(_answer_later(answer, connection, request)))
        elif isinstance(answer, tuple):
            await connection.refuse(request, *answer)
        else:
            await connection.answer(request, answer)


async def _answer_later(gate: asyncio.Event, connection: PeerConnection, request: dict[str, Any]) -> None:
    await gate.wait()
    with suppress(ConnectionClosed):
        await connection.answer(request)


class Person:
    """A user of the story, with the keys of the present device."""

    def __init__(self, identity: Identity, clock: ManualClock) -> None:
        self.identity = identity
        self._clock = clock

    def writes(self, to_login: str, text: str) -> SignedPair:
        """Sign a new message, written now."""
        return make_message(self.identity, to_login, text, time_ms=self._clock.now_ms())

    def edits(self, pair: SignedPair, text: str) -> SignedPair:
        """Sign an edit; of two that are made in one instant each is later than the one before."""
        return make_edit(self.identity, pair.message, text, revision_ms=self._later(pair))

    def removes(self, pair: SignedPair) -> SignedPair:
        """Sign a tombstone."""
        return make_tombstone(self.identity, pair.message, time_ms=self._clock.now_ms())

    def has_read(self, pair: SignedPair) -> SignedPair:
        """Sign a read receipt."""
        return make_receipt(self.identity, pair.message, time_ms=self._clock.now_ms())

    def takes_a_new_device(self) -> None:
        """Have another device key; it counts from the next access record on."""
        self.identity = self.identity.with_device(Identity.generate(self.identity.login).device)

    def _later(self, pair: SignedPair) -> int:
        return max(self._clock.now_ms(), pair.message.time_ms + 1, pair.revision_ms + 1)


class World:
    """All that there is in a story; made by ``tell``."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self.clock = ManualClock()
        self._folder = folder
        self._stack = stack
        self.people: dict[str, Person] = {}
        self._homes: list[Home] = []
        self._records = 0
        self._began = self.clock.monotonic()

    @property
    def seconds(self) -> float:
        """Since the story began."""
        return round(self.clock.monotonic() - self._began, 3)

    async def home(self, login: str, *, running: bool = True, **sections: Mapping[str, Any]) -> Home:
        """A real node."""
        home = Home(login, self._folder, self.clock, **sections)
        self._stack.push_async_callback(home.discard)
        if running:
            await home.start()
        self._homes.append(home)
        return home

    async def homes(self, *logins: str, **sections: Mapping[str, Any]) -> tuple[Home, ...]:
        """Several real nodes with the same settings."""
        return tuple([await self.home(login, **sections) for login in logins])

    async def scripted(self, login: str) -> Scripted:
        """A server that does as it is told."""
        peer = Scripted(login, self.clock)
        await peer.start()
        self._stack.push_async_callback(peer.stop)
        return peer

    async def person(self, login: str, *places: Place, known_at: Iterable[Home] = ()) -> Person:
        """A user with these access servers, registered at those that are real nodes and made known at others."""
        person = Person(Identity.generate(login), self.clock)
        await self.moves(person, *places, known_at=known_at)
        self.people[login] = person
        return person

    async def moves(self, person: Person, *places: Place, known_at: Iterable[Home] = ()) -> None:
        """Sign an access record that names these servers, and bring it to those that are real nodes, and to others."""
        self._records += 1
        time_ms = self.clock.now_ms() - 60_000 + self._records
        record = person.identity.access_record((place.access for place in places), time_ms=time_ms)
        payload = record_payload(record)
        for home in (*places, *known_at):
            if isinstance(home, Home):
                known = await home.request("GetUser", {"login": person.identity.login})
                await home.request("SetUserAccess" if known["exists"] else "AddUser", payload)

    async def send(self, home: Server, pair: SignedPair) -> str:
        """Submit a pair as a client does, check the keys of the answer, and return its delivery state."""
        async with await home.connect() as client:
            return await submit(client, pair)

    async def rest(self) -> None:
        """Wait until nothing is under way anywhere."""
        await until(lambda: all(home.at_rest for home in self._homes))

    async def passes(self, seconds: float) -> None:
        """Let time pass, from one event to the next; each is over before the next one begins."""
        end = self.clock.monotonic() + seconds
        await self.rest()
        while (left := end - self.clock.monotonic()) > 1e-6:
            wake = self.clock.next_wake()
            await self.clock.advance(left if wake is None else min(left, max(wake, 0.0)))
            await self.rest()


async def until(condition: Callable[[], object]) -> None:
    """Wait for what threads and sockets bring about; a story that waits in vain fails."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not become true"
        await asyncio.sleep(0.001)


async def submit(client: Connection, pair: SignedPair) -> str:
    """Submit a pair over a connection, check the keys of the answer, and return its delivery state."""
    answer = await client.request("SendMessagePair", pair.payload, timeout=PATIENCE)
    state = answer.pop("deliveryState")
    assert answer == {
        "baseKey": pair.base_key,
        "incomingKey": pair.incoming_key,
        "outgoingKey": pair.outgoing_key,
    }
    return str(state)


@asynccontextmanager
async def world_in(folder: Path) -> AsyncIterator[World]:
    """Make a world; everything in it has stopped at the end, and every store fits together."""
    async with AsyncExitStack() as stack:
        yield World(folder, stack)


def tell(folder: Path, story: Callable[[World], Awaitable[None]]) -> None:
    """Tell a story in a new world, with a bound."""

    async def told() -> None:
        async with world_in(folder) as world:
            await story(world)

    coroutine: Coroutine[Any, Any, None] = told()
    run(coroutine)


def _item(key: str) -> ItemKey:
    parsed = parse_message_key(key)
    make = ItemKey.incoming if parsed.message_type % 2 else ItemKey.outgoing
    item = make(parsed.message, parsed.message_type)
    assert (item.direction is Direction.IN) == bool(parsed.message_type % 2)
    return item
