"""A store that has something in every table, and a way to look through it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from shine_node.client.identity import Identity, KeyPair
from shine_node.client.settings import make_setting
from shine_node.protocol.access import AccessRecord
from shine_node.protocol.container import parse_container
from shine_node.protocol.pair import Pair, check_pair
from shine_node.protocol.sessions import Session
from shine_node.store.environment import Store, Transaction
from shine_node.store.layout import ItemKey, Kind, Row, Table, pack_number
from shine_node.store.lineage import begin_run, note_doubt, put_peer_mark, put_peer_run
from shine_node.store.messages import get_row, store_incoming, store_pair
from shine_node.store.resync import begin_resync
from shine_node.store.sessions import add_session
from shine_node.store.settings import put_setting
from shine_node.store.users import add_record
from shine_node.store.verifying.findings import Problem, Report
from shine_node.store.verifying.verify import repair_store, verify_store
from tests.store.rooms import (
    MAP_SIZE,
    MAX_BODY,
    NOW,
    OWN,
    first_delivery,
    identity,
    make_copy,
    make_pair,
    opened,
    receipt_of,
    register,
    servers,
    tombstone_of,
)

OTHER = "other.server"


def older_device() -> KeyPair:
    """The device that alice had before."""
    seed = hashlib.sha256(b"older device").digest()
    return Identity.from_seeds("alice", root=seed, blockchain=seed, device=seed).device


def older_alice() -> AccessRecord:
    """Her record with a device of before."""
    return identity("alice").with_device(older_device()).access_record(servers(OWN), time_ms=NOW - 10_000_000)


def old_pair() -> Pair:
    """Return what alice has sent with the device of before."""
    pair = make_pair("alice", "bob", nonce=20, time_ms=NOW - 5_000_000)
    copies = (copy.signed_part + older_device().sign(copy.signed_part) for copy in (pair.incoming, pair.outgoing))
    return check_pair(*(parse_container(blob, max_body_bytes=MAX_BODY) for blob in copies))


DELIVERED = make_pair("alice", "bob", nonce=1)
"""Stored for both."""
OPEN = make_pair("alice", "carol", nonce=2)
EDITED = make_pair("alice", "carol", nonce=3, revision_ms=NOW + 5)
REMOVED = make_pair("alice", "bob", nonce=4)
TOMBSTONE = tombstone_of(REMOVED.incoming.message)
EARLY = tombstone_of(make_pair("alice", "bob", nonce=9).incoming.message, nonce=71)
"""Its message never came."""
RECEIPT = receipt_of(DELIVERED.incoming.message)
SETTLING = make_pair("alice", "carol", nonce=5)
RECEIVED = make_copy("carol", "alice", Kind.MESSAGE, nonce=6)
OLD = old_pair()
SESSION = Session("s" * 43, "alice", "ed25519/k", "", "phone", "1.2.3.4", NOW, NOW)

OPEN_KEY = ItemKey.of(OPEN.outgoing)
DELIVERED_KEY = ItemKey.of(DELIVERED.outgoing)
REMOVED_KEY = ItemKey.of(REMOVED.outgoing)
SETTLING_KEY = ItemKey.of(SETTLING.outgoing)
RECEIPT_KEY = ItemKey.of(RECEIPT.outgoing)


def fill(txn: Transaction) -> None:
    """Write something into every table."""
    add_record(txn, older_alice())
    register(txn, "alice", OWN, OTHER)
    register(txn, "bob", OWN, OTHER)
    register(txn, "carol", "third.server")
    unsigned = identity("dave").access_record(servers(OWN), time_ms=0)._replace(signature=b"")
    add_record(txn, unsigned, local=True)
    for pair in (DELIVERED, OPEN, EDITED, REMOVED, TOMBSTONE, EARLY, RECEIPT):
        store_pair(txn, pair, now_ms=NOW, from_client=True, delivery=first_delivery(), own_login=OWN)
    store_pair(
        txn,
        SETTLING,
        now_ms=NOW,
        from_client=False,
        delivery=first_delivery(),
        own_login=OWN,
        settling=True,
        from_server=OTHER,
    )
    store_incoming(txn, RECEIVED, now_ms=NOW, own_login=OWN)
    # An edit of what is not the newest writes a row of what is counted.
    for revision_ms in (NOW + 6, NOW + 7):
        pair = make_pair("alice", "carol", nonce=3, revision_ms=revision_ms)
        store_pair(txn, pair, now_ms=NOW, from_client=True, delivery=first_delivery(), own_login=OWN)
    for number, param in enumerate(("theme", "sound")):
        setting = make_setting(identity("alice"), param, "on", time_ms=NOW + number)
        put_setting(txn, setting, now_ms=NOW, own_login=OWN, most=10, from_server=OTHER if number else None)
    add_session(txn, SESSION, greatest=5)
    begin_resync(txn, "bob")
    begin_run(txn, b"r" * 8, 5)
    put_peer_mark(txn, OTHER, "aa-1")
    put_peer_run(txn, OTHER, "aa")
    note_doubt(txn, OTHER, NOW)
    txn.put(Table.META, b"access_seq " + OTHER.encode(), pack_number(5))


def fill_people(txn: Transaction) -> None:
    """Write users of every kind, and one thing that each of them can lose with a record."""
    add_record(txn, older_alice())
    register(txn, "alice", OWN, OTHER)
    register(txn, "bob", OWN)
    unsigned = identity("dave").access_record(servers(OWN), time_ms=0)._replace(signature=b"")
    add_record(txn, unsigned, local=True, bch_limit=7)
    store_pair(txn, DELIVERED, now_ms=NOW, from_client=True, delivery=first_delivery(), own_login=OWN)
    store_pair(txn, OLD, now_ms=NOW, from_client=False, delivery=None, own_login=OWN)
    put_setting(txn, make_setting(identity("alice"), "theme", "on", time_ms=NOW), now_ms=NOW, own_login=OWN, most=10)
    for login in ("alice", "bob", "dave"):
        add_session(txn, SESSION._replace(session_id=login.ljust(43, "x"), login=login), greatest=5)


def full_store(folder: Path, filled: Callable[[Transaction], object] = fill) -> Path:
    """Make the store."""
    path = folder / "shine.mdb"
    with opened(path) as store:
        store.write_now(filled)
    return path


def row_of(txn: Transaction, key: ItemKey) -> Row:
    """Return a row that is there."""
    row = get_row(txn, key)
    assert row is not None
    return row


def found_in(store: Store) -> set[Problem]:
    """Return the kinds of what is found in a store that is open."""
    return set(verify_store(store, OWN, threads=1).counts)


def repaired(path: Path) -> Report:
    """Repair a store with a quarantine and no copy."""
    return repair_store(
        path, OWN, map_size=MAP_SIZE, now_ms=NOW, quarantine=path.with_name("quarantine"), copy=None, threads=1
    )
