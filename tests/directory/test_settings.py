"""The way in for settings: from clients and from the owner's other server, the checks in their order."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from shine_node.client.identity import Identity
from shine_node.client.settings import make_setting
from shine_node.directory import settings as settings_module
from shine_node.directory.settings import MAX_MERGED, MAX_SETTINGS_A_USER, Settings
from shine_node.protocol.container import CLIENT_AHEAD_MS, PEER_AHEAD_MS
from shine_node.protocol.errors import (
    BadFields,
    NotAccessServer,
    Refusal,
    ServerBusy,
    TooLarge,
    UserNotFound,
)
from shine_node.protocol.settings import (
    DeviceKeyMismatch,
    SignatureInvalid,
    parse_setting,
    setting_payload,
)
from shine_node.store.layout import Table
from tests.delivery.rooms import run
from tests.directory.houses import LOOK_UP, House, Knows, asked, house_in, record_of
from tests.store.rooms import NOW, OWN, check_indexes, identity
from tests.support.scripted_peer import ScriptedPeer

OTHER = "other.server"
MAX_VALUE = 100
ALICE = identity("Alice")
NEW_DEVICE = Identity.generate("Alice").device


def signed(
    user: Identity = ALICE, param: str = "theme", *, time_ms: int = NOW, value: str = "dark"
) -> dict[str, object]:
    """Return the payload of a setting that its user has signed."""
    return setting_payload(make_setting(user, param, value, time_ms=time_ms))


class Room:
    """The settings of a server where Alice has a record with this server and another one."""

    def __init__(self, house: House, max_value_bytes: int = MAX_VALUE) -> None:
        self.house = house
        self.settings = Settings(
            store=house.store,
            crypto=house.crypto,
            users=house.users,
            lookup=house.lookup,
            clock=house.clock,
            max_value_bytes=max_value_bytes,
        )

    async def submit(self, payload: dict[str, object], *, ask_peers: bool = True) -> bool:
        return await self.settings.submit(payload, ask_peers=ask_peers)

    async def refused(self, payload: dict[str, object], error: type[Refusal], *, learn: bool = False) -> None:
        """Try what is refused, and check that it has changed nothing."""
        before = self.stored
        with pytest.raises(error):
            await (self.settings.learn(OTHER, payload) if learn else self.submit(payload))
        assert self.stored == before

    @property
    def stored(self) -> list[bytes]:
        """All that is stored of settings."""
        with self.house.store.read() as txn:
            check_indexes(txn)
            return [part for row in txn.scan(Table.SETTINGS) for part in row] + self.unsynced

    @property
    def unsynced(self) -> list[bytes]:
        """The names that the other server has not acknowledged."""
        with self.house.store.read() as txn:
            return [row[len(OTHER) + 9 :] for row in txn.scan_keys(Table.SETTINGS_UNSYNCED)]

    def value(self, param: str = "theme") -> str | None:
        setting = self.settings.get("alice", param)
        return setting.value if setting is not None else None


@asynccontextmanager
async def room(folder: Path, *peers: ScriptedPeer) -> AsyncIterator[Room]:
    async with house_in(folder, *peers) as house:
        await house.users.add(record_of("Alice", OWN, OTHER, time_ms=NOW - 1000))
        yield Room(house)


def test_a_setting_of_a_client_is_stored_and_has_to_be_told(tmp_path: Path) -> None:
    async def story() -> None:
        async with room(tmp_path) as r:
            assert r.value() is None
            assert await r.submit(signed()) is True
            assert r.settings.get("alice", "theme") == parse_setting(signed(), max_value_bytes=MAX_VALUE)
            assert r.unsynced == [b"alice\0theme"]
            assert await r.submit(signed(time_ms=NOW - 1, value="older")) is False
            assert r.value() == "dark"

    run(story())


def test_a_setting_from_the_other_server_is_stored_and_need_not_be_told(tmp_path: Path) -> None:
    async def story() -> None:
        async with room(tmp_path) as r:
            await r.settings.learn(OTHER, signed())
            assert r.value() == "dark"
            assert r.unsynced == []
            await r.settings.learn(OTHER, signed(value="newer", time_ms=NOW + 1))
            assert r.value() == "newer"
            await r.settings.learn("third.server", signed(param="from.elsewhere"))
            assert r.unsynced == [b"alice\0from.elsewhere"]

    run(story())


@pytest.mark.parametrize("learn", [False, True], ids=["client", "peer"])
def test_what_is_refused(tmp_path: Path, learn: bool) -> None:
    bob, carol = identity("bob"), identity("carol")
    good = signed()

    async def story() -> None:
        async with room(tmp_path) as r:
            await r.house.users.add(record_of("bob", OTHER))
            for payload, error in (
                (good | {"param": "1"}, BadFields),
                (good | {"value": "x" * (MAX_VALUE + 1)}, TooLarge),
                (signed(carol), UserNotFound),
                (signed(bob), NotAccessServer),
                (good | {"value": "light"}, SignatureInvalid),
                (good | {"login": "alice"}, SignatureInvalid),
                (good | {"signature": signed(value="light")["signature"]}, SignatureInvalid),
                (good | {"signature": "AAAA"}, SignatureInvalid),
                (good | {"device_key": signed(bob)["device_key"]}, DeviceKeyMismatch),
                (good | {"device_key": "AAAA", "value": "light"}, DeviceKeyMismatch),
            ):
                await r.refused(payload, error, learn=learn)
            await r.submit(good)
            await r.refused(good | {"value": "light", "time_ms": NOW - 5}, SignatureInvalid, learn=learn)

    run(story())


@pytest.mark.parametrize(("learn", "ahead_ms"), [(False, CLIENT_AHEAD_MS), (True, PEER_AHEAD_MS)])
def test_the_clock_of_clients_and_of_peers(tmp_path: Path, learn: bool, ahead_ms: int) -> None:
    async def story() -> None:
        async with room(tmp_path) as r:
            await r.refused(signed(time_ms=NOW + ahead_ms + 1), BadFields, learn=learn)
            latest = signed(time_ms=NOW + ahead_ms)
            await (r.settings.learn(OTHER, latest) if learn else r.submit(latest))
            assert r.value() == "dark"

    run(story())


def test_a_list_of_blocked_users_is_bounded_for_clients_and_taken_from_the_other_server(tmp_path: Path) -> None:
    async def story() -> None:
        async with house_in(tmp_path) as house:
            await house.users.add(record_of("Alice", OWN, OTHER, time_ms=NOW - 1000))
            r = Room(house, 65536)
            await r.refused(signed(param="blocked", value="\n" * 65536), TooLarge)
            assert await r.submit(signed(value="\n" * 65536)), "another setting may hold anything"
            await r.settings.learn(OTHER, signed(param="blocked", value="eve" + "\n" * 65533))
            assert len(r.value("blocked") or "") == 65536
            assert await r.submit(signed(param="blocked", value="eve", time_ms=NOW + 1))

    run(story())


def test_a_wrong_clock_is_found_before_it_is_asked_who_the_user_is(tmp_path: Path) -> None:
    async def story() -> None:
        peer = ScriptedPeer(script={LOOK_UP: Knows()})
        async with room(tmp_path, peer) as r:
            await r.refused(signed(identity("bob"), time_ms=NOW + CLIENT_AHEAD_MS + 1), BadFields)
            assert asked(peer) == []

    run(story())


def test_peers_are_asked_for_a_client_and_never_for_a_peer(tmp_path: Path) -> None:
    bob = identity("bob")

    async def story() -> None:
        peer = ScriptedPeer(script={LOOK_UP: Knows(record_of("bob", OWN, time_ms=NOW))})
        async with room(tmp_path, peer) as r:
            with pytest.raises(UserNotFound):
                await r.submit(signed(bob), ask_peers=False)
            with pytest.raises(UserNotFound):
                await r.settings.learn(OTHER, signed(bob))
            assert asked(peer) == []
            assert await r.submit(signed(bob)) is True
            assert asked(peer) == [{"login": "bob"}]
            assert (await r.settings.owner("bob", ask_peers=False)).key == "bob"

    run(story())


def test_a_key_that_was_replaced(tmp_path: Path) -> None:
    """From a client the key of its time counts, and only if it is the newest one; from a peer the key of its time."""
    before, after = signed(param="before"), signed(ALICE.with_device(NEW_DEVICE), "after", time_ms=NOW + 10)

    async def story() -> None:
        async with room(tmp_path) as r:
            await r.submit(before)
            record = ALICE.with_device(NEW_DEVICE).access_record(
                record_of("Alice", OWN, OTHER).access_servers, time_ms=NOW + 5
            )
            assert await r.house.users.add(record)
            await r.refused(signed(param="late"), DeviceKeyMismatch)
            await r.refused(signed(param="late", time_ms=NOW + 5), DeviceKeyMismatch)
            await r.refused(signed(ALICE.with_device(NEW_DEVICE), "early"), DeviceKeyMismatch)
            await r.refused(signed(ALICE.with_device(NEW_DEVICE), "early"), DeviceKeyMismatch, learn=True)
            await r.refused(signed(param="late", time_ms=NOW + 5), DeviceKeyMismatch, learn=True)
            assert await r.submit(after) is True
            assert await r.submit(before) is False, "what is stored already is a success"
            await r.settings.learn(OTHER, signed(param="late"))
            await r.settings.learn(OTHER, signed(param="first", time_ms=0))
            assert [r.value(param) for param in ("before", "after", "late", "first")] == ["dark"] * 4
            assert r.unsynced == [b"alice\0after", b"alice\0before"]

    run(story())


def test_the_number_of_names_leaves_room_for_what_two_servers_have_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MAX_MERGED == 2 * MAX_SETTINGS_A_USER
    monkeypatch.setattr(settings_module, "MAX_SETTINGS_A_USER", 2)
    monkeypatch.setattr(settings_module, "MAX_MERGED", 4)

    async def story() -> None:
        async with room(tmp_path) as r:
            for param in ("a", "b"):
                await r.submit(signed(param=param))
            await r.refused(signed(param="c"), TooLarge)
            for param in ("c", "d"):
                await r.settings.learn(OTHER, signed(param=param))
            await r.refused(signed(param="e"), TooLarge, learn=True)
            assert await r.submit(signed(param="d", time_ms=NOW + 1)) is True

    run(story())


def test_a_store_that_has_no_time_refuses(tmp_path: Path) -> None:
    async def story() -> None:
        async with room(tmp_path) as r:
            r.house.store.busy = True
            await r.refused(signed(), ServerBusy)
            r.house.store.busy = False
            assert await r.submit(signed()) is True

    run(story())
