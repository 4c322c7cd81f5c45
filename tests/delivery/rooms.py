"""What the tests of delivery share: the real rooms around a store in a folder, and other servers without sockets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from shine_node.config import config_from_mapping
from shine_node.crypto.pool import CryptoPool
from shine_node.delivery.attempts import Copies
from shine_node.delivery.catch_up import CatchUp
from shine_node.delivery.deliverer import Deliverer
from shine_node.delivery.intake import Accepted, Intake
from shine_node.delivery.quotas import Quotas
from shine_node.delivery.status import DeliveryStatus
from shine_node.delivery.worker import Worker
from shine_node.directory.users import Users
from shine_node.protocol.access import AccessRecord, AccessServer, User
from shine_node.protocol.container import Container, parse_container
from shine_node.protocol.errors import InternalError, LinkDown, PeerRefused, Refusal, ServerBusy
from shine_node.protocol.pair import Pair
from shine_node.protocol.schedule import DeliveryState, Schedule
from shine_node.store.environment import Job, Store
from shine_node.store.layout import Direction, ItemKey, Row, Table
from shine_node.store.lineage import get_doubt
from shine_node.store.messages import get_blobs, get_row
from tests.store.rooms import MAP_SIZE, MAX_BODY, NOW, OWN, check_indexes, identity, servers
from tests.support.clock import ManualClock, settle
from tests.support.stored import stored

PATIENCE = 20.0
STORY_SECONDS = 60.0
DEFAULT_SCHEDULE = (0, 30, 300, 1500, 3600)
NO_LIMITS = config_from_mapping(
    {"server": {"login": OWN, "url": "wss://own.example/ws"}, "limits": {"messagesPerMinutePerSender": 0}}
).limits

RECEIVE_INCOMING = "ReceiveIncomingMessage"
RECEIVE_OUTCOMING = "ReceiveOutcomingMessage"
STATUS = "GetDmDeliveryStatus"
SET_ACCESS = "SetUserAccess"

Payload = dict[str, Any]
Behaviour = Callable[[AccessServer, str, Payload], Awaitable[Payload]]


def run(story: Coroutine[Any, Any, None]) -> None:
    """Run a test's story with a bound; no task may be left behind."""

    async def bounded() -> None:
        async with asyncio.timeout(STORY_SECONDS):
            await story
        await settle()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks are left behind: {left}"

    asyncio.run(bounded())


async def until(condition: Callable[[], object]) -> None:
    """Wait for what threads and tasks bring about; a test that waits in vain fails."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not become true"
        await asyncio.sleep(0.001)


class Call(NamedTuple):
    """One request that a server got."""

    server: str
    op: str
    payload: Payload
    at_ms: int


class OtherServers:
    """All other servers, in place of the pool: they say yes to everything until a test says otherwise."""

    def __init__(self, clock: ManualClock) -> None:
        self.calls: list[Call] = []
        self._clock = clock
        self._behaviours: dict[tuple[str, str], Behaviour] = {}

    def on(self, server: str, op: str, behaviour: Behaviour) -> None:
        """Say what a server does with an operation from now on."""
        self._behaviours[server, op] = behaviour

    async def request(
        self, server: AccessServer, op: str, payload: Mapping[str, object], *, timeout: float | None = None
    ) -> Payload:
        assert server in servers(server.server_login), "the address is that of the record"
        self.calls.append(Call(server.server_login, op, dict(payload), self._clock.now_ms()))
        return await self._behaviours.get((server.server_login, op), yes)(server, op, dict(payload))

    def count(self, server: str, op: str) -> int:
        """How many such requests a server got."""
        return sum((call.server, call.op) == (server, op) for call in self.calls)

    @property
    def summary(self) -> list[tuple[str, str]]:
        """Server and operation of each call, in order."""
        return [(call.server, call.op) for call in self.calls]


async def yes(server: AccessServer, op: str, payload: Payload) -> Payload:
    """Answer that what was sent has been stored."""
    return stored(op, payload)


def answers(**payload: Any) -> Behaviour:
    """Answer with a payload; it names the message that it is about, where it does not say otherwise."""

    async def behaviour(server: AccessServer, op: str, asked: Payload) -> Payload:
        return {key: value for key, value in asked.items() if key == "messageKey"} | stored(op, asked) | payload

    return behaviour


def refuses(status: int, code: str) -> Behaviour:
    """Answer with an error."""

    async def behaviour(server: AccessServer, op: str, payload: Payload) -> Payload:
        raise PeerRefused(server.server_login, op, status, code)

    return behaviour


async def down(server: AccessServer, op: str, payload: Payload) -> Payload:
    """Be switched off."""
    raise LinkDown(server.server_login, op)


async def breaks(server: AccessServer, op: str, payload: Payload) -> Payload:
    """Stand for a defect of this program."""
    raise ZeroDivisionError("a defect")


class Lookups:
    """Other servers' knowledge of users, as ``directory.lookup.Lookup`` brings it: what a test says, and who asked."""

    def __init__(self, users: Users) -> None:
        self.found: list[AccessRecord] = []
        """Records that somebody else knows."""
        self.looked_for: list[str] = []
        self.refreshed: list[str] = []
        self.knows_strangers = ""
        """The server that can be asked alone."""
        self._users = users

    async def find(self, login: str) -> User | None:
        self.looked_for.append(login)
        for record in self.found:
            if record.key == login:
                await self._users.add(record)
        return self._users.get(login)

    async def find_at(self, login: str, server_login: str) -> User | None:
        return await self.find(login) if server_login == self.knows_strangers else self._users.get(login)

    def refresh_soon(self, login: str) -> None:
        self.refreshed.append(login)


class Held:
    """A server that answers when the test lets it."""

    def __init__(self, then: Behaviour = yes) -> None:
        self.waiting = 0
        self._then = then
        self._gate = asyncio.Event()

    async def __call__(self, server: AccessServer, op: str, payload: Payload) -> Payload:
        self.waiting += 1
        try:
            await self._gate.wait()
        finally:
            self.waiting -= 1
        return await self._then(server, op, payload)

    def release(self) -> None:
        """Let it answer."""
        self._gate.set()


class MoodyStore(Store):
    """A store whose writer refuses what it is given while ``busy`` says so."""

    busy = False

    def submit(self, jobs: list[Job[Any]], *, later: bool = False) -> None:
        if self.busy:
            raise ServerBusy("the store has too much to write")
        super().submit(jobs, later=later)


class Rooms:
    """Store, signature pool, users, ways in, deliverer and worker of one server, with their threads running."""

    def __init__(
        self,
        folder: Path,
        *,
        schedule: tuple[int, ...] = DEFAULT_SCHEDULE,
        first_attempt_timeout_ms: int = 8000,
        lease_ms: int = 60_000,
        interval_ms: int = 5000,
        max_concurrent: int = 64,
        max_queue: int = 1024,
        crypto_threads: int = 1,
        max_body_bytes: int = MAX_BODY,
        start_crypto: bool = True,
        own_login: str = OWN,
        clock: ManualClock | None = None,
    ) -> None:
        self.clock = clock or ManualClock(NOW)
        self.peers = OtherServers(self.clock)
        self.schedule = Schedule(schedule)
        self.lease_ms = lease_ms
        self._start_crypto = start_crypto
        self.store = MoodyStore(folder / "shine.mdb", map_size=MAP_SIZE)
        self.crypto = CryptoPool(threads=crypto_threads, max_queue=max_queue)
        self.users = Users(store=self.store, crypto=self.crypto, clock=self.clock, own_login=own_login.title())
        self.lookup = Lookups(self.users)
        self.quotas = Quotas(limits=NO_LIMITS, store=self.store, clock=self.clock)
        self.intake = Intake(
            store=self.store,
            crypto=self.crypto,
            users=self.users,
            lookup=self.lookup,  # type: ignore[arg-type]  # all that is asked of it
            clock=self.clock,
            schedule=self.schedule,
            lease_ms=lease_ms,
            max_body_bytes=max_body_bytes,
            quotas=self.quotas,
        )
        self.catch_up = CatchUp(
            store=self.store,
            crypto=self.crypto,
            users=self.users,
            lookup=self.lookup,  # type: ignore[arg-type]
            clock=self.clock,
            schedule=self.schedule,
            max_body_bytes=max_body_bytes,
            quotas=self.quotas,
            defect=self._meet,
        )
        self.deliverer = Deliverer(
            store=self.store,
            users=self.users,
            peers=self.peers,
            lookup=self.lookup,  # type: ignore[arg-type]
            clock=self.clock,
            schedule=self.schedule,
            first_attempt_timeout_ms=first_attempt_timeout_ms,
            lease_ms=lease_ms,
            quotas=self.quotas,
        )
        self.worker = Worker(
            store=self.store,
            deliverer=self.deliverer,
            clock=self.clock,
            schedule=self.schedule,
            interval_ms=interval_ms,
            lease_ms=lease_ms,
            max_concurrent=max_concurrent,
        )
        self.status = DeliveryStatus(self.store)
        self.defects: list[str] = []
        """Over whose entries there were defects."""

    def _meet(self, server_login: str) -> Refusal:
        self.defects.append(server_login)
        return InternalError("this server could not store it")

    def doubt(self, server: str) -> int | None:
        """Since when entries have changed that a server has, but not by a request with a mark."""
        with self.store.read() as txn:
            return get_doubt(txn, server)

    async def __aenter__(self) -> Self:
        self.store.start()
        if self._start_crypto:
            self.crypto.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.worker.close()
            await self.deliverer.close()
            self.crypto.close()
            with self.store.read() as txn:
                check_indexes(txn, self.users.own_login)
        finally:
            self.store.close()  # its thread would keep the tests from ending

    async def know(self, login: str, *server_logins: str, time_ms: int = NOW - 1000) -> None:
        """Take a record of a user that names these access servers."""
        await self.users.add(identity(login).access_record(servers(*server_logins), time_ms=time_ms))

    async def accept(self, pair: Pair) -> Accepted:
        """Take a pair from a client: checked and stored, nothing sent yet."""
        return await self.intake.send_pair(pair.incoming.blob, pair.outgoing.blob)

    async def sync(self, *blobs: bytes, owner: str, from_server: str) -> Row:
        """Take one entry of ``DmSyncBatch`` and return its row, or raise why it was refused."""
        [refusal] = await self.catch_up.take([(owner, blobs)], from_server=from_server)
        if refusal is not None:
            raise refusal
        row = self.row_of(ItemKey.of(parse_container(blobs[-1], max_body_bytes=MAX_BODY)))
        assert row is not None
        return row

    def row(self, pair: Pair) -> Row | None:
        """What is stored of the sender's item of a pair."""
        return self.row_of(ItemKey.of(pair.outgoing))

    def recipients_row(self, pair: Pair) -> Row | None:
        """What is stored of the recipient's item of a pair."""
        return self.row_of(ItemKey.of(pair.incoming))

    def row_of(self, key: ItemKey) -> Row | None:
        """What is stored of an item."""
        with self.store.read() as txn:
            return get_row(txn, key)

    def blobs(self, pair: Pair, direction: Direction = Direction.OUT) -> tuple[bytes, bytes] | None:
        """The copies that are stored of an item of a pair."""
        with self.store.read() as txn:
            row = get_row(txn, ItemKey.of(pair.outgoing if direction is Direction.OUT else pair.incoming))
            return get_blobs(txn, row) if row is not None else None

    async def rest(self) -> None:
        """Wait until no attempt is under way."""
        await until(lambda: not self.worker._attempts and not self.deliverer._background)

    async def until_delivered(self, pair: Pair) -> None:
        """Wait until the sender's item of a pair says so."""

        def so() -> bool:
            row = self.row(pair)
            return row is not None and row.state is DeliveryState.DELIVERED

        await until(so)

    def count(self, table: Table) -> int:
        """How many rows a table has."""
        with self.store.read() as txn:
            return txn.count(table)


async def alice_and_bob(
    rooms: Rooms, *, alice: tuple[str, ...] = (OWN, "a2"), bob: tuple[str, ...] = ("r1", "r2")
) -> None:
    """Have both known with these access servers."""
    await rooms.know("alice", *alice)
    await rooms.know("bob", *bob)


def counts(rooms: Rooms) -> list[int]:
    """How many rows each table has."""
    return [rooms.count(table) for table in Table]


def broken(copy: Container) -> bytes:
    """The copy with a signature that is not its own."""
    return copy.blob[:-1] + bytes([copy.blob[-1] ^ 1])


def copies_of(pair: Pair) -> Copies:
    """What an attempt carries of a pair."""
    incoming, outgoing = pair
    return Copies(incoming.message, incoming.message_type, incoming.revision_ms, incoming.blob, outgoing.blob)
