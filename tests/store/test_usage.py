"""What is counted of owners: always what is stored, over edits, removals, rows, failed writes and starts."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shine_node.protocol.errors import BadFields
from shine_node.protocol.pair import Pair
from shine_node.store import usage as usage_module
from shine_node.store.environment import Store, Transaction
from shine_node.store.layout import ItemKey, Table, pack_number
from shine_node.store.messages import get_row, store_incoming, store_pair
from shine_node.store.usage import DAY_MS, Used, day_of, read_usage, snapshot_usage, usage_rows
from shine_node.store.view import view_store
from tests.store.rooms import (
    NOW,
    OWN,
    check_indexes,
    first_delivery,
    make_copy,
    make_pair,
    opened,
    receipt_of,
    register,
    tombstone_of,
)

pytestmark = pytest.mark.core

TODAY = NOW // DAY_MS


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A store of alice and bob, who are here; whatever is counted in it at the end is what is stored."""
    with opened(tmp_path / "shine.mdb") as store:
        store.write_now(_register)
    yield tmp_path / "shine.mdb"
    with opened(tmp_path / "shine.mdb") as store, store.read() as txn:
        check_indexes(txn)


def _register(txn: Transaction) -> None:
    register(txn, "alice", OWN)
    register(txn, "bob", OWN)
    register(txn, "carol", "far")


def put(store: Store, pair: Pair, *, now_ms: int = NOW, counts: bool = True) -> None:
    store.write_now(
        lambda txn: store_pair(
            txn,
            pair,
            now_ms=now_ms,
            from_client=False,
            delivery=first_delivery(now_ms),
            own_login=OWN,
            counts=counts,
        )
    )


def used(store: Store, owner: str) -> Used:
    return store.write_now(lambda txn: read_usage(txn, owner))


def rows(store: Store) -> dict[str, Used]:
    with store.read() as txn:
        return {owner: used for owner, used, _ in usage_rows(txn)}


def size(pair: Pair) -> int:
    return len(pair.incoming.blob) + len(pair.outgoing.blob)


def test_new_items_are_counted_and_write_no_row(path: Path) -> None:
    pairs = [make_pair("alice", "carol", nonce=number, body=b"x" * number) for number in range(5)]
    with opened(path) as store:
        for pair in pairs:
            put(store, pair)
        expected = Used(sum(map(size, pairs)), TODAY, 5)
        assert used(store, "alice") == expected
        assert used(store, "carol") == Used(0, 0, 0)
        assert rows(store) == {}
    with opened(path) as store:
        assert used(store, "alice") == expected, "a start counts the same"


def test_both_owners_where_both_are_here_and_the_recipient_has_sent_nothing(path: Path) -> None:
    pair = make_pair("alice", "bob")
    with opened(path) as store:
        put(store, pair)
        put(store, pair)
        for _ in range(2):
            assert used(store, "alice") == Used(size(pair), TODAY, 1)
            assert used(store, "bob") == Used(len(pair.incoming.blob), 0, 0)


def test_an_edit_counts_as_sent_and_replaces_what_is_stored(path: Path) -> None:
    first = make_pair("alice", "bob", body=b"x" * 1000)
    edit = make_pair("alice", "bob", body=b"y", revision_ms=NOW + 1)
    with opened(path) as store:
        put(store, first)
        put(store, edit)
        expected = Used(size(edit), TODAY, 2)
        assert used(store, "alice") == expected == rows(store)["alice"]
        assert used(store, "bob").stored_bytes == len(edit.incoming.blob)
        another = make_pair("alice", "bob", nonce=2)
        put(store, another)
        expected = expected.plus(Used(size(another), TODAY, 1))
        assert used(store, "alice") == expected
    with opened(path) as store:
        assert used(store, "alice") == expected


def test_a_removal_gives_the_room_back_and_receipts_are_not_sent_messages(path: Path) -> None:
    pair = make_pair("alice", "bob", body=b"x" * 1000)
    stone, receipt = tombstone_of(pair.incoming.message), receipt_of(pair.incoming.message)
    with opened(path) as store:
        put(store, pair)
        put(store, receipt)
        put(store, stone)
        for _ in range(2):
            assert used(store, "alice") == Used(size(stone) + len(receipt.incoming.blob), TODAY, 1)
            assert used(store, "bob") == Used(size(receipt) + len(stone.incoming.blob), 0, 0)
        put(store, tombstone_of(make_pair("alice", "bob", nonce=99).incoming.message, nonce=100))
    with opened(path) as store:
        assert used(store, "bob").sent == 0


def test_what_was_not_sent_here_is_stored_and_not_counted_as_sent(path: Path) -> None:
    pair = make_pair("alice", "carol")
    with opened(path) as store:
        put(store, pair, counts=False)
    with opened(path) as store:
        assert used(store, "alice") == Used(size(pair), 0, 0)


def test_the_day_is_that_of_the_last_message_whatever_the_clock_does(path: Path) -> None:
    with opened(path) as store:
        for nonce, now_ms, sent in (
            (1, NOW, 1),
            (2, NOW, 2),
            (3, NOW + DAY_MS, 1),
            (4, NOW + 50 * DAY_MS, 1),
            (5, NOW, 1),
            (6, NOW, 2),
        ):
            put(store, make_pair("alice", "carol", nonce=nonce), now_ms=now_ms)
            found = used(store, "alice")
            assert (found.day, found.sent) == (now_ms // DAY_MS, sent)
    with opened(path) as store:
        found = used(store, "alice")
        assert (found.day, found.sent) == (TODAY, 2)
    assert day_of(-5) == 0


def test_rows_are_written_for_all_when_there_is_much_to_add_up(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_module, "MOST_ITEMS", 4)

    async def story() -> None:
        store = Store(path, map_size=2**26)
        store.start()
        try:
            for nonce in range(7):
                pair = make_pair("alice", "bob", nonce=nonce)

                def work(txn: Transaction, pair: Pair = pair) -> None:
                    store_pair(
                        txn, pair, now_ms=NOW, from_client=True, delivery=first_delivery(), own_login=OWN, counts=True
                    )

                await store.write(work)
                tail = store.usage._committed
                assert tail is not None
                assert 0 <= tail.items <= 4 + 2
                seen.append((len(rows(store)), rows(store).get("alice", Used(0, 0, 0)).sent))
        finally:
            store.close()

    seen: list[tuple[int, int]] = []
    asyncio.run(story())
    assert seen[0] == seen[1] == (0, 0)
    assert seen[2] == (2, 3), "with the third commit, in the same transaction"
    assert seen[-1][1] > 3
    with opened(path) as store:
        assert used(store, "alice").sent == 7
        assert used(store, "bob").stored_bytes == 7 * len(make_pair("alice", "bob", nonce=0).incoming.blob)


def test_a_snapshot_of_another_process_has_the_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_module, "MOST_ITEMS", 3)
    for count in range(1, 5):
        with opened(path) as store:
            put(store, make_pair("alice", "carol", nonce=count))
            counted = [used(store, owner) for owner in ("alice", "bob", "carol")]
        with view_store(path) as txn:
            assert [snapshot_usage(txn, owner) for owner in ("alice", "bob", "carol")] == counted
        assert counted[0].sent == count and counted[0].stored_bytes > 0


def test_many_bytes_are_much_to_add_up_too() -> None:
    tail = usage_module.Tail()
    assert not tail.is_long
    tail.add("alice", Used(usage_module.MOST_BYTES, 0, 0))
    assert tail.is_long


def test_what_is_undone_is_not_counted(path: Path) -> None:
    pair = make_pair("alice", "carol")

    def fails(txn: Transaction) -> None:
        store_pair(txn, pair, now_ms=NOW, from_client=True, delivery=first_delivery(), own_login=OWN, counts=True)
        raise BadFields("after it has written")

    with opened(path) as store:
        put(store, make_pair("alice", "carol", nonce=2))
        before = used(store, "alice")
        with pytest.raises(BadFields):
            store.write_now(fails)
        assert used(store, "alice") == before
        put(store, pair)
        assert used(store, "alice") == before.plus(Used(size(pair), TODAY, 1))


def test_within_a_transaction_what_it_has_written_counts(path: Path) -> None:
    first, edit = (
        make_pair("alice", "carol"),
        make_pair("alice", "carol", revision_ms=NOW + 1, body=b"longer than it was"),
    )
    other = make_pair("alice", "carol", nonce=2)

    def work(txn: Transaction) -> list[int]:
        found = []
        for pair in (first, edit, other):
            store_pair(txn, pair, now_ms=NOW, from_client=True, delivery=first_delivery(), own_login=OWN)
            found.append(read_usage(txn, "alice").stored_bytes)
        return found

    with opened(path) as store:
        assert store.write_now(work) == [size(first), size(edit), size(edit) + size(other)]
        assert used(store, "alice").stored_bytes == size(edit) + size(other)


def test_a_damaged_item_keeps_nothing_from_starting(tmp_path: Path) -> None:
    with opened(tmp_path / "shine.mdb") as store:
        store.write_now(_register)
        put(store, make_pair("alice", "carol"))
        store.write_now(lambda txn: txn.put(Table.CONTAINERS, pack_number(2**60), b"\0\0\0\1??"))

        def lose(txn: Transaction) -> None:
            key = ItemKey.of(make_pair("alice", "carol", nonce=2).outgoing)
            txn.delete(Table.HISTORY, key.encode())

        put(store, make_pair("alice", "carol", nonce=2))
        store.write_now(lose)
    with opened(tmp_path / "shine.mdb") as store:
        assert used(store, "alice") == Used(2 * size(make_pair("alice", "carol")), TODAY, 1)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["new", "edit", "remove", "incoming", "restart", "rows", "fails"]),
            st.integers(0, 5),
            st.integers(0, 300),
        ),
        max_size=40,
    )
)
def test_whatever_happens_what_is_counted_is_what_is_stored(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]]
) -> None:
    path = tmp_path_factory.mktemp("usage") / "shine.mdb"
    with opened(path) as store:
        store.write_now(_register)
    sent, store = 0, Store(path, map_size=2**26)
    revision = 0
    try:
        for what, nonce, length in steps:
            revision += 1
            body = b"x" * length
            if what == "restart":
                store.close()
                store = Store(path, map_size=2**26)
            elif what == "rows":
                store.write_now(lambda txn: usage_module._write_all(txn, txn.committed_usage()))
            elif what == "incoming":
                copy = make_copy("carol", "alice", 1, nonce=nonce, revision_ms=NOW + revision, body=body)
                store.write_now(lambda txn, copy=copy: store_incoming(txn, copy, now_ms=NOW, own_login=OWN))
            elif what == "remove":
                pair = tombstone_of(make_pair("alice", "bob", nonce=nonce).incoming.message, nonce=100 + nonce)
                put(store, pair)
            else:
                pair = make_pair(
                    "alice", "bob", nonce=nonce, revision_ms=NOW + revision if what == "edit" else 0, body=body
                )
                if what == "fails":
                    with pytest.raises(BadFields):
                        store.write_now(lambda txn, pair=pair: _fail(txn, pair))
                else:
                    before = _revision_of(store, pair)
                    put(store, pair)
                    sent += _revision_of(store, pair) != before
            expected = _stored(store)
            for owner in ("alice", "bob"):
                assert used(store, owner).stored_bytes == expected[owner]
            assert used(store, "alice").sent == sent
    finally:
        store.close()


def _fail(txn: Transaction, pair: Pair) -> None:
    store_pair(txn, pair, now_ms=NOW, from_client=False, delivery=first_delivery(), own_login=OWN, counts=True)
    raise BadFields("after it has written")


def _revision_of(store: Store, pair: Pair) -> tuple[int, bytes] | None:
    with store.read() as txn:
        row = get_row(txn, ItemKey.of(pair.outgoing))
        value = txn.get(Table.CONTAINERS, pack_number(row.seq)) if row is not None and row.seq else b""
    return (row.revision_ms, value or b"") if row is not None and not row.removed else None


def _stored(store: Store) -> Counter[str]:
    found: Counter[str] = Counter()
    with store.read() as txn:
        for key, row in check_indexes(txn).items():
            value = txn.get(Table.CONTAINERS, pack_number(row.seq)) if row.seq else b""
            found[key.owner] += max(0, len(value or b"") - 4)
    return found
