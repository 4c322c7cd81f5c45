"""Access records travel between servers: both sides of ``AccessDataSyncBatch`` (PROTOCOL.md §3)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import orjson
import pytest

from shine_node.client.identity import Identity
from shine_node.directory import sharing as sharing_module
from shine_node.directory import users as users_module
from shine_node.directory.sharing import MAX_RECORD_BYTES, AccessPull, Pulled, access_page
from shine_node.peers.directory import KnownPeer
from shine_node.peers.turns import Ending, Turn
from shine_node.protocol.access import AccessRecord, AccessServer, record_payload
from shine_node.protocol.errors import BadFields, BadRequestFormat, LinkLost, ServerBusy
from shine_node.store.environment import Transaction
from shine_node.store.layout import Table
from shine_node.store.refill import begin_refill, list_refilling
from shine_node.store.users import add_record
from tests.delivery.rooms import run
from tests.directory.houses import House, asked, cuts, house_in, record_of, refuses, soon
from tests.store.rooms import NOW, OWN, identity, opened
from tests.support.scripted_peer import PeerConnection, ScriptedPeer

OP = "AccessDataSyncBatch"
ALL = 10**9


# --- the side that gives ---


def learn(txn: Transaction, *records: AccessRecord) -> None:
    for record in records:
        add_record(txn, record, local=not record.signature)


def local(login: str) -> AccessRecord:
    return record_of(login, OWN, time_ms=0)._replace(signature=b"")


def page(txn: Transaction, after_seq: int, limit: int = 100, max_bytes: int = ALL) -> tuple[list[Any], Any, Any]:
    answer = access_page(txn, after_seq=after_seq, limit=limit, max_bytes=max_bytes)
    assert set(answer) == {"records", "nextSeq", "hasMore"}
    records = answer["records"]
    assert isinstance(records, list)
    return records, answer["nextSeq"], answer["hasMore"]


def payloads(*records: AccessRecord) -> list[dict[str, object]]:
    return [record_payload(record) for record in records]


def test_records_come_in_the_order_in_which_they_were_learned_superseded_ones_too(tmp_path: Path) -> None:
    newer, bob, older = record_of("alice", "a2"), record_of("Bob", "b1"), record_of("alice", "a1", time_ms=NOW - 5)
    with opened(tmp_path / "shine.mdb") as store:
        store.write_now(lambda txn: learn(txn, newer, bob, older, bob))
        with store.read() as txn:
            assert page(txn, 0) == (payloads(newer, bob, older), 3, False)
            assert page(txn, 0, limit=3) == (payloads(newer, bob, older), 3, False)
            assert page(txn, 0, limit=2) == (payloads(newer, bob), 2, True)
            assert page(txn, 2, limit=2) == (payloads(older), 3, False)
            assert page(txn, 3) == ([], 3, False)


def test_users_of_this_server_alone_are_passed_over(tmp_path: Path) -> None:
    bob = record_of("bob", "b1")
    with opened(tmp_path / "shine.mdb") as store:
        store.write_now(lambda txn: learn(txn, local("alice"), bob, local("carol"), local("dave")))
        with store.read() as txn:
            assert page(txn, 0) == (payloads(bob), 4, False)
            assert page(txn, 0, limit=1) == ([], 1, True)
            assert page(txn, 1, limit=1) == (payloads(bob), 2, True)
            assert page(txn, 2, limit=1) == ([], 3, True)
            assert page(txn, 3, limit=1) == ([], 4, False)


def test_a_page_ends_at_its_bytes_and_holds_one_record_in_any_case(tmp_path: Path) -> None:
    records = [record_of(f"user{number}", "r1", "r2") for number in range(4)]
    size = len(orjson.dumps(record_payload(records[0])))
    with opened(tmp_path / "shine.mdb") as store:
        store.write_now(lambda txn: learn(txn, *records))
        with store.read() as txn:
            assert page(txn, 0, max_bytes=size * 2) == (payloads(*records[:2]), 2, True)
            assert page(txn, 2, max_bytes=size * 2) == (payloads(*records[2:]), 4, False)
            assert page(txn, 0, max_bytes=size * 2 - 1) == (payloads(records[0]), 1, True)
            assert page(txn, 0, max_bytes=1) == (payloads(records[0]), 1, True)


def test_a_server_that_has_not_come_so_far_says_so(tmp_path: Path) -> None:
    with opened(tmp_path / "shine.mdb") as store:
        with store.read() as txn:
            assert page(txn, 0) == ([], 0, False)
            assert page(txn, 7) == ([], 0, False)
        store.write_now(lambda txn: learn(txn, record_of("bob", "b1"), record_of("carol", "c1")))
        with store.read() as txn:
            assert page(txn, 7) == ([], 2, False)
            assert page(txn, 2**53 - 1) == ([], 2, False)


def test_no_record_is_greater_than_what_a_frame_is_reckoned_to_hold_for_it() -> None:
    login, url = "x" * 30, "wss://" + '\\"' * 125
    record = identity(login).access_record(
        [AccessServer("y" * 30, url), AccessServer("z" * 30, url)], time_ms=2**53 - 1
    )
    assert len(orjson.dumps(record_payload(record))) < MAX_RECORD_BYTES


# --- the side that asks ---


class Gives:
    """A peer's ``AccessDataSyncBatch``: it has learned these records, in this order."""

    def __init__(self, *records: AccessRecord | dict[str, object]) -> None:
        self.records: list[Any] = [record_payload(r) if isinstance(r, AccessRecord) else r for r in records]

    async def __call__(self, connection: PeerConnection, request: dict[str, Any]) -> None:
        after, limit = request["payload"]["afterSeq"], request["payload"]["limit"]
        found = self.records[after : after + limit]
        end = min(after, len(self.records)) + len(found)
        await connection.answer(request, {"records": found, "nextSeq": end, "hasMore": end < len(self.records)})


def giving(*records: AccessRecord | dict[str, object], login: str = "one") -> ScriptedPeer:
    return ScriptedPeer(login, {OP: Gives(*records)})


def answering(answer: dict[str, Any], login: str = "one") -> ScriptedPeer:
    async def behave(connection: PeerConnection, request: dict[str, Any]) -> None:
        await connection.answer(request, answer)

    return ScriptedPeer(login, {OP: behave})


def anybody(server_login: str, record: AccessRecord) -> bool:
    return True


def pull_of(
    house: House,
    *,
    vouches: Callable[[str, AccessRecord], bool] = anybody,
    page_limit: int = 100,
    max_frame_bytes: int = 2**20,
) -> AccessPull:
    return AccessPull(
        store=house.store,
        users=house.users,
        peers=house.pool,
        vouches=vouches,
        takes_anyone=lambda: house.takes_anyone,
        allow_insecure=True,
        page_limit=page_limit,
        max_frame_bytes=max_frame_bytes,
        clock=house.clock,
        interval_seconds=300,
    )


def turn_of(pages: int = 0) -> Turn:
    """A turn that is over after so many pages, 0 for never."""
    left = [pages]

    def over() -> bool:
        left[0] -= 1
        return left[0] == 0

    return Turn(over, {})


async def new_from(pull: AccessPull, server: AccessServer) -> int:
    """How many records of all that a peer has were new."""
    pulled = await pull.run(server, turn_of())
    assert not pulled.more
    return pulled.new


def place_of(peer: ScriptedPeer) -> AccessServer:
    return AccessServer(peer.login, peer.url)


def afters(peer: ScriptedPeer) -> list[int]:
    return [payload["afterSeq"] for payload in asked(peer, OP)]


def logged(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == "shine_node.directory.sharing" and record.levelno >= level
    ]


BOB, CAROL, DAVE = (record_of(login, f"{login}1", f"{login}2") for login in ("Bob", "Carol", "Dave"))


def test_all_pages_are_taken_and_the_place_is_kept(tmp_path: Path) -> None:
    old = record_of("bob", "b0", time_ms=NOW - 9)

    async def story() -> None:
        peer = giving(BOB, CAROL, old, DAVE)
        async with house_in(tmp_path, peer) as house:
            pull = pull_of(house, page_limit=3)
            assert await new_from(pull, place_of(peer)) == 3, "an older record is no news of its user"
            assert asked(peer, OP) == [{"afterSeq": 0, "limit": 3}, {"afterSeq": 3, "limit": 3}]
            for record in (BOB, CAROL, DAVE):
                known = house.users.get(record.key)
                assert known is not None
                assert known.record == record
            assert house.users.records("bob") == [old, BOB]
            assert await new_from(pull, place_of(peer)) == 0
            again = pull_of(house)
            assert await new_from(again, place_of(peer)._replace(server_login="ONE")) == 0
            assert afters(peer)[2:] == [4, 4], "the place is in the store, whatever the spelling"

    run(story())


def test_each_peer_has_a_place_of_its_own(tmp_path: Path) -> None:
    async def story() -> None:
        one, two = giving(BOB, CAROL), giving(CAROL, DAVE, login="two")
        async with house_in(tmp_path, one, two) as house:
            pull = pull_of(house)
            assert await new_from(pull, place_of(one)) == 2
            assert await new_from(pull, place_of(two)) == 1
            assert afters(one) == afters(two) == [0]

    run(story())


def test_no_more_is_asked_for_than_a_frame_holds(tmp_path: Path) -> None:
    async def story() -> None:
        peer = giving(BOB)
        async with house_in(tmp_path, peer) as house:
            await new_from(pull_of(house, page_limit=500, max_frame_bytes=65536), place_of(peer))
            assert asked(peer, OP) == [{"afterSeq": 0, "limit": 16}]

    run(story())


def test_a_link_that_is_lost_is_told_and_the_next_session_goes_on_from_the_last_page(tmp_path: Path) -> None:
    async def story() -> None:
        gives = Gives(BOB, CAROL, DAVE)

        async def cuts_after_two(connection: PeerConnection, request: dict[str, Any]) -> None:
            await (cuts if request["payload"]["afterSeq"] == 2 else gives)(connection, request)

        peer = ScriptedPeer("one", {OP: cuts_after_two})
        async with house_in(tmp_path, peer) as house:
            pull = pull_of(house, page_limit=1)
            with pytest.raises(LinkLost):
                await new_from(pull, place_of(peer))
            assert house.users.get("carol") is not None
            assert house.users.get("dave") is None
            peer.script[OP] = gives
            await house.clock.advance(2)
            await house.until_connected()
            assert await new_from(pull, place_of(peer)) == 1
            assert afters(peer) == [0, 1, 2, 2]

    run(story())


def test_a_peer_that_was_restored_is_read_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        gives = Gives(BOB, CAROL, DAVE)
        peer = ScriptedPeer("one", {OP: gives})
        async with house_in(tmp_path, peer) as house:
            pull = pull_of(house)
            assert await new_from(pull, place_of(peer)) == 3
            erin = record_of("erin", "e1")
            gives.records = payloads(BOB, erin)  # an older backup, and a record that came after it
            assert await new_from(pull, place_of(peer)) == 0
            assert await new_from(pull, place_of(peer)) == 1
            assert house.users.get("erin") is not None
            assert afters(peer) == [0, 3, 0]
            assert await new_from(pull, place_of(peer)) == 0
            assert afters(peer)[3:] == [2]

    run(story())
    assert len([line for line in logged(caplog) if "gone back" in line]) == 1


def test_a_peer_that_says_there_is_more_and_does_not_go_on_cannot_hold_a_session(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        peer = answering({"records": [], "nextSeq": 0, "hasMore": True})
        async with house_in(tmp_path, peer) as house:
            assert await new_from(pull_of(house), place_of(peer)) == 0
            assert afters(peer) == [0]

    run(story())
    assert any("gone back" in line for line in logged(caplog))


def test_a_turn_that_is_over_leaves_the_rest_to_the_next_one(tmp_path: Path) -> None:
    async def story() -> None:
        peer = giving(*(record_of(f"user{number}", "u1") for number in range(4)))
        async with house_in(tmp_path, peer) as house:
            pull = pull_of(house, page_limit=1)
            assert await pull.run(place_of(peer), turn_of(3)) == Pulled(3, more=True)
            assert await pull.run(place_of(peer), turn_of(1)) == Pulled(1, more=False)
            assert afters(peer) == [0, 1, 2, 3]

    run(story())


def test_an_answer_with_more_than_was_asked_for_is_refused_whole(tmp_path: Path) -> None:
    async def story() -> None:
        records = payloads(*(record_of(f"user{number}", "u1") for number in range(3)))
        peer = answering({"records": records, "nextSeq": 3, "hasMore": False})
        async with house_in(tmp_path, peer) as house:
            with pytest.raises(BadFields, match="holds 3 records where at most 2 were asked for"):
                await new_from(pull_of(house, page_limit=2), place_of(peer))
            assert house.users.get("user0") is None
            assert await new_from(pull_of(house, page_limit=3), place_of(peer)) == 3

    run(story())


def test_refused_records_are_told_once_whatever_the_number_of_pages(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        peer = giving(*({"login": f"user{number}"} for number in range(5)))
        async with house_in(tmp_path, peer) as house:
            pull = pull_of(house, page_limit=1)
            assert await new_from(pull, place_of(peer)) == 0
            peer.script[OP] = Gives(*({"login": f"user{number}"} for number in range(9)))
            assert await new_from(pull, place_of(peer)) == 0

    run(story())
    [line] = logged(caplog)
    assert line.startswith("5 records from one were refused, the first because of ")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({}, BadFields),
        ({"records": [], "nextSeq": "1"}, BadRequestFormat),
        ({"records": [], "nextSeq": -1}, BadFields),
        ({"records": {}, "nextSeq": 1}, BadRequestFormat),
    ],
)
def test_an_answer_that_is_none_is_told_and_moves_nothing(
    tmp_path: Path, answer: dict[str, Any], error: type[Exception]
) -> None:
    async def story() -> None:
        peer = answering(answer)
        async with house_in(tmp_path, peer) as house:
            pull = pull_of(house)
            for _ in range(2):
                with pytest.raises(error):
                    await new_from(pull, place_of(peer))
            assert afters(peer) == [0, 0]

    run(story())


def test_a_record_that_is_wrong_is_passed_over_and_told_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    forged = BOB._replace(access_servers=(AccessServer("evil", "wss://evil.example/ws"),))
    unsigned = record_payload(local("zoe"))
    wrong: list[Any] = [
        record_payload(forged),
        record_payload(Identity.generate("carol").access_record((), time_ms=NOW)),
        unsigned,
        "no record",
        None,
        record_payload(record_of("frank", "f1", time_ms=NOW + 16 * 60_000)),
    ]

    async def story() -> None:
        peer = giving(CAROL, *wrong, DAVE)
        async with house_in(tmp_path, peer) as house:
            assert await new_from(pull_of(house), place_of(peer)) == 2
            assert house.records == 2
            assert house.users.routes("dave") == DAVE.access_servers
            assert house.users.routes("carol") == CAROL.access_servers

    run(story())
    [line] = logged(caplog)
    assert line.startswith(f"{len(wrong)} records from one were refused")


def test_a_stranger_fixes_the_root_key_of_no_login_that_it_may_not_vouch_for(tmp_path: Path) -> None:
    mine, moved = record_of("erin", "one"), record_of("erin", "elsewhere", time_ms=NOW + 1)
    newer = record_of("frank", "f2", time_ms=NOW + 1)

    def vouches(server_login: str, record: AccessRecord) -> bool:
        assert server_login == "one"
        return record.names_server(server_login)

    async def story() -> None:
        peer = giving(BOB, mine, newer, moved)
        async with house_in(tmp_path, peer) as house:
            await house.users.add(record_of("frank", "f1"))
            assert await new_from(pull_of(house, vouches=vouches), place_of(peer)) == 3
            assert house.users.get("bob") is None, "the peer is none of his servers"
            assert house.users.records("erin") == [mine, moved], "once known, newer records may come from anybody"
            assert house.users.routes("frank") == newer.access_servers
            assert afters(peer) == [0]

    run(story())


def test_of_two_root_keys_for_one_login_in_a_page_the_first_counts(tmp_path: Path) -> None:
    other = Identity.generate("bob").access_record((), time_ms=NOW + 1)

    async def story() -> None:
        peer = giving(BOB, other)
        async with house_in(tmp_path, peer) as house:
            assert await new_from(pull_of(house), place_of(peer)) == 1
            assert house.users.records("bob") == [BOB]

    run(story())


def test_a_record_makes_nobody_a_user_of_a_server_that_does_not_take_anyone(tmp_path: Path) -> None:
    new, came = record_of("erin", OWN), record_of("bob", OWN, time_ms=NOW + 1)
    here = record_of("carol", OWN, "c2", time_ms=NOW + 1)

    async def story() -> None:
        peer = giving(new, came, here)
        async with house_in(tmp_path, peer) as house:
            house.takes_anyone = False
            await house.users.add(BOB)
            await house.users.add(record_of("carol", OWN, time_ms=NOW - 1))
            assert await new_from(pull_of(house), place_of(peer)) == 1
            assert house.users.get("erin") is None
            assert house.users.routes("bob") == BOB.access_servers, "whoever comes from elsewhere must register"
            assert house.users.routes("carol") == here.access_servers, "a user of this server goes on as one"
        house_of_all = tmp_path / "open"
        house_of_all.mkdir()
        async with house_in(house_of_all, giving(new)) as house:
            assert await new_from(pull_of(house), AccessServer("one", house.known[0].url)) == 1
            erin = house.users.get("erin")
            assert erin is not None
            assert house.users.is_here(erin)

    run(story())


def test_too_many_records_of_one_user_and_too_many_users_do_not_keep_the_rest_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(users_module, "MAX_RECORDS_A_USER", 2)
    monkeypatch.setattr(users_module, "MAX_STRANGERS", 3)
    many = [record_of("mallory", "m1", time_ms=NOW + number) for number in range(4)]

    async def story() -> None:
        newer = record_of("bob", "b9", time_ms=NOW + 1)
        peer = giving(BOB, *many, CAROL, DAVE, newer)
        async with house_in(tmp_path, peer) as house:
            pull = pull_of(house, page_limit=2)
            assert await new_from(pull, place_of(peer)) == 5, "bob twice, mallory twice, carol"
            assert house.users.get("dave") is None
            assert house.users.routes("bob") == newer.access_servers
            assert await new_from(pull, place_of(peer)) == 0
            assert afters(peer)[-1] == len(many) + 4

    run(story())
    assert logged(caplog)


def test_what_cannot_be_stored_now_is_asked_for_again(tmp_path: Path) -> None:
    async def story() -> None:
        peer = giving(BOB, CAROL)
        async with house_in(tmp_path, peer) as house:
            pull = pull_of(house)
            house.store.busy = True
            with pytest.raises(ServerBusy):
                await new_from(pull, place_of(peer))
            house.store.busy = False
            assert await new_from(pull, place_of(peer)) == 2
            assert afters(peer) == [0, 0]

    run(story())


def test_a_long_page_does_not_fill_the_queue_of_signatures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing_module, "AT_ONCE", 4)
    records = [record_of(f"user{number}", "u1") for number in range(30)]

    async def story() -> None:
        peer = answering({"records": payloads(*records), "nextSeq": 30, "hasMore": False})
        async with house_in(tmp_path, peer) as house:
            under_way, most = 0, 0
            verify = house.crypto.verify

            async def watched(checks: Any) -> Any:
                nonlocal under_way, most
                under_way += 1
                most = max(most, under_way)
                try:
                    return await verify(checks)
                finally:
                    under_way -= 1

            house.crypto.verify = watched  # type: ignore[method-assign]
            assert await new_from(pull_of(house), place_of(peer)) == 30
            assert most == 4

    run(story())


# --- a part of a session ---


def step(pull: AccessPull, peers: Iterable[ScriptedPeer], *, pages: int = 0) -> asyncio.Future[list[Ending]]:
    async def all_of_them() -> list[Ending]:
        return [await pull.step(KnownPeer(peer.login, peer.url, True), turn_of(pages)) for peer in peers]

    return asyncio.ensure_future(all_of_them())


def test_a_peer_is_asked_once_an_interval(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def story() -> None:
        one, two = giving(BOB), giving(login="Two")
        async with house_in(tmp_path, one, two) as house:
            pull = pull_of(house)
            await soon(step(pull, [one, two]))
            await house.clock.advance(299)
            await soon(step(pull, [one, two]))
            assert (afters(one), afters(two)) == ([0], [0])
            await house.clock.advance(1)
            await soon(step(pull, [one, two]))
            assert (afters(one), afters(two)) == ([0, 1], [0, 0])

    run(story())
    assert [line for line in logged(caplog, logging.INFO) if "new from" in line] == ["1 records were new from one"]


def test_what_a_turn_has_left_is_asked_for_in_the_next_one_whatever_the_interval(tmp_path: Path) -> None:
    async def story() -> None:
        peer = giving({}, BOB, {})
        async with house_in(tmp_path, peer) as house:
            pull = pull_of(house, page_limit=1)
            for ended in (Ending.LATER, Ending.AT_ONCE, Ending.DONE, Ending.DONE):
                assert await soon(step(pull, [peer], pages=1)) == [ended]
            assert afters(peer) == [0, 1, 2], "and then not before the interval is over"

    run(story())


def test_a_peer_that_could_not_be_asked_is_asked_in_the_next_session(tmp_path: Path) -> None:
    async def story() -> None:
        peer = ScriptedPeer("one", {OP: cuts})
        async with house_in(tmp_path, peer) as house:
            pull = pull_of(house)
            with pytest.raises(LinkLost):
                await soon(step(pull, [peer]))
            peer.script[OP] = Gives(BOB)
            await house.clock.advance(2)
            await house.until_connected()
            await soon(step(pull, [peer]))
            assert house.users.get("bob") is not None

    run(story())


def test_an_older_peer_that_cannot_do_it_is_left_in_peace_for_the_interval(tmp_path: Path) -> None:
    async def story() -> None:
        peer = ScriptedPeer("one", {OP: refuses(400, "UNKNOWN_OP")})
        async with house_in(tmp_path, peer) as house:
            pull = pull_of(house)
            for _ in range(2):
                await soon(step(pull, [peer]))
            assert afters(peer) == [0]
            await house.clock.advance(300)
            await soon(step(pull, [peer]))
            assert afters(peer) == [0, 0]

    run(story())


def test_of_too_many_peers_the_one_that_was_asked_longest_ago_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing_module, "MAX_REMEMBERED", 2)

    async def story() -> None:
        peers = [giving(login=login) for login in ("a", "b", "c")]
        async with house_in(tmp_path, *peers) as house:
            pull = pull_of(house)
            await soon(step(pull, [peers[0], peers[1], peers[2], peers[1], peers[2], peers[0]]))
            assert [len(afters(peer)) for peer in peers] == [2, 1, 1]

    run(story())


def test_a_store_that_is_refilled_takes_the_users_whom_both_have(tmp_path: Path) -> None:
    """Those who were here alone before, too; nobody whom the peer does not have itself; only until it has told."""
    alone = record_of("bob", OWN, time_ms=NOW - 9)
    both = record_of("bob", OWN, "one")
    stranger = record_of("mallory", OWN)
    late = record_of("late", OWN, "one")

    async def story() -> None:
        peer = giving(alone, both, stranger, DAVE)
        async with house_in(tmp_path, peer) as house:
            house.takes_anyone = False
            pull = pull_of(house)
            await pull.run(place_of(peer), turn_of())
            assert house.users.get("bob") is None, "without a refill nobody comes in by a peer"
            await house.store.write(lambda txn: begin_refill(txn, ["one"]))
            await house.store.write(lambda txn: txn.delete(Table.META, b"access_seq one"))
            unvouched = pull_of(house, vouches=lambda login, record: False)
            assert not unvouched._was_here(place_of(peer), both)
            await pull.run(place_of(peer), turn_of())
            assert house.users.records("bob") == [alone, both]
            assert house.users.get("mallory") is None
            with house.store.read() as txn:
                assert list_refilling(txn) == []
        peer = giving(alone, both, stranger, DAVE, late)
        (tmp_path / "later").mkdir()
        async with house_in(tmp_path / "later", peer) as house:
            house.takes_anyone = False
            await pull_of(house).run(place_of(peer), turn_of())
            assert house.users.get("late") is None

    run(story())
