"""Users that the operator adds, in a real store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from shine_node.client.identity import Identity
from shine_node.config import Config, config_from_mapping
from shine_node.control.users import AddUser, add_user, read_new_user
from shine_node.crypto.pool import CryptoPool
from shine_node.directory.users import Users
from shine_node.protocol.access import AccessServer, record_payload
from shine_node.protocol.errors import (
    BadFields,
    BadRequestFormat,
    BadSignature,
    Refusal,
    RootKeyMismatch,
    UserAlreadyExists,
)
from shine_node.store.environment import Store
from tests.control.conftest import Run
from tests.support.clock import ManualClock

HOME = AccessServer("home", "wss://home.example/ws")
OTHER = AccessServer("other", "wss://other.example/ws")
ALICE = Identity.from_seeds("Alice", root=b"\1" * 32, blockchain=b"\2" * 32, device=b"\3" * 32)
IDENTITY = {
    name: value
    for name, value in record_payload(ALICE.access_record([HOME], time_ms=1)).items()
    if name in ("login", "blockchainName", "solanaKey", "blockchainKey", "deviceKey")
}


def config(**pool: bool) -> Config:
    return config_from_mapping({"server": {"login": "Home", "url": "wss://home.example/ws", "pool": pool}})


@asynccontextmanager
async def users(folder: Path) -> AsyncIterator[Users]:
    clock = ManualClock()
    store = Store(folder / "shine.mdb", map_size=2**24)
    crypto = CryptoPool(threads=1, max_queue=10)
    store.start()
    crypto.start()
    try:
        yield Users(store=store, crypto=crypto, clock=clock, own_login="Home")
    finally:
        await asyncio.to_thread(crypto.close)
        await asyncio.to_thread(store.close)


def test_a_user_of_this_server_alone(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with users(tmp_path) as known:
            new = read_new_user({"identity": {**IDENTITY, "bchLimit": 500}}, config())
            assert (new.local, new.bch_limit, new.record.access_servers) == (
                True,
                500,
                (AccessServer("Home", "wss://home.example/ws"),),
            )
            assert await add_user(known, new) == {
                "login": "Alice",
                "known": False,
                "applied": True,
                "servedHere": True,
            }
            bob = {**IDENTITY, "login": "Bob", "blockchainName": "Bob-001"}
            answer = await AddUser(config=config(), users=known).add_user({"identity": bob})
            assert answer == {"login": "Bob", "known": False, "applied": True, "servedHere": True}
            user = known.get("alice")
            assert user is not None and user.record == new.record
            with pytest.raises(UserAlreadyExists):
                await add_user(known, new)

    run(story())


def test_signed_records(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        first = ALICE.access_record([HOME, OTHER], time_ms=1000)
        second = ALICE.access_record([OTHER], time_ms=2000)
        async with users(tmp_path) as known:

            async def add(record: object) -> tuple[object, ...]:
                answer = await add_user(known, read_new_user({"record": record_payload(record)}, config()))
                return answer["known"], answer["applied"], answer["servedHere"]

            assert await add(first) == (False, True, True)
            assert await add(first) == (True, False, True)
            assert await add(second) == (True, True, False)
            with pytest.raises(BadSignature):
                await add(first._replace(time_ms=3000))
            with pytest.raises(RootKeyMismatch):
                await add(Identity.generate("alice").access_record([HOME], time_ms=4000))

    run(story())


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        ({}, BadFields),
        ({"record": None}, BadFields),
        ({"record": {}, "identity": {}}, BadFields),
        ({"record": "x"}, BadRequestFormat),
        ({"identity": []}, BadRequestFormat),
        ({"identity": {}}, BadFields),
        ({"record": IDENTITY}, BadFields),
        ({"identity": {**IDENTITY, "bchLimit": -1}}, BadFields),
    ],
)
def test_what_is_no_user(payload: dict[str, object], error: type[Refusal]) -> None:
    with pytest.raises(error):
        read_new_user(payload, config())


def test_addresses_without_encryption_are_for_trials() -> None:
    record = record_payload(ALICE.access_record([AccessServer("home", "ws://home.example/ws")], time_ms=1))
    with pytest.raises(BadFields):
        read_new_user({"record": record}, config())
    assert read_new_user({"record": record}, config(allowInsecurePeers=True)).local is False
