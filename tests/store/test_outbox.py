"""Entries of the outbox: their keys, their end, and acknowledgements of one revision by one server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shine_node.protocol.container import Container
from shine_node.protocol.schedule import DeliveryState
from shine_node.store.environment import Store, Transaction
from shine_node.store.layout import Flag, ItemKey, Row, Table, encode_containers, pack_number
from shine_node.store.lineage import get_doubt
from shine_node.store.outbox import acknowledge, clear_entry, former_servers, outbox_key, put_entry, signatures_of
from shine_node.store.resync import begin_resync
from tests.store.rooms import NOW, make_pair, opened

pytestmark = pytest.mark.core

PAIR = make_pair("alice", "bob")
KEY = ItemKey.of(PAIR.outgoing)
OTHER = "Other.Server"
SIGNATURES = PAIR.incoming.signature + PAIR.outgoing.signature


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with opened(tmp_path / "shine.mdb") as store:
        yield store


def make_row(*, seq: int = 1, changed_at_ms: int = NOW, flags: Flag = Flag.UNSYNCED, version: int = 1) -> Row:
    return Row(flags, DeliveryState.DELIVERED, seq, 0, changed_at_ms, version)


def put_item(txn: Transaction, row: Row, *, incoming: Container = PAIR.incoming, server: str = OTHER) -> None:
    txn.put(Table.HISTORY, KEY.encode(), row.encode())
    txn.put(Table.CONTAINERS, pack_number(row.seq), encode_containers(incoming.blob, PAIR.outgoing.blob))
    if row.flags & Flag.UNSYNCED:
        put_entry(txn, server, KEY, row)


def entries(store: Store) -> dict[bytes, bytes]:
    with store.read() as txn:
        return dict(txn.scan(Table.OUTBOX_UNSYNCED))


def row_of(store: Store) -> Row:
    with store.read() as txn:
        value = txn.get(Table.HISTORY, KEY.encode())
    assert value is not None
    return Row.decode(value)


def test_a_key_names_the_server_in_lower_case_and_rises_with_the_time_of_the_change() -> None:
    assert outbox_key("Other.Server", make_row(seq=5, changed_at_ms=258)) == (
        b"other.server\0" + bytes.fromhex("0000000000000102 0000000000000005")
    )
    rows = [make_row(seq=9, changed_at_ms=1), make_row(seq=1, changed_at_ms=2), make_row(seq=2, changed_at_ms=2)]
    keys = [outbox_key(OTHER, row) for row in rows]
    assert keys == sorted(keys)
    assert outbox_key("other", rows[2]) < outbox_key("other-2", rows[0])  # no server's entries lie among another's


def test_an_entry_is_put_and_cleared(store: Store) -> None:
    row = make_row()
    store.write_now(lambda txn: put_entry(txn, OTHER, KEY, row))
    assert entries(store) == {outbox_key(OTHER, row): KEY.encode()}
    store.write_now(lambda txn: clear_entry(txn, "other.server", "alice", row))
    assert entries(store) == {}


def test_nothing_is_cleared_of_an_owner_without_another_server_or_of_a_synced_row(store: Store) -> None:
    row = make_row()
    store.write_now(lambda txn: put_entry(txn, OTHER, KEY, row))
    store.write_now(lambda txn: clear_entry(txn, None, "alice", row))
    store.write_now(lambda txn: clear_entry(txn, OTHER, "alice", row._replace(flags=Flag.NONE)))
    assert len(entries(store)) == 1


@pytest.mark.parametrize("present", [None, "newest.server"])
def test_an_entry_that_is_yet_to_be_moved_is_cleared_under_the_former_server(store: Store, present: str | None) -> None:
    row, mine = make_row(), make_row(seq=2)

    def work(txn: Transaction) -> None:
        for server in (OTHER, "older.server"):
            put_entry(txn, server, KEY, row)
            put_entry(txn, server, KEY, mine)
            begin_resync(txn, "alice", former=server)
        begin_resync(txn, "alice")
        begin_resync(txn, "bob", former="bobs.server")
        assert former_servers(txn, "alice") == [OTHER.lower(), "older.server"]
        clear_entry(txn, present, "alice", row)

    store.write_now(work)
    assert set(entries(store)) == {outbox_key(server, mine) for server in (OTHER, "older.server")}


def test_an_acknowledged_revision_is_synced(store: Store) -> None:
    row = make_row(version=7)
    store.write_now(lambda txn: put_item(txn, row))
    assert store.write_now(lambda txn: acknowledge(txn, OTHER.lower(), KEY, SIGNATURES, marked=True)) is True
    assert entries(store) == {}
    assert row_of(store) == row._replace(flags=Flag.NONE)  # and no claim is lost: the version stays
    assert store.write_now(lambda txn: acknowledge(txn, OTHER, KEY, SIGNATURES, marked=True)) is False


def test_an_acknowledgement_of_another_revision_changes_nothing(store: Store) -> None:
    edit = make_pair("alice", "bob", revision_ms=NOW + 5, body=b"edited")
    row = make_row()
    store.write_now(lambda txn: put_item(txn, row, incoming=edit.incoming))
    assert store.write_now(lambda txn: acknowledge(txn, OTHER, KEY, SIGNATURES, marked=True)) is False
    assert entries(store) == {outbox_key(OTHER, row): KEY.encode()}
    assert row_of(store) == row


def test_a_revision_may_differ_in_the_outgoing_copy_alone(store: Store) -> None:
    outgoing = PAIR.outgoing.blob[:-1] + bytes([PAIR.outgoing.blob[-1] ^ 1])

    def replace(txn: Transaction) -> None:
        put_item(txn, make_row())
        txn.put(Table.CONTAINERS, pack_number(1), encode_containers(PAIR.incoming.blob, outgoing))

    store.write_now(replace)
    assert store.write_now(lambda txn: acknowledge(txn, OTHER, KEY, SIGNATURES, marked=True)) is False
    signatures = signatures_of(PAIR.incoming.blob, outgoing)
    assert store.write_now(lambda txn: acknowledge(txn, OTHER, KEY, signatures, marked=True)) is True


def test_an_acknowledgement_of_what_is_unknown_changes_nothing(store: Store) -> None:
    assert store.write_now(lambda txn: acknowledge(txn, OTHER, KEY, SIGNATURES, marked=True)) is False
    assert entries(store) == {}


def test_an_acknowledgement_of_a_removed_item_changes_nothing(store: Store) -> None:
    row = make_row()

    def work(txn: Transaction) -> bool:
        put_item(txn, row)
        txn.put(Table.CONTAINERS, pack_number(row.seq), b"")
        return acknowledge(txn, OTHER, KEY, SIGNATURES, marked=True)

    assert store.write_now(work) is False
    assert len(entries(store)) == 1


@pytest.mark.parametrize("marked", [True, False])
def test_what_is_acknowledged_without_a_mark_is_in_doubt(store: Store, marked: bool) -> None:
    store.write_now(lambda txn: put_item(txn, make_row()))
    for noted in (True, False):
        assert store.write_now(lambda txn: acknowledge(txn, OTHER, KEY, SIGNATURES, marked=marked)) is noted
    with store.read() as txn:
        assert get_doubt(txn, OTHER.lower()) == (None if marked else NOW)


def test_the_server_before_does_not_acknowledge_for_the_one_after(store: Store) -> None:
    # It was called while it was the owner's other server; when its answer came, the owner had chosen another one.
    row = make_row()
    store.write_now(lambda txn: put_item(txn, row, server="newer.server"))
    assert store.write_now(lambda txn: acknowledge(txn, OTHER, KEY, SIGNATURES, marked=True)) is False
    assert entries(store) == {outbox_key("newer.server", row): KEY.encode()}
    assert row_of(store) == row
