"""Users and all of their access records: which one counts, what is kept, and in which order it is passed on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shine_node.client.identity import KeyPair
from shine_node.protocol.access import AccessRecord, record_order
from shine_node.store.environment import Store, Transaction
from shine_node.store.layout import Table, pack_number
from shine_node.store.users import (
    access_servers,
    add_record,
    count_records,
    find_logins,
    get_records,
    get_registration,
    get_user,
    has_record,
    list_records,
    list_users,
    other_server,
    records_after,
    shared_after,
)
from tests.store.rooms import NOW, OWN, identity, opened, register, servers

pytestmark = pytest.mark.core


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with opened(tmp_path / "shine.mdb") as store:
        yield store


def make_record(login: str, *server_logins: str, time_ms: int = NOW) -> AccessRecord:
    return identity(login).access_record(servers(*server_logins), time_ms=time_ms)


def make_unsigned(login: str, *server_logins: str, time_ms: int = 0) -> AccessRecord:
    return make_record(login, *server_logins, time_ms=time_ms)._replace(signature=b"")


def add(store: Store, *records: AccessRecord) -> list[bool]:
    return store.write_now(lambda txn: [add_record(txn, record) for record in records])


def test_a_record_comes_back_as_it_was_signed(store: Store) -> None:
    record = make_record("Alice", "Own.Server", "Other.Server")
    assert add(store, record) == [True]
    with store.read() as txn:
        registration = get_registration(txn, "alice")
        assert registration is not None
        assert (registration.record, registration.local, registration.bch_limit) == (record, False, None)
        assert get_records(txn, "alice") == [record]
        assert access_servers(txn, "alice") == record.access_servers
        user = get_user(txn, "alice")
        assert user is not None
        assert (user.record, user.device_keys) == (record, ((NOW, record.device_key),))


def test_an_unsigned_record_comes_back_with_its_time(store: Store) -> None:
    record = make_unsigned("Alice", "Own.Server", time_ms=NOW)
    store.write_now(lambda txn: add_record(txn, record, local=True, bch_limit=5))
    with store.read() as txn:
        registration = get_registration(txn, "alice")
        assert registration is not None
        assert (registration.record, registration.local, registration.bch_limit) == (record, True, 5)
        assert get_records(txn, "alice") == [record]
    assert store.write_now(lambda txn: add_record(txn, record, local=True)) is False


def test_a_user_without_access_servers(store: Store) -> None:
    add(store, make_record("alice"))
    with store.read() as txn:
        assert access_servers(txn, "alice") == ()
        assert other_server(txn, "alice", OWN) is None


def test_nobody_is_known_at_first(store: Store) -> None:
    with store.read() as txn:
        assert get_registration(txn, "alice") is None
        assert get_user(txn, "alice") is None
        assert get_records(txn, "alice") == []
        assert access_servers(txn, "alice") == ()
        assert other_server(txn, "alice", OWN) is None
        assert list(list_users(txn)) == []
        assert find_logins(txn, "", 5) == []
        assert records_after(txn, 0, 10) == []


def test_the_newest_record_counts_whatever_the_order(store: Store) -> None:
    old, middle, new = (make_record("alice", f"server{number}", time_ms=NOW + number) for number in range(3))
    assert add(store, middle, old, new) == [True, False, True]
    with store.read() as txn:
        registration = get_registration(txn, "alice")
        assert registration is not None
        assert registration.record == new
        assert access_servers(txn, "alice") == new.access_servers
        assert get_records(txn, "alice") == [old, middle, new]
        assert [(seq, record) for seq, record, _ in records_after(txn, 0, 10)] == [(1, middle), (2, old), (3, new)]


def test_of_two_records_of_one_time_the_greater_signature_counts(store: Store) -> None:
    records = sorted((make_record("alice", f"server{number}") for number in range(2)), key=record_order)
    lesser, greater = records
    assert add(store, greater, lesser) == [True, False]
    with store.read() as txn:
        registration = get_registration(txn, "alice")
        assert registration is not None
        assert registration.record == greater
        assert get_records(txn, "alice") == records


def test_the_same_record_again_changes_nothing(store: Store) -> None:
    record, newer = make_record("alice"), make_record("alice", time_ms=NOW + 1)
    assert add(store, record, record, newer, record, newer) == [True, False, True, False, False]
    with store.read() as txn:
        assert [seq for seq, _, _ in records_after(txn, 0, 10)] == [1, 2]
        assert txn.count(Table.ACCESS_HISTORY) == 2


def test_a_newer_record_may_spell_the_login_otherwise(store: Store) -> None:
    first = make_record("alice")
    newer = identity("alice")._replace(login="ALICE", blockchain_name="ALICE-001").access_record((), time_ms=NOW + 1)
    add(store, first, newer)
    with store.read() as txn:
        assert [registration.record.login for registration in list_users(txn)] == ["ALICE"]
        assert find_logins(txn, "aL", 5) == ["ALICE"]
        assert get_records(txn, "alice") == [first, newer]


def test_history_stays_signed_by_the_keys_of_its_time(store: Store) -> None:
    alice = identity("alice")
    newer = alice.with_device(KeyPair.from_seed(b"2" * 32))
    add(store, newer.access_record((), time_ms=NOW + 10), alice.access_record((), time_ms=NOW))
    with store.read() as txn:
        user = get_user(txn, "alice")
    assert user is not None
    assert user.device_key_at(NOW - 5) == alice.device.public
    assert user.device_key_at(NOW + 9) == alice.device.public
    assert user.device_key_at(NOW + 10) == newer.device.public


def test_the_limit_of_a_chain_is_kept_by_a_record_that_has_none(store: Store) -> None:
    def work(txn: Transaction) -> list[int | None]:
        limits = []
        for time_ms, bch_limit in ((0, 100), (1, None), (2, 200), (3, None)):
            add_record(txn, make_record("alice", time_ms=NOW + time_ms), bch_limit=bch_limit)
            registration = get_registration(txn, "alice")
            assert registration is not None
            limits.append(registration.bch_limit)
        return limits

    assert store.write_now(work) == [100, 100, 200, 200]


def test_a_signed_record_ends_that_a_user_is_local(store: Store) -> None:
    unsigned, signed = make_unsigned("alice", OWN), make_record("alice", OWN)
    store.write_now(lambda txn: add_record(txn, unsigned, local=True))
    assert add(store, signed) == [True]
    with store.read() as txn:
        registration = get_registration(txn, "alice")
        assert registration is not None
        assert (registration.record, registration.local) == (signed, False)
        assert records_after(txn, 0, 10) == [(1, unsigned, True), (2, signed, False)]


def test_the_other_server_of_a_user_of_this_one(store: Store) -> None:
    add(store, make_record("both", "OWN.Server", "Other"), make_record("alone", OWN), make_record("away", "A", "B"))
    with store.read() as txn:
        assert other_server(txn, "both", OWN) == ("Other", "wss://other.example/ws")
        assert other_server(txn, "both", "other") == ("OWN.Server", "wss://own.server.example/ws")
        assert other_server(txn, "alone", OWN) is None
        assert other_server(txn, "away", OWN) is None


def test_no_login_is_taken_for_the_beginning_of_another(store: Store) -> None:
    logins = ["al", "alice", "alice-b", "alice.b", "alice2", "alice_b"]
    add(store, *(make_record(login) for login in reversed(logins)))
    with store.read() as txn:
        for login in logins:
            assert [record.login for record in get_records(txn, login)] == [login]
        assert [registration.record.login for registration in list_users(txn)] == sorted(logins)


def test_logins_are_found_by_their_beginning(store: Store) -> None:
    add(store, *(make_record(login) for login in ("Alice", "alina", "Albert", "bob", "ALF", "alma", "alva")))
    with store.read() as txn:
        assert find_logins(txn, "AL", 5) == ["Albert", "ALF", "Alice", "alina", "alma"]
        assert find_logins(txn, "ali", 5) == ["Alice", "alina"]
        assert find_logins(txn, "", 2) == ["Albert", "ALF"]
        assert find_logins(txn, "c", 5) == []
        assert find_logins(txn, "алиса", 5) == []
        assert find_logins(txn, "a" * 2000, 5) == []
        assert find_logins(txn, "al\0", 5) == []


def test_records_are_passed_on_in_pieces(store: Store) -> None:
    records = [make_record(f"user{number}") for number in range(5)]
    add(store, *records)
    with store.read() as txn:
        assert [(seq, record) for seq, record, _ in records_after(txn, 0, 2)] == [(1, records[0]), (2, records[1])]
        assert [seq for seq, _, _ in records_after(txn, 2, 10)] == [3, 4, 5]
        assert records_after(txn, 5, 10) == []


def test_a_record_that_is_lost_does_not_hide_the_others(store: Store) -> None:
    records = [make_record("alice", time_ms=NOW + number) for number in range(3)]
    add(store, *records)
    store.write_now(lambda txn: txn.delete(Table.ACCESS_RECORDS, pack_number(2)))
    with store.read() as txn:
        assert get_records(txn, "alice") == [records[0], records[2]]


ALICE = [make_record("alice", *names, time_ms=NOW + time) for time in range(3) for names in (("a",), ("b", "c"))]


@given(st.permutations(ALICE))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_two_servers_agree_on_a_user_whatever_the_order_of_its_records(
    tmp_path_factory: pytest.TempPathFactory, order: list[AccessRecord]
) -> None:
    with opened(tmp_path_factory.mktemp("users") / "shine.mdb") as store:
        add(store, *order)
        with store.read() as txn:
            user = get_user(txn, "alice")
            assert user is not None
            assert user.record == max(ALICE, key=record_order)
            assert get_records(txn, "alice") == sorted(ALICE, key=record_order)
            assert access_servers(txn, "alice") == user.record.access_servers


def test_two_records_of_one_time_are_in_the_order_of_their_signatures(tmp_path: Path) -> None:
    first, second = (
        identity("alice").with_device(KeyPair.from_seed(bytes((n,)) * 32)).access_record(servers(OWN), time_ms=NOW)
        for n in (1, 2)
    )
    lesser, greater = sorted((first, second), key=lambda record: record.signature)
    for order in ((lesser, greater), (greater, lesser)):
        with opened(tmp_path / order[0].signature.hex()[:8]) as store:
            for record in order:
                store.write_now(lambda txn, record=record: add_record(txn, record))
            with store.read() as txn:
                user = get_user(txn, "alice")
                assert user is not None
                assert user.record == greater
                assert user.device_keys == ((NOW, lesser.device_key), (NOW, greater.device_key))
                assert count_records(txn, "alice") == 2
                assert has_record(txn, lesser)
                assert not has_record(txn, lesser._replace(signature=bytes(64)))


def test_newest_records_of_those_who_share_two_servers(store: Store) -> None:
    old, moved = make_record("alice", OWN, "two", time_ms=NOW - 1), make_record("Alice", "TWO", OWN)
    bob, gone = make_record("bob", OWN, "two"), make_record("carol", OWN, "two", time_ms=NOW - 1)
    older = make_record("bob", OWN, "two", time_ms=NOW - 9)
    rest = [make_record("carol", "two"), make_record("dave", OWN), make_record("erin", OWN, "three"), older]
    add(store, old, bob, moved, gone, *rest)

    def page(seq: int, rows: int) -> tuple[list[tuple[int, AccessRecord]], int, bool]:
        with store.read() as txn:
            return tuple(shared_after(txn, "two", OWN, seq=seq, rows=rows))

    assert page(0, 8) == ([(2, bob), (3, moved)], 8, False)
    assert page(0, 7) == ([(2, bob), (3, moved)], 7, True)
    assert page(0, 2) == ([(2, bob)], 2, True)
    assert page(2, 2) == ([(3, moved)], 4, True)
    assert page(3, 9) == ([], 8, False)
    assert page(8, 1) == ([], 8, False)


def test_a_lost_row_of_a_user_shares_nothing(store: Store) -> None:
    add(store, make_record("alice", OWN, "two"))
    store.write_now(lambda txn: txn.delete(Table.USERS, b"alice"))
    with store.read() as txn:
        assert shared_after(txn, "two", OWN, seq=0, rows=9) == ([], 1, False)


def test_all_records_in_the_order_in_which_they_were_learned(store: Store) -> None:
    records = [make_record("bob", OWN, time_ms=NOW + 1), make_record("alice", OWN), make_record("bob", OWN)]
    add(store, *records)
    with store.read() as txn:
        assert [registration.record for registration in list_records(txn)] == records


def test_a_row_that_cannot_be_read_hides_no_other(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    def damage(txn: Transaction) -> None:
        register(txn, "alice", OWN)
        for login, value in (("bob", b"{"), ("carol", b"{}"), ("dave", b"[]")):
            txn.put(Table.USERS, login.encode(), value)

    store.write_now(damage)
    with store.read() as txn:
        assert [registration.record.login for registration in list_users(txn)] == ["alice"]
    for login in ("bob", "carol", "dave"):
        assert f"the row of the user {login} cannot be read" in caplog.text
