"""Pages of what another server has not acknowledged yet: order, bounds, the cursor, and rows that are passed over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest

from shine_node.protocol.pair import Pair
from shine_node.store import unsynced as unsynced_module
from shine_node.store.environment import Store, Transaction
from shine_node.store.layout import ItemKey, Table
from shine_node.store.messages import store_incoming, store_pair
from shine_node.store.outbox import acknowledge
from shine_node.store.unsynced import FRAME_BYTES, Entry, Page, read_page
from tests.store.rooms import NOW, OWN, make_pair, opened, register

pytestmark = pytest.mark.core

MANY = 2**30


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with opened(tmp_path / "shine.mdb") as store:
        store.write_now(people)
        yield store


def people(txn: Transaction) -> None:
    register(txn, "alice", OWN, "Other.Server")
    register(txn, "bob", OWN, "third")
    register(txn, "carol", "r1")


def keep(store: Store, pair: Pair, *, now_ms: int = NOW) -> None:
    store.write_now(lambda txn: store_pair(txn, pair, now_ms=now_ms, from_client=False, delivery=None, own_login=OWN))


def page(
    store: Store,
    server: str = "other.server",
    *,
    after: bytes = b"",
    limit: int = 100,
    max_bytes: int = MANY,
    peer_bytes: int | None = None,
    serves: Callable[[str], bool] = lambda owner: True,
) -> Page:
    with store.read() as txn:
        return read_page(
            txn, server, serves=serves, after=after, limit=limit, max_bytes=max_bytes, peer_bytes=peer_bytes
        )


def test_the_oldest_change_comes_first_and_pairs_come_with_both_copies(store: Store) -> None:
    late, early = make_pair("alice", "carol", nonce=1), make_pair("alice", "carol", nonce=2)
    keep(store, late, now_ms=NOW + 9)
    keep(store, early, now_ms=NOW)
    brought = make_pair("carol", "alice", nonce=3).incoming
    store.write_now(lambda txn: store_incoming(txn, brought, now_ms=NOW + 20, own_login=OWN))
    found = page(store)
    assert [entry.blobs for entry in found.entries] == [
        (early.incoming.blob, early.outgoing.blob),
        (late.incoming.blob, late.outgoing.blob),
        (brought.blob,),
    ]
    assert [entry.key for entry in found.entries] == [
        ItemKey.of(early.outgoing),
        ItemKey.of(late.outgoing),
        ItemKey.of(brought),
    ]
    assert not found.more
    assert page(store, "OTHER.Server") == found, "a login has no case"
    assert page(store, "third").entries == []


def test_the_sync_id_tells_revisions_and_items_apart(store: Store) -> None:
    first = make_pair("alice", "carol", nonce=1)
    keep(store, first)
    keep(store, make_pair("alice", "carol", nonce=2))
    [one, other] = [entry.sync_id for entry in page(store).entries]
    assert one != other
    edit = make_pair("alice", "carol", nonce=1, revision_ms=NOW + 5)
    keep(store, edit, now_ms=NOW + 5)
    ids = [entry.sync_id for entry in page(store).entries]
    assert ids[0] == other
    assert ids[1] not in (one, other)
    [entry] = [entry for entry in page(store).entries if entry.sync_id == ids[1]]
    assert entry.signatures == edit.incoming.signature + edit.outgoing.signature


def test_pages_follow_each_other_by_their_cursor_and_miss_and_repeat_nothing(store: Store) -> None:
    pairs = [make_pair("alice", "carol", nonce=nonce) for nonce in range(1, 8)]
    for number, pair in enumerate(pairs):
        keep(store, pair, now_ms=NOW + number // 2)
    found: list[bytes] = []
    sizes: list[int] = []
    after, more = b"", True
    while more:
        part = page(store, after=after, limit=3)
        found += [entry.blobs[0] for entry in part.entries]
        sizes.append(len(part.entries))
        after, more = part.cursor, part.more
    assert sizes == [3, 3, 1]
    assert found == [pair.incoming.blob for pair in pairs]
    assert page(store, after=after) == Page([], after, False)


def test_what_is_acknowledged_meanwhile_does_not_move_the_cursor(store: Store) -> None:
    pairs = [make_pair("alice", "carol", nonce=nonce) for nonce in range(1, 5)]
    for number, pair in enumerate(pairs):
        keep(store, pair, now_ms=NOW + number)
    part = page(store, limit=2)
    for entry in part.entries:
        assert store.write_now(lambda txn, e=entry: acknowledge(txn, "other.server", e.key, e.signatures, marked=True))
    assert [entry.blobs[0] for entry in page(store, after=part.cursor).entries] == [
        pair.incoming.blob for pair in pairs[2:]
    ]


def test_a_page_is_bounded_by_its_bytes_as_they_travel_yet_holds_one_entry(store: Store) -> None:
    pairs = [make_pair("alice", "carol", nonce=nonce, body=b"x" * 1000) for nonce in range(1, 4)]
    for number, pair in enumerate(pairs):
        keep(store, pair, now_ms=NOW + number)
    one = FRAME_BYTES + sum((len(copy.blob) + 2) // 3 * 4 for copy in pairs[0])
    assert len(page(store, max_bytes=2 * one).entries) == 2
    short = page(store, max_bytes=2 * one - 1)
    assert len(short.entries) == 1
    assert short.more
    assert len(page(store, max_bytes=0).entries) == 1


def size_of(pair: Pair) -> int:
    """What an entry is taken to be as it travels."""
    return FRAME_BYTES + sum((len(copy.blob) + 2) // 3 * 4 for copy in pair)


def test_no_entry_is_larger_as_it_travels_than_it_is_taken_to_be(store: Store) -> None:
    sync_id = Entry(ItemKey.of(make_pair("alice", "carol").incoming), (bytes(100),), 2**64 - 1, 2**64 - 1).sync_id
    beside = orjson.dumps({"syncId": sync_id, "login": "a" * 30, "blobsB64": ["", ""]})
    assert len(beside) + len(",") <= FRAME_BYTES


def test_what_the_peer_cannot_take_is_passed_over_and_the_cursor_moves_on(store: Store) -> None:
    small = [make_pair("alice", "carol", nonce=nonce) for nonce in range(1, 5)]
    large = [make_pair("alice", "carol", nonce=nonce, body=b"x" * 1000) for nonce in (5, 6, 7)]
    order = [large[0], small[0], small[1], large[1], large[2], small[2], small[3]]
    for number, pair in enumerate(order):
        keep(store, pair, now_ms=NOW + number)
    most = size_of(large[0]) - 1
    ids = [entry.sync_id for entry in page(store).entries]
    found, too_large = [], []
    after, more = b"", True
    while more:
        part = page(store, after=after, peer_bytes=most)
        found += [entry.blobs[0] for entry in part.entries]
        too_large.append(part.too_large)
        after, more = part.cursor, part.more
    assert found == [pair.incoming.blob for pair in small]
    assert too_large == [ids[0], ids[3]], "the first of each page"
    everything = page(store, peer_bytes=MANY)
    assert (len(everything.entries), everything.more, everything.too_large) == (7, False, "")
    assert [entry.blobs[0] for entry in page(store, peer_bytes=most + 1).entries] == [large[0].incoming.blob]
    alone = page(store, after=page(store, limit=3).cursor, limit=1, max_bytes=1, peer_bytes=most + 1)
    assert [entry.blobs[0] for entry in alone.entries] == [large[1].incoming.blob], "it is above the usual, yet it fits"
    nothing = page(store, peer_bytes=0)
    assert (nothing.entries, nothing.more, nothing.cursor) == ([], False, after)


def test_a_page_is_no_larger_than_the_peer_can_take(store: Store) -> None:
    pairs = [make_pair("alice", "carol", nonce=nonce, body=b"x" * 1000) for nonce in range(1, 4)]
    for number, pair in enumerate(pairs):
        keep(store, pair, now_ms=NOW + number)
    one = size_of(pairs[0])
    assert len(page(store, peer_bytes=2 * one).entries) == 2
    assert len(page(store, peer_bytes=2 * one - 1).entries) == 1
    assert len(page(store, peer_bytes=3 * one, max_bytes=2 * one).entries) == 2


def test_a_page_looks_at_a_bounded_amount_of_what_the_peer_cannot_take(store: Store) -> None:
    pairs = [make_pair("alice", "carol", nonce=nonce, body=b"x" * 1000) for nonce in range(1, 4)]
    for number, pair in enumerate(pairs):
        keep(store, pair, now_ms=NOW + number)
    most = 2 * size_of(pairs[0]) - 1
    part = page(store, peer_bytes=1, max_bytes=most)
    assert (part.entries, part.more) == ([], True)
    assert part.cursor == page(store, limit=2).cursor
    assert page(store, after=part.cursor, peer_bytes=1, max_bytes=most).more is False


def test_entries_of_owners_who_are_not_served_are_passed_over(store: Store) -> None:
    store.write_now(lambda txn: register(txn, "dave", OWN, "other.server"))
    keep(store, make_pair("alice", "carol"))
    keep(store, make_pair("dave", "carol"), now_ms=NOW + 1)
    found = page(store, serves=lambda owner: owner == "dave")
    assert [entry.key.owner for entry in found.entries] == ["dave"]
    nobody = page(store, serves=lambda owner: False)
    assert nobody.entries == []
    assert not nobody.more
    assert nobody.cursor == found.cursor


def test_a_page_looks_at_a_bounded_number_of_rows(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unsynced_module, "MAX_LOOKED_AT", 2)
    for nonce in range(1, 6):
        keep(store, make_pair("alice", "carol", nonce=nonce), now_ms=NOW + nonce)
    part = page(store, serves=lambda owner: False)
    assert part.entries == []
    assert part.more
    again = page(store, after=part.cursor, serves=lambda owner: False)
    assert again.cursor > part.cursor
    assert not page(store, after=again.cursor, serves=lambda owner: False).more


def test_index_rows_that_speak_of_what_is_no_longer_there_are_passed_over(store: Store) -> None:
    keep(store, make_pair("alice", "carol", nonce=1))
    keep(store, make_pair("alice", "carol", nonce=2), now_ms=NOW + 1)

    def spoil(txn: Transaction) -> None:
        [(first, key), (second, other)] = list(txn.scan(Table.OUTBOX_UNSYNCED))
        txn.put(Table.OUTBOX_UNSYNCED, first[:-1] + b"\xff", key)  # of another change
        txn.delete(Table.HISTORY, other)  # of no item at all
        assert second != first

    store.write_now(spoil)
    assert [entry.key.nonce for entry in page(store).entries] == [1]


def test_one_that_is_acknowledged_but_still_in_the_index_is_passed_over(store: Store) -> None:
    keep(store, make_pair("alice", "carol"))
    [entry] = page(store).entries

    def spoil(txn: Transaction) -> None:
        [(index_key, key)] = list(txn.scan(Table.OUTBOX_UNSYNCED))
        acknowledge(txn, "other.server", entry.key, entry.signatures, marked=True)
        txn.put(Table.OUTBOX_UNSYNCED, index_key, key)

    store.write_now(spoil)
    assert page(store).entries == []
