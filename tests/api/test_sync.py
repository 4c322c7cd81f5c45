"""``AccessDataSyncBatch`` as peers ask for it, over real sockets (PROTOCOL.md §3)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from shine_node.client.messages import make_message
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
            assert (after, pages) == (6, 3)
            assert await peer.succeed(OP, {"afterSeq": 9}) == {"records": [], "nextSeq": 6, "hasMore": False}

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
            assert all(answer["payload"]["nextSeq"] == 1 for answer in answers)

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
