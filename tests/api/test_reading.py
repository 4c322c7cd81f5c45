"""History over real sockets: chats page by page, dialogs by recency, marks, and pages that a slow reader waits for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from shine_node.api.reading import DEFAULT_LIMIT, GREATEST_LIMIT, MAX_UNREAD, ChatPlace
from shine_node.client.connection import Connection, RequestRefused
from shine_node.client.identity import Identity
from shine_node.client.messages import SignedPair, make_edit, make_message, make_receipt, make_tombstone
from shine_node.protocol.container import PEER_AHEAD_MS
from shine_node.protocol.encoding import encode_base64
from shine_node.protocol.keys import MessageId
from shine_node.protocol.schedule import DeliveryState
from shine_node.store.environment import Transaction
from shine_node.store.layout import Direction, Flag, ItemKey, Kind, Row, Table
from shine_node.store.reading import Entry, read_chat
from tests.api.talk import Talk as RawTalk
from tests.api.talk import asked
from tests.support.devices import make_session
from tests.support.nodes import PATIENCE, LocalServer, Server, now_ms, register, run, servers

FRAME_BYTES = 400_000


class Talk:
    """One server, its users, and a connection of each with a session."""

    def __init__(self, server: LocalServer, people: dict[str, tuple[Identity, Connection]]) -> None:
        self.server = server
        self.people = people
        self.start_ms = now_ms() - 1_000_000

    def who(self, name: str) -> Identity:
        return self.people[name][0]

    async def ask(self, name: str, op: str, **payload: object) -> dict[str, Any]:
        return await self.people[name][1].request(op, payload)

    async def chat(self, name: str, peer: str, **payload: object) -> list[dict[str, Any]]:
        answer = await self.ask(name, "GetDirectMessages", peerLogin=peer, **payload)
        assert answer["hasMore"] is False
        messages: list[dict[str, Any]] = answer["messages"]
        return messages

    async def dialogs(self, name: str, **payload: object) -> list[tuple[str, int]]:
        answer = await self.ask(name, "ListDialogs", **payload)
        return [(dialog["peerLogin"], dialog["unread"]) for dialog in answer["dialogs"]]

    async def say(self, name: str, peer: str, body: str | bytes = "hello", *, after: int) -> SignedPair:
        pair = make_message(self.who(name), peer, body, time_ms=self.start_ms + after)
        await self.server.send(pair)
        return pair


@asynccontextmanager
async def talk(folder: Path, *logins: str, **sections: dict[str, Any]) -> AsyncIterator[Talk]:
    async with servers(LocalServer, folder, "home", **sections) as (server,):
        people = {}
        for login in logins:
            user = Identity.generate(login)
            await register(user, [server])
            client = await server.connect()
            await make_session(client.request, user, now_ms())
            people[user.key] = (user, client)
        try:
            yield Talk(server, people)
        finally:
            for _, client in people.values():
                await client.close()


async def pages(here: Talk, name: str, op: str, member: str, **payload: object) -> list[list[dict[str, Any]]]:
    """Ask for page after page until there is no more."""
    found = []
    cursor = None
    while True:
        answer = await here.ask(name, op, cursor=cursor, **payload)
        found.append(answer[member])
        cursor = answer["cursor"]
        if not answer["hasMore"]:
            return found
        assert answer[member], "a page that is not the last holds an entry"


def test_both_sides_read_their_own_copies(tmp_path: Path) -> None:
    async def story() -> None:
        async with talk(tmp_path, "Alice", "Bob") as here:
            first = await here.say("alice", "BOB", after=1)
            second = await here.say("bob", "alice", "hi", after=2)
            assert await here.chat("alice", "bOb") == [
                {
                    "messageKey": second.incoming_key,
                    "baseKey": second.base_key,
                    "direction": "in",
                    "timeMs": here.start_ms + 2,
                    "revisionMs": 0,
                    "blobB64": encode_base64(second.incoming),
                    "read": False,
                    "deleted": False,
                },
                {
                    "messageKey": first.outgoing_key,
                    "baseKey": first.base_key,
                    "direction": "out",
                    "timeMs": here.start_ms + 1,
                    "revisionMs": 0,
                    "blobB64": encode_base64(first.outgoing),
                    "deliveryState": "delivered",
                    "read": False,
                    "deleted": False,
                },
            ]
            blobs = [message["blobB64"] for message in await here.chat("bob", "alice")]
            assert blobs == [encode_base64(second.outgoing), encode_base64(first.incoming)]

    run(story())


def test_edits_receipts_and_tombstones_show_on_their_messages(tmp_path: Path) -> None:
    async def story() -> None:
        async with talk(tmp_path, "alice", "bob") as here:
            said = [await here.say("alice", "bob", f"{number}", after=number) for number in range(4)]
            edit = make_edit(here.who("alice"), said[0].message, "better", revision_ms=here.start_ms + 50)
            await here.server.send(edit)
            await here.server.send(make_receipt(here.who("bob"), said[1].message, time_ms=here.start_ms + 60))
            await here.server.send(make_tombstone(here.who("alice"), said[3].message, time_ms=here.start_ms + 70))
            for name, peer in (("alice", "bob"), ("bob", "alice")):
                messages = (await here.chat(name, peer))[::-1]
                assert [message["read"] for message in messages] == [True, True, False, False]
                assert [message["deleted"] for message in messages] == [False, False, False, True]
                assert [message["revisionMs"] - here.start_ms for message in messages[:1]] == [50]
                assert ["blobB64" in message for message in messages] == [True, True, True, False]
            assert (await here.chat("alice", "bob"))[3]["blobB64"] == encode_base64(edit.outgoing)
            assert await here.dialogs("bob") == [("alice", 1)]
            assert await here.dialogs("alice") == [("bob", 0)]

    run(story())


def test_a_message_that_waits_for_its_recipient_says_so(tmp_path: Path) -> None:
    async def story() -> None:
        async with talk(tmp_path, "alice") as here:
            far = Identity.generate("far")
            async with servers(LocalServer, tmp_path, "elsewhere") as (elsewhere,):
                record = await register(far, [elsewhere], known_at=[here.server])
                assert record.names_server("elsewhere")
            await here.say("alice", "far", after=1)
            [message] = await here.chat("alice", "far")
            assert message["deliveryState"] == "accepted"

    run(story())


def test_a_message_to_oneself_is_listed_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with talk(tmp_path, "alice") as here:
            note = await here.say("alice", "alice", "note", after=1)
            [message] = await here.chat("alice", "alice")
            assert (message["direction"], message["messageKey"]) == ("out", note.outgoing_key)
            assert await here.dialogs("alice") == [("alice", 0)]

    run(story())


def test_a_chat_is_read_page_by_page_while_it_grows(tmp_path: Path) -> None:
    async def story() -> None:
        async with talk(tmp_path, "alice", "bob") as here:
            for number in range(7):
                await here.say("alice", "bob", after=number)
            first = await here.ask("alice", "GetDirectMessages", peerLogin="bob", limit=3)
            await here.say("bob", "alice", after=10)  # a later one does not move the pages behind it
            second = await here.ask("alice", "GetDirectMessages", peerLogin="bob", limit=3, cursor=first["cursor"])
            third = await here.ask("alice", "GetDirectMessages", peerLogin="bob", limit=3, cursor=second["cursor"])
            fourth = await here.ask("alice", "GetDirectMessages", peerLogin="bob", limit=3, cursor=third["cursor"])
            found = [[message["timeMs"] - here.start_ms for message in page["messages"]] for page in (first, second)]
            assert found == [[6, 5, 4], [3, 2, 1]]
            assert [page["hasMore"] for page in (first, second, third, fourth)] == [True, True, False, False]
            assert [message["timeMs"] - here.start_ms for message in third["messages"]] == [0]
            assert (fourth["messages"], fourth["cursor"]) == ([], third["cursor"])
            empty = await here.ask("alice", "GetDirectMessages", peerLogin="nobody")
            assert empty == {"messages": [], "cursor": None, "hasMore": False}

    run(story())


def test_limits_are_clamped_and_have_a_default(tmp_path: Path) -> None:
    async def story() -> None:
        async with talk(tmp_path, "alice") as here:
            await here.server.node.store.write(lambda txn: fill_chats(txn, "alice", GREATEST_LIMIT + 10))
            await here.server.node.store.write(lambda txn: fill_chat(txn, "alice", "p00000", GREATEST_LIMIT + 10))
            for op, member in (("GetDirectMessages", "messages"), ("ListDialogs", "dialogs")):
                counts = []
                for limit in (None, 0, 1, 10**9):
                    answer = await here.ask("alice", op, peerLogin="p00000", limit=limit)
                    assert answer["hasMore"]
                    counts.append(len(answer[member]))
                assert counts == [DEFAULT_LIMIT, 1, 1, GREATEST_LIMIT]

    run(story())


def fill_chat(txn: Transaction, owner: str, peer: str, count: int) -> None:
    """Put messages without bodies into a chat: many rows that cost little."""
    row = Row(Flag.NONE, DeliveryState.DELIVERED, 0, 0, 0, 1)
    for number in range(count):
        key = ItemKey(owner, peer, Kind.MESSAGE, 1000 + number, 0, Direction.IN)
        txn.put(Table.HISTORY, key.encode(), row.encode())


def fill_chats(txn: Transaction, owner: str, count: int) -> None:
    for number in range(count):
        fill_chat(txn, owner, f"p{number:05}", 1)


def test_a_page_of_messages_that_were_removed_before_they_came_is_empty_and_leads_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shine_node.store.reading.MOST_PASSED", 10)

    def leave(txn: Transaction) -> None:
        row = Row(Flag.REMOVED, DeliveryState.DELIVERED, 0, 0, 0, 1)
        from_ms = now_ms() + 5000
        for number in range(15):
            key = ItemKey("bob", "alice", Kind.MESSAGE, from_ms + number, 0, Direction.IN)
            txn.put(Table.HISTORY, key.encode(), row.encode())

    async def story() -> None:
        async with talk(tmp_path, "alice", "bob") as here:
            said = await here.say("alice", "bob", after=0)
            await here.server.node.store.write(leave)
            first = await here.ask("bob", "GetDirectMessages", peerLogin="alice")
            assert (first["messages"], first["hasMore"]) == ([], True)
            then = await here.ask("bob", "GetDirectMessages", peerLogin="alice", cursor=first["cursor"])
            assert [message["baseKey"] for message in then["messages"]] == [said.base_key]
            assert not then["hasMore"]

    run(story())


def test_a_tombstone_of_a_message_from_the_future_is_refused_and_lists_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with talk(tmp_path, "alice", "bob") as here:
            never = MessageId("alice", "bob", 2**53 - 1, 1)
            for message in (never, never._replace(time_ms=now_ms() + 2 * PEER_AHEAD_MS)):
                tombstone = make_tombstone(here.who("alice"), message, time_ms=now_ms())
                with pytest.raises(RequestRefused, match="BAD_FIELDS: the reference names"):
                    await here.ask("alice", "SendMessagePair", **tombstone.payload)
            tombstone = make_tombstone(here.who("alice"), never._replace(time_ms=now_ms() + 60_000), time_ms=now_ms())
            await here.ask("alice", "SendMessagePair", **tombstone.payload)
            for name, peer in (("alice", "bob"), ("bob", "alice")):
                assert await here.dialogs(name) == []
                assert await here.chat(name, peer) == []

    run(story())


def test_an_answer_takes_half_a_frame_and_yet_holds_an_entry(tmp_path: Path) -> None:
    async def story() -> None:
        body = 60_000  # as Base64, in its container, somewhat over 80 KB: two fit into half a frame
        limits = {"maxFrameBytes": FRAME_BYTES, "maxBodyBytes": body, "maxBlockBytes": 1000}
        async with talk(tmp_path, "alice", "bob", limits=limits) as here:
            said = [await here.say("alice", "bob", bytes(body), after=number) for number in range(5)]
            found = await pages(here, "alice", "GetDirectMessages", "messages", peerLogin="bob")
            assert [len(page) for page in found] == [2, 2, 1]
            assert [message["baseKey"] for page in found for message in page] == [pair.base_key for pair in said[::-1]]
            assert all(len(orjson.dumps(page)) < FRAME_BYTES // 2 for page in found)
            await here.say("bob", "alice", after=9)
            assert [len(page) for page in await pages(here, "bob", "ListDialogs", "dialogs")] == [1]

    run(story())


def test_the_largest_messages_are_read_with_the_smallest_frame(tmp_path: Path) -> None:
    async def story() -> None:
        body = 65_536
        frame = 4 * body + 65_536  # the least that the configuration allows
        limits = {"maxFrameBytes": frame, "maxBodyBytes": body, "maxBlockBytes": 1000}
        async with talk(tmp_path, "alice", "bob", limits=limits) as here:
            for number in range(3):
                await here.say("alice", "bob", bytes(body), after=number)
            found = await pages(here, "alice", "GetDirectMessages", "messages", peerLogin="bob")
            assert [len(page) for page in found] == [1, 1, 1]

    run(story())


def test_dialogs_are_listed_by_recency_page_by_page(tmp_path: Path) -> None:
    async def story() -> None:
        async with talk(tmp_path, "Alice", "Bob", "Carol", "Dave") as here:
            await here.say("carol", "alice", after=1)
            await here.say("alice", "dave", after=2)
            await here.say("bob", "alice", after=2)
            last = await here.say("carol", "alice", "newest", after=5)
            assert await here.dialogs("alice") == [("Carol", 2), ("Bob", 1), ("Dave", 0)]
            answer = await here.ask("alice", "ListDialogs", limit=1)
            message = answer["dialogs"][0]["lastMessage"]
            assert message == (await here.chat("alice", "carol"))[0]
            assert message["baseKey"] == last.base_key
            found = await pages(here, "alice", "ListDialogs", "dialogs", limit=1)
            assert [dialog["peerLogin"] for page in found for dialog in page] == ["Carol", "Bob", "Dave"]
            end = ChatPlace(0, "a").encode()
            answer = await here.ask("alice", "ListDialogs", cursor=encode_base64(end))
            assert answer == {"dialogs": [], "cursor": encode_base64(end), "hasMore": False}

    run(story())


def test_a_peer_that_is_not_known_here_any_more_is_named_as_it_is_stored(tmp_path: Path) -> None:
    async def story() -> None:
        async with talk(tmp_path, "alice") as here:
            await here.server.node.store.write(lambda txn: fill_chat(txn, "alice", "gone", MAX_UNREAD + 5))
            assert await here.dialogs("alice") == [("gone", MAX_UNREAD)]

    run(story())


@pytest.mark.parametrize(
    "cursor", ["x", "%%%%", encode_base64(bytes(12)), encode_base64(bytes(13)), encode_base64(bytes(8) + b"\xff")]
)
def test_a_cursor_of_nobody_is_refused(tmp_path: Path, cursor: str) -> None:
    async def story() -> None:
        async with talk(tmp_path, "alice") as here:
            for op in ("GetDirectMessages", "ListDialogs"):
                with pytest.raises(RequestRefused) as refused:
                    await here.ask("alice", op, peerLogin="bob", cursor=cursor)
                assert (refused.value.status, refused.value.code) == (400, "BAD_FIELDS")

    run(story())


def test_history_needs_a_session_and_is_ones_own(tmp_path: Path) -> None:
    async def story() -> None:
        async with talk(tmp_path, "alice", "bob", "mallory") as here:
            await here.say("alice", "bob", after=1)
            for op in ("GetDirectMessages", "ListDialogs"):
                with pytest.raises(RequestRefused) as refused:
                    await here.server.request(op, {"peerLogin": "bob"})
                assert (refused.value.status, refused.value.code) == (422, "NOT_AUTHENTICATED")
            assert await here.chat("mallory", "alice") == await here.chat("mallory", "bob") == []
            assert await here.dialogs("mallory") == []
            with pytest.raises(RequestRefused) as refused:
                await here.ask("alice", "GetDirectMessages")
            assert refused.value.code == "BAD_FIELDS"

    run(story())


def test_many_pages_that_are_asked_for_at_once_wait_for_their_reader(tmp_path: Path) -> None:
    """All of them would be far over the bound of what may wait; one after the other they are not."""

    async def story() -> None:
        limits = {"maxOutboundBytes": 65_536}
        async with talk(tmp_path, "alice", "bob", limits=limits) as here:
            for number in range(8):
                await here.say("alice", "bob", bytes(60_000), after=number)
            asked = [here.ask("alice", "GetDirectMessages", peerLogin="bob") for _ in range(60)]
            answers = await asyncio.gather(*asked)
            assert all(len(answer["messages"]) == 6 for answer in answers)

    run(story())


def test_a_node_that_stops_does_not_wait_for_pages_that_nobody_reads(tmp_path: Path) -> None:
    async def story() -> None:
        async with talk(tmp_path, "alice", "bob") as here:
            for number in range(8):
                await here.say("alice", "bob", bytes(60_000), after=number)
            asked = [asyncio.ensure_future(here.ask("alice", "GetDirectMessages", peerLogin="bob")) for _ in range(200)]
            await asyncio.sleep(0)
            server: Server = here.server
            await server.stop()
            await asyncio.gather(*asked, return_exceptions=True)

    run(story())


def test_events_of_what_changes_while_a_page_is_made_follow_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, go_on = threading.Event(), threading.Event()

    def wait_and_read(*arguments: Any) -> Iterator[Entry]:
        found = read_chat(*arguments)
        reading.set()
        assert go_on.wait(PATIENCE)
        return found

    async def story() -> None:
        async with talk(tmp_path, "alice", "bob") as here, await RawTalk.open(here.server.url) as bob:
            await make_session(bob.succeed, here.who("bob"), now_ms())
            monkeypatch.setattr("shine_node.api.reading.read_chat", wait_and_read)
            await bob.say(asked("GetDirectMessages", {"peerLogin": "alice"}, "page"))
            try:
                assert await asyncio.to_thread(reading.wait, PATIENCE)
                pair = await here.say("alice", "bob", after=1)
                await bob.say(asked("Ping", {}, "ping"))
                assert (await bob.hear())["requestId"] == "ping", "the event waits, and nothing else"
            finally:
                go_on.set()
            page, event = await bob.hear(), await bob.hear()
            assert (page["requestId"], page["payload"]["messages"]) == ("page", [])
            assert (event["op"], event["payload"]["baseKey"]) == ("IncomingDirectMessage", pair.base_key)

    run(story())
