"""From acceptance to the terminal state: the first attempt, the answer, the hand-over, and retries (PROTOCOL.md §5)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shine_node.delivery import deliverer as deliverer_module
from shine_node.delivery.intake import Accepted
from shine_node.protocol.pair import Pair
from shine_node.protocol.schedule import DeliveryState
from shine_node.store.deliveries import Claim, claim_due, due_keys
from shine_node.store.environment import Transaction
from shine_node.store.layout import Direction, Flag, OpenDelivery, Table
from tests.delivery.rooms import (
    RECEIVE_INCOMING,
    RECEIVE_OUTCOMING,
    STATUS,
    Behaviour,
    Held,
    Rooms,
    answers,
    breaks,
    down,
    refuses,
    run,
    until,
)
from tests.store.rooms import NOW, OWN, make_pair, tombstone_of
from tests.support.clock import settle

ACCEPTED, DELIVERED, FAILED = DeliveryState
SENT_UNSYNCED = Flag.SENT_HERE | Flag.UNSYNCED
PAIR = make_pair("alice", "bob")
EDIT = make_pair("alice", "bob", revision_ms=NOW + 5, body=b"new")
LEASE = 60_000


async def alice_and_bob(
    rooms: Rooms, *, alice: tuple[str, ...] = (OWN, "a2"), bob: tuple[str, ...] = ("r1", "r2")
) -> None:
    await rooms.know("alice", *alice)
    await rooms.know("bob", *bob)


async def send(rooms: Rooms, pair: Pair = PAIR) -> DeliveryState:
    return await rooms.deliverer.send(await rooms.accept(pair))


async def quiet(rooms: Rooms) -> None:
    """All that goes on by itself has ended."""
    await until(lambda: not rooms.deliverer._background and not rooms.deliverer.claims.held)


async def claim(rooms: Rooms, *, late_ms: int = 0, table: Table = Table.DUE_ATTEMPTS) -> Claim:
    """Claim the one due row as the worker does."""
    now_ms = rooms.clock.now_ms() + late_ms
    [found], failed = await rooms.store.write(
        lambda txn: claim_due(txn, rooms.schedule, now_ms=now_ms, lease_ms=LEASE, limit=9, table=table)
    )
    assert failed == []
    return found


def state(rooms: Rooms, pair: Pair = PAIR) -> DeliveryState:
    row = rooms.row(pair)
    assert row is not None
    return row.state


def delivery(rooms: Rooms) -> OpenDelivery | None:
    row = rooms.row(PAIR)
    assert row is not None
    return row.delivery


# The first attempt and the answer


def test_it_is_delivered_when_one_server_of_the_recipient_has_it_then_the_pair_is_handed_over(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms)
            rooms.peers.on("r1", RECEIVE_INCOMING, down)
            assert await send(rooms) is DELIVERED
            await quiet(rooms)
            assert state(rooms) is DELIVERED
            assert rooms.count(Table.DUE_ATTEMPTS) == 0
            assert rooms.peers.summary == [
                ("r1", RECEIVE_INCOMING),
                ("r2", RECEIVE_INCOMING),
                ("a2", RECEIVE_OUTCOMING),
            ]
            row = rooms.row(PAIR)
            assert row is not None
            assert row.flags is Flag.SENT_HERE, "a success of the hand-over acknowledges the outbox entry"

    run(story())


def test_it_stays_accepted_where_no_server_of_the_recipient_has_it_and_is_handed_over_all_the_same(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms)
            for server in ("r1", "r2"):
                rooms.peers.on(server, RECEIVE_INCOMING, down)
            assert await send(rooms) is ACCEPTED
            await quiet(rooms)
            assert delivery(rooms) == OpenDelivery(NOW, 1, NOW + 30_000, 0)
            assert rooms.peers.count("a2", RECEIVE_OUTCOMING) == 1

    run(story())


def test_the_hand_over_waits_for_the_attempt_and_the_answer_never_for_the_hand_over(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms, bob=("r1",))
            recipient, other = Held(), Held()
            rooms.peers.on("r1", RECEIVE_INCOMING, recipient)
            rooms.peers.on("a2", RECEIVE_OUTCOMING, other)
            sending = asyncio.create_task(send(rooms))
            await until(lambda: recipient.waiting)
            await settle()
            assert rooms.peers.count("a2", RECEIVE_OUTCOMING) == 0
            recipient.release()
            assert await sending is DELIVERED
            await until(lambda: other.waiting)
            row = rooms.row(PAIR)
            assert row is not None
            assert row.flags == SENT_UNSYNCED
            other.release()
            await quiet(rooms)

    run(story())


def test_results_that_come_together_share_a_commit(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms, bob=("r1",))
            recipient = Held()
            rooms.peers.on("r1", RECEIVE_INCOMING, recipient)
            pairs = [make_pair("alice", "bob", nonce=nonce) for nonce in range(16)]
            accepted = await asyncio.gather(*(rooms.accept(pair) for pair in pairs))
            before = rooms.store.position
            sending = [asyncio.create_task(rooms.deliverer.send(each)) for each in accepted]
            await until(lambda: recipient.waiting == len(pairs))
            recipient.release()
            assert await asyncio.gather(*sending) == [DELIVERED] * len(pairs)
            await quiet(rooms)
            assert rooms.count(Table.OUTBOX_UNSYNCED) == 0
            assert rooms.store.position - before < len(pairs) / 2, "results and what was handed over"

    run(story())


@pytest.mark.parametrize("failure", [down, answers(outgoingKey="alice|bob|1|1|2")])
def test_a_hand_over_that_fails_changes_nothing_here(tmp_path: Path, failure: Held) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms)
            rooms.peers.on("a2", RECEIVE_OUTCOMING, failure)
            assert await send(rooms) is DELIVERED
            await quiet(rooms)
            row = rooms.row(PAIR)
            assert row is not None
            assert (row.state, row.flags) == (DELIVERED, SENT_UNSYNCED), "it is learned at the next catch-up"

    run(story())


def test_what_was_handed_over_is_in_doubt(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms)
            await send(rooms)
            await quiet(rooms)
            assert rooms.doubt("a2") == NOW

    run(story())


def test_what_was_handed_over_and_is_replaced_by_now_is_not(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms)
            other = Held()
            rooms.peers.on("a2", RECEIVE_OUTCOMING, other)
            await send(rooms)
            await until(lambda: other.waiting)
            await rooms.accept(EDIT)
            other.release()
            await quiet(rooms)
            assert rooms.doubt("a2") is None

    run(story())


def test_without_another_server_nothing_is_handed_over(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms, alice=(OWN,), bob=("r1",))
            assert await send(rooms) is DELIVERED
            await quiet(rooms)
            assert rooms.peers.summary == [("r1", RECEIVE_INCOMING)]

    run(story())


def test_a_hand_over_that_cannot_be_noted_is_made_again_later(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms)
            other = Held()
            rooms.peers.on("a2", RECEIVE_OUTCOMING, other)
            await send(rooms)
            await until(lambda: other.waiting)
            rooms.store.busy = True
            other.release()
            await quiet(rooms)
            rooms.store.busy = False
            assert "a2 has a pair" in caplog.text
            row = rooms.row(PAIR)
            assert row is not None
            assert row.flags == SENT_UNSYNCED

    run(story())


def test_everything_is_on_disk_before_anything_is_sent(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms, bob=("r1",))
            found: list[OpenDelivery | None] = []

            async def looks(*_: object) -> dict[str, object]:
                assert rooms.blobs(PAIR) == (PAIR.incoming.blob, PAIR.outgoing.blob)
                found.append(delivery(rooms))
                return {}

            rooms.peers.on("r1", RECEIVE_INCOMING, looks)
            await send(rooms)
            assert found == [OpenDelivery(NOW, 0, NOW, NOW + LEASE)]

    run(story())


def test_the_answer_waits_for_the_first_attempt_so_long_and_no_longer_and_the_attempt_goes_on(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms, bob=("r1",))
            slow = Held()
            rooms.peers.on("r1", RECEIVE_INCOMING, slow)
            sending = asyncio.create_task(send(rooms))
            await until(lambda: slow.waiting)
            row = rooms.row(PAIR)
            assert row is not None
            assert rooms.deliverer.claims.held == {(row.seq, row.version)}, "so that its lease is renewed"
            await rooms.clock.advance(7.999)
            assert not sending.done()
            await rooms.clock.advance(0.001)
            assert await sending is ACCEPTED
            assert state(rooms) is ACCEPTED
            slow.release()
            await quiet(rooms)
            assert state(rooms) is DELIVERED
            assert rooms.peers.count("r1", RECEIVE_INCOMING) == 1

    run(story())


def test_a_bound_of_zero_answers_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path, first_attempt_timeout_ms=0) as rooms:
            await alice_and_bob(rooms, bob=("r1",))
            slow = Held()
            rooms.peers.on("r1", RECEIVE_INCOMING, slow)
            assert await send(rooms) is ACCEPTED
            slow.release()
            await quiet(rooms)
            assert state(rooms) is DELIVERED

    run(story())


def test_a_schedule_of_one_attempt_fails_with_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path, schedule=(0,)) as rooms:
            await alice_and_bob(rooms, bob=())
            assert await send(rooms) is FAILED
            assert delivery(rooms) is None
            assert rooms.count(Table.DUE_ATTEMPTS) == 0

    run(story())


def test_a_repetition_starts_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms, bob=("r1",))
            rooms.peers.on("r1", RECEIVE_INCOMING, down)
            assert await send(rooms) is ACCEPTED
            await quiet(rooms)
            calls = len(rooms.peers.calls)
            assert await send(rooms) is ACCEPTED
            rooms.deliverer.receive(await rooms.accept(PAIR))
            assert not rooms.deliverer._background
            assert len(rooms.peers.calls) == calls

    run(story())


def test_a_defect_leaves_the_row_to_the_worker(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms, bob=("r1",))
            rooms.peers.on("r1", RECEIVE_INCOMING, breaks)
            assert await send(rooms) is ACCEPTED
            await quiet(rooms)
            assert "a defect" in caplog.text
            assert delivery(rooms) == OpenDelivery(NOW, 0, NOW, NOW + LEASE), "due when its lease ends"

    run(story())


def test_an_attempt_that_is_ended_with_the_node_is_accepted(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms, bob=("r1",))
            slow = Held()
            rooms.peers.on("r1", RECEIVE_INCOMING, slow)
            sending = asyncio.create_task(send(rooms))
            await until(lambda: slow.waiting)
            await rooms.deliverer.close()
            assert await sending is ACCEPTED
            assert slow.waiting == 0
            assert rooms.deliverer.claims.held == frozenset()

    run(story())


def test_above_the_bound_a_pair_waits_for_the_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliverer_module, "MAX_BACKGROUND", 1)  # an attempt that makes its one call itself

    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms, alice=(OWN,), bob=("r1",))
            await rooms.know("carol", OWN, "r1")
            slow = Held()
            rooms.peers.on("r1", RECEIVE_INCOMING, slow)
            first = asyncio.create_task(send(rooms))
            await until(lambda: slow.waiting)
            waiting = make_pair("alice", "bob", nonce=2)
            assert await send(rooms, waiting) is ACCEPTED
            assert await send(rooms, make_pair("alice", "carol")) is DELIVERED
            assert slow.waiting == 1, "nothing was begun for either"
            row = rooms.row(waiting)
            assert row is not None
            assert row.delivery == OpenDelivery(NOW, 0, NOW, NOW + LEASE)
            slow.release()
            assert await first is DELIVERED
            with rooms.store.read() as txn:
                assert len(due_keys(txn, NOW + LEASE, 9)) == 1

    run(story())


@pytest.mark.parametrize("other_server", [True, False])
def test_without_a_route_the_first_attempt_has_failed_with_the_storing(tmp_path: Path, other_server: bool) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms, alice=(OWN, "a2") if other_server else (OWN,), bob=())
            assert await send(rooms) is ACCEPTED
            await quiet(rooms)
            assert delivery(rooms) == OpenDelivery(NOW, 1, NOW + 30_000, 0)
            assert rooms.peers.summary == ([("a2", RECEIVE_OUTCOMING)] if other_server else [])
            row = rooms.row(PAIR)
            assert row is not None
            assert row.flags is Flag.SENT_HERE

    run(story())


def test_a_received_pair_without_a_route_is_not_passed_back_either(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms, bob=())
            accepted = await rooms.intake.receive_pair(PAIR.incoming.blob, PAIR.outgoing.blob, from_server=None)
            rooms.deliverer.receive(accepted)
            await quiet(rooms)
            assert rooms.peers.calls == []
            assert rooms.lookup.refreshed == ["bob"]

    run(story())


# What is too old to be sent is only asked about


OLD = [make_pair("alice", "bob", time_ms=NOW - 3_600_000, nonce=nonce) for nonce in range(3)]


async def sync_old(rooms: Rooms, *pairs: Pair, owner: str = "alice", from_server: str = "a2") -> None:
    for incoming, outgoing in pairs:
        await rooms.sync(incoming.blob, outgoing.blob, owner=owner, from_server=from_server)


async def claim_old(rooms: Rooms) -> list[Claim]:
    """Claim all that is to be asked about as the worker does."""
    now_ms = rooms.clock.now_ms()
    claims, _ = await rooms.store.write(
        lambda txn: claim_due(txn, rooms.schedule, now_ms=now_ms, lease_ms=LEASE, limit=99, table=Table.DUE_SETTLING)
    )
    return claims


def states(rooms: Rooms, *pairs: Pair) -> list[DeliveryState]:
    return [state(rooms, pair) for pair in pairs]


@pytest.mark.parametrize(
    ("says", "after", "expected"), [(True, 0, DELIVERED), (False, 0, ACCEPTED), (False, 3600, FAILED)]
)
def test_a_synced_pair_that_is_too_old_is_settled_by_asking(
    tmp_path: Path, says: bool, after: float, expected: DeliveryState
) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms)
            old = OLD[0]
            await sync_old(rooms, old)
            rooms.peers.on("a2", STATUS, answers(known=True, delivered=says))
            await rooms.clock.advance(after)
            await rooms.deliverer.settle([await claim(rooms, table=Table.DUE_SETTLING)])
            assert rooms.peers.summary == [("a2", STATUS)], "it is never sent to the recipient"
            assert rooms.lookup.refreshed == []
            assert state(rooms, old) is expected
            assert rooms.count(Table.DUE_SETTLING) == (1 if expected is ACCEPTED else 0)

    run(story())


@pytest.mark.parametrize("says", [True, False])
def test_a_recipient_who_is_here_gets_back_what_was_delivered(tmp_path: Path, says: bool) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms, bob=(OWN, "r2"))
            old = OLD[0]
            await sync_old(rooms, old)
            rooms.peers.on("a2", STATUS, answers(known=True, delivered=says))
            await rooms.deliverer.settle(await claim_old(rooms))
            assert rooms.blobs(old, Direction.IN) == ((old.incoming.blob, b"") if says else None)
            assert rooms.peers.summary == [("a2", STATUS)], "nobody else is told"

    run(story())


def test_each_server_is_asked_about_its_messages_one_after_the_other(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms)
            await rooms.know("carol", OWN, "c2")
            edit = make_pair("alice", "bob", time_ms=NOW - 9_000_000, revision_ms=NOW - 3_600_000)
            carols = make_pair("carol", "bob", time_ms=NOW - 3_600_000)
            await sync_old(rooms, OLD[0], edit, OLD[1])
            await sync_old(rooms, carols, owner="carol", from_server="c2")
            held = Held(answers(delivered=True))
            rooms.peers.on("a2", STATUS, held)
            rooms.peers.on("c2", STATUS, answers(delivered=True))
            task = asyncio.create_task(rooms.deliverer.settle(await claim_old(rooms)))
            await until(lambda: held.waiting and rooms.peers.count("c2", STATUS))
            await settle()
            assert (held.waiting, len(rooms.deliverer.claims)) == (1, 4)
            assert states(rooms, carols) == [ACCEPTED], "all answers are written together"
            held.release()
            await task
            asked = [call.payload for call in rooms.peers.calls if call.server == "a2"]
            assert asked == [
                {"messageKey": str(OLD[0].outgoing.key)},
                {"messageKey": str(edit.outgoing.key), "revisionMs": edit.outgoing.revision_ms},
                {"messageKey": str(OLD[1].outgoing.key)},
            ]
            assert states(rooms, OLD[0], OLD[1], carols) == [DELIVERED] * 3
            assert state(rooms, edit) is ACCEPTED, "a peer that does not echo the revision speaks of another one"
            assert len(rooms.deliverer.claims) == 0

    run(story())


@pytest.mark.parametrize("behaviour", [refuses(400, "UNKNOWN_OP"), refuses(500, "INTERNAL_ERROR")])
def test_a_refusal_speaks_of_one_message_only(tmp_path: Path, behaviour: Behaviour) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms)
            await sync_old(rooms, *OLD)
            rooms.peers.on("a2", STATUS, behaviour)
            await rooms.deliverer.settle(await claim_old(rooms))
            assert rooms.peers.count("a2", STATUS) == 3
            assert states(rooms, *OLD) == [ACCEPTED] * 3

    run(story())


def test_a_server_that_gives_no_answer_is_not_asked_for_the_rest(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms)
            await sync_old(rooms, *OLD)
            rooms.peers.on("a2", STATUS, down)
            await rooms.deliverer.settle(await claim_old(rooms))
            assert rooms.peers.count("a2", STATUS) == 1
            assert states(rooms, *OLD) == [ACCEPTED] * 3
            with rooms.store.read() as txn:
                assert due_keys(txn, NOW + 29_999, 9, Table.DUE_SETTLING) == []
                assert len(due_keys(txn, NOW + 30_000, 9, Table.DUE_SETTLING)) == 3, "for all it was an asking"

    run(story())


def test_without_another_server_there_is_nobody_to_ask(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms)
            await sync_old(rooms, OLD[0])
            await rooms.know("alice", OWN, time_ms=NOW)
            await rooms.deliverer.settle(await claim_old(rooms))
            assert rooms.peers.calls == []
            assert state(rooms, OLD[0]) is ACCEPTED

    run(story())


def test_an_answer_that_comes_after_an_edit_changes_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms)
            await sync_old(rooms, OLD[0])
            held = Held(answers(delivered=True))
            rooms.peers.on("a2", STATUS, held)
            task = asyncio.create_task(rooms.deliverer.settle(await claim_old(rooms)))
            await until(lambda: held.waiting)
            edit = make_pair("alice", "bob", time_ms=NOW - 3_600_000, nonce=0, revision_ms=NOW)
            await rooms.accept(edit)
            held.release()
            await task
            assert state(rooms, edit) is ACCEPTED

    run(story())


def test_answers_that_the_store_refuses_are_asked_for_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms)
            await sync_old(rooms, OLD[0])
            rooms.peers.on("a2", STATUS, answers(delivered=True))
            claims = await claim_old(rooms)
            rooms.store.busy = True
            await rooms.deliverer.settle(claims)
            rooms.store.busy = False
            assert "it is asked again" in caplog.text
            assert len(rooms.deliverer.claims) == 0
            await rooms.clock.advance(LEASE / 1000)
            await rooms.deliverer.settle(await claim_old(rooms))
            assert state(rooms, OLD[0]) is DELIVERED

    run(story())


# Who cannot be reached is looked up anew


@pytest.mark.parametrize("bob", [(), ("r1", "r2")])
def test_after_a_first_attempt_in_vain_the_recipients_records_are_looked_up(
    tmp_path: Path, bob: tuple[str, ...]
) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms, bob=bob)
            for server in bob:
                rooms.peers.on(server, RECEIVE_INCOMING, down)
            await send(rooms)
            await quiet(rooms)
            assert rooms.lookup.refreshed == ["bob"]

    run(story())


def test_after_a_success_at_one_route_nobody_is_looked_up(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms)
            rooms.peers.on("r1", RECEIVE_INCOMING, down)
            await send(rooms)
            await quiet(rooms)
            assert rooms.lookup.refreshed == []

    run(story())


@pytest.mark.parametrize(("after", "looked_up"), [(30, True), (300, True), (1500, True), (3600, False)])
def test_a_retry_in_vain_looks_up_for_the_next_one(tmp_path: Path, after: float, looked_up: bool) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            due = await accepted_and_due(rooms, after=after)
            rooms.lookup.refreshed.clear()
            await rooms.deliverer.retry(due)
            assert rooms.lookup.refreshed == (["bob"] if looked_up else []), "there is no attempt after the last"

    run(story())


def test_a_retry_that_succeeds_looks_nobody_up(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            due = await accepted_and_due(rooms, after=30)
            rooms.lookup.refreshed.clear()
            rooms.peers.on("r1", RECEIVE_INCOMING, answers())
            await rooms.deliverer.retry(due)
            assert rooms.lookup.refreshed == []

    run(story())


# This server is one of the recipient's


def test_what_is_stored_for_the_recipient_here_is_delivered_without_any_network_and_the_other_route_called_once(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms, bob=(OWN, "r2"))
            rooms.peers.on("r2", RECEIVE_INCOMING, down)
            assert await send(rooms) is DELIVERED
            await quiet(rooms)
            assert state(rooms) is DELIVERED, "the result of the other call changes nothing"
            assert rooms.peers.summary == [("r2", RECEIVE_INCOMING), ("a2", RECEIVE_OUTCOMING)]
            assert rooms.blobs(PAIR, Direction.IN) == (PAIR.incoming.blob, b"")
            await rooms.clock.advance(4000)
            assert len(rooms.peers.calls) == 2

    run(story())


def test_where_nobody_else_is_concerned_nothing_goes_out(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms, alice=(OWN,), bob=(OWN,))
            assert await send(rooms) is DELIVERED
            assert await send(rooms, make_pair("alice", "alice")) is DELIVERED
            assert not rooms.deliverer._background
            assert rooms.peers.calls == []

    run(story())


# A pair from the sender's other server


def test_a_received_pair_is_tried_at_once_and_not_passed_back(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms, bob=("r1",))
            accepted = await rooms.intake.receive_pair(PAIR.incoming.blob, PAIR.outgoing.blob, from_server="a2")
            slow = Held()
            rooms.peers.on("r1", RECEIVE_INCOMING, slow)
            rooms.deliverer.receive(accepted)  # returns without waiting
            await until(lambda: slow.waiting)
            slow.release()
            await quiet(rooms)
            assert state(rooms) is DELIVERED
            assert rooms.peers.summary == [("r1", RECEIVE_INCOMING)]

    run(story())


def test_a_received_pair_for_a_recipient_of_this_server_goes_to_the_other_route_only(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms, bob=(OWN, "r2"))
            accepted = await rooms.intake.receive_pair(PAIR.incoming.blob, PAIR.outgoing.blob, from_server="a2")
            rooms.deliverer.receive(accepted)
            await quiet(rooms)
            assert rooms.peers.summary == [("r2", RECEIVE_INCOMING)]

    run(story())


# Whoever takes the claim decides


async def replaced_while_under_way(rooms: Rooms, by: Pair) -> tuple[Accepted, DeliveryState]:
    """Send the pair, submit another one while its first attempt is under way, then let that attempt succeed."""
    slow = Held()
    rooms.peers.on("r1", RECEIVE_INCOMING, slow)
    sending = asyncio.create_task(send(rooms))
    await until(lambda: slow.waiting)
    accepted = await rooms.accept(by)
    slow.release()
    return accepted, await sending


def test_the_late_answer_of_an_old_revisions_attempt_changes_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms, alice=(OWN,), bob=("r1",))
            accepted, answer = await replaced_while_under_way(rooms, EDIT)
            assert answer is ACCEPTED, "the state belongs to the newest revision"
            assert rooms.row(PAIR) == accepted.stored.row, "untouched"
            assert await rooms.deliverer.send(accepted) is DELIVERED

    run(story())


def test_a_tombstone_ends_the_delivery_under_the_attempt_and_the_answer_says_so(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms, alice=(OWN,), bob=("r1",))
            _, answer = await replaced_while_under_way(rooms, tombstone_of(PAIR.incoming.message))
            assert answer is DELIVERED
            assert state(rooms) is DELIVERED
            row = rooms.row(PAIR)
            assert row is not None
            assert row.removed

    run(story())


def test_a_result_that_cannot_be_written_leaves_the_row_to_the_worker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms, alice=(OWN,), bob=("r1",))
            accepted = await rooms.accept(PAIR)
            rooms.store.busy = True
            assert await rooms.deliverer.send(accepted) is ACCEPTED
            rooms.store.busy = False
            assert "a result was not written" in caplog.text
            assert delivery(rooms) == OpenDelivery(NOW, 0, NOW, NOW + LEASE)

    run(story())


# Retries


async def accepted_and_due(rooms: Rooms, *, after: float, bob: tuple[str, ...] = ("r1", "r2")) -> Claim:
    """A pair whose first attempt failed, claimed some seconds after its acceptance."""
    await alice_and_bob(rooms, bob=bob)
    for server in ("r1", "r2"):
        rooms.peers.on(server, RECEIVE_INCOMING, down)
    assert await send(rooms) is ACCEPTED
    await quiet(rooms)
    rooms.peers.calls.clear()
    await rooms.clock.advance(after)
    return await claim(rooms)


def test_the_second_attempt_calls_the_recipients_servers_and_asks_nobody(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            due = await accepted_and_due(rooms, after=30)
            rooms.peers.on("r2", RECEIVE_INCOMING, answers())
            assert await rooms.deliverer.retry(due) is DELIVERED
            await quiet(rooms)
            assert rooms.peers.summary == [("r1", RECEIVE_INCOMING), ("r2", RECEIVE_INCOMING)]
            assert state(rooms) is DELIVERED

    run(story())


@pytest.mark.parametrize(("attempt", "after", "next_after"), [(3, 300, 1500), (4, 1500, 3600), (5, 3600, None)])
def test_from_the_third_attempt_on_the_other_server_is_asked_first(
    tmp_path: Path, attempt: int, after: float, next_after: int | None
) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            due = await accepted_and_due(rooms, after=after)
            assert due.decision.attempt == attempt
            other = Held(answers(known=True, delivered=False))
            rooms.peers.on("a2", STATUS, other)
            trying = asyncio.create_task(rooms.deliverer.retry(due))
            await until(lambda: other.waiting)
            await settle()
            assert rooms.peers.summary == [("a2", STATUS)], "first"
            other.release()
            expected = FAILED if next_after is None else ACCEPTED
            assert await trying is expected
            assert rooms.peers.summary == [("a2", STATUS), ("r1", RECEIVE_INCOMING), ("r2", RECEIVE_INCOMING)]
            if next_after is None:
                assert delivery(rooms) is None
                assert rooms.count(Table.DUE_ATTEMPTS) == 0
            else:
                assert delivery(rooms) == OpenDelivery(NOW, attempt, NOW + next_after * 1000, 0)

    run(story())


def test_delivered_there_ends_it_without_a_call_to_the_recipient(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            due = await accepted_and_due(rooms, after=300)
            rooms.peers.on("a2", STATUS, answers(known=True, delivered=True))
            assert await rooms.deliverer.retry(due) is DELIVERED
            assert rooms.peers.summary == [("a2", STATUS)]
            assert rooms.count(Table.DUE_ATTEMPTS) == 0

    run(story())


def test_a_recipient_who_has_moved_to_this_server_gets_it_here(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            due = await accepted_and_due(rooms, after=30)
            await rooms.know("bob", OWN.upper(), "r2", time_ms=NOW)
            assert await rooms.deliverer.retry(due) is DELIVERED
            assert rooms.peers.calls == []
            assert rooms.blobs(PAIR, Direction.IN) == (PAIR.incoming.blob, b"")
            row = rooms.recipients_row(PAIR)
            assert row is not None
            assert row.flags is Flag.UNSYNCED, "the recipient's other server has to learn it"

    run(story())


def test_what_the_recipient_may_not_store_here_is_brought_to_the_other_server_by_the_schedule(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            due = await accepted_and_due(rooms, after=30)
            await rooms.know("bob", OWN.upper(), "r2", time_ms=NOW)
            rooms.store.no_room = "the disk has no room"
            rooms.peers.on("r2", RECEIVE_INCOMING, refuses(507, "STORAGE_FULL"))
            assert await rooms.deliverer.retry(due) is ACCEPTED
            assert rooms.peers.summary == [("r2", RECEIVE_INCOMING)]
            assert rooms.recipients_row(PAIR) is None
            rooms.peers.on("r2", RECEIVE_INCOMING, answers())
            again = await claim(rooms, late_ms=300_000)
            assert await rooms.deliverer.retry(again) is DELIVERED

    run(story())


def test_a_store_that_cannot_take_it_for_the_recipient_does_not_count_as_an_attempt(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            due = await accepted_and_due(rooms, after=3600)
            await rooms.know("bob", OWN, time_ms=NOW)
            rooms.store.busy = True
            assert await rooms.deliverer.retry(due) is None
            assert "it will be made again" in caplog.text
            assert rooms.deliverer.claims.held == frozenset()
            rooms.store.busy = False
            assert state(rooms) is ACCEPTED
            again = await claim(rooms, late_ms=LEASE)
            assert again.decision.attempt == 5
            assert await rooms.deliverer.retry(again) is DELIVERED

    run(story())


def test_a_claim_that_was_lost_before_its_attempt_makes_none(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            due = await accepted_and_due(rooms, after=30)
            again = await claim(rooms, late_ms=LEASE)
            assert await rooms.deliverer.retry(due) is None
            assert rooms.peers.calls == []
            rooms.peers.on("r1", RECEIVE_INCOMING, answers())
            assert await rooms.deliverer.retry(again) is DELIVERED

    run(story())


def test_a_claim_of_a_row_that_is_gone_makes_no_attempt(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            due = await accepted_and_due(rooms, after=30)
            stranger = due._replace(key=due.key._replace(nonce=99))
            assert await rooms.deliverer.retry(stranger) is None
            assert rooms.peers.calls == []

    run(story())


def test_a_claim_that_is_lost_during_its_attempt_writes_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            due = await accepted_and_due(rooms, after=30, bob=("r1",))
            slow = Held()
            rooms.peers.on("r1", RECEIVE_INCOMING, slow)
            trying = asyncio.create_task(rooms.deliverer.retry(due))
            await until(lambda: slow.waiting)
            assert rooms.deliverer.claims.held == {(due.seq, due.version)}
            accepted = await rooms.accept(EDIT)
            slow.release()
            assert await trying is None
            assert rooms.row(PAIR) == accepted.stored.row
            assert rooms.deliverer.claims.held == frozenset()

    run(story())


def test_the_result_of_a_retry_that_cannot_be_written_comes_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            due = await accepted_and_due(rooms, after=3600)
            rooms.store.busy = True
            assert await rooms.deliverer.retry(due) is None
            rooms.store.busy = False
            assert "a result was not written" in caplog.text
            assert state(rooms) is ACCEPTED

    run(story())


def test_a_tombstones_own_pair_is_delivered_like_any_other(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms, bob=("r1",))
            tombstone = tombstone_of(PAIR.incoming.message)
            rooms.peers.on("r1", RECEIVE_INCOMING, down)
            assert await send(rooms, tombstone) is ACCEPTED
            await rooms.clock.advance(30)
            rooms.peers.on("r1", RECEIVE_INCOMING, answers(incomingKey=str(tombstone.incoming.key)))
            assert await rooms.deliverer.retry(await claim(rooms)) is DELIVERED
            assert state(rooms, tombstone) is DELIVERED

    run(story())


def test_terminal_states_stay(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            due = await accepted_and_due(rooms, after=3600)
            assert await rooms.deliverer.retry(due) is FAILED
            failed = rooms.row(PAIR)
            rooms.peers.on("r1", RECEIVE_INCOMING, answers())
            rooms.peers.calls.clear()
            await rooms.know("bob", "r1", time_ms=NOW)
            assert await send(rooms) is FAILED
            assert await rooms.deliverer.retry(due) is None
            assert rooms.row(PAIR) == failed

            def look(txn: Transaction) -> object:
                return claim_due(txn, rooms.schedule, now_ms=2**50, lease_ms=LEASE, limit=9)

            assert await rooms.store.write(look) == ([], [])
            assert rooms.peers.calls == []

    run(story())
