"""The history of an account: at real nodes, and at servers that tell what is not so."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from shine_node.client.connection import Connection
from shine_node.client.history import BadAnswer, History, Message, Problem, of_oneself, peer_of, read_state
from shine_node.client.identity import Identity, KeyPair
from shine_node.client.messages import (
    SignedPair,
    make_message,
    make_receipt,
    make_sealed_edit,
    make_sealed_message,
    make_tombstone,
)
from shine_node.client.people import People
from shine_node.client.session import begin_session
from shine_node.clock import SystemClock
from shine_node.protocol.access import AccessServer, record_payload
from shine_node.protocol.encoding import encode_base64
from shine_node.protocol.errors import BadFields
from shine_node.protocol.keys import MessageId
from tests.client.scripted import Script, scripted
from tests.support.nodes import LocalServer, now_ms, register, run, servers

ALICE, BOB = Identity.generate("Alice"), Identity.generate("Bob")
HOME = AccessServer("home", "wss://home.example/ws")
NOW_MS = now_ms()


async def no_pin(login: str, key: bytes, time_ms: int) -> None:
    pass


@asynccontextmanager
async def history_of(user: Identity, home: LocalServer) -> AsyncIterator[tuple[Connection, History]]:
    async with await home.connect() as client:
        await begin_session(client, user, None, clock=SystemClock(), client_info="")
        yield client, History(client, user, People({}, no_pin, clock=SystemClock()))


def sealed(text: str, *, author: Identity = ALICE, reader: Identity = BOB, time_ms: int = NOW_MS) -> SignedPair:
    return make_sealed_message(author, reader.login, text, reader=reader.device.public, time_ms=time_ms)


def test_both_sides_read_what_was_written(tmp_path: Path) -> None:
    pairs = [sealed(f"text {number}", time_ms=NOW_MS + number) for number in range(5)]
    edit = make_sealed_edit(ALICE, pairs[1].message, "edited", reader=BOB.device.public, revision_ms=NOW_MS + 50)
    plain = make_message(BOB, "alice", "plain", time_ms=NOW_MS + 9)
    opaque = make_message(BOB, "alice", b"\x00", time_ms=NOW_MS + 10)

    async def story() -> None:
        async with servers(LocalServer, tmp_path, "home") as (home,):
            for user in (ALICE, BOB):
                await register(user, [home], time_ms=NOW_MS - 1000)
            for pair in (*pairs, edit, plain, opaque):
                assert await home.send(pair) == "delivered"
            await home.send(make_tombstone(ALICE, pairs[0].message, time_ms=NOW_MS + 60))
            await home.send(make_receipt(BOB, pairs[2].message, time_ms=NOW_MS + 61))
            async with history_of(ALICE, home) as (_, history):
                first, cursor = await history.page("BOB", limit=2)
                rest, end = await history.page("bob", cursor)
                assert end is None
                assert first + rest == [message async for message in history.chat("bob", page_limit=3)]
                texts = ["plain", "text 4", "text 3", "text 2", "edited", None]
                assert [message.text for message in first + rest] == [None, *texts]
                assert first[0].problem == Problem.NOT_TEXT
                assert first[1] == Message(plain.message, "bob", False, 0, "plain", None, False, False, None)
                assert rest[-2] == Message(
                    pairs[1].message, "bob", True, NOW_MS + 50, "edited", "delivered", True, False, None
                )
                assert rest[-1].deleted and rest[-1].problem is None
                assert [message.read for message in rest] == [False, False, True, True, True]
                assert rest[0].time_ms == NOW_MS + 4
                [dialog] = [dialog async for dialog in history.dialogs()]
                assert (dialog.peer, dialog.unread, dialog.last) == ("Bob", 2, first[0])
            async with history_of(BOB, home) as (_, history):
                assert [message.text async for message in history.chat("alice")] == [None, *texts]

    run(story())


def test_pages_of_dialogs(tmp_path: Path) -> None:
    friends = [Identity.generate(f"friend{number:02}") for number in range(52)]

    async def story() -> None:
        async with servers(LocalServer, tmp_path, "home") as (home,):
            for user in (ALICE, *friends):
                await register(user, [home], time_ms=NOW_MS - 1000)
            for number, friend in enumerate(friends):
                await home.send(sealed("hello", reader=friend, time_ms=NOW_MS + number))
            async with history_of(ALICE, home) as (_, history):
                found = [dialog.peer async for dialog in history.dialogs()]
                assert found == [friend.login for friend in reversed(friends)]

    run(story())


def test_a_new_device_key(tmp_path: Path) -> None:
    later = BOB.with_device(KeyPair.from_seed(b"\3" * 32))
    old = make_message(BOB, "alice", "with the old key", time_ms=NOW_MS)
    for_old = sealed("for the old key", time_ms=NOW_MS + 1)
    new = make_message(later, "alice", "with the new key", time_ms=NOW_MS + 3)

    async def story() -> None:
        async with servers(LocalServer, tmp_path, "home") as (home,):
            for user in (ALICE, BOB):
                await register(user, [home], time_ms=NOW_MS - 1000)
            await home.send(old)
            await home.send(for_old)
            async with history_of(ALICE, home) as (client, history):
                assert [message.text async for message in history.chat("bob")] == [
                    "for the old key",
                    "with the old key",
                ]
                await home.request(
                    "SetUserAccess", record_payload(later.access_record([home.access], time_ms=NOW_MS + 2))
                )
                await home.send(new)
                # The keys that this one knows are fresh: it takes them for the right ones, for a while.
                [newest, *_], _ = await history.page("bob", limit=1)
                assert newest.problem == Problem.BAD_SIGNATURE
                history = History(client, ALICE, People({}, no_pin, clock=SystemClock()))
                [newest, *_], _ = await history.page("bob", limit=1)
                assert newest.text == "with the new key"
            async with history_of(later, home) as (_, history):
                [_, sent, *_], _ = await history.page("alice")
                assert (sent.text, sent.problem) == (None, Problem.SEALED)

    run(story())


class Told:
    """A server's answers about the users and one message."""

    def __init__(self, blob: bytes, pair: SignedPair, **entry: Any) -> None:
        records = {user.key: user.access_record([HOME], time_ms=1) for user in (ALICE, BOB)}
        self.users = {
            login: {"exists": True, **record_payload(record), "history": []} for login, record in records.items()
        }
        self.entry = {
            "baseKey": pair.base_key,
            "direction": "in",
            "timeMs": pair.message.time_ms,
            "revisionMs": pair.revision_ms,
            "blobB64": encode_base64(blob),
            "read": False,
            "deleted": False,
            **entry,
        }
        self.answer: dict[str, Any] = {"messages": [self.entry], "hasMore": False}

    async def read(self, root_keys: dict[str, bytes] | None = None) -> Message:
        script: Script = {
            "GetUserAccess": lambda payload: self.users.get(payload["login"], {"exists": False}),
            "GetUser": lambda payload: {"exists": False},
            "GetDirectMessages": lambda payload: self.answer,
        }
        async with scripted(script) as client:
            people = People(root_keys or {}, no_pin, clock=SystemClock())
            [message], _ = await History(client, BOB, people).page("alice")
            return message


PAIR = sealed("from Alice")
OTHER = sealed("another one", time_ms=NOW_MS + 1)
EDIT = make_sealed_edit(ALICE, PAIR.message, "edit", reader=BOB.device.public, revision_ms=NOW_MS + 1)
PROBLEMS = [problem for name, problem in vars(Problem).items() if name.isupper()]
FORGED = sealed("forged", author=Identity.generate("alice"))


@pytest.mark.parametrize(
    ("blob", "pair", "entry", "problem"),
    [
        (PAIR.incoming, PAIR, {}, None),
        (PAIR.incoming + b"x", PAIR, {}, Problem.BAD_CONTAINER),
        (OTHER.incoming, PAIR, {}, Problem.BAD_CONTAINER),
        (PAIR.outgoing, PAIR, {}, Problem.BAD_CONTAINER),
        (b"\0", PAIR, {"revisionMs": 2**53 - 1}, Problem.BAD_CONTAINER),
        (PAIR.incoming, PAIR, {"revisionMs": 2**53 - 1}, None),
        (FORGED.incoming, FORGED, {}, Problem.BAD_SIGNATURE),
    ],
)
def test_what_a_server_may_say(blob: bytes, pair: SignedPair, entry: dict[str, Any], problem: str | None) -> None:
    message = run(Told(blob, pair, **entry).read())
    assert message.problem == problem
    assert message.text == ("from Alice" if problem is None else None)
    assert message.revision_ms == 0, "the revision is the container's"
    assert message.is_proven == (problem is None)


def test_what_is_proven() -> None:
    assert run(Told(EDIT.incoming, EDIT, revisionMs=0).read())[3:5] == (EDIT.revision_ms, "edit")
    deleted = run(Told(b"", PAIR, deleted=True, revisionMs=5, read=True).read())
    assert (deleted.revision_ms, deleted.deleted, deleted.is_proven) == (0, True, False)
    message = run(Told(PAIR.incoming, PAIR).read())
    proven = {problem for problem in PROBLEMS if message._replace(problem=problem, text=None).is_proven}
    assert proven == {Problem.SEALED, Problem.NOT_TEXT}


def test_the_revision_is_that_of_the_blob_where_nothing_else_is_said() -> None:
    async def story() -> None:
        told = Told(EDIT.incoming, EDIT)
        script = {"GetUserAccess": lambda payload: told.users[payload["login"]]}
        async with scripted(script) as client:
            history = History(client, BOB, People({}, no_pin, clock=SystemClock()))
            message = await history.message(EDIT.incoming, EDIT.message, out=False)
            assert (message.text, message.revision_ms) == ("edit", EDIT.revision_ms)
            assert (await history.message(b"", EDIT.message, out=False)).revision_ms == 0

    run(story())


def test_a_sender_whose_keys_cannot_be_relied_upon() -> None:
    told = Told(PAIR.incoming, PAIR)
    assert run(told.read({"alice": b"\1" * 32})).problem == Problem.ROOT_KEY_CHANGED
    del told.users["alice"]
    assert run(told.read()).problem == Problem.UNKNOWN_SENDER


@pytest.mark.parametrize(
    ("entry", "detail"),
    [
        ({"baseKey": "x"}, "another chat"),
        ({"baseKey": None}, "baseKey is missing"),
        ({"direction": "out"}, "another chat"),
        ({"blobB64": "!"}, "blobB64 must be Base64"),
    ],
)
def test_entries_that_are_none(entry: dict[str, Any], detail: str) -> None:
    with pytest.raises(BadAnswer, match=f"not well-formed: .*{detail}"):
        run(Told(PAIR.incoming, PAIR, **entry).read())


@pytest.mark.parametrize(
    "answer",
    [{"messages": 7}, {"messages": [7]}, {"messages": [], "hasMore": True}],
)
def test_pages_that_are_none(answer: dict[str, Any]) -> None:
    told = Told(PAIR.incoming, PAIR)
    told.answer = answer
    with pytest.raises(BadAnswer):
        run(told.read())


@pytest.mark.parametrize("answer", [{"dialogs": [{"peerLogin": "alice"}]}, {"dialogs": [{}]}])
def test_dialogs_that_are_none(answer: dict[str, Any]) -> None:
    async def story() -> None:
        async with scripted({"ListDialogs": lambda payload: answer}) as client:
            history = History(client, BOB, People({}, no_pin, clock=SystemClock()))
            with pytest.raises(BadAnswer):
                [dialog async for dialog in history.dialogs()]

    run(story())


class Endless:
    """A server whose pages say that there is more: ``empty`` ones before each with an entry."""

    def __init__(self, empty: int, entries: int, *, still: bool = False) -> None:
        self._empty, self._entries, self._still = empty, entries, still
        self.asked = 0

    def answer(self, field: str, entry: object) -> Callable[[dict[str, Any]], dict[str, Any]]:
        def answered(payload: dict[str, Any]) -> dict[str, Any]:
            assert payload.get("cursor") == (None if not self.asked else self._cursor)
            self.asked += 1
            found = [entry] if self.asked % (self._empty + 1) == 0 else []
            more = self.asked < self._entries * (self._empty + 1)
            return {field: found, "hasMore": more, "cursor": self._cursor}

        return answered

    @property
    def _cursor(self) -> str:
        return "same" if self._still else f"page {self.asked}"

    async def read(self) -> int:
        """Read the chat with Alice and then the list of chats; return how many entries there are."""
        told = Told(PAIR.incoming, PAIR)
        dialog = {"peerLogin": "Alice", "unread": 0, "lastMessage": told.entry}
        script: Script = {
            "GetUserAccess": lambda payload: told.users[payload["login"]],
            "GetDirectMessages": self.answer("messages", told.entry),
            "ListDialogs": self.answer("dialogs", dialog),
        }
        async with scripted(script) as client:
            history = History(client, BOB, People({}, no_pin, clock=SystemClock()))
            count = len([message async for message in history.chat("alice")])
            self.asked = 0
            return count + len([dialog async for dialog in history.dialogs()])


def test_empty_pages_are_passed_over() -> None:
    told = Endless(7, 3)
    assert run(told.read()) == 6
    assert told.asked == 24


@pytest.mark.parametrize("listing", ["chat", "dialogs"])
def test_a_listing_comes_to_an_end(listing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shine_node.client.history.MOST_EMPTY_PAGES", 10)

    async def read(told: Endless) -> None:
        ops = {"GetDirectMessages": told.answer("messages", {}), "ListDialogs": told.answer("dialogs", {})}
        async with scripted(ops) as client:
            history = History(client, BOB, People({}, no_pin, clock=SystemClock()))
            with pytest.raises(BadAnswer, match="lists nothing further"):
                if listing == "chat":
                    [message async for message in history.chat("alice")]
                else:
                    [dialog async for dialog in history.dialogs()]

    for told, asked in ((Endless(10**6, 2), 11), (Endless(10**6, 2, still=True), 2)):
        run(read(told))
        assert told.asked == asked


def test_whose_a_message_is() -> None:
    key = MessageId("alice", "bob", 1, 2)
    assert (peer_of(key, "alice"), of_oneself(key, "alice")) == ("bob", True)
    assert (peer_of(key, "bob"), of_oneself(key, "bob")) == ("alice", False)
    own = MessageId("bob", "bob", 1, 2)
    assert (peer_of(own, "bob"), of_oneself(own, "bob")) == ("bob", True)


def test_the_states_of_a_delivery() -> None:
    for state in ("accepted", "delivered", "failed"):
        assert read_state({"deliveryState": state}) == state
    for wrong in ({}, {"deliveryState": "Delivered"}, {"deliveryState": "\x1b[2J"}):
        with pytest.raises(BadFields, match="deliveryState"):
            read_state(wrong)
