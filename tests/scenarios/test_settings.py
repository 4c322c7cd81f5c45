"""Two real servers of one user become equal again: settings over real links, with cuts, forgeries and restarts (§6)."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from shine_node.client.identity import Identity
from shine_node.client.messages import make_message
from shine_node.client.settings import make_setting
from shine_node.protocol.access import record_payload
from shine_node.protocol.settings import Setting, setting_payload
from shine_node.store.environment import Transaction
from shine_node.store.layout import Table
from shine_node.store.resync import next_resync
from shine_node.store.settings import get_setting, list_settings, put_setting
from tests.api.talk import Talk
from tests.store.rooms import check_indexes
from tests.support.nodes import LocalServer, eventually, now_ms, register, run
from tests.support.scripted_peer import PeerConnection, ScriptedPeer

OP = "SettingsSyncBatch"
NAMES = [f"p{number}x" for number in range(40)]
SECTIONS: dict[str, Any] = {
    "sync": {"intervalSeconds": 1},
    "storage": {"mapSizeMiB": 16},
    "server": {"pool": {"refreshSeconds": 1}},
}


class Pair:
    """Alice with her two servers."""

    def __init__(self, one: LocalServer, two: LocalServer, alice: Identity) -> None:
        self.one = one
        self.two = two
        self.alice = alice
        self._time_ms = now_ms() - 100_000

    def setting(self, param: str = "theme", value: str = "dark") -> Setting:
        """Sign a setting; each is later than the one before."""
        self._time_ms += 1
        return make_setting(self.alice, param, value, time_ms=self._time_ms)

    async def until_equal(self, *settings: Setting) -> None:
        """Wait until both servers have just these settings, and nothing to tell each other."""
        wanted = {setting.param: setting for setting in settings}

        async def equal() -> bool:
            return all(held(server) == wanted and not unsynced(server) for server in (self.one, self.two))

        await eventually(equal)
        for server in (self.one, self.two):
            with server.node.store.read() as txn:
                check_indexes(txn, server.login)


async def upsert(server: LocalServer, *settings: Setting) -> None:
    async with await server.connect() as client:
        for setting in settings:
            assert await client.request("UpsertUserParam", setting_payload(setting)) == {}


def held(server: LocalServer, login: str = "alice") -> dict[str, Setting]:
    with server.node.store.read() as txn:
        return {setting.param: setting for setting in list_settings(txn, login)}


def unsynced(server: LocalServer) -> int:
    with server.node.store.read() as txn:
        return txn.count(Table.SETTINGS_UNSYNCED)


def count_asked(monkeypatch: pytest.MonkeyPatch, server: LocalServer) -> list[dict[str, Any]]:
    """Return a list that grows with each request that a server makes for settings."""
    pool, asked = server.node.pool, []
    request = pool.request

    async def counting(to: Any, op: str, payload: Any, **options: Any) -> dict[str, Any]:
        answer = await request(to, op, payload, **options)
        if op == OP:
            asked.append({**payload, "items": len(answer["items"])})
        return answer

    monkeypatch.setattr(pool, "request", counting)
    return asked


@asynccontextmanager
async def pair_of_servers(folder: Path, **sections: Any) -> AsyncIterator[Pair]:
    one, two = (LocalServer(login, folder, **(SECTIONS | sections)) for login in ("one", "two"))
    try:
        await asyncio.gather(one.start(), two.start())
        alice = Identity.generate("Alice")
        await register(alice, (one, two))
        yield Pair(one, two, alice)
    finally:
        await asyncio.gather(one.discard(), two.discard())


def test_a_setting_of_one_server_appears_on_the_other_and_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with pair_of_servers(tmp_path) as pair:
            asked = [count_asked(monkeypatch, server) for server in (pair.one, pair.two)]
            first, second = pair.setting("first"), pair.setting("second")
            await upsert(pair.one, first)
            await upsert(pair.two, second)
            await pair.until_equal(first, second)
            changed = pair.setting("first", "changed on the other")
            await upsert(pair.two, changed)
            await pair.until_equal(changed, second)
            so_far = [len(requests) for requests in asked]

            async def some_sessions() -> bool:
                return all(len(requests) >= before + 3 for requests, before in zip(asked, so_far, strict=True))

            await eventually(some_sessions)
            assert [sum(request["items"] for request in requests) for requests in asked] == [2, 1]
            assert [sum(len(request["ackSyncIds"]) for request in requests) for requests in asked] == [2, 1]

    run(story())


def test_of_two_changes_that_were_made_apart_the_newest_is_on_both(tmp_path: Path) -> None:
    async def story() -> None:
        async with pair_of_servers(tmp_path) as pair:
            older, newer = pair.setting("theme", "older"), pair.setting("theme", "newer")
            size, colour = pair.setting("size"), pair.setting("colour")
            await pair.two.stop()
            await upsert(pair.one, newer, size)
            await pair.one.stop()
            await pair.two.start()
            await upsert(pair.two, older, colour)
            await pair.one.start()
            await pair.until_equal(newer, size, colour)

    run(story())


def test_of_two_changes_of_one_instant_both_keep_the_same(tmp_path: Path) -> None:
    async def story() -> None:
        async with pair_of_servers(tmp_path) as pair:
            at_ms = now_ms() - 5000
            twins = [make_setting(pair.alice, "theme", value, time_ms=at_ms) for value in ("dark", "light")]
            await asyncio.gather(upsert(pair.one, twins[0]), upsert(pair.two, twins[1]))
            await pair.until_equal(max(twins, key=lambda setting: setting.signature))

    run(story())


def test_a_link_that_is_lost_in_the_middle_loses_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with pair_of_servers(tmp_path, sync={"intervalSeconds": 1, "pageLimit": 1}) as pair:
            settings = [pair.setting(name) for name in NAMES]
            await pair.two.stop()
            await upsert(pair.one, *settings)
            await pair.two.start()
            cuts = 0

            async def some_have_come() -> bool:
                return len(held(pair.two)) > 10 * cuts

            for _ in range(3):
                await eventually(some_have_come)
                cuts += 1
                for connection in list(pair.one.node._endpoint._connections):
                    connection._websocket.transport.abort()
            await pair.until_equal(*settings)
            assert cuts == 3

    run(story())


def test_what_is_forged_is_refused_and_logged_and_the_good_ones_are_stored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with pair_of_servers(tmp_path) as pair:
            good = [pair.setting("first"), pair.setting("last")]
            forged = pair.setting("forged")._replace(value="not what was signed")
            others = make_setting(Identity.generate("alice"), "others", "x", time_ms=forged.time_ms)
            await pair.two.stop()
            await upsert(pair.one, good[0])
            for bad in (forged, others):  # as a server that does not check would have them
                await pair.one.node.store.write(lambda txn, bad=bad: plant(txn, bad))  # type: ignore[misc]
            await upsert(pair.one, good[1])
            await pair.two.start()

            async def come() -> bool:
                return set(held(pair.two)) >= {"first", "last"} and unsynced(pair.one) == 2

            await eventually(come)
            for _ in range(2):  # they come again in each session, and stop nothing
                more = pair.setting("first", f"at {now_ms()}")
                await upsert(pair.one, more)

                async def changed(more: Setting = more) -> bool:
                    return held(pair.two)["first"] == more and unsynced(pair.one) == 2

                await eventually(changed)
            assert set(held(pair.two)) == {"first", "last"}
            told = rf"2 of \d entries of {OP} from one were refused, the first, .*forged, because of SIGNATURE_INVALID"
            assert re.search(told, caplog.text), caplog.text

    caplog.set_level(logging.WARNING)
    run(story())


def plant(txn: Transaction, setting: Setting) -> None:
    put_setting(txn, setting, now_ms=now_ms(), own_login="one", most=1000)


def test_a_peer_that_sends_anything_gets_stored_and_acknowledged_what_is_right(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    alice, bob = Identity.generate("Alice"), Identity.generate("bob")
    at_ms = now_ms() - 5000
    good = [make_setting(alice, param, "x", time_ms=at_ms) for param in ("first", "last")]
    foreign = make_setting(bob, "foreign", "x", time_ms=at_ms)
    served = [setting_payload(setting) for setting in good]
    items = [
        {"syncId": "1", **served[0]},
        {"syncId": "truncated", **served[0], "signature": served[0]["signature"][:-4]},  # type: ignore[index]
        {"syncId": "without", "login": "Alice"},
        {"syncId": "foreign", **setting_payload(foreign)},
        {"syncId": "nobody", **served[0], "login": "nobody"},
        {**served[0]},
        "no object",
        {"syncId": "2", **served[1]},
    ]

    async def serve(connection: PeerConnection, request: dict[str, Any]) -> None:
        more = "cursor" not in request["payload"]
        await connection.answer(request, {"items": items if more else [], "cursor": "AAAA", "hasMore": False})

    async def story() -> None:
        peer = ScriptedPeer("two", {OP: serve}, capabilities=("settings-sync",))
        async with peer:
            server = LocalServer("one", tmp_path, **SECTIONS)
            try:
                await server.start()
                at_two = server.access._replace(server_login="two", url=peer.url)
                for user, homes in ((alice, [server.access, at_two]), (bob, [server.access])):
                    await server.request("AddUser", record_payload(user.access_record(homes, time_ms=at_ms - 1)))

                async def acknowledged() -> bool:
                    return any(request["payload"]["ackSyncIds"] for request in asked(peer))

                await eventually(acknowledged)
                assert held(server) == {setting.param: setting for setting in good}
                assert held(server, "bob") == {}
                assert unsynced(server) == 0
                acks = [request["payload"]["ackSyncIds"] for request in asked(peer)]
                assert next(ids for ids in acks if ids) == ["1", "2"]
                told = (
                    f"6 of 8 entries of {OP} from two were refused, the first, truncated, because of SIGNATURE_INVALID"
                )

                async def warned() -> bool:
                    return told in caplog.text

                # The warning is written once for the whole session, after the last acknowledgement.
                await eventually(warned)
            finally:
                await server.discard()

    caplog.set_level(logging.WARNING)
    run(story())


def asked(peer: ScriptedPeer) -> list[dict[str, Any]]:
    return [request for request in peer.requests if request["op"] == OP]


def test_settings_come_before_messages_and_a_peer_without_a_capability_is_not_asked(tmp_path: Path) -> None:
    async def story() -> None:
        alice = Identity.generate("Alice")
        ops = ("AccessDataSyncBatch", OP, "DmSyncBatch", "SetUserAccess")

        async def ends(connection: PeerConnection, request: dict[str, Any]) -> None:
            payload = {"items": [], "records": [], "nextSeq": 0, "cursor": "", "hasMore": False}
            await connection.answer(request, payload)

        both = ScriptedPeer("two", dict.fromkeys(ops, ends), capabilities=("dm-sync", "settings-sync"))
        plain = ScriptedPeer("three", dict.fromkeys(ops, ends))
        async with both, plain:
            server = LocalServer("one", tmp_path, **SECTIONS)
            try:
                await server.start()
                carol = Identity.generate("Carol")
                for user, peer in ((alice, both), (carol, plain)):
                    there = server.access._replace(server_login=peer.login, url=peer.url)
                    record = user.access_record([server.access, there], time_ms=now_ms() - 10)
                    await server.request("AddUser", record_payload(record))
                await both.until(lambda: len(both.requests) >= 6)
                await plain.until(lambda: len(plain.requests) >= 2)
                wanted = [request["op"] for request in both.requests if request["op"] in ops]
                assert wanted[:4] == list(ops)
                assert wanted[4:6] == list(ops[1:3]), "access records have an interval of their own"
                assert {request["op"] for request in plain.requests} == {"AccessDataSyncBatch", "SetUserAccess"}
            finally:
                await server.discard()

    run(story())


def test_a_new_other_server_gets_all_settings_and_messages_by_itself(tmp_path: Path) -> None:
    async def story() -> None:
        async with pair_of_servers(tmp_path) as pair:
            settings = [pair.setting(name) for name in NAMES]
            await upsert(pair.one, *settings)
            message = make_message(pair.alice, "alice", "to myself", time_ms=now_ms())
            await pair.one.send(message)
            await pair.until_equal(*settings)
            three = LocalServer("three", tmp_path, **SECTIONS)
            try:
                await three.start()
                record = pair.alice.access_record([pair.one.access, three.access], time_ms=now_ms())
                for server in (pair.one, three):
                    await server.request("SetUserAccess" if server is pair.one else "AddUser", record_payload(record))

                async def arrived() -> bool:
                    status = await three.request("GetDmDeliveryStatus", {"messageKey": message.outgoing_key})
                    return status["known"] and held(three) == held(pair.one) and not unsynced(pair.one)

                await eventually(arrived)
                assert len(held(three)) == len(NAMES)
                with pair.one.node.store.read() as txn:
                    assert next_resync(txn) is None
                    check_indexes(txn, "one")
            finally:
                await three.discard()

    run(story())


def test_a_server_that_was_restored_gets_back_the_settings_that_it_had_acknowledged(tmp_path: Path) -> None:
    async def story() -> None:
        async with pair_of_servers(tmp_path) as pair:
            before = pair.setting("before")
            await upsert(pair.one, before)
            await pair.until_equal(before)
            await pair.two.stop()
            backup = pair.two.store_file.read_bytes()
            await pair.two.start()
            changed, since = pair.setting("before", "changed since"), pair.setting("since")
            await upsert(pair.one, changed, since)
            await pair.until_equal(changed, since)
            await pair.two.stop()
            pair.two.store_file.write_bytes(backup)
            await pair.two.start()
            assert held(pair.two) == {"before": before}
            await pair.until_equal(changed, since)

    run(story())


def test_a_key_that_was_replaced_still_stands_for_its_time(tmp_path: Path) -> None:
    async def story() -> None:
        async with pair_of_servers(tmp_path) as pair:
            before = pair.setting("before")
            await pair.two.stop()
            await upsert(pair.one, before)
            renewed = pair.alice.with_device(Identity.generate("Alice").device)
            record = renewed.access_record([pair.one.access, pair.two.access], time_ms=now_ms())
            assert await pair.one.request("SetUserAccess", record_payload(record)) == {"applied": True}
            after = make_setting(renewed, "after", "x", time_ms=record.time_ms + 1)
            await upsert(pair.one, after)
            await pair.two.start()
            await pair.until_equal(before, after)

    run(story())


def test_a_stranger_gets_no_settings_and_a_peer_only_those_of_shared_owners(tmp_path: Path) -> None:
    async def story() -> None:
        async with pair_of_servers(tmp_path) as pair:
            await pair.two.stop()
            await upsert(pair.one, pair.setting("theme"))
            hello = {"serverLogin": "three", "protocolVersion": 1, "capabilities": ["settings-sync"]}
            async with await Talk.open(pair.one.url) as talk:
                assert await talk.refused(OP, {"ackSyncIds": [], "limit": 10}) == (422, "NOT_AUTHENTICATED")
                empty = {"items": [], "cursor": "", "hasMore": False}
                await talk.succeed("ServerHello", hello)
                assert await talk.succeed(OP, {"ackSyncIds": []}) == empty
                await talk.succeed("ServerHello", hello | {"serverLogin": "TWO"})
                assert (await talk.succeed(OP, {"ackSyncIds": [], "login": "bob"}))["items"] == []
                [item] = (await talk.succeed(OP, {"ackSyncIds": [], "login": "ALICE"}))["items"]
                with pair.one.node.store.read() as txn:
                    stored = get_setting(txn, "alice", "theme")
                assert stored is not None
                sync_id = item.pop("syncId")
                assert item == setting_payload(stored)
                await talk.succeed(OP, {"ackSyncIds": ["unknown"]})
                assert unsynced(pair.one) == 1
                await talk.succeed(OP, {"ackSyncIds": [sync_id]})
                assert unsynced(pair.one) == 0

    run(story())
