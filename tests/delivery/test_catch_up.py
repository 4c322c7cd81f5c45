"""What catches up between a user's two servers: the checks of every other way in, and one commit (PROTOCOL.md §6)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shine_node.client.identity import KeyPair
from shine_node.delivery import catch_up as catch_up_module
from shine_node.delivery.catch_up import AT_A_STRETCH, _Stretch
from shine_node.protocol.container import Container
from shine_node.protocol.errors import (
    BadContainer,
    BadFields,
    BadSignature,
    InternalError,
    NotAccessServer,
    PairMismatch,
    Refusal,
    ServerBusy,
    StorageFull,
    UserNotFound,
)
from shine_node.protocol.pair import Pair
from shine_node.protocol.schedule import DeliveryState
from shine_node.store.deliveries import claim_due
from shine_node.store.environment import Job, Transaction
from shine_node.store.layout import Direction, Flag, ItemKey, Row, Table
from tests.delivery.rooms import Rooms, alice_and_bob, broken, counts, run, until
from tests.store.rooms import NOW, OWN, identity, make_copy, make_pair, servers
from tests.support.clock import ManualClock
from tests.support.vectors import cases

DAY = 86_400_000
LEASE = 60_000


# What catches up between a user's two servers (§6)


async def synced(rooms: Rooms, pair: Pair) -> Row:
    """Take a pair of ``DmSyncBatch`` and return its row."""
    return await rooms.sync(pair.incoming.blob, pair.outgoing.blob, owner="alice", from_server="A2")


@pytest.mark.parametrize("case", cases("schedule", kind="synced"))
def test_a_pair_that_is_synced_joins_the_schedule_by_its_age_as_the_vectors_say(
    tmp_path: Path, case: dict[str, Any]
) -> None:
    async def story() -> None:
        clock = ManualClock(case["nowMs"])
        async with Rooms(tmp_path, clock=clock, schedule=tuple(case["scheduleSeconds"])) as rooms:
            await rooms.know("alice", OWN, "a2", time_ms=0)
            await rooms.know("bob", "r1", time_ms=0)
            row = await synced(rooms, make_pair("alice", "bob", time_ms=case["timeMs"], revision_ms=case["revisionMs"]))
            assert row.state is DeliveryState.ACCEPTED
            assert bool(row.flags & Flag.SETTLING) is not case["send"]
            assert not row.flags & Flag.UNSYNCED, "no loops"
            table = Table.DUE_ATTEMPTS if case["send"] else Table.DUE_SETTLING
            [claim], failed = await rooms.store.write(
                lambda txn: claim_due(txn, rooms.schedule, now_ms=clock.now_ms(), lease_ms=LEASE, limit=9, table=table)
            )
            assert failed == []
            if case["send"]:
                decision = claim.decision
                assert (decision.attempt, decision.ask_first) == (case["attempt"], case["askFirst"])
                assert decision.next_at_ms == case["nextAtMs"]
            else:
                assert claim.decision.accepted_at_ms == clock.now_ms(), "asked about at the offsets from its arrival"

    run(story())


def test_what_is_synced_for_a_recipient_of_this_server(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms, bob=(OWN, "r2"))
            old = make_pair("alice", "bob", time_ms=NOW - 40 * DAY)
            row = await synced(rooms, old)
            assert (row.state, row.flags) == (DeliveryState.ACCEPTED, Flag.SETTLING)
            assert rooms.recipients_row(old) is None, "nothing of an hour or older is sent to the recipient"
            young = make_pair("alice", "bob", nonce=3)
            row = await synced(rooms, young)
            assert (row.state, row.flags, row.delivery) == (DeliveryState.DELIVERED, Flag.NONE, None)
            assert rooms.blobs(young, Direction.IN) == (young.incoming.blob, b"")
            copy = make_copy("alice", "bob", 1, nonce=2)
            row = await rooms.sync(copy.blob, owner="bob", from_server="R2")
            assert row.flags is Flag.NONE, "the other server has it"

    run(story())


def test_a_disk_without_room_refuses_every_entry(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms)
            rooms.store.no_room = "the disk has no room"
            entries = [("alice", [copy.blob for copy in make_pair("alice", "bob", nonce=nonce)]) for nonce in (1, 2)]
            refusals = await rooms.catch_up.take(entries, from_server="a2")
            assert [type(refusal) for refusal in refusals] == [StorageFull] * 2
            assert rooms.count(Table.HISTORY) == 0
            rooms.store.no_room = ""
            assert await rooms.catch_up.take(entries, from_server="a2") == [None, None]

    run(story())


def test_the_sender_of_a_copy_that_is_synced_may_be_looked_up(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await rooms.know("bob", OWN, "r2")
            copy = make_copy("alice", "bob", 1)
            with pytest.raises(UserNotFound):
                await rooms.sync(copy.blob, owner="bob", from_server="r2")
            assert rooms.lookup.looked_for == []
            rooms.lookup.found = [identity("alice").access_record(servers("a1"), time_ms=NOW - 9)]
            rooms.lookup.knows_strangers = "r2"
            await rooms.catch_up.find_sender(copy.blob, from_server="r2")
            assert rooms.lookup.looked_for == ["alice"]
            assert (await rooms.sync(copy.blob, owner="bob", from_server="r2")).state is DeliveryState.DELIVERED
            with pytest.raises(BadContainer):
                await rooms.catch_up.find_sender(b"", from_server="r2")

    run(story())


def test_what_the_other_server_has_brought_is_in_doubt(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms, bob=(OWN, "r2"))
            pair, copy = make_pair("alice", "bob"), make_copy("alice", "bob", 1, nonce=2)
            await rooms.accept(pair)
            await rooms.intake.receive_incoming(copy.blob)
            with pytest.raises(BadSignature):
                await rooms.sync(broken(copy), owner="bob", from_server="r2")
            assert (rooms.doubt("a2"), rooms.doubt("r2")) == (None, None)
            await synced(rooms, pair)
            assert (rooms.doubt("a2"), rooms.doubt("r2")) == (NOW, None), "also what was here before"
            await rooms.clock.advance(5)
            edit = make_pair("alice", "bob", revision_ms=NOW + 9)
            await rooms.intake.receive_pair(edit.incoming.blob, edit.outgoing.blob, from_server="a2")
            other = make_copy("alice", "bob", 1, nonce=3)
            await rooms.sync(other.blob, owner="bob", from_server="r2")
            assert (rooms.doubt("a2"), rooms.doubt("r2")) == (NOW, NOW + 5000), "the first stands for what follows"

    run(story())


def test_what_is_synced_again_or_older_is_a_success(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms)
            original, edit = make_pair("alice", "bob"), make_pair("alice", "bob", revision_ms=NOW + 9, body=b"new")
            row = (await rooms.accept(edit)).stored.row
            assert await synced(rooms, original) == row
            assert await synced(rooms, edit) == row._replace(flags=Flag.SENT_HERE), "the other server has it"
            assert await synced(rooms, original) == row._replace(flags=Flag.SENT_HERE)

    run(story())


def test_what_is_synced_passes_the_checks_of_every_other_way_in(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:

            async def refused(error: type[Refusal], incoming: bytes, outgoing: bytes) -> None:
                before = counts(rooms)
                with pytest.raises(error):
                    await rooms.sync(incoming, outgoing, owner="alice", from_server="a2")
                assert counts(rooms) == before

            pair, late = make_pair("alice", "bob"), make_pair("alice", "bob", time_ms=NOW + 2 * DAY)
            await refused(BadContainer, b"", pair.outgoing.blob)
            await refused(BadFields, late.incoming.blob, late.outgoing.blob)
            await refused(PairMismatch, pair.incoming.blob, make_pair("alice", "bob", nonce=2).outgoing.blob)
            await refused(UserNotFound, pair.incoming.blob, pair.outgoing.blob)
            assert rooms.lookup.looked_for == [], "a peer names only whom this server knows"
            await rooms.know("alice", "a2")
            await refused(NotAccessServer, pair.incoming.blob, pair.outgoing.blob)
            await rooms.know("alice", OWN, "a2", time_ms=NOW)
            await refused(BadSignature, pair.incoming.blob, broken(pair.outgoing))
            assert (await synced(rooms, pair)).state is DeliveryState.ACCEPTED, "bob need not be known"
            await rooms.know("bob", OWN, "r2")
            for owner, (incoming, outgoing) in (("bob", pair), ("alices", make_pair("alice", "bob", nonce=3))):
                with pytest.raises(BadFields, match=f"not of {owner}"):
                    await rooms.sync(incoming.blob, outgoing.blob, owner=owner, from_server="a2")
            copy = make_copy("alice", "bob", 1, nonce=4)
            with pytest.raises(BadFields, match="not of alice"):
                await rooms.sync(copy.blob, owner="alice", from_server="a2")

    run(story())


def test_an_entry_has_one_copy_or_two(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            refusals = await rooms.catch_up.take([("bob", []), ("bob", [b"1", b"2", b"3"])], from_server="r2")
            assert [type(refusal) for refusal in refusals] == [BadFields, BadFields]
            assert await rooms.catch_up.take([], from_server="r2") == []

    run(story())


# Together


def copies(*nonces: int) -> list[Container]:
    return [make_copy("alice", "bob", 1, nonce=nonce) for nonce in nonces]


async def take(rooms: Rooms, *blobs: bytes) -> list[type[Refusal] | None]:
    """Take copies that bob got, and return what kind of refusal each got."""
    refusals = await rooms.catch_up.take([("bob", [blob]) for blob in blobs], from_server="r2")
    return [None if refusal is None else type(refusal) for refusal in refusals]


def have(rooms: Rooms, some: list[Container]) -> list[bool]:
    return [rooms.row_of(ItemKey.of(copy)) is not None for copy in some]


@contextlib.contextmanager
def storing(monkeypatch: pytest.MonkeyPatch, problem: Exception, nonce: int | None = None) -> Iterator[None]:
    """Have the store break over a copy, or over any, after it has written."""
    store_incoming = catch_up_module.store_incoming

    def breaks(txn: Transaction, container: Container, **how: Any) -> object:
        stored = store_incoming(txn, container, **how)
        if nonce in (None, container.nonce):
            raise problem
        return stored

    with monkeypatch.context() as patch:
        patch.setattr(catch_up_module, "store_incoming", breaks)
        yield


def test_what_comes_together_is_one_commit_and_what_is_wrong_harms_no_other(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms, bob=(OWN, "r2"))
            some = copies(1, 2, 3, 4, 5)
            blobs = [copy.blob for copy in some]
            blobs[1], blobs[3] = broken(some[1]), b""
            before = rooms.store.position
            assert await take(rooms, *blobs) == [None, BadSignature, None, BadContainer, None]
            assert rooms.store.position == before + 1
            assert have(rooms, some) == [True, False, True, False, True]

    run(story())


def test_a_long_stretch_is_stored_whole(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms, bob=(OWN, "r2"))
            some = copies(*range(3 * AT_A_STRETCH))
            assert await take(rooms, *(copy.blob for copy in some)) == [None] * len(some)
            assert all(have(rooms, some))

    run(story())


def test_bytes_that_are_stored_are_a_success_whatever_the_keys_are_now(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            rekeyed = identity("alice").with_device(KeyPair.from_seed(bytes(31) + b"\2"))
            await alice_and_bob(rooms, bob=(OWN, "r2"))
            [copy, later], pair = copies(1, 2), make_pair("alice", "bob")
            assert await take(rooms, copy.blob) == [None]
            await synced(rooms, pair)
            await rooms.users.add(rekeyed.access_record(servers(OWN, "a2"), time_ms=NOW - 500))
            assert await take(rooms, copy.blob, later.blob) == [None, BadSignature]
            assert (await synced(rooms, pair)).state is DeliveryState.DELIVERED
            with pytest.raises(BadSignature, match="the incoming copy"):
                await synced(rooms, make_pair("alice", "bob", nonce=9))

    run(story())


def test_where_it_cannot_be_looked_for_it_comes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(*_: object) -> None:
        raise ServerBusy("the store is read by too many at once")

    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms, bob=(OWN, "r2"))
            monkeypatch.setattr(catch_up_module, "find_stored", busy)
            assert await take(rooms, broken(copies(1)[0])) == [ServerBusy]

    run(story())


def test_a_defect_over_one_entry_keeps_no_other_from_coming(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms, bob=(OWN, "r2"))
            some = copies(1, 2, 3)
            with storing(monkeypatch, KeyError("a defect"), nonce=2):
                assert await take(rooms, *(copy.blob for copy in some)) == [None, InternalError, None]
            assert have(rooms, some) == [True, False, True]
            no_bytes: Any = 5
            assert await take(rooms, no_bytes, some[1].blob) == [InternalError, None]
            assert rooms.defects == ["r2"], "the store tells of the other one"

    run(story())


def test_without_room_none_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms, bob=(OWN, "r2"))
            some = copies(1, 2)
            with storing(monkeypatch, StorageFull("the server's store is full")):
                blobs = some[0].blob, some[1].blob, broken(copies(3)[0])
                assert await take(rooms, *blobs) == [StorageFull, StorageFull, BadSignature]
            assert have(rooms, some) == [False, False]

    run(story())


def test_what_does_not_fit_into_the_queue_is_refused_and_the_rest_is_stored(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path, max_queue=3, start_crypto=False) as rooms:
            rooms.crypto.start()
            await alice_and_bob(rooms, bob=(OWN, "r2"))
            rooms.crypto.close()
        async with Rooms(tmp_path, max_queue=3, start_crypto=False) as rooms:  # its threads do not run yet
            some = copies(1, 2, 3, 4, 5)
            taking = asyncio.ensure_future(take(rooms, *(copy.blob for copy in some)))
            await until(lambda: rooms.crypto.waiting == 3)
            assert await take(rooms, copies(6)[0].blob) == [ServerBusy]
            rooms.crypto.start()
            assert await taking == [None, None, None, ServerBusy, ServerBusy]
            assert have(rooms, some) == [True, True, True, False, False]

    run(story())


def test_a_store_that_has_too_much_to_write_refuses_all_that_was_checked(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms, bob=(OWN, "r2"))
            rooms.store.busy = True
            good, forged = copies(1, 2)
            assert await take(rooms, good.blob, broken(forged)) == [ServerBusy, BadSignature]
            rooms.store.busy = False
            assert await take(rooms, good.blob) == [None]

    run(story())


def test_a_session_that_ends_is_missed_by_nobody_and_what_it_brought_may_be_stored(tmp_path: Path) -> None:
    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            await alice_and_bob(rooms, bob=(OWN, "r2"))
            some = copies(1, 2)
            for busy in (True, False):
                rooms.store.busy = busy
                gone = asyncio.ensure_future(take(rooms, *(copy.blob for copy in some)))
                await asyncio.sleep(0)
                gone.cancel()
                await asyncio.wait((gone,))
                await until(lambda: not rooms.crypto.waiting)
                await rooms.crypto.verify([])  # it has been told to nobody
            await until(lambda: all(have(rooms, some)))

    run(story())


def test_a_loop_that_has_ended_is_told_nothing(tmp_path: Path) -> None:
    other_loop = asyncio.new_event_loop()
    future: asyncio.Future[None] = other_loop.create_future()
    other_loop.close()

    def never(txn: Transaction) -> None:
        raise AssertionError("the store takes nothing")

    async def story() -> None:
        async with Rooms(tmp_path) as rooms:
            rooms.store.busy = True
            _Stretch(rooms.store, 0, Job(never, future)).checked([])
            assert not future.done()

    run(story())
