"""Items as they stood elsewhere, beside what is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from shine_node.protocol.keys import MessageId
from shine_node.protocol.schedule import DeliveryState
from shine_node.store.environment import Store, Transaction
from shine_node.store.layout import Flag, ItemKey, OpenDelivery, Row, Table, decode_containers
from shine_node.store.messages import get_blobs, get_row, store_pair
from shine_node.store.placing import place_item
from shine_node.store.portable import Item
from shine_node.store.usage import read_usage
from shine_node.store.verifying.sums import find_wrong_sums
from tests.store.rooms import (
    NOW,
    OWN,
    check_indexes,
    first_delivery,
    make_copy,
    make_pair,
    opened,
    register,
    tombstone_of,
)

pytestmark = pytest.mark.core

MESSAGE = MessageId("alice", "bob", NOW, 1)
KEY = ItemKey.outgoing(MESSAGE, 1)
ACCEPTED, DELIVERED, FAILED = DeliveryState.ACCEPTED, DeliveryState.DELIVERED, DeliveryState.FAILED
OPEN = OpenDelivery(NOW - 50, 2, NOW + 300_000, 0)


def sent(
    state: DeliveryState = ACCEPTED,
    *,
    revision_ms: int = 0,
    synced: str = "",
    flags: Flag = Flag.NONE,
    version: int = 7,
) -> Item:
    delivery = OPEN if state is ACCEPTED else None
    row = Row(flags, state, 1, revision_ms, NOW + 5, version, delivery)
    return Item(KEY, row, synced, *make_pair("alice", "bob", revision_ms=revision_ms))


def removed(digest: bytes = b"d" * 32) -> Item:
    return Item(KEY, Row(Flag.REMOVED, DELIVERED, int(bool(digest)), 0, NOW, 3, None, digest), "")


def place(store: Store, item: Item, *, foreign: bool = False) -> bool:
    return store.write_now(lambda txn: place_item(txn, item, own_login=OWN, foreign=foreign))


def row_of(store: Store, key: ItemKey = KEY) -> Row:
    with store.read() as txn:
        check_indexes(txn)
        row = get_row(txn, key)
        assert row is not None
        return row


@pytest.fixture
def store(tmp_path: Path):  # type: ignore[no-untyped-def]
    with opened(tmp_path / "shine.mdb") as opened_store:
        opened_store.write_now(lambda txn: [register(txn, "alice", OWN, "Other"), register(txn, "bob", "far")])
        yield opened_store
        with opened_store.read() as txn:
            assert find_wrong_sums(txn) == [], "what is counted of owners is what they have"


@pytest.mark.parametrize("flags", [Flag.NONE, Flag.SETTLING])
@pytest.mark.parametrize("synced", ["", "other", "former"])
def test_one_that_is_new_is_as_it_was(store: Store, flags: Flag, synced: str) -> None:
    item = sent(flags=flags, synced=synced)
    assert place(store, item)
    row = row_of(store)
    assert row.seq > 0
    unsynced = Flag.NONE if synced == "other" else Flag.UNSYNCED
    assert row == item.row._replace(seq=row.seq, flags=flags | unsynced)
    with store.read() as txn:
        assert get_blobs(txn, row) == item.blobs
    assert not place(store, item)
    assert row_of(store) == row


def test_without_another_server_there_is_nothing_to_synchronise(store: Store) -> None:
    copy = make_copy("carol", "bob", 1)
    item = Item(ItemKey.of(copy), Row(Flag.NONE, DELIVERED, 1, 0, NOW, 1), "other", copy)
    assert place(store, item)
    assert row_of(store, item.key).flags is Flag.NONE


@pytest.mark.parametrize("digest", [b"", b"d" * 32])
def test_a_removed_one(store: Store, digest: bytes) -> None:
    assert place(store, removed(digest))
    row = row_of(store)
    assert (row.removed, row.digest, bool(row.seq)) == (True, digest, bool(digest))
    assert not place(store, removed(digest))
    assert not place(store, sent())
    assert row_of(store) == row


def test_the_word_that_one_was_removed_removes_nothing_and_its_tombstone_does(store: Store) -> None:
    assert place(store, sent())
    assert not place(store, removed())
    assert not row_of(store).removed
    pair = tombstone_of(MESSAGE)
    key = ItemKey.of(pair.outgoing)
    assert place(store, Item(key, Row(Flag.NONE, DELIVERED, 1, 0, NOW, 1), "", *pair))
    assert row_of(store).removed


def test_the_greater_revision_counts(store: Store) -> None:
    assert place(store, sent(version=7))
    assert place(store, sent(DELIVERED, revision_ms=NOW + 1, version=2))
    row = row_of(store)
    assert (row.revision_ms, row.state, row.version, row.changed_at_ms) == (NOW + 1, DELIVERED, 8, NOW + 6)
    assert not place(store, sent(version=9))
    assert row_of(store) == row


def test_states_of_the_same_revision(store: Store) -> None:
    assert place(store, sent())
    assert not place(store, sent(FAILED), foreign=True)
    assert row_of(store).state is ACCEPTED
    assert place(store, sent(DELIVERED), foreign=True)
    assert not place(store, sent(FAILED))
    assert not place(store, sent())
    assert row_of(store).state is DELIVERED


def test_a_failure_of_this_server(store: Store) -> None:
    def work(txn: Transaction) -> None:
        pair = make_pair("alice", "bob")
        store_pair(txn, pair, now_ms=NOW, from_client=True, delivery=first_delivery(), own_login=OWN)

    store.write_now(work)
    assert place(store, sent(FAILED))
    assert row_of(store).state is FAILED


def test_what_is_placed_is_counted(store: Store) -> None:
    """Also where a row was written before, and items of which it does not know follow."""
    assert place(store, sent())
    assert place(store, sent(DELIVERED, revision_ms=NOW + 1, version=2))
    assert place(store, removed(b"d" * 32)) is False
    copy = make_copy("carol", "alice", 1, nonce=6)
    assert place(store, Item(ItemKey.of(copy), Row(Flag.NONE, DELIVERED, 1, 0, NOW, 1), "", copy))
    with store.read() as txn:
        stored = sum(len(blob) for _, value in txn.scan(Table.CONTAINERS) for blob in decode_containers(value))
    assert store.write_now(lambda txn: read_usage(txn, "alice")).stored_bytes == stored
