"""Keys that people can read."""

from __future__ import annotations

from pathlib import Path

import pytest

from shine_node.store.layout import Table
from shine_node.store.verifying.names import readable
from tests.store.rooms import NOW, opened
from tests.store.verifying.full import OPEN_KEY, REMOVED_KEY, full_store

NAMES = {
    Table.META: "meta: access_seq other.server",
    Table.USERS: "users: alice",
    Table.ACCESS_CURRENT: "access_current: alice",
    Table.ACCESS_RECORDS: "access_records: number 1",
    Table.ACCESS_HISTORY: f"access_history: alice, at {NOW - 10_000_000}, number 1",
    Table.CONTAINERS: "containers: number 1",
    Table.DUE_ATTEMPTS: f"due_attempts: at {NOW + 60_000}, number 3",
    Table.OUTBOX_UNSYNCED: f"outbox_unsynced: other.server, at {NOW}, number 1",
    Table.SETTINGS: "settings: alice/sound",
    Table.SETTINGS_UNSYNCED: f"settings_unsynced: other.server, at {NOW}, alice/theme",
    Table.RESYNC: "resync: bob, number 1",
    Table.READ_MARKS: "read_marks: alice/bob, out",
    Table.SESSIONS: "sessions: " + "s" * 43,
    Table.SESSIONS_OF_USER: "sessions_of_user: alice/" + "s" * 43,
}


def test_every_table_has_keys_for_people(tmp_path: Path) -> None:
    with opened(full_store(tmp_path)) as store, store.read() as txn:
        for table in Table:
            key = next(txn.scan_keys(table))
            assert "0x" not in readable(table, key)
            if table in NAMES:
                assert readable(table, key) == NAMES[table]
    assert readable(Table.HISTORY, OPEN_KEY.encode()) == f"history: message alice|carol|{NOW}|2 of alice, sent"
    assert readable(Table.HISTORY, REMOVED_KEY._replace(direction=1).encode()).endswith("received")


@pytest.mark.parametrize("table", Table)
@pytest.mark.parametrize("key", [b"\xff\x01", b"\x1b[2J", b"ab\0\xff\xff"])
def test_rubbish_is_shown_as_numbers(table: Table, key: bytes) -> None:
    assert readable(table, key).isprintable()
