"""Keys and values of the sub-databases: they come back as they were, and they sort as they have to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shine_node.protocol.keys import MessageId
from shine_node.protocol.schedule import DeliveryState
from shine_node.store.layout import (
    Direction,
    Flag,
    ItemKey,
    Kind,
    OpenDelivery,
    Row,
    decode_containers,
    encode_containers,
    pack_number,
    time_key,
    unpack_number,
)
from tests.protocol.strategies import logins
from tests.store.rooms import NOW, make_copy, make_pair, receipt_of, tombstone_of

pytestmark = pytest.mark.core

u64 = st.integers(0, 2**64 - 1)
u32 = st.integers(0, 2**32 - 1)
lower_logins = logins.map(str.lower)
item_keys = st.builds(ItemKey, lower_logins, lower_logins, st.sampled_from(Kind), u64, u32, st.sampled_from(Direction))
u62 = st.integers(0, 2**62 - 1)
versions = st.integers(0, 2**31 - 1)
heads = st.tuples(st.sampled_from([Flag.NONE, Flag.REMOVED, Flag.UNSYNCED]), u62, u64, u62, versions)
open_deliveries = st.builds(OpenDelivery, st.integers(1 - 2**62, 2**62 - 1), st.integers(0, 16), u62, u62)


@given(item_keys)
def test_an_item_key_comes_back(key: ItemKey) -> None:
    encoded = key.encode()
    assert ItemKey.decode(encoded) == key
    assert isinstance(ItemKey.decode(encoded).kind, Kind)
    assert len(encoded) <= 511  # the greatest key of LMDB


@given(st.lists(item_keys, min_size=2, max_size=8))
def test_item_keys_sort_by_owner_peer_kind_and_time(keys: list[ItemKey]) -> None:
    assert sorted(keys, key=ItemKey.encode) == sorted(keys)


@given(item_keys, item_keys)
def test_no_chat_begins_with_the_prefix_of_another(one: ItemKey, other: ItemKey) -> None:
    prefix = f"{one.owner}\0{one.peer}\0".encode()
    assert other.encode().startswith(prefix) == (other[:2] == one[:2])


@given(heads, st.sampled_from([DeliveryState.DELIVERED, DeliveryState.FAILED]), st.binary(max_size=32))
def test_a_terminal_row_comes_back(head: tuple[Flag, int, int, int, int], state: DeliveryState, digest: bytes) -> None:
    flags, *numbers = head
    row = Row(flags, state, *numbers, None, digest)
    assert Row.decode(row.encode()) == row
    assert row.removed == (flags is Flag.REMOVED)


@given(heads, open_deliveries)
def test_an_open_row_comes_back(head: tuple[Flag, int, int, int, int], delivery: OpenDelivery) -> None:
    flags, *numbers = head
    row = Row(flags, DeliveryState.ACCEPTED, *numbers, delivery)
    decoded = Row.decode(row.encode())
    assert decoded == row
    assert isinstance(decoded.state, DeliveryState) and isinstance(decoded.delivery, OpenDelivery)


def test_an_acceptance_before_1970_comes_back() -> None:
    # A board without a battery clock starts in 1970, and an attempt that was made 5 minutes in is made to be now.
    row = Row(Flag.NONE, DeliveryState.ACCEPTED, 1, 0, 2_000, 3, OpenDelivery(2_000 - 300_000, 3, 1_202_000, 0))
    assert Row.decode(row.encode()) == row


def test_a_row_is_due_at_the_end_of_its_lease_or_at_its_next_attempt() -> None:
    assert OpenDelivery(1, 0, 5, 0).due_at_ms == 5
    assert OpenDelivery(1, 0, 5, 9).due_at_ms == 9


def test_keys_of_a_message_and_of_what_names_it() -> None:
    incoming, outgoing = make_pair("Alice", "BOB", time_ms=5, nonce=6)
    assert ItemKey.of(outgoing) == ("alice", "bob", Kind.MESSAGE, 5, 6, Direction.OUT)
    assert ItemKey.of(incoming) == ("bob", "alice", Kind.MESSAGE, 5, 6, Direction.IN)
    message = MessageId("alice", "bob", 5, 6)
    for copy in (incoming, outgoing):
        assert ItemKey.of(copy).message == message
    for message_type, kind in ((1, Kind.MESSAGE), (2, Kind.MESSAGE), (3, Kind.RECEIPT), (4, Kind.RECEIPT)):
        assert ItemKey.outgoing(message, message_type).kind is kind
        assert ItemKey.incoming(message, message_type).kind is kind
    tombstone = tombstone_of(message)
    assert ItemKey.of(tombstone.outgoing)[:3] == ("alice", "bob", Kind.TOMBSTONE)
    receipt = receipt_of(message)
    assert ItemKey.of(receipt.incoming)[:3] == ("alice", "bob", Kind.RECEIPT)
    assert ItemKey.of(receipt.outgoing)[:3] == ("bob", "alice", Kind.RECEIPT)


def test_the_copies_of_a_message_to_oneself_have_two_keys() -> None:
    incoming, outgoing = make_pair("alice", "alice")
    assert ItemKey.of(incoming) != ItemKey.of(outgoing)
    assert ItemKey.of(incoming)[:5] == ItemKey.of(outgoing)[:5]


def test_containers_come_back_for_a_pair_and_for_one_copy() -> None:
    incoming, outgoing = make_pair("alice", "bob", time_ms=NOW)
    assert decode_containers(encode_containers(incoming.blob, outgoing.blob)) == (incoming.blob, outgoing.blob)
    alone = make_copy("alice", "bob", 1).blob
    assert decode_containers(encode_containers(alone, b"")) == (alone, b"")


@given(st.tuples(u64, u64), st.tuples(u64, u64))
def test_numbers_and_times_sort_as_they_are(one: tuple[int, int], other: tuple[int, int]) -> None:
    assert unpack_number(pack_number(one[0])) == one[0]
    assert (pack_number(one[0]) < pack_number(other[0])) == (one[0] < other[0])
    assert (time_key(*one) < time_key(*other)) == (one < other)
