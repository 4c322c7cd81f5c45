"""Events over real sockets: who is told what, by which name, and in which order."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from shine_node.client.identity import Identity
from shine_node.client.messages import SignedPair, make_edit, make_message, make_receipt, make_tombstone
from shine_node.protocol.access import record_payload
from tests.api.talk import node
from tests.support.devices import Device
from tests.support.events import changed, incoming, outgoing
from tests.support.nodes import LocalServer, now_ms, register, run, servers


class House:
    """One server with people, and devices of theirs."""

    def __init__(self, server: LocalServer, people: dict[str, Identity], stack: AsyncExitStack) -> None:
        self.server = server
        self.people = people
        self._stack = stack

    async def device(self, login: str) -> Device:
        return await self._stack.enter_async_context(Device(self.server, self.people[login]))

    def writes(self, login: str, to: str, body: str = "hello") -> SignedPair:
        return make_message(self.people[login], to, body, time_ms=now_ms())


@asynccontextmanager
async def house(folder: Path, *logins: str, **sections: Any) -> AsyncIterator[House]:
    async with node(folder, **sections) as server, AsyncExitStack() as stack:
        people = {login.lower(): Identity.generate(login) for login in logins}
        for person in people.values():
            await register(person, [server])
        yield House(server, people, stack)


def test_a_message_between_users_of_one_server(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(tmp_path, "Alice", "Bob", "carol") as here:
            phone, desk = await here.device("alice"), await here.device("alice")
            bob, carol = await here.device("bob"), await here.device("carol")
            pair = here.writes("alice", "BOB")
            for _ in range(2):  # a repetition changes nothing, and nobody is told of it
                assert await phone.send(pair) == "delivered"
            assert await bob.events(1) == [incoming(pair, "Alice")]
            assert await desk.events(1) == [outgoing(pair, "Bob", "delivered")]
            for device in (phone, desk, bob, carol):
                assert await device.silent()

    run(story())


def test_receipts_edits_and_tombstones_are_told_like_messages(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(tmp_path, "alice", "bob") as here:
            alice, bob = here.people["alice"], here.people["bob"]
            phone, desk, other = await here.device("alice"), await here.device("alice"), await here.device("bob")
            pair = here.writes("alice", "bob")
            edit = make_edit(alice, pair.message, "hello!", revision_ms=pair.message.time_ms + 1)
            receipt = make_receipt(bob, pair.message, time_ms=now_ms())
            tombstone = make_tombstone(alice, pair.message, time_ms=now_ms())
            for mine in (pair, edit, tombstone):
                await phone.send(mine)
            await other.send(receipt)
            assert await other.events(3) == [incoming(mine, "alice") for mine in (pair, edit, tombstone)]
            assert await desk.events(4) == [
                *(outgoing(mine, "bob", "delivered") for mine in (pair, edit, tombstone)),
                incoming(receipt, "bob"),
            ]
            assert await phone.events(1) == [incoming(receipt, "bob")]
            for device in (phone, desk, other):
                assert await device.silent()

    run(story())


def test_a_message_to_oneself_is_told_in_both_directions(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(tmp_path, "alice") as here:
            phone, desk = await here.device("alice"), await here.device("alice")
            pair = here.writes("alice", "alice")
            await phone.send(pair)
            assert await phone.events(1) == [incoming(pair, "alice")]
            assert await desk.events(2) == [outgoing(pair, "alice", "delivered"), incoming(pair, "alice")]

    run(story())


def test_a_state_that_devices_were_told_is_told_anew_when_it_changes(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(tmp_path, "alice", delivery={"scheduleSeconds": [0, 600]}) as here:
            alice = here.people["alice"]
            nowhere = Identity.generate("bob")
            await here.server.request("AddUser", record_payload(nowhere.access_record([], time_ms=now_ms())))
            phone, desk = await here.device("alice"), await here.device("alice")
            pair = here.writes("alice", "bob")
            assert await phone.send(pair) == "accepted"
            tombstone = make_tombstone(alice, pair.message, time_ms=now_ms())
            assert await phone.send(tombstone) == "accepted"
            assert await phone.events(1) == [changed(pair, "delivered")]
            assert await desk.events(3) == [
                outgoing(pair, "bob", "accepted"),
                outgoing(tombstone, "bob", "accepted"),
                changed(pair, "delivered"),
            ]

    run(story())


def test_an_edit_of_what_was_delivered_begins_anew(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(LocalServer, tmp_path, "one", "two", storage={"mapSizeMiB": 16}) as (one, two):
            alice, bob = Identity.generate("alice"), Identity.generate("bob")
            await register(alice, [one], known_at=[two])
            await register(bob, [two], known_at=[one])
            async with Device(one, alice) as phone, Device(one, alice) as desk, Device(two, bob) as other:
                pair = make_message(alice, "bob", "hello", time_ms=now_ms())
                assert await phone.send(pair) == "delivered"
                assert await desk.events(2) == [outgoing(pair, "bob", "accepted"), changed(pair, "delivered")]
                assert await phone.events(1) == [changed(pair, "delivered")]
                edit = make_edit(alice, pair.message, "hello!", revision_ms=now_ms() + 1)
                assert await phone.send(edit) == "delivered"
                states = [changed(pair, "accepted"), changed(pair, "delivered")]
                assert await desk.events(3) == [outgoing(edit, "bob", "accepted"), *states]
                assert await phone.events(2) == states
                assert await other.events(2) == [incoming(pair, "alice"), incoming(edit, "alice")]

    run(story())


def test_whoever_is_not_known_here_is_named_as_the_key_has_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(tmp_path, "alice") as here, Device(here.server, here.people["alice"]) as alice:
            pair = here.writes("alice", "Stranger")
            await here.server.request("ReceiveOutcomingMessage", pair.payload)
            assert await alice.events(1) == [outgoing(pair, "stranger", "accepted")]

    run(story())


def test_where_nobody_listens_nothing_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with house(tmp_path, "alice", "bob") as here:
            monkeypatch.setattr("shine_node.api.events.Events._tell", None)
            assert await here.server.send(here.writes("alice", "bob")) == "delivered"

    run(story())


def test_a_new_device_key_ends_the_sessions_of_the_old_one_and_whoever_brings_it_is_answered(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(tmp_path, "alice", "bob") as here:
            phone, desk, bob = await here.device("alice"), await here.device("alice"), await here.device("bob")
            alice = here.people["alice"]
            moved = alice.access_record([here.server.access], time_ms=now_ms() + 1)
            assert await phone.request("SetUserAccess", **record_payload(moved)) == {"applied": True}
            assert len((await phone.request("ListSessions"))["sessions"]) == 2, "the same key: nothing ends"
            anew = alice.with_device(Identity.generate("alice").device)
            record = anew.access_record([here.server.access], time_ms=now_ms() + 2)
            assert await phone.request("SetUserAccess", **record_payload(record)) == {"applied": True}
            for device in (phone, desk):
                assert "1008: the device key was replaced" in await device.loss()
            assert await bob.silent()
            here.people["alice"] = anew
            again = await here.device("alice")
            assert len((await again.request("ListSessions"))["sessions"]) == 1

    run(story())
