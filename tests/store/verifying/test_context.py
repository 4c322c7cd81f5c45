"""What the judges look up."""

from __future__ import annotations

from pathlib import Path

import pytest

from shine_node.store.environment import Transaction
from shine_node.store.layout import Table
from shine_node.store.resync import begin_resync
from shine_node.store.users import Registration, add_record, get_user
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


def test_a_key_of_which_the_record_is_gone_is_known_and_proves_nothing(tmp_path: Path) -> None:
    with opened(full_store(tmp_path)) as store:
        with store.read() as txn:
            entry, key = next(txn.scan(Table.ACCESS_HISTORY, prefix=b"alice\0"))
            record = Context(txn, OWN).record(entry[-8:])
        assert record is not None
        store.write_now(lambda txn: txn.delete(Table.ACCESS_RECORDS, entry[-8:]))
        with store.read() as txn:
            context = Context(txn, OWN)
            assert context.lost_entry(record[2]) == entry
            for change in ({"device_key": b"k" * 32}, {"time_ms": 5}):
                other = Registration(record[2].record._replace(**change), local=False, bch_limit=None)
                assert context.lost_entry(other) is None
            assert context.is_lost(entry, key)
            for wrong, value in ((b"alice", key), (entry + b"x", key), (entry, b"k"), (b"x" + entry, key)):
                assert not context.is_lost(wrong, value)
            newest = next(found for found in txn.scan_keys(Table.ACCESS_HISTORY, prefix=b"alice\0") if found != entry)
            assert not context.is_lost(newest, key)
            author = context.author("alice")
            assert author is not None
            assert author.lost == (key,)
            assert author.keys_at(0) == (identity("alice").device.public, key)


def test_without_a_signature_a_record_needs_what_bears_it_out(tmp_path: Path) -> None:
    with opened(full_store(tmp_path)) as store:
        seq = (5).to_bytes(8, "big")

        def holds(users: bytes | None = None, *, history: bool = True, current: bool = True) -> bool:
            def plant(txn: Transaction) -> None:
                if users is not None:
                    txn.put(Table.USERS, b"dave", users)
                if not history:
                    txn.delete(Table.ACCESS_HISTORY, next(txn.scan_keys(Table.ACCESS_HISTORY, prefix=b"dave\0")))
                if not current:
                    txn.delete(Table.ACCESS_CURRENT, b"dave")

            store.write_now(plant)
            with store.read() as txn:
                return Context(txn, OWN).record(seq) is not None

        with store.read() as txn:
            value = txn.get(Table.USERS, b"dave")
        assert value is not None
        assert holds()
        assert holds(b"{}")
        assert holds(value.replace(b'"bchLimit":null', b'"bchLimit":5'))
        assert not holds(current=False)
        assert not holds(history=False)
        assert holds(value)
