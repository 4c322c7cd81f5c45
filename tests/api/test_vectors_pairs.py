"""Every vector of the pairs and of the history of keys, over a real socket and through the real intake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shine_node.client.identity import Identity, KeyPair
from shine_node.protocol.access import AccessServer, record_payload
from shine_node.protocol.container import encode_unsigned, parse_container
from shine_node.protocol.encoding import encode_base64
from shine_node.protocol.signatures import is_signed_by
from shine_node.store.layout import Table
from tests.api.talk import Talk, asked, node
from tests.support.clock import ManualClock
from tests.support.nodes import LocalServer, run
from tests.support.vectors import cases, load_vectors

MOST = 65536


def identity(login: str, keys: dict[str, str]) -> Identity:
    """Return the user of some vectors."""
    root, blockchain, device = (bytes.fromhex(keys[f"{name}SeedHex"]) for name in ("root", "blockchain", "device"))
    return Identity.from_seeds(login, root=root, blockchain=blockchain, device=device)


def access(server: LocalServer, login: str) -> AccessServer:
    """Return the entry of a server by its login; there is only one, at the places of the others nobody listens."""
    return AccessServer(login, server.url if login == server.login.lower() else "ws://127.0.0.1:1/ws")


def rows(server: LocalServer) -> tuple[int, int]:
    """Return how much is stored: histories of chats, and containers."""
    with server.node.store.read() as txn:
        return txn.count(Table.HISTORY), txn.count(Table.CONTAINERS)


@pytest.mark.parametrize("case", cases("pairs"))
def test_pair(tmp_path: Path, case: dict[str, Any]) -> None:
    vectors = load_vectors("pairs")

    async def story() -> None:
        clock = ManualClock(case.get("nowMs", vectors["nowMs"]))
        limits = {"maxBodyBytes": vectors["maxBodyBytes"]}
        server_login = case["server"]
        async with (
            node(tmp_path, login=server_login, clock=clock, limits=limits) as server,
            await Talk.open(server.url) as talk,
        ):
            for login, keys in vectors["keys"].items():
                servers = [access(server, name) for name in vectors["accessServers"][login]]
                record = identity(login, keys).access_record(servers, time_ms=0)
                await talk.say(asked("AddUser", record_payload(record)))
            assert [(await talk.hear())["ok"] for _ in vectors["keys"]] == [True] * len(vectors["keys"])
            payload = {
                "incomingBlobB64": encode_base64(bytes.fromhex(case["incomingHex"])),
                "outgoingBlobB64": encode_base64(bytes.fromhex(case["outgoingHex"])),
            }
            answer = await talk.ask("SendMessagePair", payload)
            expected = (case["status"], case["error"])
            if not case["incomingHex"]:
                expected = (400, "BAD_FIELDS")  # an empty field comes before an empty container (§2)
            assert (answer["status"], answer.get("error")) == expected, answer
            if case["error"] is None:
                told = dict(answer["payload"])
                assert told.pop("deliveryState") in ("accepted", "delivered")
                assert told == {key: case[key] for key in ("baseKey", "incomingKey", "outgoingKey")}
                assert rows(server) > (0, 0)
            else:
                assert rows(server) == (0, 0)

    run(story())


@pytest.mark.parametrize("case", cases("key_history"))
def test_key_history(tmp_path: Path, case: dict[str, Any]) -> None:
    now_ms = load_vectors("key_history")["nowMs"]
    blob = bytes.fromhex(case["hex"])
    copy = parse_container(blob, max_body_bytes=MOST)
    alice, bob = Identity.generate(copy.from_login), Identity.generate(copy.to_login)
    devices = [KeyPair.from_seed(bytes.fromhex(record["deviceSeedHex"])) for record in case["records"]]
    assert [device.public.hex() for device in devices] == [record["deviceKeyHex"] for record in case["records"]]

    async def story() -> None:
        async with node(tmp_path, clock=ManualClock(now_ms)) as server, await Talk.open(server.url) as talk:
            await talk.succeed("AddUser", record_payload(bob.access_record([server.access], time_ms=0)))
            for device, record in zip(devices, case["records"], strict=True):  # in the order in which they are learned
                told = alice.with_device(device).access_record([server.access], time_ms=record["timeMs"])
                await talk.succeed("SetUserAccess", record_payload(told))
            if case["fresh"]:
                [signer] = {d for d in devices if is_signed_by(d.public, copy.signed_part, copy.signature)}
                answer = await talk.ask("SendMessagePair", pair_of(blob, signer))
            else:
                answer = await talk.ask("ReceiveIncomingMessage", {"incomingBlobB64": encode_base64(blob)})
            assert (answer["status"], answer.get("error")) == (case["status"], case["error"]), answer
            assert (rows(server) > (0, 0)) is (case["error"] is None)

    run(story())


def pair_of(blob: bytes, signer: KeyPair) -> dict[str, object]:
    """Return the payload of the pair to which an incoming copy belongs."""
    copy = parse_container(blob, max_body_bytes=MOST)
    unsigned = encode_unsigned(
        to_login=copy.to_login,
        from_login=copy.from_login,
        time_ms=copy.message.time_ms,
        nonce=copy.message.nonce,
        message_type=copy.message_type + 1,
        body=b"the same",
        body_format=0,
        revision_ms=copy.revision_ms,
    )
    return {
        "incomingBlobB64": encode_base64(blob),
        "outgoingBlobB64": encode_base64(unsigned + signer.sign(unsigned)),
    }
