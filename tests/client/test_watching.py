"""Watching an account: at real nodes over restarts, and at a server that tells what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from websockets.asyncio.server import ServerConnection

from shine_node.client import watching
from shine_node.client.connection import RequestRefused
from shine_node.client.identity import Identity
from shine_node.client.keyfile import Account, KeyFileError, create_key_file
from shine_node.client.ledger import Change
from shine_node.client.messages import (
    SignedPair,
    make_message,
    make_receipt,
    make_sealed_edit,
    make_sealed_message,
    make_tombstone,
)
from shine_node.client.registering import ServerToUse, register
from shine_node.client.watching import LOOK_BACK_MS, pause_seconds, watch
from shine_node.clock import SystemClock
from shine_node.protocol.access import AccessServer, record_payload
from shine_node.protocol.encoding import encode_base64
from tests.client.scripted import Refuse, scripted_url
from tests.support.nodes import LocalServer, eventually, now_ms, run, servers
from tests.support.nodes import register as register_there

NOW_MS = now_ms()
ACCOUNT = Account("Alice", bytes(32), (AccessServer("home", "ws://127.0.0.1:9/ws"),), True, {}, {})
ALICE, BOB = ACCOUNT.identity, Identity.generate("Bob")
HOME = AccessServer("home", "wss://home.example/ws")


class QuickClock(SystemClock):
    """The machine's clock, with pauses that are noted and not made."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0.01)


class Watching:
    """What a watcher has shown and told."""

    def __init__(self, keys: Path, clock: SystemClock | None = None) -> None:
        self.changes: list[Change] = []
        self.told: list[str] = []
        self.task = asyncio.create_task(
            watch(keys, clock=clock or QuickClock(), show=self._show, tell=self.told.append)
        )

    async def _show(self, change: Change) -> None:
        self.changes.append(change)

    @property
    def shown(self) -> list[str]:
        return [
            f"{change.kind} {change.message.text if change.message else change.key.nonce}" for change in self.changes
        ]

    async def until(self, check: Callable[[], Any]) -> None:
        async def asked() -> bool:
            if self.task.done():
                self.task.result()
            return bool(check())

        await eventually(asked)

    async def until_on(self, times: int = 1) -> None:
        await self.until(lambda: sum(text.startswith("watching") for text in self.told) >= times)


@asynccontextmanager
async def watching_with(keys: Path, clock: SystemClock | None = None) -> AsyncIterator[Watching]:
    at = Watching(keys, clock)
    try:
        yield at
    finally:
        at.task.cancel()
        with suppress(asyncio.CancelledError):
            await at.task


def from_bob(text: str, *, time_ms: int = NOW_MS) -> SignedPair:
    return make_sealed_message(BOB, "Alice", text, reader=ALICE.device.public, time_ms=time_ms)


def test_over_a_restart_of_a_real_node(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"

    async def story() -> None:
        async with servers(LocalServer, tmp_path, "home") as (home,):
            account = await register(keys, "Alice", [ServerToUse(home.url)], clock=SystemClock())
            alice = account.identity
            await register_there(BOB, [home])

            def seal(text: str) -> SignedPair:
                return make_sealed_message(BOB, "alice", text, reader=alice.device.public, time_ms=now_ms())

            await home.send(seal("before"))
            async with watching_with(keys) as at:
                await at.until_on()
                first, second = seal("first"), seal("second")
                for pair in (first, second):
                    await home.send(pair)
                own = make_sealed_message(alice, "bob", "own", reader=BOB.device.public, time_ms=now_ms())
                await home.send(own)
                await home.send(make_receipt(BOB, own.message, time_ms=now_ms()))
                await home.restart()
                await at.until(lambda: len(at.changes) == 4)
                assert sorted(at.shown) == [
                    "message first",
                    "message own",
                    "message second",
                    f"read {own.message.nonce}",
                ]
                await at.until_on(2)
                edit = make_sealed_edit(BOB, first.message, "edit", reader=alice.device.public, revision_ms=now_ms())
                await home.send(edit)
                await home.send(make_tombstone(BOB, second.message, time_ms=now_ms()))
                await home.restart()
                await at.until(lambda: len(at.changes) == 6)
                assert sorted(at.shown[4:]) == [f"deleted {second.message.nonce}", "edited edit"]
                await at.until_on(3)
                assert len(at.changes) == 6, "nothing is shown twice"

    run(story())


class Script:
    """A server of Alice that tells what is on its list, and the events that a test sends."""

    def __init__(self) -> None:
        self.pairs: list[tuple[SignedPair, dict[str, Any]]] = []
        self.links: list[ServerConnection] = []
        self.asked: list[str] = []
        self.before: dict[str, Callable[[], Any]] = {}

    def __call__(self, op: str) -> Callable[[dict[str, Any]], Any]:
        def answer(payload: dict[str, Any]) -> Any:
            self.asked.append(op)
            if op in self.before:
                other = self.before.pop(op)()
                if other is not False:
                    return other
            return getattr(self, op)(payload)

        return answer

    def SessionChallenge(self, payload: dict[str, Any]) -> Any:
        return {"nonce": "x"}

    def SessionLogin(self, payload: dict[str, Any]) -> Any:
        return {"storagePwd": ""}

    def AuthChallenge(self, payload: dict[str, Any]) -> Any:
        return {"authNonce": "x"}

    def CreateAuthSession(self, payload: dict[str, Any]) -> Any:
        return {"sessionId": "y"}

    def GetUserAccess(self, payload: dict[str, Any]) -> Any:
        user = {"alice": ALICE, "bob": BOB}[payload["login"].lower()]
        return {"exists": True, **record_payload(user.access_record([HOME], time_ms=1)), "history": []}

    def ListDialogs(self, payload: dict[str, Any]) -> Any:
        if not self.pairs:
            return {"dialogs": [], "hasMore": False}
        return {"dialogs": [{"peerLogin": "Bob", "unread": 0, "lastMessage": self.entries[0]}], "hasMore": False}

    def GetDirectMessages(self, payload: dict[str, Any]) -> Any:
        return {"messages": self.entries, "hasMore": False}

    @property
    def entries(self) -> list[dict[str, Any]]:
        return [self.entry(pair, facts) for pair, facts in reversed(self.pairs)]

    def entry(self, pair: SignedPair, facts: dict[str, Any]) -> dict[str, Any]:
        out = pair.message.from_login == "alice"
        return {
            "baseKey": pair.base_key,
            "direction": "out" if out else "in",
            "revisionMs": pair.revision_ms,
            "blobB64": encode_base64(pair.outgoing if out else pair.incoming),
            **facts,
        }

    async def event(self, op: str, **payload: object) -> None:
        document = {"op": op, "requestId": "e", "status": 200, "ok": True, "event": True, "payload": payload}
        await self.links[-1].send(orjson.dumps(document).decode())

    async def incoming(self, pair: SignedPair) -> None:
        await self.event(
            "IncomingDirectMessage",
            incomingKey=pair.incoming_key,
            baseKey=pair.base_key,
            fromLogin="Bob",
            blobB64=encode_base64(pair.incoming),
        )

    async def outgoing(self, pair: SignedPair, state: str = "accepted") -> None:
        await self.event(
            "OutgoingDirectMessage",
            outgoingKey=pair.outgoing_key,
            baseKey=pair.base_key,
            toLogin="Bob",
            blobB64=encode_base64(pair.outgoing),
            deliveryState=state,
        )

    async def state(self, pair: SignedPair, state: str) -> None:
        await self.event(
            "DmDeliveryStateChanged", outgoingKey=pair.outgoing_key, baseKey=pair.base_key, deliveryState=state
        )

    @asynccontextmanager
    async def watched(self, keys: Path, clock: SystemClock | None = None) -> AsyncIterator[Watching]:
        ops = [name for name in dir(Script) if name[0].isupper()]
        async with scripted_url({op: self(op) for op in ops}, self.links) as url:
            create_key_file(keys, ACCOUNT._replace(servers=(AccessServer("home", url),)))
            async with watching_with(keys, clock) as at:
                yield at


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def test_events_are_shown_once(keys: Path) -> None:
    server = Script()
    old, new = from_bob("old"), from_bob("new", time_ms=NOW_MS + 1)
    edit = make_sealed_edit(BOB, new.message, "edit", reader=ALICE.device.public, revision_ms=NOW_MS + 5)
    own = make_sealed_message(ALICE, "bob", "own", reader=BOB.device.public, time_ms=NOW_MS + 2)
    forged = make_message(Identity.generate("bob"), "alice", "forged", time_ms=NOW_MS + 3)
    server.pairs = [(old, {})]

    async def story() -> None:
        async with server.watched(keys) as at:
            await at.until_on()
            await server.event("SomethingElse")
            for pair in (old, new, new, edit, new):
                await server.incoming(pair)
            await server.outgoing(own)
            receipt = make_receipt(BOB, own.message, time_ms=NOW_MS + 8)
            await server.incoming(receipt)
            await server.incoming(receipt)
            await server.outgoing(make_receipt(ALICE, new.message, time_ms=NOW_MS + 8), "delivered")
            await server.state(own, "delivered")
            await server.state(make_receipt(ALICE, new.message, time_ms=NOW_MS + 9), "delivered")
            await server.incoming(make_receipt(Identity.generate("bob"), own.message, time_ms=NOW_MS + 9))
            await server.incoming(forged)
            tombstone = make_tombstone(BOB, new.message, time_ms=NOW_MS + 9)
            await server.incoming(tombstone)
            await server.outgoing(make_tombstone(ALICE, own.message, time_ms=NOW_MS + 9), "delivered")
            await at.until(lambda: len(at.changes) == 9)
            assert at.shown == [
                "message new",
                "edited edit",
                "message own",
                f"read {own.message.nonce}",
                f"read {new.message.nonce}",
                f"state {own.message.nonce}",
                "message None",
                f"deleted {new.message.nonce}",
                f"deleted {own.message.nonce}",
            ]
            assert at.changes[2].state == "accepted" and at.changes[5].state == "delivered"
            assert at.changes[6].message is not None and at.changes[6].message.problem == "bad-signature"

    run(story())


def test_copies_of_somebody_else_are_not_shown(keys: Path) -> None:
    server = Script()
    carol = Identity.generate("carol")
    to_carol = make_message(BOB, "carol", "for carol", time_ms=NOW_MS)
    to_bob = make_message(ALICE, "bob", "own", time_ms=NOW_MS + 1)
    last = from_bob("last", time_ms=NOW_MS + 9)
    of_carol = make_message(carol, "bob", "x", time_ms=NOW_MS)
    receipt = make_receipt(BOB, of_carol.message, time_ms=NOW_MS + 2)
    tombstone = make_tombstone(BOB, to_carol.message, time_ms=NOW_MS + 3)

    async def story() -> None:
        async with server.watched(keys) as at:
            await at.until_on()
            for pair in (to_carol, receipt, tombstone):
                await server.incoming(pair)  # Bob's to Carol, as if they were to Alice
                await server.outgoing(pair)  # and as if Alice had sent them
            await server.state(to_carol, "failed")
            await server.incoming(to_bob)  # Alice's own, as if it had come in
            own_key, blob = to_bob.outgoing_key, encode_base64(to_bob.outgoing)
            await server.event("IncomingDirectMessage", incomingKey=own_key, blobB64=blob)
            received = from_bob("x", time_ms=NOW_MS + 4)
            mixed = make_tombstone(BOB, received.message, time_ms=NOW_MS + 5)
            crossed = mixed.incoming_key.removesuffix("5") + "3"  # a tombstone, called a receipt
            await server.event("IncomingDirectMessage", incomingKey=crossed, blobB64=encode_base64(mixed.incoming))
            await server.incoming(last)
            await at.until(lambda: at.changes)
            assert at.shown == ["message last"]

    run(story())


def test_what_comes_while_the_history_is_read_for_the_first_time(keys: Path) -> None:
    server = Script()
    old, new = from_bob("old"), from_bob("new", time_ms=NOW_MS + 1)
    own = make_sealed_message(ALICE, "bob", "own", reader=BOB.device.public, time_ms=NOW_MS + 2)
    server.pairs = [(old, {}), (new, {}), (own, {"deliveryState": "delivered"})]

    async def story() -> None:
        sent = []

        def push() -> bool:
            sent.append(asyncio.create_task(both()))
            return False

        async def both() -> None:
            await server.incoming(new)
            await server.state(own, "delivered")

        server.before["CreateAuthSession"] = push
        async with server.watched(keys) as at:
            await at.until_on()
            await at.until(lambda: at.changes)
            assert at.shown == ["message new"]

    run(story())


def test_a_loss_half_way_through_the_history_misses_nothing(keys: Path) -> None:
    server = Script()
    pairs = [from_bob(f"text {number}", time_ms=NOW_MS + number) for number in range(3)]

    async def story() -> None:
        async with server.watched(keys) as at:
            await at.until_on()
            server.pairs = [(pair, {}) for pair in pairs]
            server.before["ListDialogs"] = lambda: {"dialogs": [{}]}  # no proper answer
            await server.links[-1].close()
            await at.until(lambda: len(at.changes) == 3)
            assert at.shown == ["message text 0", "message text 1", "message text 2"]
            assert any("not well-formed" in text for text in at.told)
            server.before["GetDirectMessages"] = lambda: None  # the connection is cut
            server.pairs.append((from_bob("text 3", time_ms=NOW_MS + 4), {}))
            await server.links[-1].close()
            await at.until(lambda: len(at.changes) == 4)

    run(story())


def test_a_loss_before_the_beginning_shows_nothing(keys: Path) -> None:
    server = Script()
    server.pairs = [(from_bob("old"), {})]
    server.before["GetUserAccess"] = lambda: None

    async def story() -> None:
        async with server.watched(keys) as at:
            await at.until_on()
            assert len(at.told) == 2 and at.changes == []

    run(story())


def test_a_chat_that_was_not_listed_is_read_when_something_comes_in_it(keys: Path) -> None:
    server = Script()
    missed, new = from_bob("missed"), from_bob("new", time_ms=NOW_MS + 1)

    async def story() -> None:
        async with server.watched(keys) as at:
            await at.until_on()
            server.pairs = [(missed, {}), (new, {})]
            await server.incoming(new)
            await at.until(lambda: len(at.changes) == 2)
            assert at.shown == ["message missed", "message new"]
            asked = len(server.asked)
            await server.incoming(from_bob("third", time_ms=NOW_MS + 2))
            await at.until(lambda: len(at.changes) == 3)
            assert server.asked[asked:] == []

    run(story())


def test_more_events_than_there_is_room_for(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "MOST_EVENTS", 2)
    server = Script()
    pairs = [from_bob(f"text {number}", time_ms=NOW_MS + number) for number in range(6)]

    async def story() -> None:
        async with server.watched(keys) as at:
            await at.until_on()
            server.pairs = [(pair, {}) for pair in pairs]
            for pair in pairs:  # written without a pause, they are all there before the watcher turns to the first
                await server.incoming(pair)
            await at.until(lambda: len(at.changes) == 6)
            assert sorted(at.shown) == [f"message text {number}" for number in range(6)]

    run(story())


def test_what_is_old_is_neither_read_nor_remembered(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "EVENT_SECONDS", 0.02)
    monkeypatch.setattr(watching, "FORGET_SECONDS", 0.0)
    server = Script()
    ancient = from_bob("ancient", time_ms=NOW_MS - LOOK_BACK_MS - 60_000)
    server.pairs = [(ancient, {})]

    async def story() -> None:
        async with server.watched(keys) as at:
            await at.until_on()
            assert "GetDirectMessages" not in server.asked
            for _ in range(2):  # it is forgotten at once, and would be shown again: servers send an event once
                shown = len(at.changes)
                await server.incoming(ancient)
                await at.until(lambda shown=shown: len(at.changes) > shown)  # type: ignore[misc]
            server.pairs = [(ancient, {}), (from_bob("new"), {})]
            await server.links[-1].close()
            await at.until(lambda: at.shown[-1] == "message new")
            assert at.shown == ["message ancient", "message ancient", "message new"]

    run(story())


def test_events_without_what_they_must_have(keys: Path) -> None:
    server = Script()

    async def story() -> None:
        async with server.watched(keys) as at:
            await at.until_on()
            await server.event("IncomingDirectMessage", incomingKey="x")
            await at.until_on(2)
            assert at.told[1].startswith("the server's answer is not well-formed: messageKey must be")
            await server.state(make_message(ALICE, "bob", "x", time_ms=NOW_MS), "\x1b[2Jread")
            await at.until_on(3)
            assert "deliveryState must be one of accepted, delivered, failed" in at.told[3]
            assert not at.changes

    run(story())


def test_pauses_grow_and_begin_anew(keys: Path) -> None:
    clock = QuickClock()
    server = Script()

    async def story() -> None:
        create_key_file(keys, ACCOUNT)
        async with watching_with(keys, clock) as at:
            await at.until(lambda: len(clock.pauses) >= 9)
            assert at.told[0].startswith("cannot connect to ws://127.0.0.1:9/ws")
        for pause, most in zip(clock.pauses, (1, 2, 5, 10, 20, 40, 60, 60, 60), strict=False):
            assert most / 2 <= pause <= most
        clock.pauses.clear()
        async with server.watched(keys.with_name("other.json"), clock) as at:
            for times in (1, 2, 3):
                await at.until_on(times)
                await server.links[-1].close()
        assert all(pause <= 1 for pause in clock.pauses)

    run(story())


async def not_shown(change: Change) -> None:
    raise AssertionError(change)


def test_what_ends_it(tmp_path: Path, keys: Path) -> None:
    async def story() -> None:
        with pytest.raises(KeyFileError):
            await watch(keys, clock=QuickClock(), show=not_shown)
        script = {"AuthChallenge": lambda payload: Refuse(422, "UNKNOWN_USER")}
        async with scripted_url(script) as url:
            create_key_file(keys, ACCOUNT._replace(servers=(AccessServer("home", url),)))
            with pytest.raises(RequestRefused, match="UNKNOWN_USER"):
                await watch(keys, clock=QuickClock(), show=not_shown)

    run(story())


def test_the_chance_in_a_pause() -> None:
    assert len({pause_seconds(0) for _ in range(20)}) > 1
