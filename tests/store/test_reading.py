"""Looks into history: chats from their end, chats skipped through, unread messages; against a plain model too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shine_node.protocol.container import Container
from shine_node.protocol.pair import Pair
from shine_node.protocol.schedule import DeliveryState
from shine_node.store import reading
from shine_node.store.environment import Store, Transaction
from shine_node.store.layout import Direction, Flag, ItemKey, Kind, Row, Table, pack_number
from shine_node.store.messages import store_incoming, store_pair
from shine_node.store.reading import (
    GREATEST_TIME_MS,
    Entry,
    Position,
    count_unread,
    get_own_copy,
    list_chats,
    read_chat,
)
from tests.store.rooms import NOW, OWN, first_delivery, make_copy, make_pair, opened, receipt_of, register, tombstone_of

pytestmark = pytest.mark.core

MANY = 10**6


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with opened(tmp_path / "shine.mdb") as store:
        store.write_now(lambda txn: [register(txn, login, OWN) for login in ("alice", "bob", "carol")])
        yield store


def take(txn: Transaction, what: Pair | Container, at_ms: int = NOW) -> None:
    """Store a pair of a client, or an incoming copy of a server."""
    if isinstance(what, Container):
        store_incoming(txn, what, now_ms=at_ms, own_login=OWN)
    else:
        store_pair(txn, what, now_ms=at_ms, from_client=False, delivery=first_delivery(), own_login=OWN)


def take_all(store: Store, *what: Pair | Container) -> None:
    def work(txn: Transaction) -> None:
        for each in what:
            take(txn, each)

    store.write_now(work)


def chat(store: Store, owner: str, peer: str, before: Position | None = None) -> list[Entry]:
    with store.read() as txn:
        return [found for found in read_chat(txn, owner, peer, before) if isinstance(found, Entry)]


def times(entries: list[Entry]) -> list[tuple[int, int, Direction]]:
    return [entry.position for entry in entries]


def unread(store: Store, owner: str, peer: str, greatest: int = MANY) -> int:
    with store.read() as txn:
        return count_unread(txn, owner, peer, greatest)


def own_copy(store: Store, entry: Entry) -> bytes:
    with store.read() as txn:
        return get_own_copy(txn, entry)


def test_a_chat_is_read_from_its_end_and_from_any_position(store: Store) -> None:
    there = [make_pair("alice", "bob", time_ms=NOW + number, nonce=number) for number in (1, 3, 5)]
    back = [make_pair("bob", "alice", time_ms=NOW + number, nonce=number) for number in (2, 4)]
    noise = [
        make_pair("alice", "bobby", time_ms=NOW),
        make_pair("alice", "bo", time_ms=NOW),
        make_pair("carol", "bob", time_ms=NOW),
        receipt_of(there[0].incoming.message),
        tombstone_of(there[2].incoming.message, time_ms=NOW + 9),
    ]
    store.write_now(lambda txn: [register(txn, login, OWN) for login in ("bobby", "bo")])
    take_all(store, *there, *back, *noise)
    found = chat(store, "alice", "bob")
    assert [(entry.key.time_ms - NOW, entry.key.direction.name, entry.row.removed) for entry in found] == [
        (5, "OUT", True),
        (4, "IN", False),
        (3, "OUT", False),
        (2, "IN", False),
        (1, "OUT", False),
    ]
    for index, entry in enumerate(found):
        assert chat(store, "alice", "bob", entry.position) == found[index + 1 :]
        assert Position.decode(entry.position.encode()) == entry.position
    assert [entry.key.direction.name for entry in chat(store, "bob", "alice")] == ["IN", "OUT", "IN", "OUT", "IN"]
    assert chat(store, "alice", "nobody") == chat(store, "nobody", "alice") == []


def test_the_owner_gets_the_owners_copy(store: Store) -> None:
    pair = make_pair("alice", "bob", body=b"for bob", own_body=b"for alice")
    take_all(store, pair)
    [out], [incoming] = chat(store, "alice", "bob"), chat(store, "bob", "alice")
    assert own_copy(store, out) == pair.outgoing.blob
    assert own_copy(store, incoming) == pair.incoming.blob
    take_all(store, tombstone_of(pair.incoming.message))
    for owner, peer in (("alice", "bob"), ("bob", "alice")):
        [removed] = chat(store, owner, peer)
        assert removed.row.removed
        assert own_copy(store, removed) == b""


def test_what_was_removed_before_it_came_is_not_listed(store: Store) -> None:
    said = make_pair("alice", "bob", time_ms=NOW - 9)
    early = make_pair("alice", "bob", time_ms=NOW + 99)
    take_all(store, tombstone_of(early.incoming.message))
    with store.read() as txn:
        assert txn.count(Table.HISTORY) == 4
        assert list(list_chats(txn, "alice")) == list(list_chats(txn, "bob")) == []
    take_all(store, said, early)
    for owner, peer in (("alice", "bob"), ("bob", "alice")):
        [entry] = chat(store, owner, peer)
        assert entry.key.message == said.incoming.message
        with store.read() as txn:
            assert list(list_chats(txn, owner)) == [(entry.key.time_ms, peer)]
    assert unread(store, "bob", "alice") == 1


def leave_removed(store: Store, count: int, *, from_ms: int) -> None:
    """Leave in Bob's chat with Alice what many tombstones of messages that never came leave."""
    row = Row(Flag.REMOVED, DeliveryState.DELIVERED, 0, 0, NOW, 1).encode()

    def work(txn: Transaction) -> None:
        for number in range(count):
            key = ItemKey("bob", "alice", Kind.MESSAGE, from_ms + number, 0, Direction.IN)
            txn.put(Table.HISTORY, key.encode(), row)

    store.write_now(work)


def test_of_very_many_that_never_came_a_bounded_number_is_passed_over(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_all(store, make_pair("alice", "bob", time_ms=NOW), make_pair("alice", "bob", time_ms=NOW + 999, nonce=3))
    leave_removed(store, 25, from_ms=NOW + 1)
    monkeypatch.setattr(reading, "MOST_PASSED", 10)
    with store.read() as txn:
        [newest, place] = read_chat(txn, "bob", "alice")
        assert isinstance(newest, Entry) and newest.key.time_ms == NOW + 999
        assert place == Position(NOW + 16, 0, Direction.IN)
        assert isinstance(place, Position)
        [place] = read_chat(txn, "bob", "alice", place)
        assert place == Position(NOW + 6, 0, Direction.IN)
        assert isinstance(place, Position)
        [oldest] = read_chat(txn, "bob", "alice", place)
        assert isinstance(oldest, Entry) and oldest.key.time_ms == NOW
        assert list(list_chats(txn, "bob")) == [(NOW + 999, "alice")]
        assert count_unread(txn, "bob", "alice", MANY) == 1
    leave_removed(store, 10, from_ms=NOW + 1000)
    with store.read() as txn:
        assert list(list_chats(txn, "bob")) == []


def test_a_message_to_oneself_is_listed_once_as_outgoing_and_is_never_unread(store: Store) -> None:
    take_all(store, *(make_pair("alice", "alice", time_ms=NOW + number, own_body=b"mine") for number in range(3)))
    found = chat(store, "alice", "alice")
    assert [(entry.key.time_ms - NOW, entry.key.direction) for entry in found] == [
        (number, Direction.OUT) for number in (2, 1, 0)
    ]
    assert chat(store, "alice", "alice", found[0].position) == found[1:]
    assert unread(store, "alice", "alice") == 0
    with store.read() as txn:
        assert list(list_chats(txn, "alice")) == [(found[0].key.time_ms, "alice")]


def test_the_chats_of_an_owner_are_skipped_through(store: Store) -> None:
    pairs = [make_pair("alice", "bob", time_ms=NOW + number, nonce=number) for number in range(5)]
    take_all(store, *pairs, make_pair("carol", "alice", time_ms=NOW + 9), make_pair("carol", "bob"))
    take_all(store, receipt_of(pairs[0].incoming.message), make_copy("bob", "alice", 1, time_ms=NOW + 2, nonce=9))
    with store.read() as txn:
        found = {peer: time_ms - NOW for time_ms, peer in list_chats(txn, "alice")}
        assert list(list_chats(txn, "alic")) == list(list_chats(txn, "nobody")) == []
    assert found == {"bob": 4, "carol": 9}


def test_a_chat_of_receipts_alone_is_none(store: Store) -> None:
    message = make_pair("alice", "bob").incoming.message
    take_all(store, receipt_of(message))
    with store.read() as txn:
        assert txn.count(Table.HISTORY) == 2
        assert list(list_chats(txn, "alice")) == list(list_chats(txn, "bob")) == []


def test_what_came_in_is_unread_until_a_receipt_covers_it(store: Store) -> None:
    pairs = [make_pair("alice", "bob", time_ms=NOW + number, nonce=number) for number in range(5)]
    take_all(store, *pairs, make_pair("bob", "alice", time_ms=NOW + 1, nonce=77))
    assert unread(store, "bob", "alice") == 5
    assert unread(store, "bob", "alice", greatest=3) == 3
    assert unread(store, "alice", "bob") == 1
    take_all(store, tombstone_of(pairs[4].incoming.message))
    assert unread(store, "bob", "alice") == 4
    take_all(store, receipt_of(pairs[1].incoming.message))
    assert unread(store, "bob", "alice") == 2
    take_all(store, receipt_of(pairs[3].incoming.message, nonce=99))
    assert unread(store, "bob", "alice") == 0
    assert unread(store, "alice", "bob") == 1


def test_a_mark_at_the_end_of_time_covers_all(store: Store) -> None:
    take_all(store, make_pair("alice", "bob", time_ms=NOW))
    mark = b"bob\0alice\0" + bytes((Direction.IN,))
    store.write_now(lambda txn: txn.put(Table.READ_MARKS, mark, pack_number(GREATEST_TIME_MS)))
    assert unread(store, "bob", "alice") == 0


@pytest.mark.parametrize("data", [b"", bytes(12), bytes(14), bytes(13), bytes(12) + b"\3"])
def test_what_is_no_position_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        Position.decode(data)


LOGINS = ("a", "b", "a.b", "a-b", "ab")
item_keys = st.builds(
    ItemKey,
    st.sampled_from(LOGINS),
    st.sampled_from(LOGINS),
    st.sampled_from(Kind),
    st.sampled_from([0, 1, 255, 256, NOW, GREATEST_TIME_MS]),
    st.sampled_from([0, 1, 2**32 - 1]),
    st.sampled_from(Direction),
)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with opened(tmp_path_factory.mktemp("reading") / "shine.mdb") as store:
        yield store


@given(st.sets(item_keys, max_size=30))
def test_any_history_is_read_as_a_plain_model_reads_it(scratch: Store, keys: set[ItemKey]) -> None:
    row = Row(Flag.NONE, DeliveryState.DELIVERED, 1, 0, NOW, 1)

    def fill(txn: Transaction) -> None:
        for key, _ in list(txn.scan(Table.HISTORY)):
            txn.delete(Table.HISTORY, key)
        for item in keys:
            txn.put(Table.HISTORY, item.encode(), row.encode())

    scratch.write_now(fill)
    listed = [key for key in keys if key.kind is Kind.MESSAGE and (key.direction == 2 or key.owner != key.peer)]
    with scratch.read() as txn:
        for owner in LOGINS:
            newest = {}
            for peer in LOGINS:
                wanted = sorted((key for key in listed if key[:2] == (owner, peer)), key=ItemKey.encode, reverse=True)
                found = [entry.key for entry in read_chat(txn, owner, peer) if isinstance(entry, Entry)]
                assert found == wanted
                if wanted:
                    newest[peer] = wanted[0]
                    later = read_chat(txn, owner, peer, Entry(wanted[0], row).position)
                    assert [entry.key for entry in later if isinstance(entry, Entry)] == wanted[1:]
                incoming = [key for key in wanted if key.direction is Direction.IN]
                assert count_unread(txn, owner, peer, MANY) == len(incoming)
            chats = {peer: time_ms for time_ms, peer in list_chats(txn, owner)}
            assert chats == {peer: key.time_ms for peer, key in newest.items()}
