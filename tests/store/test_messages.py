"""What is stored of a pair and of a copy, and all that follows from it, in one transaction."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shine_node.protocol.container import Container, parse_container
from shine_node.protocol.errors import Forbidden, KeyConflict, RateLimited, Refusal, StaleRevision, StorageFull
from shine_node.protocol.keys import MessageId, parse_base_key
from shine_node.protocol.pair import Pair, check_pair
from shine_node.protocol.revisions import Arrival
from shine_node.protocol.schedule import DeliveryState
from shine_node.store.deliveries import Claim, claim_due, record_result
from shine_node.store.environment import Store, Transaction
from shine_node.store.layout import Direction, Flag, ItemKey, Kind, OpenDelivery, Row, Table, time_key
from shine_node.store.marks import read_up_to_ms
from shine_node.store.messages import (
    Stored,
    get_blobs,
    get_row,
    identical,
    store_incoming,
    store_pair,
)
from tests.store.rooms import (
    MAX_BODY,
    NOW,
    OWN,
    SCHEDULE,
    check_indexes,
    first_delivery,
    make_copy,
    make_pair,
    opened,
    receipt_of,
    register,
    tombstone_of,
)
from tests.support.vectors import cases, load_vectors

pytestmark = pytest.mark.core

MESSAGE = MessageId("alice", "carol", NOW, 1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store of the server OWN, after which all indexes are right.

    alice and dave are on OWN and on one other server, bob is on OWN alone, carol is elsewhere.
    """
    with opened(tmp_path / "shine.mdb") as store:
        store.write_now(register_all)
        yield store
        with store.read() as txn:
            check_indexes(txn)


def register_all(txn: Transaction) -> None:
    register(txn, "alice", OWN, "Alices.Other")
    register(txn, "bob", "OWN.server")
    register(txn, "carol", "far", "away")
    register(txn, "dave", "daves-other", OWN)


def put_pair(
    store: Store,
    pair: Pair,
    *,
    now_ms: int = NOW,
    from_client: bool = True,
    delivery: OpenDelivery | None = None,
    from_server: str | None = None,
) -> Stored:
    delivery = delivery or first_delivery(now_ms)

    def work(txn: Transaction) -> Stored:
        return store_pair(
            txn, pair, now_ms=now_ms, from_client=from_client, delivery=delivery, own_login=OWN, from_server=from_server
        )

    return store.write_now(work)


def put_incoming(store: Store, copy: Container, *, now_ms: int = NOW, from_server: str | None = None) -> Stored:
    return store.write_now(lambda txn: store_incoming(txn, copy, now_ms=now_ms, own_login=OWN, from_server=from_server))


def row_of(store: Store, copy: Container) -> Row | None:
    with store.read() as txn:
        return get_row(txn, ItemKey.of(copy))


def blobs_of(store: Store, copy: Container) -> tuple[bytes, bytes]:
    with store.read() as txn:
        row = get_row(txn, ItemKey.of(copy))
        assert row is not None
        return get_blobs(txn, row)


def blobs(pair: Pair) -> tuple[bytes, bytes]:
    return pair.incoming.blob, pair.outgoing.blob


def entries(store: Store) -> list[tuple[bytes, ItemKey]]:
    """Return the entries of the outbox: the server, and the item."""
    with store.read() as txn:
        return [(key.split(b"\0")[0], ItemKey.decode(item)) for key, item in txn.scan(Table.OUTBOX_UNSYNCED)]


def due(store: Store) -> dict[bytes, ItemKey]:
    with store.read() as txn:
        return {key: ItemKey.decode(item) for key, item in txn.scan(Table.DUE_ATTEMPTS)}


def parse(incoming: str, outgoing: str) -> Pair:
    copies = (parse_container(bytes.fromhex(blob), max_body_bytes=MAX_BODY) for blob in (incoming, outgoing))
    return check_pair(*copies)


# -- a pair -------------------------------------------------------------------------------------------------------


def test_a_pair_is_stored_with_its_delivery_and_its_outbox_entry(store: Store) -> None:
    pair = make_pair("Alice", "Carol", own_body=b"the same for myself")
    delivery = OpenDelivery(NOW, 0, NOW, NOW + 60_000)
    stored = put_pair(store, pair, delivery=delivery, now_ms=NOW + 3)
    assert (stored.arrival, stored.state, stored.changed) == (Arrival.FIRST, DeliveryState.ACCEPTED, True)
    assert stored.row == Row(Flag.UNSYNCED, DeliveryState.ACCEPTED, 1, 0, NOW + 3, 1, delivery)
    assert row_of(store, pair.outgoing) == stored.row
    assert blobs_of(store, pair.outgoing) == blobs(pair)
    assert row_of(store, pair.incoming) is None  # carol is not here
    key = ItemKey.of(pair.outgoing)
    assert due(store) == {time_key(NOW + 60_000, 1): key}
    assert entries(store) == [(b"alices.other", key)]


def test_an_owner_without_another_server_has_no_entry(store: Store) -> None:
    stored = put_pair(store, make_pair("bob", "carol"))
    assert stored.row.flags is Flag.NONE
    assert entries(store) == []


def test_what_the_other_server_brought_is_synced_from_the_start(store: Store) -> None:
    stored = put_pair(store, make_pair("alice", "carol"), from_client=False, from_server="ALICES.other")
    assert stored.row.flags is Flag.NONE
    assert entries(store) == []


def test_what_another_server_brought_is_news_to_the_owners_other_server(store: Store) -> None:
    pair = make_pair("alice", "carol")
    put_pair(store, pair, from_client=False, from_server="somebody")
    assert entries(store) == [(b"alices.other", ItemKey.of(pair.outgoing))]


@pytest.mark.parametrize(
    ("from_server", "synced"), [("Alices.Other", True), ("somebody", False), (OWN, False), (None, False)]
)
def test_what_the_other_server_has_too_needs_not_be_sent_to_it(
    store: Store, from_server: str | None, synced: bool
) -> None:
    """Both were given it by somebody else: that it comes from there says that it is there."""
    pair, copy = make_pair("alice", "carol"), make_copy("carol", "alice", 1)
    put_pair(store, pair)
    put_incoming(store, copy)
    assert len(entries(store)) == 2
    again = put_pair(store, pair, from_client=False, from_server=from_server)
    copy_again = put_incoming(store, copy, from_server=from_server)
    assert again.arrival is copy_again.arrival is Arrival.SAME
    assert len(entries(store)) == (0 if synced else 2)
    assert again.row == row_of(store, pair.outgoing)
    assert copy_again.row == row_of(store, copy)
    assert put_pair(store, pair, from_client=False, from_server=from_server).row == again.row


def test_another_revision_of_the_other_server_says_nothing_of_this_one(store: Store) -> None:
    edit = make_pair("alice", "carol", revision_ms=NOW + 1, body=b"new")
    put_pair(store, edit)
    older = put_pair(store, make_pair("alice", "carol"), from_client=False, from_server="Alices.Other")
    assert older.arrival is Arrival.OLDER
    assert entries(store) == [(b"alices.other", ItemKey.of(edit.outgoing))]


def test_a_pair_that_is_only_asked_about(store: Store) -> None:
    def put(pair: Pair) -> Stored:
        return store.write_now(
            lambda txn: store_pair(
                txn,
                pair,
                now_ms=NOW,
                from_client=False,
                delivery=OpenDelivery(NOW, 0, NOW, 0),
                own_login=OWN,
                settling=True,
                from_server="alices.other",
            )
        )

    asked, here = make_pair("alice", "carol"), make_pair("alice", "bob")
    assert put(asked).row.flags is Flag.SETTLING
    with store.read() as txn:
        assert [key for key, _ in txn.scan(Table.DUE_SETTLING)] == [time_key(NOW, 1)]
    assert put(here).row.flags is Flag.SETTLING, "it is never sent, not even from here to here"
    assert row_of(store, here.incoming) is None
    put_pair(store, make_pair("alice", "bob", revision_ms=NOW + 1))
    assert row_of(store, here.incoming) is not None
    put_pair(store, make_pair("alice", "carol", revision_ms=NOW + 1))
    assert due(store) == {time_key(NOW + 60_000, 1): ItemKey.of(asked.outgoing)}
    with store.read() as txn:
        assert txn.count(Table.DUE_SETTLING) == 0


def test_a_pair_may_begin_as_delivered(store: Store) -> None:
    def work(txn: Transaction) -> Stored:
        return store_pair(txn, make_pair("alice", "carol"), now_ms=NOW, from_client=False, delivery=None, own_login=OWN)

    assert store.write_now(work).state is DeliveryState.DELIVERED
    assert due(store) == {}


def test_a_pair_whose_recipient_is_here_is_delivered_by_being_stored(store: Store) -> None:
    pair = make_pair("alice", "dave")
    stored = put_pair(store, pair)
    assert stored.state is DeliveryState.DELIVERED
    assert stored.row.delivery is None
    assert due(store) == {}
    copy = row_of(store, pair.incoming)
    assert copy == Row(Flag.UNSYNCED, DeliveryState.DELIVERED, 2, 0, NOW, 1)
    assert blobs_of(store, pair.incoming) == (pair.incoming.blob, b"")
    assert entries(store) == [
        (b"alices.other", ItemKey.of(pair.outgoing)),
        (b"daves-other", ItemKey.of(pair.incoming)),
    ]


def test_what_the_senders_other_server_brought_is_news_to_the_recipients(store: Store) -> None:
    pair = make_pair("alice", "dave")
    put_pair(store, pair, from_client=False, from_server="alices.other")
    assert entries(store) == [(b"daves-other", ItemKey.of(pair.incoming))]


def test_one_may_write_to_oneself(store: Store) -> None:
    pair = make_pair("alice", "alice")
    assert put_pair(store, pair).state is DeliveryState.DELIVERED
    assert blobs_of(store, pair.outgoing) == blobs(pair)
    assert blobs_of(store, pair.incoming) == (pair.incoming.blob, b"")
    put_pair(store, tombstone_of(pair.incoming.message))
    assert blobs_of(store, pair.outgoing) == blobs_of(store, pair.incoming) == (b"", b"")


def test_the_same_pair_again_changes_nothing(store: Store) -> None:
    pair = make_pair("alice", "carol")
    first = put_pair(store, pair)
    for from_client in (True, False):
        again = put_pair(store, pair, now_ms=NOW + 9, from_client=from_client)
        assert (again.arrival, again.row) == (Arrival.SAME, first.row)
        assert not again.changed
    assert len(due(store)) == len(entries(store)) == 1


def test_a_repetition_gives_the_copy_to_a_recipient_who_has_come_here(store: Store) -> None:
    pair = make_pair("alice", "carol")
    put_pair(store, pair)
    store.write_now(lambda txn: register(txn, "carol", OWN, time_ms=NOW + 1))
    put_pair(store, pair)
    assert blobs_of(store, pair.incoming) == (pair.incoming.blob, b"")


def test_a_removed_message_does_not_return_with_its_recipient(store: Store) -> None:
    pair = make_pair("alice", "carol")
    edit = make_pair("alice", "carol", revision_ms=NOW + 1, body=b"edited")
    put_pair(store, pair)
    put_pair(store, tombstone_of(MESSAGE))
    store.write_now(lambda txn: register(txn, "carol", OWN, time_ms=NOW + 1))
    for again in (pair, edit):
        put_pair(store, again)
        assert row_of(store, again.incoming) is None


@pytest.mark.parametrize(
    ("sender", "recipient", "synced", "remote"),
    [
        ("bob", "bob", False, False),
        ("bob", "carol", False, True),  # the recipient's servers
        ("bob", "dave", False, True),  # the recipient's other one
        ("alice", "bob", False, True),  # the sender's other one
        ("alice", "bob", True, False),  # which has it
        ("alice", "carol", True, True),
        ("bob", "nobody", False, False),
    ],
)
def test_whether_there_are_servers_to_tell(
    store: Store, sender: str, recipient: str, synced: bool, remote: bool
) -> None:
    server = "alices.other" if synced else None
    assert put_pair(store, make_pair(sender, recipient), from_client=False, from_server=server).remote is remote


# -- revisions ----------------------------------------------------------------------------------------------------


def test_an_edit_replaces_the_pair_and_starts_its_own_delivery(store: Store) -> None:
    pair = make_pair("alice", "carol")
    edit = make_pair("alice", "carol", revision_ms=NOW + 100, body=b"edited")
    first = put_pair(store, pair)
    claim = Claim(ItemKey.of(pair.outgoing), 1, 1, 0, SCHEDULE.decide(accepted_at_ms=NOW, last_attempt=0, now_ms=NOW))
    store.write_now(lambda txn: record_result(txn, claim, delivered=True, now_ms=NOW, schedule=SCHEDULE))
    stored = put_pair(store, edit, now_ms=NOW + 200)
    assert (stored.arrival, stored.state, stored.changed) == (Arrival.NEWER, DeliveryState.ACCEPTED, True)
    assert stored.row == Row(
        Flag.UNSYNCED, DeliveryState.ACCEPTED, first.row.seq, NOW + 100, NOW + 200, 3, first_delivery(NOW + 200)
    )
    assert blobs_of(store, edit.outgoing) == blobs(edit)
    assert list(due(store)) == [time_key(NOW + 60_200, 1)]
    assert len(entries(store)) == 1


def test_an_edit_takes_the_delivery_from_the_attempt_of_the_original(store: Store) -> None:
    pair = make_pair("alice", "carol")
    put_pair(store, pair)
    claim = Claim(ItemKey.of(pair.outgoing), 1, 1, 0, SCHEDULE.decide(accepted_at_ms=NOW, last_attempt=0, now_ms=NOW))
    put_pair(store, make_pair("alice", "carol", revision_ms=NOW + 100))
    lost = store.write_now(lambda txn: record_result(txn, claim, delivered=True, now_ms=NOW, schedule=SCHEDULE))
    assert lost is None
    row = row_of(store, pair.outgoing)
    assert row is not None
    assert row.state is DeliveryState.ACCEPTED


def test_the_entries_of_two_revisions_differ_whatever_the_clock(store: Store) -> None:
    times = []
    for revision, now_ms in enumerate((NOW, NOW, NOW - 5_000, NOW + 9)):
        pair = make_pair("alice", "carol", revision_ms=NOW + revision if revision else 0)
        times.append(put_pair(store, pair, now_ms=now_ms).row.changed_at_ms)
        assert len(entries(store)) == 1
    assert times == [NOW, NOW + 1, NOW + 2, NOW + 9]


def test_an_edit_that_the_other_server_brought_ends_the_entry(store: Store) -> None:
    put_pair(store, make_pair("alice", "carol"))
    put_pair(store, make_pair("alice", "carol", revision_ms=NOW + 1), from_client=False, from_server="alices.other")
    assert entries(store) == []


def test_a_client_is_told_of_a_conflict_and_of_a_later_revision(store: Store) -> None:
    edit = make_pair("alice", "carol", revision_ms=NOW + 5, body=b"edited")
    put_pair(store, edit)
    with pytest.raises(StaleRevision):
        put_pair(store, make_pair("alice", "carol"))
    for other in (b"one", b"two", b"three", b"four"):  # some of their signatures are greater, some are not
        with pytest.raises(KeyConflict):
            put_pair(store, make_pair("alice", "carol", revision_ms=NOW + 5, body=other))
    assert blobs_of(store, edit.outgoing) == blobs(edit)


def test_between_servers_the_rule_decides_and_nothing_is_refused(store: Store) -> None:
    edit = make_pair("alice", "carol", revision_ms=NOW + 5, body=b"edited")
    put_pair(store, edit)
    assert put_pair(store, make_pair("alice", "carol"), from_client=False).arrival is Arrival.OLDER
    rivals = [make_pair("alice", "carol", revision_ms=NOW + 5, body=b"%d" % number) for number in range(6)]
    best = max((edit, *rivals), key=lambda pair: pair.incoming.signature)
    arrivals = {put_pair(store, rival, from_client=False).arrival for rival in rivals}
    assert arrivals <= {Arrival.CONFLICT_WINS, Arrival.CONFLICT_LOSES}
    assert blobs_of(store, edit.outgoing) == blobs(best)


def test_two_pairs_that_differ_in_the_senders_copy_alone(tmp_path: Path) -> None:
    one, other = (make_pair("alice", "carol", own_body=body) for body in (b"one", b"other"))
    results = set()
    for number, order in enumerate(((one, other), (other, one))):
        with opened(tmp_path / f"{number}.mdb") as store:
            store.write_now(register_all)
            for pair in order:
                put_pair(store, pair, from_client=False)
            results.add(blobs_of(store, one.outgoing))
    assert len(results) == 1


# -- a recipient's copy -------------------------------------------------------------------------------------------


def test_a_copy_is_stored_and_is_news_to_the_other_server(store: Store) -> None:
    copy = make_copy("carol", "alice", 1)
    stored = put_incoming(store, copy)
    assert stored == Stored(Arrival.FIRST, Row(Flag.UNSYNCED, DeliveryState.DELIVERED, 1, 0, NOW, 1))
    assert blobs_of(store, copy) == (copy.blob, b"")
    assert entries(store) == [(b"alices.other", ItemKey.of(copy))]
    assert due(store) == {}
    assert put_incoming(store, copy, now_ms=NOW + 5) == Stored(Arrival.SAME, stored.row)


def test_a_copy_that_the_other_server_brought_is_synced(store: Store) -> None:
    assert put_incoming(store, make_copy("carol", "alice", 1), from_server="alices.other").row.flags is Flag.NONE
    assert entries(store) == []


def test_a_copy_is_replaced_by_an_edit_and_not_by_an_older_one(store: Store) -> None:
    original, edit = (make_copy("carol", "alice", 1, revision_ms=revision) for revision in (0, NOW + 1))
    assert put_incoming(store, edit).changed
    assert put_incoming(store, original).arrival is Arrival.OLDER
    assert blobs_of(store, original) == (edit.blob, b"")


# -- bytes that are stored already --------------------------------------------------------------------------------


def test_whether_the_same_bytes_are_stored(store: Store) -> None:
    pair, other = make_pair("alice", "dave"), make_pair("alice", "dave", body=b"other")
    key = ItemKey.of(pair.outgoing)
    with store.read() as txn:
        assert identical(txn, key, *blobs(pair)) is None
    stored = put_pair(store, pair)
    with store.read() as txn:
        assert identical(txn, key, *blobs(pair)) == stored.row
        assert identical(txn, key, *blobs(other)) is None
        assert identical(txn, key, pair.incoming.blob, b"") is None
        assert identical(txn, ItemKey.of(pair.incoming), pair.incoming.blob, b"") is not None
        assert identical(txn, ItemKey.of(pair.incoming), *blobs(pair)) is None


def test_whether_the_same_bytes_were_removed(store: Store) -> None:
    pair, other = make_pair("alice", "carol"), make_pair("alice", "carol", body=b"other")
    put_pair(store, pair)
    put_pair(store, tombstone_of(MESSAGE))
    key = ItemKey.of(pair.outgoing)
    with store.read() as txn:
        row = identical(txn, key, *blobs(pair))
        assert row is not None and row.removed
        assert identical(txn, key, *blobs(other)) is None


def test_of_what_was_removed_before_it_came_no_bytes_are_known(store: Store) -> None:
    put_pair(store, tombstone_of(MESSAGE))
    pair = make_pair("alice", "carol")
    with store.read() as txn:
        assert identical(txn, ItemKey.of(pair.outgoing), *blobs(pair)) is None


# -- tombstones ---------------------------------------------------------------------------------------------------


def test_a_tombstone_ends_the_delivery_and_the_entry_of_its_message(store: Store) -> None:
    pair = make_pair("alice", "carol")
    put_pair(store, pair)
    tombstone = tombstone_of(MESSAGE)
    stored = put_pair(store, tombstone, now_ms=NOW + 5)
    assert stored.state is DeliveryState.ACCEPTED
    digest = hashlib.sha256(pair.incoming.blob + pair.outgoing.blob).digest()
    assert row_of(store, pair.outgoing) == Row(Flag.REMOVED, DeliveryState.DELIVERED, 1, 0, NOW, 2, None, digest)
    assert blobs_of(store, pair.outgoing) == (b"", b"")
    key = ItemKey.of(tombstone.outgoing)
    assert list(due(store).values()) == [key]
    assert entries(store) == [(b"alices.other", key)]


def test_a_tombstone_removes_both_copies_that_are_here(store: Store) -> None:
    pair = make_pair("alice", "dave")
    put_pair(store, pair)
    put_pair(store, tombstone_of(pair.incoming.message))
    for copy in pair:
        row = row_of(store, copy)
        assert row is not None and row.removed
        assert blobs_of(store, copy) == (b"", b"")
    with store.read() as txn:
        assert all(pair.incoming.body not in value for _, value in txn.scan(Table.CONTAINERS))


def test_the_recipients_copy_of_a_tombstone_removes_the_recipients_copy(store: Store) -> None:
    copy = make_copy("carol", "alice", 1)
    put_incoming(store, copy)
    put_incoming(store, tombstone_of(copy.message).incoming)
    row = row_of(store, copy)
    assert row is not None
    assert row.removed
    assert row.digest == hashlib.sha256(copy.blob).digest()
    assert put_incoming(store, copy).arrival is Arrival.SAME
    assert put_incoming(store, make_copy("carol", "alice", 1, body=b"other")).arrival is Arrival.CONFLICT_LOSES
    assert blobs_of(store, copy) == (b"", b"")


def test_a_message_that_failed_before_it_was_removed_stays_failed(store: Store) -> None:
    pair = make_pair("alice", "carol")
    put_pair(store, pair)
    hour = SCHEDULE.decide(accepted_at_ms=NOW, last_attempt=0, now_ms=NOW + 3_600_000)
    claim = Claim(ItemKey.of(pair.outgoing), 1, 1, 0, hour)
    store.write_now(lambda txn: record_result(txn, claim, delivered=False, now_ms=NOW + 3_600_000, schedule=SCHEDULE))
    put_pair(store, tombstone_of(MESSAGE))
    row = row_of(store, pair.outgoing)
    assert row is not None
    assert (row.state, row.removed) == (DeliveryState.FAILED, True)


def test_a_message_that_comes_after_its_tombstone_is_delivered_and_nothing_is_kept(store: Store) -> None:
    put_pair(store, tombstone_of(MESSAGE), now_ms=NOW)
    for revision in (0, NOW + 5):
        late = make_pair("alice", "carol", revision_ms=revision)
        stored = put_pair(store, late)
        assert stored.arrival is Arrival.REMOVED
        assert stored.row == Row(Flag.REMOVED, DeliveryState.DELIVERED, 0, 0, NOW, 1)
        assert not stored.changed
        assert blobs_of(store, late.outgoing) == (b"", b"")
    assert len(due(store)) == 1  # the tombstone's own


def test_of_a_removed_message_repetition_edit_and_conflict_are_told_apart(store: Store) -> None:
    pair = make_pair("alice", "carol")
    put_pair(store, pair)
    put_pair(store, tombstone_of(MESSAGE))
    assert put_pair(store, pair).arrival is Arrival.SAME
    edit = make_pair("alice", "carol", revision_ms=NOW + 5)
    assert put_pair(store, edit).arrival is Arrival.REMOVED
    other = make_pair("alice", "carol", body=b"other")
    with pytest.raises(KeyConflict):
        put_pair(store, other)
    assert put_pair(store, other, from_client=False).arrival is Arrival.CONFLICT_LOSES
    assert blobs_of(store, pair.outgoing) == (b"", b"")


def test_a_second_tombstone_of_a_message_changes_nothing_in_it(store: Store) -> None:
    pair = make_pair("alice", "carol")
    put_pair(store, pair)
    put_pair(store, tombstone_of(MESSAGE))
    before = row_of(store, pair.outgoing)
    assert put_pair(store, tombstone_of(MESSAGE, nonce=99)).changed
    assert row_of(store, pair.outgoing) == before


def test_a_tombstone_touches_only_messages_of_its_direction_and_nonce(store: Store) -> None:
    others = [
        make_pair("alice", "carol", nonce=2),
        make_pair("alice", "carol", time_ms=NOW + 1),
        make_pair("alice", "dave"),
    ]
    back = make_copy("carol", "alice", 1)
    for pair in others:
        put_pair(store, pair)
    put_incoming(store, back)
    put_pair(store, tombstone_of(MESSAGE))
    for pair in others:
        assert blobs_of(store, pair.outgoing) == blobs(pair)
    assert blobs_of(store, back) == (back.blob, b"")


def test_the_number_of_a_removed_message_is_not_given_again(tmp_path: Path) -> None:
    pair, later = make_pair("alice", "carol"), make_pair("alice", "carol", nonce=2)
    tombstone = tombstone_of(MESSAGE)
    path = tmp_path / "shine.mdb"
    with opened(path) as store:
        store.write_now(register_all)
        put_pair(store, tombstone)
        seq = put_pair(store, pair).row.seq
        assert seq == 0
        seq = put_pair(store, later).row.seq
        put_pair(store, tombstone_of(later.incoming.message, nonce=70))
    with opened(path) as store:
        assert put_pair(store, make_pair("alice", "carol", nonce=3)).row.seq == seq + 2
        with store.read() as txn:
            check_indexes(txn)


# -- receipts -----------------------------------------------------------------------------------------------------


def marks(store: Store, owner: str, peer: str) -> tuple[int | None, int | None]:
    with store.read() as txn:
        return (
            read_up_to_ms(txn, owner, peer, Direction.IN),
            read_up_to_ms(txn, owner, peer, Direction.OUT),
        )


def test_a_receipt_marks_what_its_sender_received_and_its_recipient_sent(store: Store) -> None:
    pair = make_pair("alice", "dave")
    put_pair(store, pair)
    assert marks(store, "alice", "dave") == marks(store, "dave", "alice") == (None, None)
    put_pair(store, receipt_of(pair.incoming.message))
    assert marks(store, "dave", "alice") == (NOW, None)
    assert marks(store, "alice", "dave") == (None, NOW)
    assert marks(store, "alice", "carol") == (None, None)


def test_a_mark_never_goes_back(store: Store) -> None:
    for nonce, time_ms in enumerate((NOW, NOW - 1, NOW + 1, NOW)):
        put_incoming(store, receipt_of(MessageId("alice", "carol", time_ms, 5), nonce=nonce).incoming)
    assert marks(store, "alice", "carol") == (None, NOW + 1)


def test_a_mark_at_the_beginning_of_time_is_one(store: Store) -> None:
    put_incoming(store, receipt_of(MessageId("alice", "carol", 0, 5)).incoming)
    assert marks(store, "alice", "carol") == (None, 0)


def test_a_receipt_is_delivered_and_synchronised_like_any_other_item(store: Store) -> None:
    receipt = receipt_of(MessageId("carol", "alice", NOW, 1))
    assert put_pair(store, receipt).state is DeliveryState.ACCEPTED
    key = ItemKey.of(receipt.outgoing)
    assert key.kind is Kind.RECEIPT
    assert list(due(store).values()) == [key]
    assert entries(store) == [(b"alices.other", key)]


# -- the vectors --------------------------------------------------------------------------------------------------


def register_of_vectors(txn: Transaction) -> None:
    """All users of the vectors on this server, so that both copies of a pair are stored."""
    for login in load_vectors("revisions")["keys"]:
        register(txn, login, OWN, f"{login}.other")


@pytest.mark.parametrize("case", cases("revisions", kind="sendMessagePair"))
@pytest.mark.parametrize("recipient_here", [True, False], ids=["here", "elsewhere"])
def test_submissions_by_a_client(tmp_path: Path, case: dict[str, Any], recipient_here: bool) -> None:
    pairs = {name: parse(pair["incomingHex"], pair["outgoingHex"]) for name, pair in case["pairs"].items()}
    with opened(tmp_path / "shine.mdb") as store:
        if recipient_here:
            store.write_now(register_of_vectors)
        for step in case["steps"]:
            try:
                put_pair(store, pairs[step["pair"]])
            except Refusal as refusal:
                assert (refusal.status, refusal.code) == (step["status"], step["error"])
            else:
                assert (step["status"], step["error"]) == (200, None)
        after = pairs[case["storedAfter"]]
        assert blobs_of(store, after.outgoing) == blobs(after)
        if recipient_here:
            assert blobs_of(store, after.incoming) == (after.incoming.blob, b"")
        with store.read() as txn:
            check_indexes(txn)


@pytest.mark.parametrize("case", cases("revisions", kind="pair"))
def test_two_pairs_of_one_revision_meet(tmp_path: Path, case: dict[str, Any]) -> None:
    pairs = [parse(pair["incomingHex"], pair["outgoingHex"]) for pair in case["pairs"]]
    winner = pairs[case["winner"]]
    for number, order in enumerate(itertools.permutations(pairs)):
        with opened(tmp_path / f"{number}.mdb") as store:
            store.write_now(register_of_vectors)
            for pair in order:
                put_pair(store, pair, from_client=False)
            assert blobs_of(store, winner.outgoing) == blobs(winner)
            assert blobs_of(store, winner.incoming) == (winner.incoming.blob, b"")


# A server takes a sender's copy in a pair only; the rule itself, and this case, have their test with the protocol.
RECIPIENTS_COPIES = [case for case in cases("revisions", kind="copy") if case.id != "type 2 copies"]


@pytest.mark.parametrize("case", RECIPIENTS_COPIES)
def test_copies_in_every_order_of_arrival(tmp_path: Path, case: dict[str, Any]) -> None:
    copies = [parse_container(bytes.fromhex(blob), max_body_bytes=MAX_BODY) for blob in case["blobsHex"]]
    for number, order in enumerate(case["arrivalOrders"]):
        with opened(tmp_path / f"{number}.mdb") as store:
            for index in order:
                put_incoming(store, copies[index])
            assert blobs_of(store, copies[0]) == (copies[case["winner"]].blob, b"")


@pytest.mark.parametrize("case", cases("revisions", kind="tombstone"))
@pytest.mark.parametrize("from_client", [True, False], ids=["client", "peer"])
def test_a_tombstone_before_and_after(tmp_path: Path, case: dict[str, Any], from_client: bool) -> None:
    items = {name: parse(item["incomingHex"], item["outgoingHex"]) for name, item in case["items"].items()}
    message = parse_base_key(case["baseKey"])
    assert message is not None
    with opened(tmp_path / "shine.mdb") as store:
        store.write_now(register_of_vectors)
        for step in case["steps"]:
            put_pair(store, items[step], from_client=from_client)  # everyStepStatus is 200 in every case
            assert case["everyStepStatus"] == 200
        with store.read() as txn:
            check_indexes(txn)
            for key in (ItemKey.outgoing(message, 1), ItemKey.incoming(message, 1)):
                row = get_row(txn, key)
                assert row is not None
                assert row.removed == case["removed"]
                assert (get_blobs(txn, row) == (b"", b"")) == case["removed"]


@pytest.mark.parametrize("case", cases("receipts"))
def test_what_receipts_cover(tmp_path: Path, case: dict[str, Any]) -> None:
    messages, receipts = (
        [parse_container(bytes.fromhex(blob), max_body_bytes=MAX_BODY) for blob in case[name]]
        for name in ("messagesHex", "receiptsHex")
    )
    with opened(tmp_path / "shine.mdb") as store:
        for copy in (*messages, *receipts):
            put_incoming(store, copy)
        read = []
        for index, copy in enumerate(messages):
            with store.read() as txn:
                sender, recipient = copy.message.from_login, copy.message.to_login
                mark = read_up_to_ms(txn, sender, recipient, Direction.OUT)
            if mark is not None and copy.time_ms <= mark:
                read.append(index)
        assert read == case["read"]


# -- the order of arrival -----------------------------------------------------------------------------------------

REVISIONS = [
    make_pair("alice", "dave", revision_ms=revision, body=body, own_body=own_body)
    for revision in (0, NOW + 1, NOW + 2)
    for body, own_body in ((b"a", b"a"), (b"b", b"b"), (b"b", b"c"))
]
ITEMS = [
    *REVISIONS,
    make_pair("alice", "dave", nonce=2),
    tombstone_of(MessageId("alice", "dave", NOW, 2), nonce=20),
    receipt_of(MessageId("alice", "dave", NOW, 1), nonce=30),
    receipt_of(MessageId("alice", "dave", NOW + 9, 1), nonce=31),
]


def final_state(path: Path, arrivals: list[int]) -> tuple[object, ...]:
    with opened(path) as store:
        store.write_now(register_all)
        for index in arrivals:
            put_pair(store, ITEMS[index], from_client=False)
        with store.read() as txn:
            rows = check_indexes(txn)
            items = {
                key: (row.revision_ms if not row.removed else None, row.removed, get_blobs(txn, row))
                for key, row in rows.items()
            }
            read = [read_up_to_ms(txn, *chat, direction) for chat in CHATS for direction in Direction]
            return items, read


CHATS = (("alice", "dave"), ("dave", "alice"))


@given(st.permutations(range(len(ITEMS))), st.lists(st.integers(0, len(ITEMS) - 1), max_size=6))
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_servers_agree_whatever_the_order_of_arrival(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], again: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("order")
    expected = final_state(folder / "one.mdb", list(range(len(ITEMS))))
    assert final_state(folder / "other.mdb", [*order, *again]) == expected


def test_a_claim_of_a_removed_message_writes_nothing(store: Store) -> None:
    pair = make_pair("alice", "carol")
    put_pair(store, pair)
    later = NOW + 61_000
    claims, _ = store.write_now(lambda txn: claim_due(txn, SCHEDULE, now_ms=later, lease_ms=60_000, limit=10))
    put_pair(store, tombstone_of(MESSAGE))
    before = row_of(store, pair.outgoing)
    lost = store.write_now(lambda txn: record_result(txn, claims[0], delivered=False, now_ms=later, schedule=SCHEDULE))
    assert lost is None
    assert row_of(store, pair.outgoing) == before


# -- what may not be stored ---------------------------------------------------------------------------------------


class Keeper:
    """A gate that refuses what a test says, and takes note of what it was asked."""

    def __init__(self, *, sends: Refusal | None = None, receives: Refusal | None = None) -> None:
        self.refusals = (sends, receives)
        self.asked: list[tuple[str, str, int]] = []
        self.removes: list[bool] = []
        """What it was told with each question: whether a message is removed."""
        self.counted: list[str] = []

    def sends(self, txn: Transaction, key: ItemKey, *, grows: int, removes: bool, now_ms: int) -> None:
        assert (txn.writes, now_ms) == (0, NOW)
        self.removes.append(removes)
        self._ask("sends", key, grows, self.refusals[0])

    def receives(self, txn: Transaction, key: ItemKey, *, grows: int, removes: bool) -> None:
        assert txn.writes == 0
        self.removes.append(removes)
        self._ask("receives", key, grows, self.refusals[1])

    def sent(self, key: ItemKey, *, removes: bool) -> None:
        assert removes in self.removes
        self.counted.append(key.owner)

    def _ask(self, what: str, key: ItemKey, grows: int, refusal: Refusal | None) -> None:
        self.asked.append((what, key.owner, grows))
        if refusal is not None:
            raise refusal


def put_through(store: Store, pair: Pair, gate: Keeper, *, from_client: bool = True, counts: bool = False) -> Stored:
    return store.write_now(
        lambda txn: store_pair(
            txn,
            pair,
            now_ms=NOW,
            from_client=from_client,
            delivery=first_delivery(),
            own_login=OWN,
            gate=gate,
            counts=counts,
        )
    )


def sizes(pair: Pair) -> tuple[int, int]:
    return sum(map(len, blobs(pair))), len(pair.incoming.blob)


def test_a_gate_is_asked_for_both_owners_by_how_much_what_they_have_grows(store: Store) -> None:
    pair, gate = make_pair("alice", "bob", body=b"x" * 100), Keeper()
    edit = make_pair("alice", "bob", body=b"y", revision_ms=NOW + 5)
    assert put_through(store, pair, gate).state is DeliveryState.DELIVERED
    assert gate.asked == [("sends", "alice", sizes(pair)[0]), ("receives", "bob", sizes(pair)[1])]
    put_through(store, pair, gate)
    assert len(gate.asked) == 2, "nothing would be stored"
    put_through(store, edit, gate)
    growth = [("sends", "alice", sizes(edit)[0] - sizes(pair)[0]), ("receives", "bob", sizes(edit)[1] - sizes(pair)[1])]
    assert gate.asked[2:] == growth
    put_through(store, make_pair("alice", "carol"), gate)
    assert [owner for _, owner, _ in gate.asked[4:]] == ["alice"], "carol is at home elsewhere"
    assert gate.counted == ["alice"] * 3, "each that was stored, and none twice"


def test_a_sender_that_may_not_leaves_nothing_behind(store: Store) -> None:
    pair = make_pair("alice", "bob")
    with pytest.raises(StorageFull):
        put_through(store, pair, Keeper(sends=StorageFull("no room")))
    assert row_of(store, pair.outgoing) is row_of(store, pair.incoming) is None


@pytest.mark.parametrize("from_client", [True, False])
def test_a_copy_that_its_recipient_does_not_take_is_left_to_the_schedule(store: Store, from_client: bool) -> None:
    pair = make_pair("alice", "bob")
    gate = Keeper(receives=Forbidden("not from alice"))
    stored = put_through(store, pair, gate, from_client=from_client)
    assert stored.state is DeliveryState.ACCEPTED
    assert row_of(store, pair.incoming) is None
    assert len(due(store)) == 1
    again = put_through(store, pair, gate, from_client=from_client)
    assert (again.arrival, again.state) == (Arrival.SAME, DeliveryState.ACCEPTED)
    assert row_of(store, pair.incoming) is None
    put_through(store, pair, Keeper(), from_client=from_client)
    assert row_of(store, pair.incoming) is not None


def test_who_sends_too_fast_is_told_so_where_it_is_new_and_comes_from_a_client(store: Store) -> None:
    pair = make_pair("alice", "bob")
    gate = Keeper(receives=RateLimited("too fast"))
    with pytest.raises(RateLimited):
        put_through(store, pair, gate)
    assert row_of(store, pair.outgoing) is None
    assert not gate.counted
    assert put_through(store, pair, gate, from_client=False).state is DeliveryState.ACCEPTED
    assert put_through(store, pair, gate).arrival is Arrival.SAME


def test_a_copy_from_a_server_is_refused_or_taken(store: Store) -> None:
    copy = make_copy("carol", "bob", 1)

    def put(gate: Keeper) -> Stored:
        return store.write_now(lambda txn: store_incoming(txn, copy, now_ms=NOW, own_login=OWN, gate=gate))

    with pytest.raises(Forbidden):
        put(Keeper(receives=Forbidden("no")))
    assert row_of(store, copy) is None
    gate = Keeper()
    put(gate)
    put(gate)
    assert gate.asked == [("receives", "bob", len(copy.blob))]


def test_a_gate_is_told_of_a_tombstone_for_whom_it_removes_something(store: Store) -> None:
    pair = make_pair("alice", "bob")
    stone = tombstone_of(pair.incoming.message)
    gate = Keeper()
    put_through(store, stone, gate)
    put_through(store, pair, gate)
    assert gate.removes == [False] * 2, "it came before its message, which is never stored"
    store.write_now(lambda txn: store_incoming(txn, make_copy("carol", "bob", 1), now_ms=NOW, own_login=OWN))
    copy = tombstone_of(make_copy("carol", "bob", 1).message).incoming
    gate = Keeper()
    store.write_now(lambda txn: store_incoming(txn, copy, now_ms=NOW, own_login=OWN, gate=gate))
    assert gate.removes == [True]
    gate = Keeper()
    other = make_pair("alice", "carol", nonce=77)
    put_through(store, other, gate)
    put_through(store, tombstone_of(other.incoming.message, nonce=78), gate)
    put_through(store, tombstone_of(other.incoming.message, nonce=79), gate)
    assert gate.removes == [False, True, False], "a second one removes nothing more"


def test_only_messages_count_as_sent_here(store: Store) -> None:
    pair = make_pair("alice", "carol")
    assert Flag.SENT_HERE in put_through(store, pair, Keeper(), counts=True).row.flags
    assert Flag.SENT_HERE not in put_through(store, make_pair("bob", "carol"), Keeper()).row.flags
    receipt = receipt_of(make_copy("carol", "alice", 1).message)
    assert Flag.SENT_HERE not in put_through(store, receipt, Keeper(), counts=True).row.flags
