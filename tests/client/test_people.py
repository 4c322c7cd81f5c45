"""The users that an account deals with: whose records hold, and whose keys are believed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shine_node.client import people as module
from shine_node.client.identity import Identity, KeyPair
from shine_node.client.people import (
    BadPerson,
    People,
    PersonError,
    PersonUnknown,
    RecordReplaced,
    RootKeyChanged,
    parse_person,
)
from shine_node.protocol.access import AccessRecord, AccessServer, record_payload
from tests.client.scripted import scripted
from tests.support.clock import ManualClock
from tests.support.nodes import LocalServer, register, run, servers

HOME = AccessServer("home", "wss://home.example/ws")
BOB = Identity.generate("Bob")
SECOND = BOB.with_device(KeyPair.from_seed(b"\2" * 32))
NOW_MS = 1_774_700_000_000


def answer(newest: AccessRecord, *older: AccessRecord) -> dict[str, Any]:
    return {"exists": True, **record_payload(newest), "history": [record_payload(record) for record in older]}


FIRST = BOB.access_record([HOME], time_ms=NOW_MS)
NEWER = SECOND.access_record([HOME], time_ms=NOW_MS + 5)


class Pins:
    """What was pinned."""

    def __init__(self) -> None:
        self.keys: dict[str, bytes] = {}
        self.times: dict[str, int] = {}

    async def __call__(self, login: str, key: bytes, time_ms: int) -> None:
        self.keys[login] = key
        self.times[login] = time_ms


def test_the_keys_of_all_times() -> None:
    user = parse_person(answer(NEWER, FIRST), "bob")
    assert user.record == NEWER
    assert user.device_key_at(NOW_MS + 4) == BOB.device.public
    assert user.device_key_at(NOW_MS + 5) == SECOND.device.public


def test_nobody() -> None:
    with pytest.raises(PersonUnknown, match="nobody is known as bob"):
        parse_person({"exists": False}, "bob")


@pytest.mark.parametrize(
    "wrong",
    [
        answer(FIRST._replace(time_ms=NOW_MS + 1)),
        answer(FIRST._replace(signature=b"")),
        answer(NEWER, FIRST._replace(time_ms=1)),
        answer(NEWER, Identity.generate("bob").access_record([HOME], time_ms=1)),
        answer(Identity.generate("carol").access_record([HOME], time_ms=1)),
        {"exists": True},
        {**answer(FIRST), "history": [7]},
        {**answer(FIRST), "history": 7},
    ],
)
def test_records_that_do_not_hold(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadPerson, match="no properly signed record of bob"):
        parse_person(wrong, "bob")


def test_a_real_node_and_one_that_it_asks(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(LocalServer, tmp_path, "away") as (away,):
            peers = [{"login": "away", "url": away.url}]
            async with servers(LocalServer, tmp_path, "home", sync_servers=peers) as (home,):  # type: ignore[arg-type]
                await register(BOB, [away])
                pins = Pins()
                people = People({}, pins, clock=ManualClock())
                async with await home.connect() as client:
                    user = await people.find(client, "BOB")
                    assert user.record.device_key == BOB.device.public
                    assert pins.keys == {"bob": BOB.root.public}
                    with pytest.raises(PersonUnknown):
                        await people.find(client, "nobody")

    run(story())


def test_a_root_key_counts_for_good() -> None:
    stranger = answer(Identity.generate("bob").access_record([HOME], time_ms=NOW_MS + 9))
    given = [answer(FIRST), stranger]

    async def story() -> None:
        pins, clock = Pins(), ManualClock()
        async with scripted({"GetUserAccess": lambda payload: given.pop(0)}) as client:
            people = People({}, pins, clock=clock)
            await people.find(client, "bob")
            await clock.advance(31)
            with pytest.raises(RootKeyChanged, match="bob has another root key than before"):
                await people.find(client, "bob", at_most_seconds_old=30)
            assert pins.keys == {"bob": BOB.root.public}
        async with scripted({"GetUserAccess": lambda payload: stranger}) as client:
            with pytest.raises(RootKeyChanged):
                await People(pins.keys, pins, clock=clock).find(client, "Bob")

    run(story())


def test_a_record_that_was_replaced_is_not_taken_again() -> None:
    given = [answer(FIRST), answer(NEWER, FIRST), answer(FIRST), answer(NEWER, FIRST)]

    async def story() -> None:
        pins, clock = Pins(), ManualClock()
        async with scripted({"GetUserAccess": lambda payload: given.pop(0)}) as client:
            people = People({}, pins, clock=clock)
            assert (await people.find(client, "bob")).record == FIRST
            assert pins.times == {"bob": NOW_MS}
            assert (await people.find(client, "bob", at_most_seconds_old=-1)).record == NEWER
            assert pins.times == {"bob": NOW_MS + 5}
            with pytest.raises(RecordReplaced, match="only an older record of Bob than was seen before"):
                await people.find(client, "bob", at_most_seconds_old=-1)
            await clock.advance(31)
            assert (await people.find(client, "bob")).record == NEWER
        async with scripted({"GetUserAccess": lambda payload: answer(FIRST)}) as client:
            later = People(pins.keys, pins, clock=clock, record_times=pins.times)
            with pytest.raises(RecordReplaced):
                await later.find(client, "bob")
            freed = People({}, pins, clock=clock, record_times=pins.times)
            assert (await freed.find(client, "bob")).record == FIRST  # whose root key was removed begins anew

    run(story())


def test_nobody_is_asked_twice_without_need(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def give(payload: dict[str, Any]) -> dict[str, Any]:
        asked.append(payload["login"])
        return answer(FIRST) if payload["login"] == "bob" else {"exists": False}

    async def story() -> None:
        clock = ManualClock()
        people = People({}, Pins(), clock=clock)
        script = {"GetUserAccess": give, "GetUser": lambda payload: {"exists": False}}
        async with scripted(script) as client:
            for _ in range(2):
                await people.find(client, "bob")
                with pytest.raises(PersonError):
                    await people.find(client, "eve")
            assert asked == ["bob", "eve", "eve"]
            await people.find(client, "bob", at_most_seconds_old=0)
            await clock.advance(31)
            await people.find(client, "bob")
            assert asked == ["bob", "eve", "eve"]
            await people.find(client, "bob", at_most_seconds_old=30)
            with pytest.raises(PersonError):
                await people.find(client, "eve")
            assert asked[3:] == ["bob", "eve", "eve"]
            monkeypatch.setattr(module, "MOST_REMEMBERED", 2)
            with pytest.raises(PersonError):
                await people.find(client, "mallory")
            await people.find(client, "bob")
            assert asked[6:] == ["mallory", "mallory", "bob"]

    run(story())
