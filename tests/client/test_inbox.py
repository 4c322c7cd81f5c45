"""What there is to read, at a real node."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from shine_node.client.history import Dialog, History, Message, Problem
from shine_node.client.identity import Identity
from shine_node.client.inbox import make_receipts, newest_messages, unread_messages
from shine_node.client.messages import make_receipt, make_sealed_message, make_tombstone
from shine_node.client.people import People
from shine_node.client.session import begin_session
from shine_node.clock import SystemClock
from shine_node.protocol.keys import MessageId
from shine_node.protocol.pair import parse_pair
from tests.support.nodes import LocalServer, now_ms, register, run, servers

ALICE, BOB, CAROL = (Identity.generate(login) for login in ("Alice", "Bob", "Carol"))
NOW_MS = now_ms()


async def no_pin(login: str, key: bytes, time_ms: int) -> None:
    pass


@asynccontextmanager
async def chats(tmp_path: Path) -> AsyncIterator[tuple[LocalServer, History]]:
    """What Alice has: b0 … b3 of Bob, c4 and c5 of Carol, her answer to Bob, one that Bob has removed, c8."""
    async with servers(LocalServer, tmp_path, "home") as (home,):
        for user in (ALICE, BOB, CAROL):
            await register(user, [home], time_ms=NOW_MS - 1000)
        said = [(BOB, f"b{n}") for n in range(4)] + [(CAROL, "c4"), (CAROL, "c5"), (ALICE, "a6"), (BOB, "b7")]
        for number, (author, text) in enumerate([*said, (CAROL, "c8")]):
            to = BOB if author is ALICE else ALICE
            pair = make_sealed_message(author, to.login, text, reader=to.device.public, time_ms=NOW_MS + number)
            await home.send(pair)
            if text == "b0":
                await home.send(make_receipt(ALICE, pair.message, time_ms=NOW_MS + 50))
            if text == "b7":
                await home.send(make_tombstone(BOB, pair.message, time_ms=NOW_MS + 60))
        async with await home.connect() as client:
            await begin_session(client, ALICE, None, clock=SystemClock(), client_info="")
            yield home, History(client, ALICE, People({}, no_pin, clock=SystemClock()))


def texts(messages: list[Message]) -> list[str | None]:
    return [message.text for message in messages]


def test_the_newest(tmp_path: Path) -> None:
    async def story() -> None:
        async with chats(tmp_path) as (_, history):
            assert texts(await newest_messages(history, "BOB", 3)) == ["b3", "a6", None]
            assert texts(await newest_messages(history, "bob", 99)) == ["b0", "b1", "b2", "b3", "a6", None]
            assert texts(await newest_messages(history, None, 1)) == ["c8"]
            assert texts(await newest_messages(history, None, 5)) == ["c4", "c5", "a6", None, "c8"]
            assert len(await newest_messages(history, None, 99)) == 9
            assert await newest_messages(history, "nobody", 9) == []

    run(story())


def test_the_oldest_that_are_unread(tmp_path: Path) -> None:
    async def story() -> None:
        async with chats(tmp_path) as (home, history):
            assert texts(await unread_messages(history, None, 99)) == ["b1", "b2", "b3", "c4", "c5", "c8"]
            assert texts(await unread_messages(history, "Carol", 2)) == ["c4", "c5"]
            shown = await unread_messages(history, None, 4)
            assert texts(shown) == ["b1", "b2", "b3", "c4"]
            for receipt in make_receipts(ALICE, shown, now_ms):
                await home.send(receipt)
            assert texts(await unread_messages(history, None, 99)) == ["c5", "c8"]
            assert await unread_messages(history, "bob", 99) == []
            assert await unread_messages(history, "nobody", 99) == []

    run(story())


def test_a_mark_on_what_is_not_proven_ends_no_search() -> None:
    first, last = (MessageId("bob", "alice", time_ms, 1) for time_ms in (1, 2))
    unread = Message(first, "bob", False, 0, "unread", None, False, False, None)
    forged = Message(last, "bob", False, 0, None, None, True, False, Problem.BAD_SIGNATURE)

    class Told(History):
        """A history with a message whose mark is an invention."""

        def __init__(self) -> None:
            pass

        async def chat(self, peer: str, *, page_limit: int = 100) -> AsyncIterator[Message]:
            for message in (forged, forged._replace(deleted=True, problem=None), unread):
                yield message

        async def dialogs(self) -> AsyncIterator[Dialog]:
            yield Dialog("Bob", forged, 2)

    assert run(unread_messages(Told(), None, 9)) == [unread, forged]


@pytest.mark.parametrize(
    ("changes", "receipts"),
    [
        ({}, 1),
        ({"out": True}, 0),
        ({"read": True}, 0),
        ({"deleted": True}, 0),
        ({"problem": Problem.NOT_TEXT, "text": None}, 1),
        ({"problem": Problem.SEALED, "text": None}, 1),
        ({"problem": Problem.BAD_SIGNATURE, "text": None}, 0),
        ({"problem": Problem.UNKNOWN_SENDER, "text": None}, 0),
    ],
)
def test_which_messages_get_a_receipt(changes: dict[str, object], receipts: int) -> None:
    key = MessageId("bob", "alice", NOW_MS, 1)
    message = Message(key, "bob", False, 0, "x", None, False, False, None)._replace(**changes)  # type: ignore[arg-type]
    assert len(make_receipts(ALICE, [message], lambda: NOW_MS)) == receipts


def test_one_receipt_a_chat_for_its_newest() -> None:
    keys = [MessageId(author, "alice", NOW_MS + number, 1) for number in (2, 1) for author in ("bob", "carol")]
    messages = [Message(key, key.from_login, False, 0, "x", None, False, False, None) for key in keys]
    pairs = make_receipts(ALICE, messages, lambda: NOW_MS + 9)
    named = [parse_pair(pair.incoming, pair.outgoing, max_body_bytes=999)[0] for pair in pairs]
    assert {container.reference for container in named} == set(keys[:2])
    assert all(container.time_ms == NOW_MS + 9 for container in named)
