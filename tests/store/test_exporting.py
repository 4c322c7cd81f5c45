"""What an export holds, line by line."""

from __future__ import annotations

import hashlib
from pathlib import Path

import orjson
import pytest

from shine_node import __version__
from shine_node.client.settings import make_setting
from shine_node.protocol.sessions import Session
from shine_node.store.environment import Transaction
from shine_node.store.exporting import DERIVED, count_lines, export_store
from shine_node.store.layout import SCHEMA_VERSION, Table
from shine_node.store.lineage import begin_run, put_peer_mark
from shine_node.store.messages import store_pair
from shine_node.store.sessions import add_session
from shine_node.store.settings import acknowledge_setting, index_row, put_setting
from tests.store.rich import EVERYTHING, do, found
from tests.store.rooms import NOW, OWN, identity, make_pair, opened, register, tombstone_of

pytestmark = pytest.mark.core


def test_header_lines_and_end(tmp_path: Path) -> None:
    with opened(tmp_path / "shine.mdb") as store:
        found(store)
        for number, step in enumerate(EVERYTHING):
            do(store, number, step)
        with store.read() as txn:
            lines = list(export_store(txn, own_login=OWN, at_ms=NOW, program=__version__))
            assert abs(count_lines(txn) + 1 - len(lines)) <= 1, "schema has no line, and header and end are two more"
            without = list(export_store(txn, own_login=OWN, at_ms=NOW, program=__version__, sessions=False))
    header, *between, end = map(orjson.loads, lines)
    assert header == {
        "type": "header",
        "format": "shine-node export",
        "version": 1,
        "schema": SCHEMA_VERSION,
        "serverLogin": OWN,
        "atMs": NOW,
        "program": __version__,
    }
    kinds = [line["type"] for line in between]
    assert list(dict.fromkeys(kinds)) == ["record", "resync", "setting", "session", "item", "meta"]
    assert end == {
        "type": "end",
        "counts": {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)},
        "sha256": hashlib.sha256(b"".join(lines[:-1])).hexdigest(),
    }
    assert [line for line in lines[:-1] if b'"type":"session"' not in line] == without[:-1]
    assert all(line.count(b"\n") == 1 and line.endswith(b"\n") for line in lines)


def test_every_table_is_exported_or_follows_from_others() -> None:
    """Whoever adds a table has to say which of both it is, here and there."""
    assert {
        Table.USERS,
        Table.ACCESS_CURRENT,
        Table.ACCESS_HISTORY,
        Table.DUE_ATTEMPTS,
        Table.DUE_SETTLING,
        Table.OUTBOX_UNSYNCED,
        Table.SETTINGS_UNSYNCED,
        Table.READ_MARKS,
        Table.SESSIONS_OF_USER,
        Table.USAGE,
    } == DERIVED
    exported = {Table.ACCESS_RECORDS, Table.RESYNC, Table.SETTINGS, Table.SESSIONS, Table.HISTORY, Table.META}
    assert set(Table) == DERIVED | exported | {Table.CONTAINERS}


def test_who_has_what(tmp_path: Path) -> None:
    with opened(tmp_path / "shine.mdb") as store:

        def work(txn: Transaction) -> None:
            register(txn, "alice", OWN, "Other")
            register(txn, "bob", OWN)
            for login, param in (("alice", "a"), ("alice", "b"), ("bob", "a")):
                put_setting(
                    txn, make_setting(identity(login), param, "x", time_ms=NOW), now_ms=NOW, own_login=OWN, most=9
                )
            acknowledge_setting(txn, index_row("Other", NOW, make_setting(identity("alice"), "b", "x", time_ms=NOW)))
            for nonce, server in ((1, "other"), (2, None), (3, "other")):
                store_pair(
                    txn,
                    make_pair("alice", "carol", nonce=nonce),
                    now_ms=NOW,
                    from_client=False,
                    delivery=None,
                    own_login=OWN,
                    from_server=server,
                )
            gone = tombstone_of(make_pair("alice", "carol", nonce=3).outgoing.message)
            store_pair(txn, gone, now_ms=NOW, from_client=False, delivery=None, own_login=OWN)
            add_session(txn, Session("s" * 43, "nobody", "k", "", "", "", 1, 2), greatest=3)
            begin_run(txn, b"12345678", 0)
            put_peer_mark(txn, "other", "aa-1")

        store.write_now(work)
        with store.read() as txn:
            lines = list(map(orjson.loads, export_store(txn, own_login=OWN, at_ms=NOW, program="x")))
            position = txn.snapshot()
    settings = [(line["login"], line["param"], line.get("synced")) for line in lines if line["type"] == "setting"]
    assert settings == [("alice", "a", None), ("alice", "b", "other"), ("bob", "a", None)]
    items = [(line["key"].split("|")[3], line.get("synced")) for line in lines if line["type"] == "item"]
    assert items == [("1", "other"), ("2", None), ("3", None), ("7", None)]
    assert not [line for line in lines if line["type"] == "session"], "of nobody who is known"
    runs, *meta = [line for line in lines if line["type"] == "meta"]
    assert runs == {"type": "meta", "name": "lineage", "runs": [[b"12345678".hex(), position]]}
    assert [line["name"] for line in meta] == ["peer_doubt other", "peer_mark other"]


def test_an_empty_store(tmp_path: Path) -> None:
    with opened(tmp_path / "shine.mdb") as store, store.read() as txn:
        header, end = map(orjson.loads, export_store(txn, own_login=OWN, at_ms=NOW, program="x"))
    assert (header["type"], end["counts"]) == ("header", {})
