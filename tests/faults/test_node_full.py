"""A store whose map is full, seen from the outside: writes are refused, reads go on, and a larger map heals it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from shine_node.client.connection import Connection, RequestRefused
from shine_node.client.identity import Identity
from shine_node.client.messages import SignedPair, make_message, make_tombstone
from shine_node.protocol.encoding import encode_base64
from shine_node.protocol.keys import parse_message_key
from shine_node.store.layout import ItemKey
from shine_node.store.messages import get_blobs, get_row
from shine_node.store.view import view_store
from tests.store.rooms import check_indexes
from tests.support.nodes import PATIENCE, LocalServer, ServerProcess, delivery_state, eventually, now_ms, register, run

SIZES = (60_000, 5_000, 300, 0)
"""Bodies that get smaller, until not even an empty one has room."""
MOST = 2_000


async def refusal_of(client: Connection, op: str, payload: Mapping[str, object]) -> RequestRefused:
    with pytest.raises(RequestRefused) as refused:
        await client.request(op, payload, timeout=PATIENCE)
    return refused.value


async def fill(client: Connection, author: Identity, to_login: str) -> tuple[list[SignedPair], list[SignedPair]]:
    """Send messages until the server has room for none; return those that it took and those that it refused."""
    taken: list[SignedPair] = []
    refused: list[SignedPair] = []
    sizes: Iterator[int] = iter(SIZES)
    size = next(sizes)
    for number in range(MOST):
        pair = make_message(author, to_login, bytes(size) + b"%d" % number, time_ms=now_ms())
        try:
            answer = await client.request("SendMessagePair", pair.payload, timeout=PATIENCE)
        except RequestRefused as refusal:
            assert (refusal.status, refusal.code) == (507, "STORAGE_FULL")
            assert refusal.retryable
            refused.append(pair)
            following = next(sizes, None)
            if following is None:
                return taken, refused
            size = following
        else:
            assert answer["deliveryState"] == "delivered"
            taken.append(pair)
    raise AssertionError("the store takes messages without end")


def stored_blobs(server: ServerProcess, pair: SignedPair) -> list[tuple[bytes, bytes]]:
    """The sender's and the recipient's item as they are in the file, while the node runs or not."""
    out, into = parse_message_key(pair.outgoing_key), parse_message_key(pair.incoming_key)
    with view_store(server.store_file) as txn:
        rows = (
            get_row(txn, ItemKey.outgoing(out.message, out.message_type)),
            get_row(txn, ItemKey.incoming(into.message, into.message_type)),
        )
        return [get_blobs(txn, row) for row in rows if row is not None]


def test_a_full_map_refuses_writes_reads_go_on_and_a_larger_one_loses_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        home = ServerProcess(
            "home",
            tmp_path,
            storage={"mapSizeMiB": 8},
            delivery={"scheduleSeconds": [0, 1, 3600], "workerIntervalMs": 50, "leaseMs": 1000},
            limits={"requestsPerSecond": 100_000},
        )
        b1 = LocalServer("b1", tmp_path)
        try:
            await home.start()
            await b1.start()
            alice, bob, carol = (Identity.generate(login) for login in ("alice", "bob", "carol"))
            await register(alice, [home], known_at=[b1])
            await register(carol, [home])
            await register(bob, [b1], known_at=[home])
            await b1.stop()

            client = await home.connect()
            waiting = make_message(alice, "bob", "bob is away", time_ms=now_ms())
            answer = await client.request("SendMessagePair", waiting.payload, timeout=PATIENCE)
            assert answer["deliveryState"] == "accepted"
            taken, refused = await fill(client, alice, "carol")
            assert len(taken) > 20

            # Messages are refused, whatever reads is answered, on the same connection.
            from_bob = make_message(bob, "carol", bytes(60_000), time_ms=now_ms())
            again = await refusal_of(client, "SendMessagePair", refused[0].payload)
            assert again.status == 507
            by_server = await refusal_of(
                client, "ReceiveIncomingMessage", {"incomingBlobB64": encode_base64(from_bob.incoming)}
            )
            assert by_server.status == 507
            assert (await client.request("Ping", {}))["ts"] > 0
            assert (await client.request("GetUserAccess", {"login": "alice"}))["exists"] is True
            for pair in taken:
                status = await client.request("GetDmDeliveryStatus", {"messageKey": pair.outgoing_key})
                assert status == {"messageKey": pair.outgoing_key, "known": True, "delivered": True}
                assert await delivery_state(home, pair) == "delivered", "the same bytes again need no room"
            for pair in refused:
                status = await client.request("GetDmDeliveryStatus", {"messageKey": pair.outgoing_key})
                assert status["known"] is False
            await client.close()
            with view_store(home.store_file) as txn:
                check_indexes(txn, "home")
            assert "raise storage.mapSizeMiB" in home.process.log_tail(1000)
            assert "Traceback" not in home.process.log_tail(1000)
            assert home.process.running

            # It starts again with the same map, and is as full as before.
            await home.restart()
            async with await home.connect() as client:
                assert (await refusal_of(client, "SendMessagePair", refused[0].payload)).status == 507

            # With a larger one nothing is lost, and what waited goes on.
            await home.stop()
            home.settings["storage"]["mapSizeMiB"] = 32
            home.settings["delivery"]["scheduleSeconds"] = [*range(15), 3600]
            await b1.start()
            await home.start()
            for pair in taken:
                assert stored_blobs(home, pair) == [(pair.incoming, pair.outgoing), (pair.incoming, b"")]
            for pair in refused:
                assert stored_blobs(home, pair) == []
            for pair in refused:
                assert await home.send(pair) == "delivered"
                assert len(stored_blobs(home, pair)) == 2
            await home.request("ReceiveIncomingMessage", {"incomingBlobB64": encode_base64(from_bob.incoming)})

            async def bob_has_it() -> bool:
                return await delivery_state(home, waiting) == "delivered"

            await eventually(bob_has_it)
            assert await home.send(make_tombstone(alice, taken[0].message, time_ms=now_ms())) == "delivered"
            await home.stop()
            with view_store(home.store_file) as txn:
                check_indexes(txn, "home")
        finally:
            for server in (home, b1):
                await server.discard()

    run(story())
