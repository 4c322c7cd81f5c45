"""``AccessDataSyncBatch`` and ``DmSyncBatch`` as peers ask for them, over real sockets (PROTOCOL.md §3, §6)."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from shine_node.api.sync import SyncOperations
from shine_node.client.messages import SignedPair, make_edit, make_message
from shine_node.protocol.access import AccessRecord, AccessServer, record_payload
from shine_node.protocol.encoding import encode_base64
from shine_node.protocol.hello import hello_payload
from shine_node.store.users import add_record
from tests.api.talk import Talk, asked, node
from tests.store.rooms import NOW, identity, servers
from tests.support.nodes import LocalServer, now_ms, run

OP = "AccessDataSyncBatch"


def user(number: int) -> AccessRecord:
    return identity(f"user{number}").access_record(servers("r1", "r2"), time_ms=NOW)


@asynccontextmanager
async def peer_of(server: LocalServer) -> AsyncIterator[Talk]:
    async with await Talk.open(server.url) as talk:
        await talk.succeed("ServerHello", hello_payload("server2"))
        yield talk


async def learn(server: LocalServer, *records: AccessRecord) -> None:
    for record in records:
        await server.node.store.write(lambda txn, record=record: add_record(txn, record, local=not record.signature))  # type: ignore[misc]


def test_it_is_for_servers(tmp_path: Path) -> None:
    async def story() -> None:
        async with node(tmp_path) as server, await Talk.open(server.url) as talk:
            assert await talk.refused(OP, {"afterSeq": 0, "limit": 1}) == (422, "NOT_AUTHENTICATED")
            await talk.succeed("ServerHello", hello_payload("server2"))
            assert await talk.succeed(OP, {}) == {"records": [], "nextSeq": 0, "hasMore": False}

    run(story())


def test_a_peer_reads_all_records_page_by_page(tmp_path: Path) -> None:
    unsigned = identity("alice").access_record(servers("server1"), time_ms=0)._replace(signature=b"")
    records = [user(number) for number in range(5)]

    async def story() -> None:
        async with node(tmp_path) as server, peer_of(server) as peer:
            await learn(server, *records[:2], unsigned, *records[2:])
            found: list[Any] = []
            after, pages, more = 0, 0, True
            while more:
                answer = await peer.succeed(OP, {"afterSeq": after, "limit": 2})
                found += answer["records"]
                after, more = answer["nextSeq"], answer["hasMore"]
                pages += 1
            assert found == [record_payload(record) for record in records]
            assert pages == 3
            assert await peer.succeed(OP, {"afterSeq": after}) == {"records": [], "nextSeq": after, "hasMore": False}
            ahead = await peer.succeed(OP, {"afterSeq": after + 3})
            assert ahead == {"records": [], "nextSeq": after, "hasMore": False}

    run(story())


def test_a_limit_outside_its_range_is_clamped(tmp_path: Path) -> None:
    async def story() -> None:
        async with node(tmp_path) as server, peer_of(server) as peer:
            await learn(server, *(user(number) for number in range(3)))
            assert len((await peer.succeed(OP, {"afterSeq": 0, "limit": 0}))["records"]) == 1
            assert len((await peer.succeed(OP, {"afterSeq": 0, "limit": -7}))["records"]) == 1
            assert len((await peer.succeed(OP, {"afterSeq": 0, "limit": 2**63}))["records"]) == 3

    run(story())


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        ({"afterSeq": "0"}, "BAD_REQUEST_FORMAT"),
        ({"afterSeq": -1}, "BAD_FIELDS"),
        ({"afterSeq": 2**53}, "BAD_FIELDS"),
        ({"afterSeq": 0, "limit": "all"}, "BAD_REQUEST_FORMAT"),
    ],
)
def test_fields_that_are_wrong(tmp_path: Path, payload: dict[str, object], error: str) -> None:
    async def story() -> None:
        async with node(tmp_path) as server, peer_of(server) as peer:
            assert await peer.refused(OP, payload) == (400, error)

    run(story())


def test_an_answer_is_at_most_half_a_frame(tmp_path: Path) -> None:
    limits = {"maxFrameBytes": 70_000, "maxBodyBytes": 1024, "maxBlockBytes": 1024}
    records = [user(number) for number in range(80)]
    assert sum(len(orjson.dumps(record_payload(record))) for record in records) > 35_000

    async def story() -> None:
        async with node(tmp_path, limits=limits) as server, peer_of(server) as peer:
            await learn(server, *records)
            await peer.say(asked(OP, {"afterSeq": 0, "limit": 500}))
            frame = await peer.socket.recv(decode=False)
            assert 25_000 < len(frame) <= 35_000
            answer = orjson.loads(frame)["payload"]
            assert answer["hasMore"]
            rest = await peer.succeed(OP, {"afterSeq": answer["nextSeq"], "limit": 500})
            while rest["hasMore"]:
                answer["records"] += rest["records"]
                rest = await peer.succeed(OP, {"afterSeq": rest["nextSeq"], "limit": 500})
            assert answer["records"] + rest["records"] == [record_payload(record) for record in records]

    run(story())


def test_pages_that_are_asked_for_together_are_made_one_after_the_other(tmp_path: Path) -> None:
    async def story() -> None:
        async with node(tmp_path) as server, peer_of(server) as peer:
            await learn(server, user(1))
            for number in range(20):
                await peer.say(asked(OP, {"afterSeq": 0}, f"r{number}"))
            answers = [await peer.hear() for _ in range(20)]
            assert [answer["requestId"] for answer in answers] == [f"r{number}" for number in range(20)]
            assert {len(answer["payload"]["records"]) for answer in answers} == {1}
            assert len({answer["payload"]["nextSeq"] for answer in answers}) == 1

    run(story())


# --- what is acknowledged ---


def test_entries_are_for_the_server_that_the_hello_names_and_only_what_it_was_sent_can_be_acknowledged(
    tmp_path: Path,
) -> None:
    other = AccessServer("Server2", "ws://127.0.0.1:1/ws")

    async def story() -> None:
        async with node(tmp_path) as server, await Talk.open(server.url) as talk:
            assert await talk.refused("DmSyncBatch", {}) == (422, "NOT_AUTHENTICATED")
            alice = identity("alice")
            await learn(server, alice.access_record([server.access, other], time_ms=1))
            pair = make_message(alice, "alice", "a note to myself", time_ms=now_ms())
            assert await server.send(pair) == "delivered"

            async def batch(name: str, *acknowledged: str) -> list[dict[str, Any]]:
                await talk.succeed("ServerHello", hello_payload(name))
                answer = await talk.succeed("DmSyncBatch", {"ackSyncIds": list(acknowledged)})
                assert answer["hasMore"] is False
                items: list[dict[str, Any]] = answer["items"]
                return items

            items = await batch("server2")
            assert items, "under any spelling of the name"
            sync_ids = [item["syncId"] for item in items]
            assert encode_base64(pair.outgoing) in [blob for item in items for blob in item["blobsB64"]]
            assert await batch("server3", *sync_ids) == []
            assert await batch("server2", "never sent") == items, "another one's word changes nothing"
            assert await batch("SERVER2", *sync_ids) == []
            assert await batch("server2") == []

    run(story())


# --- pages of messages ---

BATCH = "DmSyncBatch"
OTHER = AccessServer("server2", "ws://127.0.0.1:1/ws")


@asynccontextmanager
async def alices_server(folder: Path, **sections: Any) -> AsyncIterator[LocalServer]:
    """A node of alice, whose other server is ``server2``, and of dora, whose other server is another one."""
    async with node(folder, **sections) as server:
        elsewhere = AccessServer("server3", "ws://127.0.0.1:1/ws")
        await learn(
            server,
            identity("alice").access_record([server.access, OTHER], time_ms=1),
            identity("dora").access_record([server.access, elsewhere], time_ms=1),
            identity("bob").access_record([], time_ms=1),
        )
        yield server


async def send(server: LocalServer, author: str, *texts: str) -> list[SignedPair]:
    """Have messages to bob, who cannot be reached, sent at a server, one after the other."""
    pairs = [make_message(identity(author), "bob", text, time_ms=now_ms()) for text in texts]
    async with await server.connect() as client:
        for pair in pairs:
            await client.request("SendMessagePair", pair.payload)
    return pairs


def blobs_of(answer: dict[str, Any]) -> list[list[str]]:
    return [item["blobsB64"] for item in answer["items"]]


def blobs(*pairs: SignedPair) -> list[list[str]]:
    return [[encode_base64(pair.incoming), encode_base64(pair.outgoing)] for pair in pairs]


def test_pages_are_bounded_by_their_count_and_follow_each_other_by_the_cursor(tmp_path: Path) -> None:
    async def story() -> None:
        async with alices_server(tmp_path) as server, peer_of(server) as peer:
            pairs = await send(server, "alice", *"abcdefg")
            found: list[list[str]] = []
            cursor, sizes, more = "", [], True
            while more:
                page = await peer.succeed(BATCH, {"limit": 3, **({"cursor": cursor} if cursor else {})})
                assert set(page) == {"items", "cursor", "hasMore"}
                assert all(set(item) == {"syncId", "login", "blobsB64"} for item in page["items"])
                found += blobs_of(page)
                sizes.append(len(page["items"]))
                cursor, more = page["cursor"], page["hasMore"]
            assert found == blobs(*pairs), "the oldest change first"
            assert sizes == [3, 3, 1]
            assert blobs_of(await peer.succeed(BATCH, {"cursor": cursor})) == []
            assert len(blobs_of(await peer.succeed(BATCH, {"limit": 0}))) == 1
            assert blobs_of(await peer.succeed(BATCH, {"limit": 10**9})) == blobs(*pairs), "not acknowledged, so again"

    run(story())


@pytest.mark.parametrize("length", [1, 40, 400, 1000])
def test_a_page_is_at_most_half_a_frame_however_short_its_entries_are(tmp_path: Path, length: int) -> None:
    limits = {"maxFrameBytes": 70_000, "maxBodyBytes": 1024, "maxBlockBytes": 1024}

    async def story() -> None:
        async with alices_server(tmp_path, limits=limits) as server, peer_of(server) as peer:
            pairs = await send(server, "alice", *("x" * length for _ in range(100)))
            await peer.say(asked(BATCH, {"limit": 500}))
            frame = await peer.socket.recv(decode=False)
            assert 25_000 < len(frame) <= 35_000
            page = orjson.loads(frame)["payload"]
            assert page["hasMore"]
            assert blobs_of(page) == blobs(*pairs[: len(page["items"])])

    run(story())


def test_a_page_holds_one_entry_however_long(tmp_path: Path) -> None:
    limits = {"maxFrameBytes": 66_000, "maxBodyBytes": 100, "maxBlockBytes": 100}

    async def story() -> None:
        async with alices_server(tmp_path) as server:
            pairs = await send(server, "alice", "x" * 60_000, "y" * 60_000)
            server.settings["limits"] = limits
            await server.restart()
            async with peer_of(server) as peer:
                page = await peer.succeed(BATCH, {})
                assert blobs_of(page) == blobs(pairs[0])
                assert page["hasMore"]
                assert blobs_of(await peer.succeed(BATCH, {"cursor": page["cursor"]})) == blobs(pairs[1])

    run(story())


def test_a_peer_gets_only_owners_who_have_both_servers_also_by_name(tmp_path: Path) -> None:
    async def story() -> None:
        async with alices_server(tmp_path) as server, peer_of(server) as peer:
            await send(server, "dora", "not for you")
            pairs = await send(server, "alice", "for you")
            assert blobs_of(await peer.succeed(BATCH, {})) == blobs(*pairs)
            assert blobs_of(await peer.succeed(BATCH, {"login": "ALICE"})) == blobs(*pairs)
            for login in ("dora", "bob", "nobody"):
                answer = await peer.succeed(BATCH, {"login": login})
                assert (answer["items"], answer["hasMore"]) == ([], False)

    run(story())


def test_an_acknowledgement_of_a_revision_that_has_been_replaced_changes_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with alices_server(tmp_path) as server, peer_of(server) as peer:
            [first, _] = await send(server, "alice", "one", "two")
            page = await peer.succeed(BATCH, {})
            edit = make_edit(identity("alice"), first.message, "edited", revision_ms=now_ms() + 5)
            await server.send(edit)
            sync_ids = [item["syncId"] for item in page["items"]]
            last = await peer.succeed(BATCH, {"ackSyncIds": sync_ids, "cursor": page["cursor"]})
            assert blobs_of(last) == blobs(edit), "it has been changed since"
            assert last["items"][0]["syncId"] not in sync_ids
            assert blobs_of(await peer.succeed(BATCH, {"ackSyncIds": sync_ids})) == blobs(edit)

    run(story())


def test_what_another_connection_was_sent_is_not_for_this_one_to_acknowledge(tmp_path: Path) -> None:
    async def story() -> None:
        async with alices_server(tmp_path) as server, peer_of(server) as peer, peer_of(server) as again:
            pairs = await send(server, "alice", "one", "two")
            sync_ids = [item["syncId"] for item in (await peer.succeed(BATCH, {}))["items"]]
            assert blobs_of(await again.succeed(BATCH, {"ackSyncIds": [*sync_ids, "made up"]})) == blobs(*pairs)
            assert blobs_of(await peer.succeed(BATCH, {"ackSyncIds": sync_ids[1:]})) == blobs(pairs[0])
            assert blobs_of(await again.succeed(BATCH, {"ackSyncIds": sync_ids})) == []

    run(story())


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        ({"login": ""}, "BAD_FIELDS"),
        ({"login": "a b"}, "BAD_LOGIN"),
        ({"login": 5}, "BAD_REQUEST_FORMAT"),
        ({"ackSyncIds": "x"}, "BAD_REQUEST_FORMAT"),
        ({"ackSyncIds": [None]}, "BAD_REQUEST_FORMAT"),
        ({"limit": "x"}, "BAD_REQUEST_FORMAT"),
        ({"cursor": 5}, "BAD_REQUEST_FORMAT"),
        ({"cursor": "é"}, "BAD_FIELDS"),
        ({"cursor": encode_base64(bytes(600))}, "BAD_FIELDS"),
        ({"storeMark": "x" * 100}, "BAD_FIELDS"),
    ],
)
def test_fields_of_a_batch_that_are_wrong(tmp_path: Path, payload: dict[str, object], error: str) -> None:
    async def story() -> None:
        async with alices_server(tmp_path) as server, peer_of(server) as peer:
            await send(server, "alice", "one")
            page = await peer.succeed(BATCH, {})
            sync_ids = [item["syncId"] for item in page["items"]]
            assert await peer.refused(BATCH, {"ackSyncIds": sync_ids, **payload}) == (400, error)
            assert blobs_of(await peer.succeed(BATCH, {})) == blobs_of(page), "nothing was acknowledged"
            assert blobs_of(await peer.succeed(BATCH, {"cursor": encode_base64(b"\xff" * 400)})) == []

    run(story())


def test_names_without_end_on_one_connection_are_remembered_one_at_a_time(tmp_path: Path) -> None:
    async def story() -> None:
        async with alices_server(tmp_path) as server, await Talk.open(server.url) as talk:
            for number in range(50):
                await talk.succeed("ServerHello", hello_payload(f"peer{number}"))
                await talk.succeed(BATCH, {})
            # By type: to ask a weak reference of something that is gone for its class is an error.
            [operations] = [o for o in gc.get_objects() if type(o) is SyncOperations and len(o._sent)]
            assert [name for name, _ in operations._sent.values()] == ["peer49"]

    run(story())
