"""What the judges look up."""

from __future__ import annotations

from pathlib import Path

import pytest

from shine_node.store.environment import Transaction
from shine_node.store.layout import Table
from shine_node.store.resync import begin_resync
from shine_node.store.users import add_record, get_user
from shine_node.store.verifying import context as context_module
from shine_node.store.verifying.context import Author, Context
from tests.store.rooms import OWN, identity, opened, servers
from tests.store.verifying.full import DELIVERED_KEY, OPEN_KEY, OTHER, full_store, row_of


def test_users_are_those_of_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context_module, "MAX_USERS", 2)
    with opened(full_store(tmp_path)) as store, store.read() as txn:
        authors: dict[str, Author | None] = {}
        context = Context(txn, OWN, authors)
        for login in ("alice", "bob", "carol", "alice", "nobody", "nobody"):
            author, user = context.author(login), get_user(txn, login)
            assert author == (Author(user, ()) if user is not None else None)
        assert len(authors) == 2
        newest = context.newest("alice")
        assert newest is not None
        assert newest[1] == txn.get(Table.USERS, b"alice")
        assert len(context.records("alice")) == 2
        assert context.newest("nobody") is None


def test_records_that_cannot_be_read_are_passed_over(tmp_path: Path) -> None:
    with opened(full_store(tmp_path)) as store:

        def plant(txn: Transaction) -> None:
            one, two = [key[-8:] for key in txn.scan_keys(Table.ACCESS_HISTORY, prefix=b"alice\0")]
            txn.put(Table.ACCESS_RECORDS, one, b"{}")
            bob = next(txn.scan_keys(Table.ACCESS_HISTORY, prefix=b"bob\0"))[-8:]
            txn.put(Table.ACCESS_RECORDS, two, txn.get(Table.ACCESS_RECORDS, bob) or b"")
            txn.put(Table.ACCESS_HISTORY, b"alice\0" + bytes(16), b"")

        store.write_now(plant)
        with store.read() as txn:
            assert Context(txn, OWN).records("alice") == []
            assert Context(txn, OWN).newest("alice") is None
            assert Context(txn, OWN).author("alice") is None


def test_an_older_record_that_was_learned_later(tmp_path: Path) -> None:
    with opened(full_store(tmp_path)) as store:
        older = identity("bob").access_record(servers(OWN), time_ms=5)
        store.write_now(lambda txn: add_record(txn, older))
        with store.read() as txn:
            newest = Context(txn, OWN).newest("bob")
            assert newest is not None
            assert newest[1] == txn.get(Table.USERS, b"bob")
            known = Context(txn, OWN).author("bob")
            assert known is not None
            assert known.user.record != older


def test_servers(tmp_path: Path) -> None:
    with opened(full_store(tmp_path)) as store:
        store.write_now(lambda txn: begin_resync(txn, "alice", former="old.server"))
        with store.read() as txn:
            context = Context(txn, OWN)
            for _ in range(2):
                assert context.others("alice") == [OTHER]
                assert context.others("carol") == []
                assert context.moving("alice") == ["old.server"]
            assert Context(txn, None).others("alice") == [OWN, OTHER]
            for nobody in ("", "a b", "x" * 600):
                assert context.others(nobody) == context.moving(nobody) == context.records(nobody) == []


def test_rows(tmp_path: Path) -> None:
    with opened(full_store(tmp_path)) as store, store.read() as txn:
        context, key, row = Context(txn, OWN), OPEN_KEY.encode(), row_of(txn, OPEN_KEY)
        assert context.row(key) == context.claims(key, row.seq) == row
        assert context.claims(key, row.seq + 1) is None
        assert context.claims(DELIVERED_KEY._replace(nonce=77).encode(), row.seq) is None
        assert context.row(b"rubbish") is None
        assert context.content(row.seq) is not None
        assert context.content(10**6) is None
