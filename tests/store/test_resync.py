"""Entries that become unsynced again: settings, then messages, in steps that go on where they were."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shine_node.protocol.settings import Setting
from shine_node.store.environment import Store, Transaction
from shine_node.store.layout import ItemKey, Table, pack_number
from shine_node.store.messages import store_incoming, store_pair
from shine_node.store.outbox import acknowledge, signatures_of
from shine_node.store.resync import (
    FIRST,
    Counts,
    Part,
    Place,
    Resync,
    all_resyncs,
    begin_resync,
    count_entries,
    has_entries,
    list_owners,
    next_resync,
    put_resync,
    step_resync,
)
from shine_node.store.settings import put_setting
from tests.store.rooms import NOW, OWN, check_indexes, make_copy, make_pair, opened, register, tombstone_of

pytestmark = pytest.mark.core

OTHER = "Other.Server"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with opened(tmp_path / "shine.mdb") as store:
        yield store


def fill(txn: Transaction, *, settings: int = 3, messages: int = 3, synced: bool = True) -> None:
    """Have entries of alice, who has this server and another one, and of bob, who is only at this one."""
    register(txn, "alice", OWN, OTHER)
    register(txn, "bob", OWN)
    register(txn, "carol", "far.away")
    from_server = OTHER if synced else None
    for number in range(settings):
        setting = Setting("alice", f"p{number}x", NOW, "v", b"\1" * 32, b"\2" * 64)
        put_setting(txn, setting, now_ms=NOW + number, own_login=OWN, most=100, from_server=from_server)
    for nonce in range(messages):
        pair = make_pair("alice", "carol", nonce=nonce)
        store_pair(txn, pair, now_ms=NOW, from_client=False, delivery=None, own_login=OWN, from_server=from_server)
    store_incoming(txn, make_pair("carol", "bob", nonce=99).incoming, now_ms=NOW, own_login=OWN)


def moves(txn: Transaction, *servers: str, former: str, time_ms: int) -> None:
    """Give alice other servers, as ``directory.users`` does."""
    register(txn, "alice", *servers, time_ms=time_ms)
    begin_resync(txn, "alice", former=former)


def unsynced(store: Store) -> list[tuple[str, int, int]]:
    """Server, settings and messages that it has not acknowledged."""
    found: dict[str, list[int]] = {}
    with store.read() as txn:
        check_indexes(txn)
        for index, table in enumerate((Table.SETTINGS_UNSYNCED, Table.OUTBOX_UNSYNCED)):
            for row in txn.scan_keys(table):
                found.setdefault(row.partition(b"\0")[0].decode(), [0, 0])[index] += 1
    return [(server, *counts) for server, counts in sorted(found.items())]  # type: ignore[misc]


def step(store: Store, limit: int = 2) -> int | None:
    done = store.write_now(lambda txn: step_resync(txn, OWN, limit=limit))
    return done[1] if done is not None else None


def count(txn: Transaction, *owners: str, limit: int = 1000) -> Counts:
    """Count in steps, each of which is bounded."""
    settings, messages, steps = 0, 0, 0
    place: Place | None = FIRST
    while place is not None:
        found, place = count_entries(txn, owners, OWN, place=place, limit=limit)
        assert found.messages <= limit
        settings, messages, steps = settings + found.settings, messages + found.messages, steps + 1
    assert steps <= 1 + (messages + 10) // limit + len(owners), "each of them gets on"
    return Counts(settings, messages)


def finish(store: Store, limit: int = 2) -> list[int]:
    """Make all steps, and return how many rows each looked at."""
    done: list[int] = []
    while (count := step(store, limit)) is not None:
        assert count <= limit
        done.append(count)
    return done


def work(store: Store) -> Resync | None:
    with store.read() as txn:
        return next_resync(txn)


def test_without_work_there_is_nothing_to_do(store: Store) -> None:
    assert work(store) is None
    assert step(store) is None


def test_those_that_have_not_changed_since_stay_as_they_are(store: Store) -> None:
    store.write_now(fill)

    def change(txn: Transaction) -> None:
        edit = make_pair("alice", "carol", nonce=1, revision_ms=NOW + 9)
        store_pair(txn, edit, now_ms=NOW + 9, from_client=False, delivery=None, own_login=OWN, from_server=OTHER)
        begin_resync(txn, "alice", since_ms=NOW + 2)

    store.write_now(change)
    assert work(store) == Resync("alice", "", NOW + 2, Part.SETTINGS, b"")
    finish(store)
    assert unsynced(store) == [("other.server", 1, 1)]


def test_the_earlier_of_two_times_counts(store: Store) -> None:
    for since_ms in (NOW + 5, NOW, NOW + 7):
        store.write_now(lambda txn, ms=since_ms: begin_resync(txn, "alice", since_ms=ms))  # type: ignore[misc]
    assert work(store) == Resync("alice", "", NOW, Part.SETTINGS, b"")


def test_all_become_unsynced_settings_first_in_bounded_steps(store: Store) -> None:
    store.write_now(fill)
    assert unsynced(store) == []
    store.write_now(lambda txn: begin_resync(txn, "alice"))
    assert work(store) == Resync("alice", "", 0, Part.SETTINGS, b"")
    assert step(store) == 2
    assert unsynced(store) == [("other.server", 2, 0)]
    assert work(store) == Resync("alice", "", 0, Part.SETTINGS, b"alice\0p1x")
    assert step(store) == 1
    assert work(store) == Resync("alice", "", 0, Part.MESSAGES, b"")
    assert unsynced(store) == [("other.server", 3, 0)]
    assert step(store) == 2
    assert unsynced(store) == [("other.server", 3, 2)]
    assert finish(store) == [1]
    assert unsynced(store) == [("other.server", 3, 3)]
    assert work(store) is None


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_whatever_the_size_of_a_step_all_are_done_and_again_is_no_different(store: Store, limit: int) -> None:
    store.write_now(fill)
    for _ in range(2):
        store.write_now(lambda txn: begin_resync(txn, "alice"))
        assert sum(finish(store, limit)) == 6
        assert unsynced(store) == [("other.server", 3, 3)]


def test_the_work_outlives_the_process(tmp_path: Path) -> None:
    with opened(tmp_path / "shine.mdb") as store:
        store.write_now(fill)
        store.write_now(lambda txn: begin_resync(txn, "alice"))
        assert step(store) == 2
    with opened(tmp_path / "shine.mdb") as store:
        assert finish(store) == [1, 2, 1]
        assert unsynced(store) == [("other.server", 3, 3)]


def test_to_begin_again_is_to_begin_anew(store: Store) -> None:
    store.write_now(fill)
    store.write_now(lambda txn: begin_resync(txn, "alice"))
    step(store, 100)
    step(store, 2)
    store.write_now(lambda txn: begin_resync(txn, "alice"))
    assert work(store) == Resync("alice", "", 0, Part.SETTINGS, b"")
    with store.read() as txn:
        assert txn.count(Table.RESYNC) == 1
    assert sum(finish(store)) == 6


def test_what_stood_under_the_server_of_before_goes_to_the_new_one(store: Store) -> None:
    store.write_now(lambda txn: fill(txn, synced=False))
    assert unsynced(store) == [("other.server", 3, 3)]
    store.write_now(lambda txn: moves(txn, OWN, "newer", former=OTHER, time_ms=NOW + 1))
    finish(store)
    assert unsynced(store) == [("newer", 3, 3)]


def test_who_has_no_other_server_any_more_has_nothing_unsynced(store: Store) -> None:
    store.write_now(lambda txn: fill(txn, synced=False))
    store.write_now(lambda txn: moves(txn, OWN, former=OTHER, time_ms=NOW + 1))
    finish(store)
    assert unsynced(store) == []


def test_of_two_replacements_in_a_row_each_server_of_before_loses_its_entries(store: Store) -> None:
    store.write_now(lambda txn: fill(txn, synced=False))
    store.write_now(lambda txn: moves(txn, OWN, "second", former=OTHER, time_ms=NOW + 1))
    step(store, 100)  # the settings have gone over, the messages have not
    store.write_now(lambda txn: moves(txn, OWN, "third", former="Second", time_ms=NOW + 2))
    with store.read() as txn:
        assert txn.count(Table.RESYNC) == 2
    finish(store)
    assert unsynced(store) == [("third", 3, 3)]


def test_who_comes_back_to_the_server_of_before_finds_all_there(store: Store) -> None:
    store.write_now(lambda txn: fill(txn, synced=False))
    store.write_now(lambda txn: moves(txn, OWN, "second", former=OTHER, time_ms=NOW + 1))
    store.write_now(lambda txn: moves(txn, OWN, OTHER, former="second", time_ms=NOW + 2))
    finish(store)
    assert unsynced(store) == [("other.server", 3, 3)]


def test_what_was_removed_is_not_sent_and_not_counted(store: Store) -> None:
    removed = make_pair("alice", "carol", nonce=1).incoming.message
    never_came = make_pair("alice", "carol", nonce=50).incoming.message

    def removes(txn: Transaction) -> None:
        fill(txn)
        for number, message in enumerate((removed, never_came)):
            pair = tombstone_of(message, nonce=70 + number)
            store_pair(txn, pair, now_ms=NOW, from_client=False, delivery=None, own_login=OWN, from_server=OTHER)

    store.write_now(removes)
    with store.read() as txn:
        assert count(txn, "alice") == Counts(3, 4)
    store.write_now(lambda txn: begin_resync(txn, "alice"))
    finish(store)
    assert unsynced(store) == [("other.server", 3, 4)]


def test_only_an_owner_with_two_servers_has_entries_to_be_sent(store: Store) -> None:
    store.write_now(fill)
    with store.read() as txn:
        assert count(txn, "alice") == Counts(settings=3, messages=3)
        assert count(txn, "bob") == Counts(0, 0)
        assert count(txn, "nobody") == Counts(0, 0)
        assert count(txn) == Counts(0, 0)
        assert [owner for owner in ("alice", "bob", "carol", "nobody") if has_entries(txn, owner, OWN)] == ["alice"]
        assert list_owners(txn, OWN) == ["alice"]
        assert list_owners(txn, "other.server") == ["alice"]
        assert list_owners(txn, "elsewhere") == []


def test_the_work_of_one_owner_after_that_of_another(store: Store) -> None:
    store.write_now(fill)
    store.write_now(lambda txn: begin_resync(txn, "bob"))
    store.write_now(lambda txn: begin_resync(txn, "alice"))
    assert finish(store, 100) == [3, 3, 0, 1]
    assert unsynced(store) == [("other.server", 3, 3)]


@pytest.mark.parametrize(("settings", "messages"), [(0, 1), (1, 0)])
def test_who_has_entries(store: Store, settings: int, messages: int) -> None:
    with store.read() as txn:
        assert not has_entries(txn, "alice", OWN)
    store.write_now(lambda txn: fill(txn, settings=0, messages=0))
    with store.read() as txn:
        assert not has_entries(txn, "alice", OWN)
    store.write_now(lambda txn: fill(txn, settings=settings, messages=messages))
    with store.read() as txn:
        assert has_entries(txn, "alice", OWN)


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 7, 8, 100])
def test_the_count_is_the_same_whatever_the_size_of_its_steps(store: Store, limit: int) -> None:
    def fills(txn: Transaction) -> None:
        fill(txn, messages=7)
        for login, messages in (("dora", 4), ("eve", 0), ("fay", 1)):
            register(txn, login, OWN, OTHER)
            for nonce in range(messages):
                pair = make_pair(login, "carol", nonce=nonce)
                store_pair(txn, pair, now_ms=NOW, from_client=False, delivery=None, own_login=OWN, from_server=OTHER)

    store.write_now(fills)
    with store.read() as txn:
        assert count(txn, "nobody", "alice", "bob", "dora", "eve", "fay", "carol", limit=limit) == Counts(3, 12)


def test_owners_take_turns_each_with_all_of_its_work(store: Store) -> None:
    def begins(txn: Transaction) -> None:
        for owner, former in (("a", ""), ("a", "before"), ("a", "long.before"), ("a.b", ""), ("b", "")):
            begin_resync(txn, owner, former=former)

    store.write_now(begins)
    turns: list[str] = []
    while done := store.write_now(lambda txn: step_resync(txn, OWN, limit=2, after=turns[-1] if turns else "")):
        turns.append(done[0])
    assert turns == ["a", "a.b", "b", "a", "a.b", "b", "a", "a", "a", "a"], "settings, then messages, of each"


def test_work_that_is_begun_anew_for_ever_is_in_nobodys_way(store: Store) -> None:
    store.write_now(fill)
    store.write_now(lambda txn: begin_resync(txn, "alice"))
    last = ""
    for _ in range(8):  # alice has four steps

        def begins_again(txn: Transaction) -> None:
            begin_resync(txn, "aaron")

        store.write_now(begins_again)
        done = store.write_now(lambda txn, last=last: step_resync(txn, OWN, limit=2, after=last))  # type: ignore[misc]
        assert done is not None
        last = done[0]
    assert unsynced(store) == [("other.server", 3, 3)]
    assert work(store) == Resync("aaron", "", 0, Part.SETTINGS, b"")


def test_how_the_work_is_stored(store: Store) -> None:
    store.write_now(lambda txn: begin_resync(txn, "alice", former="Before", since_ms=7))
    with store.read() as txn:
        assert dict(txn.scan(Table.RESYNC)) == {b"alice\0" + pack_number(1): b"before\0" + pack_number(7) + b"s"}


def test_a_server_that_acknowledges_between_two_works_leaves_no_row_of_the_one_before(store: Store) -> None:
    """Everything was to be sent anew, then the other server was replaced; the new one is quick."""
    copy = make_copy("carol", "alice", 1)

    def replaced(txn: Transaction) -> None:
        register(txn, "alice", OWN, OTHER)
        register(txn, "carol", "far.away")
        store_incoming(txn, copy, now_ms=NOW, own_login=OWN)
        begin_resync(txn, "alice")
        moves(txn, OWN, "newer.server", former=OTHER, time_ms=NOW + 1)

    def takes(txn: Transaction) -> bool:
        return acknowledge(txn, "newer.server", ItemKey.of(copy), signatures_of(copy.blob, b""), marked=True)

    store.write_now(replaced)
    assert [step(store, 100) for _ in range(2)] == [0, 1]
    assert store.write_now(takes) is True
    finish(store, 100)
    assert unsynced(store) == [("newer.server", 0, 1)]
    assert store.write_now(takes) is True
    assert unsynced(store) == []


def test_an_edit_between_two_works_leaves_no_row_of_the_server_before(store: Store) -> None:
    copy, edit = make_copy("carol", "alice", 1), make_copy("carol", "alice", 1, revision_ms=NOW + 9)

    def replaced(txn: Transaction) -> None:
        register(txn, "alice", OWN, OTHER)
        register(txn, "carol", "far.away")
        store_incoming(txn, copy, now_ms=NOW, own_login=OWN)
        begin_resync(txn, "alice")
        moves(txn, OWN, "newer.server", former=OTHER, time_ms=NOW + 1)

    store.write_now(replaced)
    assert [step(store, 100) for _ in range(2)] == [0, 1]
    store.write_now(lambda txn: store_incoming(txn, edit, now_ms=NOW + 9, own_login=OWN))
    finish(store, 100)
    assert unsynced(store) == [("newer.server", 0, 1)]


def test_work_that_is_taken_from_elsewhere_goes_on_where_it_was(store: Store) -> None:
    works = [
        Resync("alice", "one", 0, Part.SETTINGS, b""),
        Resync("alice", "two", 5, Part.MESSAGES, b"alice\0carol\0x"),
        Resync("alice.b", "", 7, Part.SETTINGS, b"alice.b\0p"),
    ]
    for work in works:
        store.write_now(lambda txn, work=work: put_resync(txn, work))  # type: ignore[misc]
    with store.read() as txn:
        assert list(all_resyncs(txn)) == works
        assert list(all_resyncs(txn, "alice")) == works[:2]
        assert list(all_resyncs(txn, "bob")) == []
        assert next_resync(txn) == works[0]
