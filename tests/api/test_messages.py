"""Messages over real sockets: what clients and servers bring in, and what is told of a delivery."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shine_node.client.identity import Identity
from shine_node.client.messages import SignedPair, make_edit, make_message
from shine_node.delivery.deliverer import Deliverer
from shine_node.delivery.intake import Accepted
from shine_node.protocol.access import AccessServer, record_payload
from shine_node.protocol.encoding import encode_base64
from shine_node.protocol.schedule import DeliveryState
from shine_node.store.layout import Table
from tests.api.talk import Talk, node
from tests.support.clock import ManualClock
from tests.support.devices import Device
from tests.support.nodes import LocalServer, register, run, servers
from tests.support.scripted_peer import PeerConnection, ScriptedPeer

NOW = 1_774_700_600_000
ALICE, BOB, CAROL = Identity.generate("Alice"), Identity.generate("bob"), Identity.generate("carol")


def pair(body: str = "hello", *, author: Identity = ALICE, to: str = "bob", ms: int = 0) -> SignedPair:
    return make_message(author, to, body, time_ms=NOW + ms)


def incoming(one: SignedPair) -> dict[str, object]:
    return {"incomingBlobB64": encode_base64(one.incoming), "sourceServerLogin": "server2"}


def unsynced(server: LocalServer) -> int:
    with server.node.store.read() as txn:
        return txn.count(Table.OUTBOX_UNSYNCED)


def stored(server: LocalServer) -> int:
    with server.node.store.read() as txn:
        return txn.count(Table.CONTAINERS)


async def add(server: LocalServer, user: Identity, *access: AccessServer) -> None:
    await server.request("AddUser", record_payload(user.access_record(access, time_ms=NOW - 1000)))


async def status(talk: Talk, one: SignedPair, **more: Any) -> tuple[bool, bool]:
    answer = await talk.succeed("GetDmDeliveryStatus", {"messageKey": one.outgoing_key, **more})
    assert answer == {"messageKey": one.outgoing_key, **more} | {
        "known": answer["known"],
        "delivered": answer["delivered"],
    }
    return answer["known"], answer["delivered"]


def test_a_blocked_server_that_sends_no_hello_is_refused_where_it_says_its_name(tmp_path: Path) -> None:
    async def story() -> None:
        async with node(tmp_path, clock=ManualClock(NOW), limits={"blockedPeers": ["Server2"]}) as server:
            await add(server, ALICE, server.access)
            await add(server, BOB, server.access)
            one = pair()
            async with await Talk.open(server.url) as talk:
                forbidden = (403, "FORBIDDEN")
                assert await talk.refused("ReceiveIncomingMessage", incoming(one)) == forbidden
                named = one.payload | {"sourceServerLogin": "SERVER2"}
                assert await talk.refused("ReceiveOutcomingMessage", named) == forbidden
                assert stored(server) == 0
                await talk.succeed("ReceiveIncomingMessage", incoming(one) | {"sourceServerLogin": "server3"})
                await talk.succeed("ReceiveOutcomingMessage", one.payload)

    run(story())


def test_a_pair_for_a_user_of_the_same_server_is_delivered_with_its_answer(tmp_path: Path) -> None:
    async def story() -> None:
        async with node(tmp_path, clock=ManualClock(NOW)) as server, await Talk.open(server.url) as talk:
            for user in (ALICE, BOB):
                await add(server, user, server.access)
            one = pair()
            for _ in range(2):  # the same bytes again are answered with the present state
                assert await talk.succeed("SendMessagePair", one.payload) == {
                    "baseKey": one.base_key,
                    "incomingKey": one.incoming_key,
                    "outgoingKey": one.outgoing_key,
                    "deliveryState": "delivered",
                }
            assert await status(talk, one) == (True, True)

    run(story())


def test_a_session_is_answered_with_the_state_as_it_stands_when_the_answer_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event may have left before: an answer that is older than it would be believed."""
    send = Deliverer.send

    async def send_and_say_what_was(self: Deliverer, accepted: Accepted) -> DeliveryState:
        await send(self, accepted)
        return DeliveryState.ACCEPTED

    async def story() -> None:
        clock = ManualClock(NOW)
        async with node(tmp_path, clock=clock) as server:
            for user in (ALICE, BOB):
                await add(server, user, server.access)
            monkeypatch.setattr(Deliverer, "send", send_and_say_what_was)
            async with Device(server, ALICE, clock) as device:
                assert await device.send(pair()) == "delivered"
            assert await server.send(pair()) == "accepted", "no session, no events"

    run(story())


def test_a_pair_goes_to_the_recipients_server_and_the_answer_says_so(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(LocalServer, tmp_path, "server1", "server2", storage={"mapSizeMiB": 16}) as (one, two):
            await register(ALICE, [one], known_at=[two])
            await register(BOB, [two], known_at=[one])
            sent = make_message(ALICE, "bob", "over the wire", time_ms=NOW)
            assert await one.send(sent) == "delivered"
            assert stored(two) == 1

    run(story())


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ({"outgoingBlobB64": None}, (400, "BAD_FIELDS")),
        ({"incomingBlobB64": ""}, (400, "BAD_FIELDS")),
        ({"incomingBlobB64": "AAAA="}, (400, "BAD_BASE64")),
        ({"incomingBlobB64": "AAAA"}, (400, "BAD_CONTAINER")),
        ({"outgoingBlobB64": [1]}, (400, "BAD_REQUEST_FORMAT")),
    ],
)
@pytest.mark.parametrize("op", ["SendMessagePair", "ReceiveOutcomingMessage"])
def test_what_is_no_pair_is_refused_and_nothing_is_stored(
    tmp_path: Path, op: str, change: dict[str, object], refusal: tuple[int, str]
) -> None:
    async def story() -> None:
        async with node(tmp_path, clock=ManualClock(NOW)) as server, await Talk.open(server.url) as talk:
            await add(server, ALICE, server.access)
            assert await talk.refused(op, pair(to="alice").payload | change) == refusal
            assert stored(server) == 0

    run(story())


def test_the_answer_to_a_pair_does_not_wait_longer_than_it_is_told_to(tmp_path: Path) -> None:
    async def silence(connection: PeerConnection, request: dict[str, Any]) -> None:
        pass

    async def story() -> None:
        clock = ManualClock(NOW)
        async with ScriptedPeer("server2", {"ReceiveIncomingMessage": silence}) as peer:
            delivery = {"firstAttemptTimeoutMs": 0}
            async with node(tmp_path, clock=clock, delivery=delivery) as server, await Talk.open(server.url) as talk:
                await add(server, ALICE, server.access)
                await add(server, BOB, AccessServer("server2", peer.url))
                one = pair()
                assert (await talk.succeed("SendMessagePair", one.payload))["deliveryState"] == "accepted"
                assert await status(talk, one) == (True, False)
                await peer.until(lambda: [request["op"] for request in peer.requests] == ["ReceiveIncomingMessage"])

    run(story())


def test_an_incoming_copy_is_stored_once_and_acknowledged_each_time(tmp_path: Path) -> None:
    async def story() -> None:
        async with node(tmp_path, clock=ManualClock(NOW)) as server, await Talk.open(server.url) as talk:
            await add(server, ALICE, AccessServer("server2", "ws://127.0.0.1:1/ws"))
            await add(server, BOB, server.access)
            one = pair()
            for _ in range(2):
                assert await talk.succeed("ReceiveIncomingMessage", incoming(one)) == {"incomingKey": one.incoming_key}
            assert stored(server) == 1
            assert await status(talk, one) == (False, False)  # it has no delivery of its own here

    run(story())


def test_an_incoming_copy_that_is_refused(tmp_path: Path) -> None:
    async def story() -> None:
        async with node(tmp_path, clock=ManualClock(NOW)) as server, await Talk.open(server.url) as talk:
            await add(server, ALICE, AccessServer("server2", "ws://127.0.0.1:1/ws"))
            await add(server, BOB, server.access)
            await add(server, CAROL, AccessServer("server3", "ws://127.0.0.1:2/ws"))
            good, forged = pair(), pair(author=Identity.generate("alice"))
            for payload, refusal in (
                (incoming(forged), (422, "BAD_SIGNATURE")),
                (incoming(pair(to="carol")), (421, "NOT_ACCESS_SERVER")),
                (incoming(pair(to="nobody")), (404, "USER_NOT_FOUND")),
                (incoming(pair(author=Identity.generate("nobody"))), (404, "USER_NOT_FOUND")),
                (incoming(pair(ms=86_400_001)), (400, "BAD_FIELDS")),
                ({"incomingBlobB64": encode_base64(good.outgoing)}, (400, "BAD_CONTAINER")),
                (incoming(good) | {"sourceServerLogin": 5}, (400, "BAD_REQUEST_FORMAT")),
                ({}, (400, "BAD_FIELDS")),
            ):
                assert await talk.refused("ReceiveIncomingMessage", payload) == refusal, payload
            assert stored(server) == 0
            day_ahead = pair(ms=86_400_000)  # between servers a wrong clock is no reason not to deliver
            await talk.succeed("ReceiveIncomingMessage", incoming(day_ahead) | {"sourceServerLogin": None})

    run(story())


@pytest.mark.parametrize(
    ("peer", "learns"),
    [("server2", False), ("SERVER2", False), ("server3", True), (None, True)],
)
def test_a_pair_from_the_senders_other_server_is_stored_tried_at_once_and_not_passed_back(
    tmp_path: Path, peer: str | None, learns: bool
) -> None:
    async def story() -> None:
        async with ScriptedPeer("server9") as recipient:
            async with node(tmp_path, clock=ManualClock(NOW)) as server, await Talk.open(server.url) as talk:
                await add(server, ALICE, server.access, AccessServer("Server2", "ws://127.0.0.1:1/ws"))
                await add(server, BOB, AccessServer("server9", recipient.url))
                if peer is not None:
                    hello = {"serverLogin": peer, "protocolVersion": 1, "capabilities": []}
                    await talk.succeed("ServerHello", hello)
                one = pair()
                answer = await talk.succeed("ReceiveOutcomingMessage", one.payload | {"sourceServerLogin": "server2"})
                assert answer == {"outgoingKey": one.outgoing_key}
                assert unsynced(server) == learns  # what the other server brought it need not learn from here
                await recipient.until(lambda: [r["op"] for r in recipient.requests] == ["ReceiveIncomingMessage"])
                for request in recipient.requests:
                    assert request["payload"]["incomingBlobB64"] == encode_base64(one.incoming)
                assert await talk.succeed("ReceiveOutcomingMessage", one.payload) == answer
                refused = one.payload | {"sourceServerLogin": True}
                assert await talk.refused("ReceiveOutcomingMessage", refused) == (400, "BAD_REQUEST_FORMAT")
            assert len(recipient.requests) == 1  # a repetition starts no attempt

    run(story())


def test_a_pair_is_taken_only_for_a_sender_of_this_server(tmp_path: Path) -> None:
    async def story() -> None:
        async with node(tmp_path, clock=ManualClock(NOW)) as server, await Talk.open(server.url) as talk:
            await add(server, CAROL, AccessServer("server3", "ws://127.0.0.1:2/ws"))
            one = pair(author=CAROL, to="bob")
            assert await talk.refused("ReceiveOutcomingMessage", one.payload) == (421, "NOT_ACCESS_SERVER")
            assert stored(server) == 0

    run(story())


def test_the_status_of_a_delivery_is_told_of_the_revision_that_is_asked_for(tmp_path: Path) -> None:
    async def story() -> None:
        async with node(tmp_path, clock=ManualClock(NOW)) as server, await Talk.open(server.url) as talk:
            await add(server, ALICE, server.access)
            await add(server, BOB, server.access)
            one = pair(ms=-100)
            assert await status(talk, one) == (False, False)
            await talk.succeed("SendMessagePair", one.payload)
            edit = make_edit(ALICE, one.message, "better", revision_ms=NOW)
            assert await status(talk, one, revisionMs=0) == (True, True)
            assert await status(talk, one, revisionMs=NOW) == (False, False)  # it is not known here yet
            await talk.succeed("SendMessagePair", edit.payload)
            assert await status(talk, one, revisionMs=NOW) == (True, True)
            assert await status(talk, one, revisionMs=NOW + 1) == (False, False)

    run(story())


def test_the_status_of_what_is_no_key(tmp_path: Path) -> None:
    async def story() -> None:
        async with node(tmp_path) as server, await Talk.open(server.url) as talk:
            for key in ("", "a", "a|b|1|2", "a|b|1|2|9", "a|b|01|2|2", "a|b|1|4294967296|2", "|b|1|2|2"):
                assert await talk.refused("GetDmDeliveryStatus", {"messageKey": key}) == (400, "BAD_FIELDS"), key
            assert await talk.refused("GetDmDeliveryStatus", {}) == (400, "BAD_FIELDS")
            answer = await talk.succeed("GetDmDeliveryStatus", {"messageKey": "a|b|1|2|1", "revisionMs": None})
            assert answer == {"messageKey": "a|b|1|2|1", "known": False, "delivered": False}

    run(story())
