"""One of two servers of alice, with everything but sockets: the real rooms, and what the other one asks of them."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from shine_node.directory.settings import Settings
from shine_node.peers.directory import KnownPeer
from shine_node.peers.turns import Ending, Turn
from shine_node.protocol.access import AccessServer
from shine_node.protocol.container import parse_container
from shine_node.protocol.encoding import decode_base64
from shine_node.protocol.errors import LeftAlone, LinkError, LinkLost, Refusal
from shine_node.protocol.keys import parse_message_key
from shine_node.protocol.pair import Pair
from shine_node.protocol.settings import Setting, setting_payload
from shine_node.store.layout import ItemKey, Table
from shine_node.store.lineage import Lineage, begin_lineage
from shine_node.store.messages import get_blobs, get_row, identical
from shine_node.store.readers import Readers
from shine_node.store.resync import step_resync
from shine_node.store.settings import list_settings
from shine_node.sync.messages import MessageApply, MessageFeed
from shine_node.sync.pulling import Puller
from shine_node.sync.resync import Resync
from shine_node.sync.serving import Feed, Sent, SyncServing
from shine_node.sync.settings import SettingsApply, SettingsFeed
from shine_node.sync.stores import PeerStores
from tests.delivery.rooms import RECEIVE_INCOMING, RECEIVE_OUTCOMING, STATUS, Payload, Rooms, until
from tests.scenarios.sync_truth import Calls
from tests.store.rooms import MAX_BODY, servers
from tests.support.stored import stored
from tests.sync.history import History, history_of, unsynced_of

if TYPE_CHECKING:
    from tests.scenarios.sync_model import World

__all__ = ["COPY", "OWNER", "RECIPIENTS", "STORE", "Late", "Line", "Side"]

MAX_FRAME = 2**20
DM, SETTINGS = "DmSyncBatch", "SettingsSyncBatch"
OWNER, RECIPIENTS = "alice", "r1"
PAGE = 2
STORE, COPY = "shine.mdb", "copy.mdb"


class Line:
    """A connection that one of them has opened: what was sent over it, and what its session keeps."""

    def __init__(self) -> None:
        self.sent: defaultdict[str, Sent] = defaultdict(Sent)
        self.kept: dict[str, str] = {}


class Late(NamedTuple):
    """A request whose sender has given it up, and that has yet to arrive."""

    to: Side
    asker: str
    line: Line
    op: str
    payload: Payload


class Watched:
    """The way in of one server for what synchronisation brings; it notes what was stored."""

    def __init__(self, side: Side) -> None:
        self._side = side

    async def take(self, entries: Sequence[tuple[str, Sequence[bytes]]], *, from_server: str) -> list[Refusal | None]:
        pairs = [blobs for _, blobs in entries if len(blobs) == 2]
        before = [self._holds(blobs) for blobs in pairs]
        refusals = await self._side.rooms.catch_up.take(entries, from_server=from_server)
        for blobs, held in zip(pairs, before, strict=True):
            if not held and self._holds(blobs):
                self._side.calls.came(blobs[0], self._side.clock.now_ms(), synced=True)
        return refusals

    async def find_sender(self, blob: bytes, *, from_server: str) -> None:
        await self._side.rooms.catch_up.find_sender(blob, from_server=from_server)

    def _holds(self, blobs: Sequence[bytes]) -> bool:
        incoming, outgoing = blobs
        key = ItemKey.of(parse_container(outgoing, max_body_bytes=MAX_BODY))
        with self._side.rooms.store.read() as txn:
            return identical(txn, key, incoming, outgoing) is not None


class Side:
    """One of the two servers, with everything but sockets; it is closed and opened again where it restarts."""

    def __init__(self, folder: Path, name: str, other_name: str, world: World) -> None:
        self.name, self.other_name = name, other_name
        self.folder = folder / name
        self.clock = world.clock
        self.calls, self._copied_calls = Calls(), Calls()
        self.line = Line()
        """The connection to the other one."""
        self.restored = False
        self._world = world
        self._closing = contextlib.AsyncExitStack()

    async def open(self) -> None:
        """Start it; whatever goes wrong, what was begun ends with ``close``."""
        self.rooms = rooms = Rooms(self.folder, own_login=self.name, clock=self.clock)
        for last in (rooms.store.close, rooms.crypto.close):  # to close twice does nothing
            self._closing.callback(last)
        await self._closing.enter_async_context(rooms)
        readers = Readers(rooms.store)
        self._closing.callback(readers.close)
        await rooms.worker._put_in_time()
        self.lineage: Lineage | None = await begin_lineage(rooms.store)
        stores = PeerStores(store=rooms.store, readers=readers, clock=self.clock, own_login=self.name)
        feeds: dict[str, Feed] = {SETTINGS: SettingsFeed(self.name), DM: MessageFeed(self.name)}
        self.serving = {
            op: SyncServing(
                feed=feed,
                store=rooms.store,
                readers=readers,
                clock=self.clock,
                max_frame_bytes=MAX_FRAME,
                stores=stores,
            )
            for op, feed in feeds.items()
        }
        for op in (RECEIVE_OUTCOMING, STATUS, *feeds):
            rooms.peers.on(self.other_name, op, self._ask_other)
        rooms.peers.on(RECIPIENTS, RECEIVE_INCOMING, self._call_recipient)
        self.settings = Settings(
            store=rooms.store,
            crypto=rooms.crypto,
            users=rooms.users,
            lookup=rooms.lookup,  # type: ignore[arg-type]  # nobody has to be looked up
            clock=self.clock,
            max_value_bytes=MAX_BODY,
        )
        self.resync = Resync(store=rooms.store, readers=readers, clock=self.clock, own_login=self.name)
        self.left_alone = False
        """Whether a feed of the other server was left alone in the last session: pages had been lost."""
        self.pullers = [
            self._puller(SETTINGS, SettingsApply(self.settings.learn, self.clock)),
            self._puller(DM, MessageApply(Watched(self))),
        ]

    def _puller(self, op: str, apply: SettingsApply | MessageApply) -> Puller:
        return Puller(
            op=op,
            peers=self.rooms.peers,
            clock=self.clock,
            apply=apply,
            shares=self.rooms.users.shares,
            page_limit=PAGE,
            max_frame_bytes=MAX_FRAME,
            offered=lambda name: True,
            lineage=lambda: self.lineage,
            on_stored=self.rooms.worker.arrived,
        )

    async def close(self) -> None:
        """Stop it; its store and its threads end in any case."""
        await self._closing.aclose()

    async def rest(self) -> None:
        """Wait until nothing that was begun here is under way."""
        rooms = self.rooms
        work = (rooms.deliverer._background, rooms.worker._attempts, rooms.worker._settling)
        await until(lambda: not any(work) and not rooms.deliverer.claims.held)

    # -- what comes from outside --------------------------------------------------------------------------------

    async def send(self, pair: Pair) -> None:
        """Take a pair from a device, and go on with it."""
        with contextlib.suppress(Refusal):  # an older revision, or another one of one instant: a device is told so
            accepted = await self.rooms.accept(pair)
            self._took(pair.incoming.blob, pair.outgoing.blob, changed=accepted.stored.changed)
            await self.rooms.deliverer.send(accepted)

    async def take(self, blob: bytes) -> None:
        """Take a copy from the recipients' server."""
        await self.rooms.intake.receive_incoming(blob)
        self._world.truth.note(blob, b"")

    async def set(self, setting: Setting) -> None:
        """Take a setting from a device."""
        await self.settings.submit(setting_payload(setting), ask_peers=True)
        self._world.truth.note_setting(setting)

    def _took(self, incoming: bytes, outgoing: bytes, *, changed: bool) -> None:
        self._world.truth.note(incoming, outgoing)
        if changed:
            self.calls.came(incoming, self.clock.now_ms(), synced=False)

    # -- between the two ----------------------------------------------------------------------------------------

    async def pull(self, *, short: bool = False) -> None:
        """Have a session with the other server, or a ``short`` turn of one; it ends early where the link is lost."""
        url = servers(self.other_name)[0].url
        self.left_alone = False
        for puller in self.pullers:
            try:
                ended = Ending.AT_ONCE
                while ended is Ending.AT_ONCE:
                    ended = await puller.step(
                        KnownPeer(self.other_name, url, True), Turn(lambda: short, self.line.kept)
                    )
                    if short:
                        break
            except LeftAlone:
                self.left_alone = True  # and the next part follows
            except LinkError:
                break
        await self.rooms.worker.look()

    async def mark_unsynced(self, steps: int) -> None:
        """Do as much of the work of a resync as so many steps of it."""
        for _ in range(steps):
            await self.rooms.store.write(lambda txn: step_resync(txn, self.name, limit=2))

    async def finish_resync(self) -> None:
        """Do what is left of it."""
        while await self.rooms.store.write(lambda txn: step_resync(txn, self.name, limit=100)) is not None:
            pass

    async def _ask_other(self, server: AccessServer, op: str, payload: Payload) -> Payload:
        """Carry a request to the other server and its answer back, unless one of them is lost."""
        other, line = self._world.sides[self.other_name], self.line
        fate = self._world.next_fate(op)
        answer: Payload = {}
        if op == STATUS:
            self.calls.did("asked", self._newest(payload), self.clock.now_ms())
        if fate == "late":
            self._world.late.append(Late(other, self.name, line, op, payload))
        elif fate != "there":
            answer = dict(await other.answer(self.name, line, op, payload))
        if fate:
            if self.line is line:
                self.line = Line()
            raise LinkLost(server.server_login, op)
        if op == STATUS and answer["delivered"]:
            self.calls.did("told", self._newest(payload), self.clock.now_ms())
        return answer

    def _newest(self, payload: Payload) -> bytes:
        """What stands here of a message that the other one is asked for."""
        key = parse_message_key(payload["messageKey"])
        with self.rooms.store.read() as txn:
            row = get_row(txn, ItemKey.outgoing(key.message, key.message_type))
            return get_blobs(txn, row)[0] if row is not None else b""

    async def answer(self, asker: str, line: Line, op: str, payload: Payload) -> Mapping[str, object]:
        """Do what a request of the other server asks."""
        if op in self.serving:
            answer = await self.serving[op].answer(asker, line.sent[op], payload)
            for one in [one for one in self._world.meanwhile if isinstance(one, Setting) is (op == SETTINGS)]:
                self._world.meanwhile.remove(one)
                await (self.set(one) if isinstance(one, Setting) else self.send(one))
            return answer
        if op == STATUS:
            key, revision_ms = parse_message_key(payload["messageKey"]), payload.get("revisionMs")
            known, delivered = self.rooms.status.look_up(key, revision_ms)
            return {**payload, "known": known, "delivered": delivered}
        blobs = [decode_base64(payload[field], field) for field in ("incomingBlobB64", "outgoingBlobB64")]
        accepted = await self.rooms.intake.receive_pair(blobs[0], blobs[1], from_server=asker)
        self._took(blobs[0], blobs[1], changed=accepted.stored.changed)
        self.rooms.deliverer.receive(accepted)
        self._world.handed.append(Late(self, asker, line, op, payload))
        return stored(op, payload)

    async def _call_recipient(self, server: AccessServer, op: str, payload: Payload) -> Payload:
        answers = self._world.recipient_answers
        what = "stored" if answers else "tried"
        self.calls.did(what, decode_base64(payload["incomingBlobB64"], op), self.clock.now_ms())
        if not answers:
            raise LinkLost(server.server_login, op)
        return stored(op, payload)

    # -- what it holds ------------------------------------------------------------------------------------------

    def history(self) -> History:
        """What it has of its owner."""
        with self.rooms.store.read() as txn:
            return history_of(txn, OWNER)

    def known_settings(self) -> dict[str, Setting]:
        """The owner's settings, by name."""
        with self.rooms.store.read() as txn:
            return {setting.param: setting for setting in list_settings(txn, OWNER)}

    def unsynced(self) -> list[object]:
        """What it has yet to give away."""
        with self.rooms.store.read() as txn:
            return [*unsynced_of(txn, OWNER), *txn.scan_keys(Table.SETTINGS_UNSYNCED)]

    async def keep_copy(self) -> None:
        """Make a backup of it, while it runs and has nothing to do."""
        self._copied_calls = self.calls.copy()
        await asyncio.to_thread(shutil.copyfile, self.rooms.store.path, self.folder / COPY)

    async def put_copy(self) -> None:
        """Put the backup in the place of the store; it is closed."""
        self.restored = True
        self.calls = self._copied_calls.copy()
        await asyncio.to_thread(shutil.copyfile, self.folder / COPY, self.folder / STORE)
