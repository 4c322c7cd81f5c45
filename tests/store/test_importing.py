"""Exports taken into stores: the same again, beside what is there, after interruptions, and with forged lines."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from shine_node.client.identity import KeyPair
from shine_node.client.settings import make_setting
from shine_node.protocol.encoding import encode_base64
from shine_node.protocol.errors import Refusal, StorageFull
from shine_node.protocol.keys import MessageId
from shine_node.protocol.schedule import DeliveryState
from shine_node.protocol.sessions import Session
from shine_node.store.environment import Store, Transaction
from shine_node.store.exporting import export_store
from shine_node.store.importing import Imported, Importer, Line
from shine_node.store.layout import Flag, ItemKey, Row, Table, pack_number, unpack_number
from shine_node.store.lineage import begin_run, list_runs
from shine_node.store.messages import get_blobs, get_row, store_pair
from shine_node.store.resync import all_resyncs, begin_resync, step_resync
from shine_node.store.sessions import add_session, all_sessions, close_sessions
from shine_node.store.settings import all_settings, get_setting, put_setting
from shine_node.store.users import add_record, get_records, get_registration
from shine_node.store.verifying.verify import verify_store
from tests.store.rich import EVERYTHING, MEMORY, Step, do, found, steps
from tests.store.rooms import (
    MIB,
    NOW,
    OWN,
    check_indexes,
    first_delivery,
    identity,
    make_pair,
    opened,
    read_rows,
    register,
    servers,
    tombstone_of,
)

pytestmark = pytest.mark.core

MESSAGE = MessageId("alice", "bob", NOW, 1)
KEY = ItemKey.outgoing(MESSAGE, 1)


@contextmanager
def rooms() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="shine-portable-", dir=MEMORY))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def export(store: Store, own_login: str = OWN) -> list[bytes]:
    """All lines but the header and the end, which hold times."""
    with store.read() as txn:
        return list(export_store(txn, own_login=own_login, at_ms=NOW, program="test"))[1:-1]


def take(
    store: Store, lines: Sequence[bytes], *, foreign: bool = False, some: int = 4
) -> tuple[Imported, dict[int, str]]:
    """Import lines, some at a time, and return what became of them, and the code of each refusal by line."""
    refused: dict[int, str] = {}

    def refuse(number: int, refusal: Refusal) -> None:
        refused[number] = refusal.code

    importer = Importer(store, own_login=OWN, foreign=foreign, refuse=refuse)
    numbered = [Line(number, line) for number, line in enumerate(lines, start=2)]
    for first in range(0, len(numbered), some):
        importer.take(numbered[first : first + some])
    assert sum(importer.imported) == len(lines)
    assert importer.imported.refused == len(refused)
    return importer.imported, refused


def content(store: Store) -> tuple[object, ...]:
    """What people see: records, settings, items without what is of delivery and synchronisation."""
    with store.read() as txn:
        rows = {key: (get_blobs(txn, row), row.removed) for key, row in read_rows(txn).items()}
        records = {login: get_records(txn, login) for login in ("alice", "bob", "carol", "dave")}
        return rows, records, [setting for _, setting in all_settings(txn)], list(txn.scan(Table.READ_MARKS))


def of_type(lines: Sequence[bytes], type_: str) -> list[bytes]:
    return [line for line in lines if line.startswith(b'{"type":"%s"' % type_.encode())]


def edited(line: bytes, **fields: object) -> bytes:
    return orjson.dumps({**orjson.loads(line), **fields})


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@example(done=EVERYTHING, later=[], some=3, cut=5)
@given(done=steps, later=steps, some=st.integers(1, 9), cut=st.integers(0, 40))
def test_an_export_becomes_the_same_store_again(done: list[Step], later: list[Step], some: int, cut: int) -> None:
    """In one go, after an interruption, and twice; and in a store that is an earlier one of the same server."""
    with (
        rooms() as folder,
        opened(folder / "one.mdb") as one,
        opened(folder / "two.mdb") as two,
    ):
        found(one)
        for number, step in enumerate(done):
            do(one, number, step)
        early = export(one)
        take(two, early[:cut], some=some)
        imported, refused = take(two, early, some=some)
        assert refused == {}
        assert imported.stored >= len(early) - cut
        assert export(two) == early
        again, _ = take(two, early, some=some)
        assert again == Imported(0, len(early), 0)
        assert export(two) == early

        for number, step in enumerate(later, start=len(done)):
            do(one, number, step)
        states = terminal(two)
        late = export(one)
        _, refused = take(two, late, some=some)
        assert refused == {}
        assert content(two) == content(one)
        after = terminal(two)
        assert all(after[item] is state for item, state in states.items() if item in after)
        assert take(two, late, some=some)[0].stored == 0
        while two.write_now(lambda txn: step_resync(txn, OWN, limit=50)):
            pass  # entries under a former server are in order, and the check knows nothing of that
        with two.read() as txn:
            check_indexes(txn)
        report = verify_store(two, OWN, threads=1)
        assert report.clean, report.first


def terminal(store: Store) -> dict[tuple[ItemKey, tuple[bytes, bytes]], DeliveryState]:
    """The terminal state of each revision that has one."""
    with store.read() as txn:
        rows = {(key, get_blobs(txn, row)): row for key, row in read_rows(txn).items() if not row.removed}
        return {item: row.state for item, row in rows.items() if row.state is not DeliveryState.ACCEPTED}


@pytest.fixture
def lines(tmp_path: Path) -> list[bytes]:
    with opened(tmp_path / "source.mdb") as store:
        found(store)
        for number, step in enumerate(EVERYTHING):
            do(store, number, step)
        return export(store)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with opened(tmp_path / "shine.mdb") as opened_store:
        yield opened_store


def test_everything_is_in_the_example(lines: list[bytes]) -> None:
    """Or the property above would say less than it seems to."""
    objects = [orjson.loads(line) for line in lines]
    items = [line for line in objects if line["type"] == "item"]
    assert {line["type"] for line in objects} == {"record", "resync", "setting", "session", "item", "meta"}
    assert {line["state"] for line in items} == {"accepted", "delivered", "failed"}
    assert {line["key"][-1] for line in items} == {"1", "2", "3", "5", "6"}
    assert any(line.get("removed") and line["digestB64"] for line in items)
    assert any(line.get("removed") and not line["digestB64"] for line in items)
    assert {line["delivery"]["settling"] for line in items if "delivery" in line} == {True, False}
    assert {bool(line.get("synced")) for line in items if not line.get("removed")} == {True, False}
    assert {line["local"] for line in objects if line["type"] == "record"} == {True, False}
    names = {line["name"].split()[0] for line in objects if line["type"] == "meta"}
    assert names == {"lineage", "peer_mark", "peer_run", "peer_doubt", "peer_doubt_before", "access_seq"} - (
        {"peer_doubt_before"} - names
    )


@pytest.mark.parametrize(
    ("type_", "fields", "code"),
    [
        ("record", {"timeMs": 5}, "BAD_SIGNATURE"),
        ("record", {"login": "?"}, "BAD_LOGIN"),
        ("setting", {"value": "another"}, "SIGNATURE_INVALID"),
        ("setting", {"device_key": "A" * 43 + "="}, "DEVICE_KEY_MISMATCH"),
        ("setting", {"login": "nobody"}, "USER_NOT_FOUND"),
        ("session", {"sessionId": "short"}, "BAD_FIELDS"),
        ("session", {"login": "nobody"}, "USER_NOT_FOUND"),
        ("resync", {"part": "half"}, "BAD_FIELDS"),
        ("meta", {"name": "schema"}, "BAD_FIELDS"),
        ("meta", {"name": "server_login"}, "BAD_FIELDS"),
        ("meta", {"name": "n" * 500}, "BAD_FIELDS"),
        ("meta", {"name": "peer_doubt x", "valueB64": "AAAA"}, "BAD_FIELDS"),
        ("meta", {"name": "lineage", "runs": [["00", 1]]}, "BAD_FIELDS"),
        ("item", {"state": "lost"}, "BAD_FIELDS"),
        ("item", {"type": "letter"}, "BAD_FIELDS"),
    ],
)
def test_a_line_that_is_forged_or_wrong_is_refused_alone(
    lines: list[bytes], store: Store, type_: str, fields: dict[str, object], code: str
) -> None:
    number = lines.index(of_type(lines, type_)[0])
    bad = [*lines]
    bad[number] = edited(lines[number], **fields)
    imported, refused = take(store, bad, some=100)
    assert refused[number + 2] == code
    assert imported.stored > 5
    with store.read() as txn:
        check_indexes(txn)


def test_a_forged_copy_is_refused_and_the_rest_is_taken(lines: list[bytes], store: Store) -> None:
    [line] = [line for line in lines if b'"alice|carol|1774700000000|1|2"' in line]
    blob = bytearray(orjson.loads(line)["outgoingB64"].encode())
    blob[-10] = blob[-10] ^ 1
    imported, refused = take(
        store, [other if other is not line else edited(line, outgoingB64=blob.decode()) for other in lines]
    )
    assert list(refused.values()) == ["BAD_SIGNATURE"]
    assert imported.stored
    with store.read() as txn:
        assert get_row(txn, ItemKey.outgoing(MessageId("alice", "carol", NOW, 1), 1)) is None
        assert not list(txn.scan(Table.META, prefix=b"peer")), "it lacks something, and must not say that it has all"


@pytest.mark.parametrize(("data", "code"), [(b"{", "BAD_JSON"), (b"[]", "BAD_JSON"), (b"{}", "BAD_FIELDS")])
def test_what_is_no_line(store: Store, data: bytes, code: str) -> None:
    assert take(store, [data]) == (Imported(0, 0, 1), {2: code})


def test_another_root_key_and_an_unsigned_one_of_a_known_login(lines: list[bytes], store: Store) -> None:
    stranger = identity("mallory")
    alice = identity("alice")
    record = stranger.access_record(servers(OWN), time_ms=NOW)._replace(login="alice", blockchain_name="alice-001")
    store.write_now(lambda txn: add_record(txn, record))
    register_dave = identity("dave").access_record(servers(OWN), time_ms=NOW)
    store.write_now(lambda txn: add_record(txn, register_dave))
    imported, refused = take(store, of_type(lines, "record"))
    assert sorted(refused.values()) == ["ROOT_KEY_MISMATCH", "ROOT_KEY_MISMATCH", "USER_ALREADY_EXISTS"]
    assert imported.stored == 2
    with store.read() as txn:
        assert get_records(txn, "alice") == [record]
        assert get_records(txn, "dave") == [register_dave]
    assert alice.root.public != record.solana_key


def test_a_full_store_keeps_what_was_imported_and_goes_on_later(tmp_path: Path) -> None:
    with opened(tmp_path / "one.mdb") as one:
        one.write_now(lambda txn: [register(txn, "alice", OWN), register(txn, "bob", "far")])
        for nonce in range(40):
            pair = make_pair("alice", "bob", nonce=nonce, body=bytes(60_000))
            one.write_now(
                lambda txn, pair=pair: store_pair(  # type: ignore[misc]
                    txn, pair, now_ms=NOW, from_client=True, delivery=None, own_login=OWN
                )
            )
        everything = export(one)
    with opened(tmp_path / "two.mdb", map_size=2 * MIB) as two, pytest.raises(StorageFull):
        take(two, everything)
    with opened(tmp_path / "two.mdb") as two:
        imported, _ = take(two, everything)
        assert imported.known > 2
        assert export(two) == everything


def test_of_another_server_only_what_is_of_users_of_this_one(tmp_path: Path, store: Store) -> None:
    with opened(tmp_path / "one.mdb") as one:

        def work(txn: Transaction) -> None:
            register(txn, "alice", "other", OWN)
            register(txn, "bob", "other")
            eve = identity("eve").access_record(servers("other"), time_ms=NOW)
            add_record(txn, eve._replace(time_ms=0, signature=b""), local=True)
            for login in ("alice", "bob"):
                setting = make_setting(identity(login), "theme", "dark", time_ms=NOW)
                put_setting(txn, setting, now_ms=NOW, own_login="other", most=9)
                pair = make_pair(login, "carol")
                store_pair(txn, pair, now_ms=NOW, from_client=True, delivery=first_delivery(), own_login="other")
            add_session(txn, Session("s" * 43, "alice", "k", "", "", "", 1, 1), greatest=3)
            begin_resync(txn, "alice")
            begin_run(txn, b"12345678", 3)

        one.write_now(work)
        lines = export(one, "other")
    lines.append(edited(of_type(lines, "meta")[0], name="peer_mark x", valueB64="AAAA"))
    imported, refused = take(store, lines, foreign=True)
    assert refused == {lines.index(of_type(lines, "record")[2]) + 2: "BAD_FIELDS"}
    assert imported.stored == 2 + 1 + 1
    with store.read() as txn:
        assert [setting.login for _, setting in all_settings(txn)] == ["alice"]
        rows = check_indexes(txn)
        assert [key.owner for key in rows] == ["alice"]
        assert next(iter(rows.values())).flags is Flag.UNSYNCED
        assert not txn.count(Table.SESSIONS) and not txn.count(Table.RESYNC)
        assert [key for key, _ in txn.scan(Table.META)] == [b"schema"]


def test_a_session_of_a_device_that_was_replaced_does_not_come_back(store: Store) -> None:
    session = Session("s" * 43, "alice", "k", "", "", "", 1, 1)

    def work(txn: Transaction) -> None:
        register(txn, "alice", OWN)
        add_session(txn, session, greatest=3)

    store.write_now(work)
    lines = export(store)

    def replace(txn: Transaction) -> None:
        device = KeyPair.from_seed(bytes(32))
        add_record(txn, identity("alice").with_device(device).access_record(servers(OWN), time_ms=NOW + 1))
        close_sessions(txn, "alice")

    store.write_now(replace)
    assert take(store, lines)[0].stored == 0
    with store.read() as txn:
        assert list(all_sessions(txn)) == []


def test_a_newer_record_ends_sessions_and_sends_everything_to_the_new_server(store: Store) -> None:
    def work(txn: Transaction) -> None:
        register(txn, "alice", OWN, "old")
        register(txn, "bob", OWN, "old")
        add_session(txn, Session("s" * 43, "alice", "k", "", "", "", 1, 1), greatest=3)
        store_pair(txn, make_pair("alice", "carol"), now_ms=NOW, from_client=True, delivery=None, own_login=OWN)

    store.write_now(work)
    device = KeyPair.from_seed(bytes(32))
    records = [
        identity("alice").with_device(device).access_record(servers(OWN, "new"), time_ms=NOW + 1),
        identity("bob").access_record(servers(OWN), time_ms=NOW + 1),
    ]
    with rooms() as folder, opened(folder / "one.mdb") as one:
        one.write_now(lambda txn: [add_record(txn, record) for record in records])
        lines = export(one)
    assert take(store, lines)[0] == Imported(2, 0, 0)
    with store.read() as txn:
        assert list(all_sessions(txn)) == []
        assert [(work.owner, work.former) for work in all_resyncs(txn)] == [("alice", "old")]


def test_what_is_open_there_ends_what_is_open_here_and_nothing_is_reopened(tmp_path: Path, store: Store) -> None:
    def open_one(txn: Transaction) -> None:
        register(txn, "alice", OWN)
        register(txn, "bob", "far")
        store_pair(
            txn, make_pair("alice", "bob"), now_ms=NOW, from_client=True, delivery=first_delivery(), own_login=OWN
        )

    store.write_now(open_one)
    still_open = export(store)
    [item] = of_type(still_open, "item")
    failed = [line if line is not item else edited(item, state="failed", delivery=None) for line in still_open]
    assert take(store, failed, foreign=True)[0].stored == 0
    assert take(store, failed)[0].stored == 1

    def state() -> DeliveryState:
        with store.read() as txn:
            check_indexes(txn)
            row = get_row(txn, KEY)
            assert row is not None
            return row.state

    assert state() is DeliveryState.FAILED
    delivered = [line if line is not item else edited(item, state="delivered", delivery=None) for line in still_open]
    for lines in (still_open, delivered):
        assert take(store, lines)[0].stored == 0
        assert state() is DeliveryState.FAILED


def test_what_the_store_knows_of_others_stays_and_the_earlier_doubt_counts(store: Store) -> None:
    def meta(name: str, value: bytes) -> bytes:
        return orjson.dumps({"type": "meta", "name": name, "valueB64": encode_base64(value)})

    store.write_now(lambda txn: begin_run(txn, b"newest00", 7))
    runs = orjson.dumps({"type": "meta", "name": "lineage", "runs": [[b"earlier0".hex(), 5], [b"newest00".hex(), 3]]})
    first = [meta("peer_mark x", b"aa-1"), meta("peer_doubt x", pack_number(9)), runs]
    assert take(store, first)[0] == Imported(3, 0, 0)
    second = [meta("peer_mark x", b"bb-1"), meta("peer_doubt x", pack_number(8)), runs]
    assert take(store, second)[0] == Imported(1, 2, 0)
    third = [meta("peer_doubt x", pack_number(10))]
    assert take(store, third)[0] == Imported(0, 1, 0)
    with store.read() as txn:
        assert txn.get(Table.META, b"peer_mark x") == b"aa-1"
        assert unpack_number(txn.get(Table.META, b"peer_doubt x") or b"") == 8
        assert list_runs(txn, 99) == [(b"earlier0", 5), (b"newest00", 99)]


def test_unfinished_work_goes_on_where_it_was_or_begins_again_beside_other_entries(
    lines: list[bytes], store: Store
) -> None:
    works = of_type(lines, "resync")
    assert take(store, [*of_type(lines, "record"), *works])[1] == {}
    assert of_type(export(store), "resync") == works
    assert orjson.loads(works[0])["part"] == "messages" or orjson.loads(works[0])["afterB64"]

    def has_a_message(txn: Transaction) -> None:
        for key, _ in list(txn.scan(Table.RESYNC)):
            txn.delete(Table.RESYNC, key)
        store_pair(txn, make_pair("alice", "carol"), now_ms=NOW, from_client=True, delivery=None, own_login=OWN)

    store.write_now(has_a_message)
    assert take(store, works)[0].stored == 1
    with store.read() as txn:
        [work] = all_resyncs(txn)
        assert (work.owner, work.after, work.part.name) == ("alice", b"", "SETTINGS")


def test_a_setting_that_is_newer_here_stays(store: Store) -> None:
    store.write_now(lambda txn: register(txn, "alice", OWN, "other"))
    newer = make_setting(identity("alice"), "theme", "dark", time_ms=NOW + 1)
    older = make_setting(identity("alice"), "theme", "light", time_ms=NOW)
    store.write_now(lambda txn: put_setting(txn, older, now_ms=NOW, own_login=OWN, most=9))
    lines = export(store)
    store.write_now(lambda txn: put_setting(txn, newer, now_ms=NOW + 5, own_login=OWN, most=9))
    assert take(store, lines)[0].stored == 0
    late = export(store)
    assert take(store, late)[0].stored == 0
    with store.read() as txn:
        assert get_setting(txn, "alice", "theme") == newer


def test_a_registration_keeps_what_is_kept_beside_it(lines: list[bytes], store: Store) -> None:
    take(store, lines)
    with store.read() as txn:
        dave, alice = get_registration(txn, "dave"), get_registration(txn, "alice")
        assert dave is not None and alice is not None
        assert (dave.local, dave.record.signature) == (True, b"")
        assert alice.bch_limit == 9


def test_a_removed_message_stays_removed_whatever_comes(store: Store) -> None:
    def work(txn: Transaction) -> None:
        register(txn, "alice", OWN)
        register(txn, "bob", "far")
        store_pair(txn, make_pair("alice", "bob"), now_ms=NOW, from_client=True, delivery=None, own_login=OWN)

    store.write_now(work)
    before = export(store)
    gone = tombstone_of(MESSAGE)
    store.write_now(lambda txn: store_pair(txn, gone, now_ms=NOW, from_client=True, delivery=None, own_login=OWN))
    assert take(store, before)[0].stored == 0
    with store.read() as txn:
        row = get_row(txn, KEY)
        assert isinstance(row, Row) and row.removed


def test_the_way_signatures_are_checked_can_be_given(lines: list[bytes], store: Store) -> None:
    asked: list[int] = []

    def verify(checks: Sequence[object]) -> list[bool]:
        asked.append(len(checks))
        return [False] * len(checks)

    importer = Importer(store, own_login=OWN, foreign=False, refuse=lambda number, refusal: None, verify=verify)
    importer.take([Line(number, line) for number, line in enumerate(of_type(lines, "record"))])
    assert asked == [len(of_type(lines, "record")) - 1]
    assert importer.imported == Imported(1, 0, asked[0]), "what is not signed has nothing to check"


def test_what_was_signed_by_a_key_of_which_a_late_record_says_that_it_was_replaced(tmp_path: Path) -> None:
    """It was right when it came, and an import into the same server's store loses nothing of it."""
    old, new = identity("alice"), identity("alice").with_device(KeyPair.from_seed(bytes(32)))
    setting = make_setting(old, "theme", "dark", time_ms=NOW)
    with opened(tmp_path / "one.mdb") as one:

        def work(txn: Transaction) -> None:
            add_record(txn, old.access_record(servers(OWN), time_ms=NOW - 9))
            add_record(txn, new.access_record(servers(OWN), time_ms=NOW - 5))
            store_pair(txn, make_pair("alice", "carol"), now_ms=NOW, from_client=False, delivery=None, own_login=OWN)
            put_setting(txn, setting, now_ms=NOW, own_login=OWN, most=9)

        one.write_now(work)
        lines = export(one)
    with opened(tmp_path / "two.mdb") as two:
        assert take(two, lines) == (Imported(4, 0, 0), {})
    with opened(tmp_path / "three.mdb") as three:
        _, refused = take(three, lines, foreign=True)
        assert refused == {4: "DEVICE_KEY_MISMATCH", 5: "BAD_SIGNATURE"}
