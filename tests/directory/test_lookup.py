"""Users who are looked up at peers: unknown ones, and known ones who cannot be reached (PROTOCOL.md §3)."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from shine_node.client.identity import Identity, KeyPair
from shine_node.directory import lookup as lookup_module
from shine_node.protocol.access import AccessServer, record_payload
from shine_node.protocol.errors import ServerBusy
from tests.delivery.rooms import run, until
from tests.directory.houses import (
    LOOK_UP,
    OWN_URL,
    House,
    Knows,
    as_answer,
    asked,
    cuts,
    house_in,
    record_of,
    refuses,
    soon,
)
from tests.store.rooms import NOW, OWN, identity, servers
from tests.support.scripted_peer import Behaviour, Holder, ScriptedPeer, never

BOB = record_of("Bob", "r1", "r2")


def peer(login: str, behaviour: Behaviour) -> ScriptedPeer:
    return ScriptedPeer(login, {LOOK_UP: behaviour})


def counts(*peers: ScriptedPeer) -> list[int]:
    return [len(asked(one)) for one in peers]


# --- unknown users ---


def test_who_is_known_here_is_not_looked_up(tmp_path: Path) -> None:
    async def story() -> None:
        one = peer("one", Knows())
        async with house_in(tmp_path, one) as house:
            await house.users.add(BOB)
            found = await house.lookup.find("bob")
            assert found is not None
            assert found.record == BOB
            assert counts(one) == [0]

    run(story())


def test_connected_peers_are_asked_in_turn_until_one_knows_and_all_records_are_kept(tmp_path: Path) -> None:
    old = identity("Bob").with_device(KeyPair.from_seed(bytes(32))).access_record(servers("r0"), time_ms=NOW - 9)

    async def story() -> None:
        one, two, three = peer("one", Knows()), peer("two", Knows(old, BOB)), peer("three", Knows(BOB))
        async with house_in(tmp_path, one, two, three) as house:
            found = await house.lookup.find("bob")
            assert found is not None
            assert found.record == BOB
            assert found.device_key_at(NOW - 5) == old.device_key, "superseded records count for their time"
            assert house.users.get("bob") == found
            assert house.users.routes("bob") == servers("r1", "r2")
            assert asked(one) == asked(two) == [{"login": "bob"}]
            assert counts(three) == [0]
            assert await house.lookup.find("bob") == found
            assert counts(one, two, three) == [1, 1, 0]

    run(story())


def test_at_most_three_peers_are_asked(tmp_path: Path) -> None:
    async def story() -> None:
        peers = [peer(f"peer{number}", Knows(*[BOB] * (number == 4))) for number in range(1, 5)]
        async with house_in(tmp_path, *peers) as house:
            assert await house.lookup.find("bob") is None
            assert counts(*peers) == [1, 1, 1, 0]

    run(story())


def test_the_one_that_must_know_is_asked_alone(tmp_path: Path) -> None:
    async def story() -> None:
        one, two = peer("one", Knows(BOB)), peer("Two", Knows(BOB))
        async with house_in(tmp_path, one, two) as house:
            assert await house.lookup.find_at("bob", "three") is None, "it is not connected"
            assert await house.lookup.find_at("carol", "two") is None
            found = await house.lookup.find_at("bob", "TWO")
            assert found is not None
            assert found.record == BOB
            assert await house.lookup.find_at("bob", "one") == found
            assert counts(one, two) == [0, 2]

    run(story())


def test_a_miss_is_remembered_for_thirty_seconds(tmp_path: Path) -> None:
    async def story() -> None:
        knows = Knows()
        one = peer("one", knows)
        async with house_in(tmp_path, one) as house:
            assert await house.lookup.find("bob") is None
            knows.records.append(BOB)
            await house.clock.advance(29.9)
            assert await house.lookup.find("bob") is None
            assert await house.lookup.find("carol") is None
            assert counts(one) == [2], "of bob nobody was asked again"
            await house.clock.advance(0.1)
            found = await house.lookup.find("bob")
            assert found is not None
            assert found.record == BOB

    run(story())


def test_who_becomes_known_meanwhile_is_no_miss(tmp_path: Path) -> None:
    async def story() -> None:
        one = peer("one", Knows())
        async with house_in(tmp_path, one) as house:
            assert await house.lookup.find("bob") is None
            await house.users.add(BOB)
            assert await house.lookup.find("bob") is not None

    run(story())


def test_misses_are_bounded_and_the_oldest_is_forgotten_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup_module, "MAX_MISSES", 2)

    async def story() -> None:
        one = peer("one", Knows())
        async with house_in(tmp_path, one) as house:
            for login in ("a", "b"):
                assert await house.lookup.find(login) is None
            await house.clock.advance(30)
            for login in ("a", "c", "a", "c"):
                assert await house.lookup.find(login) is None
            assert [payload["login"] for payload in asked(one)] == ["a", "b", "a", "c"], "b was the oldest"
            assert await house.lookup.find("b") is None
            assert await house.lookup.find("a") is None
            assert [payload["login"] for payload in asked(one)][4:] == ["b", "a"]

    run(story())


def test_without_a_connected_peer_nobody_is_known_and_nothing_is_remembered(tmp_path: Path) -> None:
    async def story() -> None:
        one = peer("one", Knows(BOB))
        async with house_in(tmp_path) as house, one:
            assert await house.lookup.find("bob") is None
            house.known = house.known_of(one)
            house.pool.refresh()
            await house.until_connected()
            assert await house.lookup.find("bob") is not None, "the peer came, and nobody had said no"

    run(story())


@pytest.mark.parametrize("fault", [cuts, refuses(503, "SERVER_BUSY"), refuses(500, "INTERNAL_ERROR")])
def test_no_answer_is_no_miss(tmp_path: Path, fault: Behaviour) -> None:
    async def story() -> None:
        one = peer("one", fault)
        async with house_in(tmp_path, one) as house:
            assert await house.lookup.find("bob") is None
            one.script[LOOK_UP] = Knows(BOB)
            await house.clock.advance(2)
            await house.until_connected()
            assert await house.lookup.find("bob") is not None

    run(story())


def test_a_no_counts_whatever_the_others_have_not_answered(tmp_path: Path) -> None:
    async def story() -> None:
        one, two = peer("one", Knows()), peer("two", refuses(503, "SERVER_BUSY"))
        async with house_in(tmp_path, one, two) as house:
            assert await house.lookup.find("bob") is None
            assert await house.lookup.find("bob") is None
            assert counts(one, two) == [1, 1]

    run(story())


def test_an_older_peer_that_cannot_look_up_is_not_asked_all_the_time(tmp_path: Path) -> None:
    async def story() -> None:
        one = peer("one", refuses(400, "UNKNOWN_OP"))
        async with house_in(tmp_path, one) as house:
            assert await house.lookup.find("bob") is None
            assert await house.lookup.find("bob") is None
            assert counts(one) == [1]

    run(story())


def test_a_peer_that_does_not_answer_costs_five_seconds(tmp_path: Path) -> None:
    async def story() -> None:
        one, two = peer("one", never), peer("two", Knows(BOB))
        async with house_in(tmp_path, one, two) as house:
            finding = asyncio.ensure_future(house.lookup.find("bob"))
            await one.until_asked(1)
            await house.clock.advance(4.9)
            assert not finding.done()
            assert counts(two) == [0]
            await house.clock.advance(0.1)
            assert await soon(finding) is not None

    run(story())


def test_requests_for_one_login_share_a_look_up_and_one_who_leaves_does_not_end_it(tmp_path: Path) -> None:
    async def story() -> None:
        holder = Holder()
        one = peer("one", holder)
        async with house_in(tmp_path, one) as house:
            findings = [asyncio.ensure_future(house.lookup.find("bob")) for _ in range(5)]
            await one.until_asked(1)
            findings[0].cancel()
            await asyncio.wait(findings[:1])
            await holder.answer(as_answer(BOB))
            for finding in findings[1:]:
                assert (await soon(finding)).record == BOB
            assert counts(one) == [1]

    run(story())


def test_look_ups_under_way_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup_module, "MAX_UNDER_WAY", 2)

    async def story() -> None:
        holder = Holder()
        one = peer("one", holder)
        async with house_in(tmp_path, one) as house:
            findings = [asyncio.ensure_future(house.lookup.find(login)) for login in ("bob", "carol")]
            await one.until_asked(1)
            with pytest.raises(ServerBusy) as busy:
                await house.lookup.find("dave")
            assert busy.value.payload["retryAfterMs"]
            shared = asyncio.ensure_future(house.lookup.find("bob"))
            await holder.answer(as_answer(BOB))
            assert await soon(shared) is not None, "who waits for a look-up that goes on begins none"
            await one.until_asked(2)
            await holder.answer({"exists": False})
            assert await soon(findings[1]) is None
            finding = asyncio.ensure_future(house.lookup.find("dave"))
            await one.until_asked(3)
            await holder.answer({"exists": False})
            assert await soon(finding) is None

    run(story())


def test_who_was_found_and_could_not_be_stored_is_not_said_to_be_nobody(tmp_path: Path) -> None:
    async def story() -> None:
        one = peer("one", Knows(BOB))
        async with house_in(tmp_path, one) as house:
            house.store.busy = True
            with pytest.raises(ServerBusy):
                await house.lookup.find("bob")
            house.store.busy = False
            assert await house.lookup.find("bob") is not None, "it was no miss"

    run(story())


FORGED = Identity.generate("bob").access_record(servers("evil"), time_ms=NOW)._replace(login="bob")
WRONG: dict[str, dict[str, Any]] = {
    "another login": as_answer(record_of("carol", "evil")),
    "another login in the history": {**as_answer(BOB), "history": [record_payload(record_of("carol", "evil"))]},
    "no signature": {**as_answer(BOB), "signatureB64": None},
    "a signature of another": as_answer(FORGED._replace(solana_key=BOB.solana_key)),
    "another url": as_answer(BOB._replace(access_servers=servers("evil"))),
    "ahead of the clock": as_answer(record_of("bob", "evil", time_ms=NOW + 16 * 60_000)),
    "no record at all": {"exists": True},
    "no list": {**as_answer(BOB), "history": {}},
    "no record in the list": {**as_answer(BOB), "history": ["bob"]},
    "not a yes": {**as_answer(BOB), "exists": "yes"},
    "a user of that server alone": as_answer(record_of("bob", "evil")._replace(signature=b"")),
}


@pytest.mark.parametrize("answer", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_answer_changes_nothing_and_is_as_good_as_a_no(tmp_path: Path, answer: dict[str, Any]) -> None:
    async def story() -> None:
        knows = Knows()
        knows.answers["bob"] = answer
        one = peer("one", knows)
        async with house_in(tmp_path, one) as house:
            assert await house.lookup.find("bob") is None
            assert house.records == 0
            assert await house.lookup.find("bob") is None
            assert counts(one) == [1]

    run(story())


def test_after_a_wrong_answer_the_next_peer_is_asked(tmp_path: Path) -> None:
    async def story() -> None:
        knows = Knows()
        knows.answers["bob"] = WRONG["another url"]
        one, two = peer("one", knows), peer("two", Knows(BOB))
        async with house_in(tmp_path, one, two) as house:
            found = await house.lookup.find("bob")
            assert found is not None
            assert found.record == BOB

    run(story())


def test_a_record_makes_nobody_a_user_of_a_server_that_does_not_take_anyone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    here, gone = record_of("bob", OWN, time_ms=NOW - 5), record_of("bob", "r1")
    came = record_of("carol", "r1", OWN)

    async def story() -> None:
        one = peer("one", Knows(here, gone, came))
        async with house_in(tmp_path, one) as house:
            house.takes_anyone = False
            assert await house.lookup.find("carol") is None
            assert house.users.get("carol") is None
            found = await house.lookup.find("bob")
            assert found is not None, "who is elsewhere now is known now"
            assert found.record == gone
            assert house.users.records("bob") == [gone]
            house.takes_anyone = True
            await house.clock.advance(30)
            carol = await house.lookup.find("carol")
            assert carol is not None
            assert house.users.is_here(carol)

    run(story())
    assert any("not registered here" in record.getMessage() for record in caplog.records)


# --- known users who cannot be reached ---


async def bob_is_known(house: House, *places: ScriptedPeer) -> None:
    """Take a record of bob's that names these servers, at their true places."""
    named = [AccessServer(place.login, place.url) for place in places]
    await house.users.add(identity("bob").access_record(named, time_ms=NOW - 100))


def test_newer_records_are_looked_for_at_the_last_servers_and_at_the_configured_ones(tmp_path: Path) -> None:
    async def story() -> None:
        last, chosen, other = peer("last", Knows()), peer("chosen", Knows(BOB)), peer("other", Knows(BOB))
        async with house_in(tmp_path, last, chosen, other) as house:
            house.configured = [AccessServer("chosen", chosen.url), AccessServer(OWN, OWN_URL)]
            await bob_is_known(house, last)
            house.lookup.refresh_soon("bob")
            assert house.users.routes("bob") == (AccessServer("last", last.url),), "it does not wait"
            await until(lambda: house.users.routes("bob") == servers("r1", "r2"))
            assert asked(last) == asked(chosen) == [{"login": "bob"}]
            assert counts(other) == [0]

    run(story())


def test_a_server_that_is_named_twice_is_asked_once_where_the_configuration_says(tmp_path: Path) -> None:
    async def story() -> None:
        claimed, true = peer("one", Knows()), peer("one", Knows(BOB))
        async with claimed, house_in(tmp_path, true) as house:
            house.configured = [AccessServer("ONE", true.url)]
            await bob_is_known(house, claimed)
            house.lookup.refresh_soon("bob")
            await until(lambda: house.users.routes("bob") == servers("r1", "r2"))
            assert counts(claimed, true) == [0, 1]

    run(story())


def test_one_user_is_looked_up_once_at_a_time(tmp_path: Path) -> None:
    async def story() -> None:
        holder = Holder()
        one = peer("one", holder)
        async with house_in(tmp_path, one) as house:
            await bob_is_known(house, one)
            for _ in range(3):
                house.lookup.refresh_soon("bob")
            await one.until_asked(1)
            house.lookup.refresh_soon("bob")
            await holder.answer(as_answer(BOB))
            await until(lambda: house.users.routes("bob") == servers("r1", "r2"))
            assert counts(one) == [1]

    run(story())


def test_whoever_is_over_the_bound_waits_for_a_turn_or_for_the_next_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup_module, "MAX_UNDER_WAY", 1)
    monkeypatch.setattr(lookup_module, "MAX_WAITING", 2)

    async def story() -> None:
        holder = Holder()
        one = peer("one", holder)
        async with house_in(tmp_path, one) as house:
            house.configured = [AccessServer("one", one.url)]
            for login in ("a", "b", "c"):
                house.lookup.refresh_soon(login)
            await one.until_asked(1)
            await holder.answer({"exists": False})
            await one.until_asked(2)
            await holder.answer({"exists": False})
            await until(lambda: not house.lookup._refreshing)
            assert [payload["login"] for payload in asked(one)] == ["a", "b"], "c comes with its next attempt"

    run(story())


def test_a_look_up_that_comes_to_nothing_is_harmless(tmp_path: Path) -> None:
    async def story() -> None:
        one, two, three = peer("one", cuts), peer("two", Knows(BOB)), peer("three", Knows())
        three.script[LOOK_UP] = refuses(429, "RATE_LIMITED")
        async with house_in(tmp_path, one, two, three) as house:
            await bob_is_known(house, one, two)
            house.configured = [AccessServer("three", three.url), AccessServer("four", "no url")]
            before = house.users.routes("bob")
            house.store.busy = True
            house.lookup.refresh_soon("bob")
            await until(lambda: counts(one, two, three) == [1, 1, 1] and not house.lookup._refreshing)
            assert house.users.routes("bob") == before
            house.store.busy = False
            house.lookup.refresh_soon("bob")
            await until(lambda: house.users.routes("bob") == servers("r1", "r2"))

    run(story())


def test_the_end_ends_what_is_under_way(tmp_path: Path) -> None:
    async def story() -> None:
        one = peer("one", never)
        async with house_in(tmp_path, one) as house:
            house.configured = [AccessServer("one", one.url)]
            finding = asyncio.ensure_future(house.lookup.find("bob"))
            house.lookup.refresh_soon("carol")
            await one.until_asked(1)
            await house.lookup.close()
            with pytest.raises(asyncio.CancelledError):
                await soon(finding)

    run(story())
