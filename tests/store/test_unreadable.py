"""Rows that cannot be read: one error for all, which costs what needs the row and nothing else."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shine_node.peers.directory import known_peers
from shine_node.protocol.errors import InternalError, Refusal
from shine_node.store import unreadable as unreadable_module
from shine_node.store.blocks import blocks
from shine_node.store.deliveries import claim_due, count_open, renew_claims, reschedule
from shine_node.store.environment import Store, Transaction
from shine_node.store.layout import Direction, Table
from shine_node.store.lineage import begin_run, get_doubt, get_peer_mark, get_peer_run, note_doubt, settle_doubt
from shine_node.store.marks import read_up_to_ms
from shine_node.store.messages import store_incoming, store_pair
from shine_node.store.reading import Entry, count_unread, get_own_copy, list_chats, read_chat
from shine_node.store.refill import end_reading, list_refilling
from shine_node.store.resync import FIRST, begin_resync, count_entries, list_owners, next_resync, step_resync
from shine_node.store.schema import SCHEMA_KEY, last_numbers
from shine_node.store.sessions import close_sessions, get_session, list_sessions
from shine_node.store.settings import get_setting, list_settings, put_setting, read_unsynced
from shine_node.store.unreadable import Unreadable, UnreadableRow
from shine_node.store.unsynced import read_page
from shine_node.store.usage import Usage, read_usage
from shine_node.store.users import (
    access_servers,
    add_record,
    find_logins,
    get_records,
    get_registration,
    get_user,
    list_users,
    other_server,
    records_after,
    shared_after,
)
from shine_node.sync.stores import _shared_owners
from tests.store.rich import EVERYTHING, OTHERS, PARAMS, do, found
from tests.store.rooms import NOW, OWN, SCHEDULE, identity, make_copy, make_pair, opened, servers

LATE = NOW + 3_600_000
LOGINS = ("alice", "bob", "carol", "dave")
SAMPLES = 6
"""Of each kind of damage to each row."""


class Undo(Refusal):
    """Ends a transaction of which nothing is to stay."""

    status, code = 500, "UNDO"


def rich_store(path: Path) -> None:
    with opened(path) as store:
        found(store)
        for number, step in enumerate(EVERYTHING):
            do(store, number, step)
        store.write_now(lambda txn: begin_resync(txn, "alice", former="gone.server"))


# What a start does, and the work that goes on by itself: none of it may end for a row.


def start(txn: Transaction) -> None:
    last_numbers(txn, 0)
    Usage().committed(txn)
    begin_run(txn, b"r" * 8, 5)
    known_peers(OWN, (), (known.record for known in list_users(txn)))
    list_refilling(txn)
    count_open(txn)


def put_in_time(txn: Transaction) -> None:
    for table in (Table.DUE_ATTEMPTS, Table.DUE_SETTLING):
        reschedule(txn, SCHEDULE, now_ms=NOW - 10_000, held=(), after=b"", limit=100, table=table)


def deliver(txn: Transaction) -> None:
    for table in (Table.DUE_ATTEMPTS, Table.DUE_SETTLING):
        claims, _ = claim_due(txn, SCHEDULE, now_ms=LATE, lease_ms=60_000, limit=100, table=table)
        renew_claims(txn, claims, now_ms=LATE, lease_ms=60_000)


def resync(txn: Transaction) -> None:
    after = ""
    for _ in range(200):
        if next_resync(txn) is None:
            return
        done = step_resync(txn, OWN, limit=3, after=after)
        after = done[0] if done is not None else ""
    raise AssertionError("the work does not end")


def feed(txn: Transaction) -> None:
    for server in OTHERS:
        if server:
            read_page(txn, server, serves=lambda owner: True, after=b"", limit=100, max_bytes=2**20)
            read_unsynced(txn, server, serves=lambda owner: True, after=b"", limit=100, max_bytes=2**20)
            shared_after(txn, server.lower(), OWN, seq=0, rows=100)
            _shared_owners(txn, OWN, server.lower())
    records_after(txn, 0, 100)
    count_entries(txn, list_owners(txn, OWN), OWN, place=FIRST, limit=100)


def peer(txn: Transaction) -> None:
    for server in ("other.one", "other.two"):
        get_peer_mark(txn, server)
        get_peer_run(txn, server)
        get_doubt(txn, server)
        note_doubt(txn, server, NOW - 99)
        settle_doubt(txn, server)
        end_reading(txn, server)
    for login in LOGINS:
        begin_resync(txn, login)


def list_all(txn: Transaction) -> None:
    for owner in LOGINS:
        for _, other in list_chats(txn, owner):
            list(read_chat(txn, owner, other))
            count_unread(txn, owner, other, 100)
            read_up_to_ms(txn, owner, other, Direction.IN)
        list_sessions(txn, owner)
        close_sessions(txn, owner)
        list(list_settings(txn, owner))
        read_usage(txn, owner)
        get_records(txn, owner)
    find_logins(txn, "", 100)


ALWAYS: tuple[Callable[[Transaction], None], ...] = (start, put_in_time, deliver, resync, feed, peer, list_all)


# What is asked for by itself: the row that it needs may be the answer.


def requests(txn: Transaction) -> Iterator[Callable[[], object]]:
    for login in LOGINS:
        yield lambda login=login: get_user(txn, login)
        yield lambda login=login: get_registration(txn, login)
        yield lambda login=login: access_servers(txn, login)
        yield lambda login=login: other_server(txn, login, OWN)
        yield lambda login=login: [get_setting(txn, login, param) for param in PARAMS]
        yield lambda login=login: blocks(txn, login, "mallory")
        yield lambda login=login: add_record(txn, identity(login).access_record(servers(OWN), time_ms=LATE))
    for session_id in ("00", "10"):
        yield lambda session_id=session_id: get_session(txn, session_id.ljust(43, "x"))
    yield lambda: [
        get_own_copy(txn, entry)
        for owner in LOGINS
        for other in LOGINS
        for entry in read_chat(txn, owner, other)
        if isinstance(entry, Entry)
    ]
    for nonce in (1, 2, 77):
        yield lambda nonce=nonce: store_pair(
            txn,
            make_pair("alice", "carol", nonce=nonce, revision_ms=NOW + 77),
            now_ms=LATE,
            from_client=False,
            delivery=None,
            own_login=OWN,
        )
        yield lambda nonce=nonce: store_incoming(
            txn, make_copy("carol", "bob", 1, nonce=nonce), now_ms=LATE, own_login=OWN, from_server="other.one"
        )
    from shine_node.client.settings import make_setting

    setting = make_setting(identity("alice"), PARAMS[0], "new", time_ms=LATE)
    yield lambda: put_setting(txn, setting, now_ms=LATE, own_login=OWN, most=5)


def damages(key: bytes, value: bytes, chance: random.Random) -> Iterator[tuple[bytes, bytes]]:
    """Rows as they may be found in the place of one."""
    for _ in range(SAMPLES):
        if value:
            place, bit = chance.randrange(len(value)), 1 << chance.randrange(8)
            yield key, value[:place] + bytes((value[place] ^ bit,)) + value[place + 1 :]
            yield key, value[:place]
            yield key, value[:place] + bytes(chance.randrange(256) for _ in value[place:])
        place, bit = chance.randrange(len(key)), 1 << chance.randrange(8)
        yield key[:place] + bytes((key[place] ^ bit,)) + key[place + 1 :], value
        yield key[:place] or b"\0", value
    yield key, b""


def test_no_damage_to_a_row_ends_more_than_what_needs_it(tmp_path: Path) -> None:
    path = tmp_path / "shine.mdb"
    rich_store(path)
    chance = random.Random(4)
    met: Counter[str] = Counter()
    with opened(path) as store:
        with store.read() as txn:
            rows = [(table, key, value) for table in Table for key, value in txn.scan(table)]
        assert {table for table, _, _ in rows} == set(Table)
        for table, key, value in rows:
            if key == SCHEMA_KEY:
                continue
            for damaged in damages(key, value, chance):
                if table in (Table.CONTAINERS, Table.ACCESS_RECORDS) and len(damaged[0]) != 8:
                    continue  # that is for the opening to say: `test_schema.py`
                met += try_all(store, table, key, damaged)
    assert met["asked for by itself"] > 100
    assert met["passed over"] > 100


def try_all(store: Store, table: Table, key: bytes, damaged: tuple[bytes, bytes]) -> Counter[str]:
    """Put a damaged row in the place of another, do everything, each from there on, and undo it all."""
    met: Counter[str] = Counter()

    def under_damage(work: Callable[[Transaction], object]) -> None:
        def all_of_it(txn: Transaction) -> None:
            store.unreadable = txn.unreadable = Unreadable()
            store.usage._committed = None
            txn.delete(table, key)
            txn.put(table, *damaged)
            try:
                work(txn)
            except UnreadableRow as error:
                raise AssertionError(f"{table} {key!r} {damaged!r} {work}") from error
            met["passed over"] += bool(store.unreadable.count)
            raise Undo("and nothing stays")

        with pytest.raises(Undo):
            store.write_now(all_of_it)

    def ask(txn: Transaction) -> None:
        for request in requests(txn):
            try:
                request()
            except UnreadableRow as error:
                met["asked for by itself"] += 1
                assert "shine-node verify --repair" in str(error)

    for work in (*ALWAYS, ask):
        under_damage(work)
    return met


def test_the_error_is_an_answer_and_says_nothing_of_the_contents() -> None:
    error = UnreadableRow("a session", b"secret")
    assert isinstance(error, InternalError)
    assert isinstance(error, ValueError)
    assert error.code == "INTERNAL_ERROR"
    assert "secret" not in f"{error}{error!r}{error.detail}"
    assert str(error.named("the row of alice")) == "the row of alice cannot be read: run `shine-node verify --repair`"


def test_each_is_counted_and_told_once_and_not_without_end(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    unreadable = Unreadable()
    assert unreadable.problem == ""
    for _ in range(3):
        unreadable.note(UnreadableRow("a session", b"1"))
        unreadable.note(UnreadableRow("a number", b"2"))
    assert unreadable.count == 2
    assert [record.getMessage() for record in caplog.records] == [
        "a session cannot be read: run `shine-node verify --repair`",
        "a number cannot be read: run `shine-node verify --repair`",
    ]
    assert (
        unreadable.problem == "2 rows of the store could not be read: stop the node, and run"
        " `shine-node verify --repair`"
    )
    monkeypatch.setattr(unreadable_module, "MOST_REMEMBERED", 3)
    for number in range(9):
        unreadable.note(UnreadableRow("a setting", bytes([number])))
    assert unreadable.count == 3
    assert unreadable.problem.startswith("3 rows or more of the store")


def test_what_is_met_in_reading_and_in_writing_is_counted(tmp_path: Path) -> None:
    with opened(tmp_path / "shine.mdb") as store:
        store.write_now(lambda txn: txn.put(Table.USERS, b"alice", b"{"))
        with pytest.raises(UnreadableRow, match="the row of the user alice cannot be read"), store.read() as txn:
            get_registration(txn, "alice")
        assert store.unreadable.count == 1
