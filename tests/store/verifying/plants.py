"""Damage of every kind, planted in a full store, and what is found of it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path

from shine_node.client.identity import Identity
from shine_node.protocol.schedule import DeliveryState
from shine_node.store.deliveries import due_table
from shine_node.store.environment import Transaction
from shine_node.store.layout import Flag, ItemKey, Row, Table, encode_containers, pack_number
from shine_node.store.outbox import outbox_key
from shine_node.store.users import add_record, history_key
from shine_node.store.verifying.findings import Problem
from shine_node.store.verifying.items import due_key
from shine_node.store.verifying.verify import verify_store
from tests.store.rooms import NOW, OWN, check_indexes, identity, make_pair, opened, servers
from tests.store.verifying.full import (
    DELIVERED,
    DELIVERED_KEY,
    OPEN_KEY,
    OTHER,
    REMOVED_KEY,
    SESSION,
    SETTLING_KEY,
    full_store,
    repaired,
    row_of,
)

Plant = Callable[[Transaction], object]


def first(txn: Transaction, table: Table) -> tuple[bytes, bytes]:
    """The first row of a table."""
    return next(txn.scan(table))


def alter(table: Table, change: Callable[[bytes], bytes], key: Callable[[Transaction], bytes] | None = None) -> Plant:
    """Change the value of a row, the first one by default."""

    def plant(txn: Transaction) -> None:
        place = first(txn, table)[0] if key is None else key(txn)
        value = txn.get(table, place)
        assert value is not None
        txn.put(table, place, change(value))

    return plant


def remove(table: Table, key: Callable[[Transaction], bytes] | None = None) -> Plant:
    """Take a row away, the first one by default."""
    return lambda txn: txn.delete(table, first(txn, table)[0] if key is None else key(txn))


def add(table: Table, key: bytes, value: bytes = b"") -> Plant:
    """Add a row."""
    return lambda txn: txn.put(table, key, value)


def seq_of(key: ItemKey) -> Callable[[Transaction], bytes]:
    """The number of an item's contents."""
    return lambda txn: pack_number(row_of(txn, key).seq)


def flip(at: int) -> Callable[[bytes], bytes]:
    """Flip a bit of one byte."""
    return lambda value: bytes((*value[:at], value[at] ^ 1, *value[at + 1 or len(value) :]))


def change_row(key: ItemKey, change: Callable[[Row], Row]) -> Plant:
    """Change the row of an item."""
    return lambda txn: txn.put(Table.HISTORY, key.encode(), change(row_of(txn, key)).encode())


def swap_contents(txn: Transaction) -> None:
    """Give two items each other's contents."""
    one, two = pack_number(row_of(txn, OPEN_KEY).seq), pack_number(row_of(txn, SETTLING_KEY).seq)
    first_value, second_value = txn.get(Table.CONTAINERS, one), txn.get(Table.CONTAINERS, two)
    assert first_value is not None and second_value is not None
    txn.put(Table.CONTAINERS, one, second_value)
    txn.put(Table.CONTAINERS, two, first_value)


def alice_record(txn: Transaction) -> bytes:
    """The number of alice's newest record."""
    return [key[-8:] for key in txn.scan_keys(Table.ACCESS_HISTORY, prefix=b"alice\0")][-1]


def forge_setting(txn: Transaction) -> None:
    """Change the value of a setting, so that it can still be read."""
    key, value = next(txn.scan(Table.SETTINGS, prefix=b"alice\0theme"))
    txn.put(Table.SETTINGS, key, value.replace(b'"on"', b'"no"'))


def rename_setting_key(txn: Transaction) -> None:
    """Let a setting name a key that its owner never had."""
    key, value = next(txn.scan(Table.SETTINGS, prefix=b"alice\0theme"))
    stranger = base64.b64encode(identity("mallory").device.public)
    own = base64.b64encode(identity("alice").device.public)
    txn.put(Table.SETTINGS, key, value.replace(own, stranger))


def another_root(txn: Transaction) -> None:
    """A second record of bob, by somebody else."""
    mallory = Identity.from_seeds("bob", root=b"m" * 32, blockchain=b"m" * 32, device=b"m" * 32)
    add_record(txn, mallory.access_record(servers(OWN), time_ms=NOW + 1))


def older_user(txn: Transaction) -> None:
    """Let a user be the older record, which is not among the records any more."""
    key, value = first(txn, Table.ACCESS_RECORDS)
    txn.put(Table.USERS, b"alice", value)
    txn.delete(Table.ACCESS_RECORDS, key)


def move_open(change: Callable[[Row], Row], *, keep_index: bool) -> Plant:
    """Change the schedule of the open item, with or without its index."""

    def plant(txn: Transaction) -> None:
        row = row_of(txn, OPEN_KEY)
        if not keep_index:
            assert row.delivery is not None
            txn.delete(due_table(row), due_key(row, row.delivery))
        txn.put(Table.HISTORY, OPEN_KEY.encode(), change(row).encode())

    return plant


def remove_content_of_removed(txn: Transaction) -> None:
    txn.delete(Table.CONTAINERS, pack_number(row_of(txn, REMOVED_KEY).seq))


def bring_back_removed(txn: Transaction) -> None:
    pair = make_pair("alice", "bob", nonce=4)
    value = encode_containers(pair.incoming.blob, pair.outgoing.blob)
    txn.put(Table.CONTAINERS, pack_number(row_of(txn, REMOVED_KEY).seq), value)


def resurrect(txn: Transaction) -> None:
    """A message that stands beside its tombstone."""
    bring_back_removed(txn)
    row = row_of(txn, REMOVED_KEY)
    txn.put(Table.HISTORY, REMOVED_KEY.encode(), row._replace(flags=Flag.NONE, digest=b"").encode())


def add_stray_content(txn: Transaction) -> None:
    pair = make_pair("alice", "carol", nonce=77)
    txn.put(Table.CONTAINERS, pack_number(10**6), encode_containers(pair.incoming.blob, pair.outgoing.blob))


def no_other_server(txn: Transaction) -> None:
    """An entry that is to be sent, of somebody who has this server only."""
    add_record(txn, identity("alice").access_record(servers(OWN), time_ms=NOW + 9))
    for key in list(txn.scan_keys(Table.OUTBOX_UNSYNCED)):
        txn.delete(Table.OUTBOX_UNSYNCED, key)
    for key in list(txn.scan_keys(Table.SETTINGS_UNSYNCED)):
        txn.delete(Table.SETTINGS_UNSYNCED, key)


STRAY_ITEM = ItemKey.of(make_pair("alice", "carol", nonce=99).outgoing).encode()

ITEMS: dict[str, tuple[Plant, Problem]] = {
    "a due attempt is missing": (remove(Table.DUE_ATTEMPTS), Problem.NO_INDEX),
    "a due attempt too many": (add(Table.DUE_ATTEMPTS, bytes(16), OPEN_KEY.encode()), Problem.DANGLING),
    "a due attempt of nothing": (add(Table.DUE_ATTEMPTS, bytes(16), STRAY_ITEM), Problem.DANGLING),
    "a due attempt of rubbish": (add(Table.DUE_ATTEMPTS, b"x", b"\xff"), Problem.DANGLING),
    "a due attempt points elsewhere": (alter(Table.DUE_ATTEMPTS, lambda value: STRAY_ITEM), Problem.NO_INDEX),
    "a settling is missing": (remove(Table.DUE_SETTLING), Problem.NO_INDEX),
    "a settling of a delivered one": (
        add(Table.DUE_SETTLING, bytes(16), DELIVERED_KEY.encode()),
        Problem.DANGLING,
    ),
    "an outbox entry is missing": (remove(Table.OUTBOX_UNSYNCED), Problem.NO_INDEX),
    "an outbox entry of nothing": (
        add(Table.OUTBOX_UNSYNCED, OTHER.encode() + b"\0" + bytes(16), STRAY_ITEM),
        Problem.DANGLING,
    ),
    "an outbox entry for a strange server": (
        lambda txn: txn.put(Table.OUTBOX_UNSYNCED, outbox_key("strange", row_of(txn, OPEN_KEY)), OPEN_KEY.encode()),
        Problem.DANGLING,
    ),
    "an outbox entry of what is synced": (
        change_row(OPEN_KEY, lambda row: row._replace(flags=Flag.NONE)),
        Problem.DANGLING,
    ),
    "an outbox of somebody with one server": (no_other_server, Problem.NO_INDEX),
    "a row of the history cannot be read": (alter(Table.HISTORY, lambda value: value[:5]), Problem.UNREADABLE),
    "a row of the history has an unknown flag": (
        alter(Table.HISTORY, lambda value: b"\xf0" + value[1:]),
        Problem.UNREADABLE,
    ),
    "a key of the history is none": (add(Table.HISTORY, b"rubbish", b"x"), Problem.UNREADABLE),
    "received, and failed": (
        change_row(
            ItemKey.of(DELIVERED.incoming),
            lambda row: row._replace(state=DeliveryState.FAILED),
        ),
        Problem.CONTRADICTION,
    ),
    "asked about, and over": (
        change_row(DELIVERED_KEY, lambda row: row._replace(flags=row.flags | Flag.SETTLING)),
        Problem.CONTRADICTION,
    ),
    "removed, and open": (
        move_open(lambda row: row._replace(flags=Flag.REMOVED), keep_index=True),
        Problem.CONTRADICTION,
    ),
    "removed, and to be sent": (
        change_row(REMOVED_KEY, lambda row: row._replace(flags=row.flags | Flag.UNSYNCED)),
        Problem.CONTRADICTION,
    ),
    "a digest too long": (
        change_row(DELIVERED_KEY, lambda row: row._replace(digest=b"x" * 32)),
        Problem.CONTRADICTION,
    ),
    "no number": (change_row(DELIVERED_KEY, lambda row: row._replace(seq=0)), Problem.CONTRADICTION),
    "an attempt at no time": (
        move_open(
            lambda row: row._replace(delivery=row.delivery and row.delivery._replace(next_at_ms=5, lease_until_ms=9)),
            keep_index=True,
        ),
        Problem.NO_INDEX,
    ),
    "the contents are gone": (remove(Table.CONTAINERS, seq_of(OPEN_KEY)), Problem.LOST),
    "the contents are empty": (alter(Table.CONTAINERS, lambda value: b"", seq_of(OPEN_KEY)), Problem.LOST),
    "the contents are swapped": (swap_contents, Problem.CONTRADICTION),
    "the contents cannot be read": (
        alter(Table.CONTAINERS, lambda value: value[:-1], seq_of(OPEN_KEY)),
        Problem.UNREADABLE,
    ),
    "the contents are three bytes": (
        alter(Table.CONTAINERS, lambda value: b"abc", seq_of(OPEN_KEY)),
        Problem.UNREADABLE,
    ),
    "the sender's copy alone": (
        alter(Table.CONTAINERS, lambda value: bytes(4) + DELIVERED.outgoing.blob, seq_of(DELIVERED_KEY)),
        Problem.UNREADABLE,
    ),
    "a copy of the pair is missing": (
        alter(Table.CONTAINERS, lambda value: encode_containers(DELIVERED.incoming.blob, b""), seq_of(DELIVERED_KEY)),
        Problem.CONTRADICTION,
    ),
    "two incoming copies": (
        alter(
            Table.CONTAINERS,
            lambda value: encode_containers(DELIVERED.incoming.blob, DELIVERED.incoming.blob),
            seq_of(DELIVERED_KEY),
        ),
        Problem.UNREADABLE,
    ),
    "a revision is another": (
        change_row(DELIVERED_KEY, lambda row: row._replace(revision_ms=NOW + 99)),
        Problem.CONTRADICTION,
    ),
    "contents of nothing": (add_stray_content, Problem.DANGLING),
    "empty contents of nothing": (add(Table.CONTAINERS, pack_number(10**6)), Problem.DANGLING),
    "a number that is none": (add(Table.CONTAINERS, b"\0\0", b""), Problem.UNREADABLE),
    "the number of a removed one is free": (remove_content_of_removed, Problem.LOST),
    "a removed one has contents": (bring_back_removed, Problem.CONTRADICTION),
    "a removed one has come back": (resurrect, Problem.CONTRADICTION),
    "two removed ones of one number": (
        lambda txn: txn.put(Table.HISTORY, REMOVED_KEY._replace(nonce=44).encode(), row_of(txn, REMOVED_KEY).encode()),
        Problem.CONTRADICTION,
    ),
    "a removed one with the number of another": (
        lambda txn: txn.put(
            Table.HISTORY,
            REMOVED_KEY._replace(nonce=44).encode(),
            row_of(txn, REMOVED_KEY)._replace(seq=row_of(txn, OPEN_KEY).seq).encode(),
        ),
        Problem.CONTRADICTION,
    ),
    "a removed one with contents of nothing": (
        lambda txn: (
            bring_back_removed(txn),
            txn.put(Table.CONTAINERS, pack_number(row_of(txn, REMOVED_KEY).seq), b"rubbish"),
        ),
        Problem.CONTRADICTION,
    ),
    "a signature is altered": (alter(Table.CONTAINERS, flip(-1), seq_of(OPEN_KEY)), Problem.FORGED),
    "a body is altered": (alter(Table.CONTAINERS, flip(-65), seq_of(OPEN_KEY)), Problem.FORGED),
    "a read mark is missing": (remove(Table.READ_MARKS), Problem.NO_INDEX),
    "a read mark is too early": (alter(Table.READ_MARKS, lambda value: pack_number(1)), Problem.NO_INDEX),
    "a read mark of no receipt": (add(Table.READ_MARKS, b"carol\0alice\0\1", pack_number(5)), Problem.DANGLING),
    "a read mark cannot be read": (alter(Table.READ_MARKS, lambda value: b"soon"), Problem.UNREADABLE),
    "a read mark has no key": (add(Table.READ_MARKS, b"alice", pack_number(5)), Problem.UNREADABLE),
}
"""Of the history."""

PEOPLE: dict[str, tuple[Plant, Problem]] = {
    "a user is missing": (remove(Table.USERS), Problem.NO_INDEX),
    "a user is an older one": (
        lambda txn: txn.put(Table.USERS, b"alice", first(txn, Table.ACCESS_RECORDS)[1]),
        Problem.CONTRADICTION,
    ),
    "a user is an older one that is nowhere else": (older_user, Problem.LOST),
    "a user cannot be read": (alter(Table.USERS, lambda value: b"{"), Problem.CONTRADICTION),
    "a user of no record": (add(Table.USERS, b"nobody", b"{}"), Problem.UNREADABLE),
    "the current servers are missing": (remove(Table.ACCESS_CURRENT), Problem.NO_INDEX),
    "the current servers are others": (alter(Table.ACCESS_CURRENT, lambda value: b"x wss://x/ws"), Problem.NO_INDEX),
    "current servers of nobody": (add(Table.ACCESS_CURRENT, b"nobody", b""), Problem.DANGLING),
    "a record is missing": (remove(Table.ACCESS_RECORDS, alice_record), Problem.LOST),
    "all records of a user are missing": (
        lambda txn: [
            (txn.delete(Table.ACCESS_RECORDS, key[-8:]), txn.delete(Table.ACCESS_HISTORY, key))
            for key in list(txn.scan_keys(Table.ACCESS_HISTORY, prefix=b"carol\0"))
        ],
        Problem.LOST,
    ),
    "a record cannot be read": (alter(Table.ACCESS_RECORDS, lambda value: b"[]", alice_record), Problem.UNREADABLE),
    "a number of a record is none": (
        lambda txn: (
            txn.put(Table.ACCESS_RECORDS, b"\0\0", first(txn, Table.ACCESS_RECORDS)[1]),
            txn.put(Table.ACCESS_HISTORY, b"\0\0", b""),
        ),
        Problem.UNREADABLE,
    ),
    "a record is not signed": (
        alter(Table.ACCESS_RECORDS, lambda value: value.replace(b"wss://", b"wsx://"), alice_record),
        Problem.FORGED,
    ),
    "a record has another root key": (another_root, Problem.CONTRADICTION),
    "a record without a signature is of somebody else": (
        alter(Table.ACCESS_RECORDS, lambda value: value.replace(b"dave", b"dove"), lambda txn: pack_number(5)),
        Problem.CONTRADICTION,
    ),
    "a record has a number that was never given": (
        lambda txn: (
            txn.put(Table.ACCESS_RECORDS, b"\x80" + bytes(7), first(txn, Table.ACCESS_RECORDS)[1]),
            txn.delete(Table.ACCESS_RECORDS, first(txn, Table.ACCESS_RECORDS)[0]),
        ),
        Problem.CONTRADICTION,
    ),
    "the keys lack a record": (remove(Table.ACCESS_HISTORY), Problem.NO_INDEX),
    "the keys have another key": (alter(Table.ACCESS_HISTORY, flip(0)), Problem.NO_INDEX),
    "the keys have a record too many": (add(Table.ACCESS_HISTORY, history_key("bob", 1, 1), b"k"), Problem.DANGLING),
    "the keys have rubbish": (add(Table.ACCESS_HISTORY, b"bob", b"k"), Problem.DANGLING),
    "a setting cannot be read": (alter(Table.SETTINGS, lambda value: value[:20]), Problem.UNREADABLE),
    "a setting is not signed": (forge_setting, Problem.FORGED),
    "a setting of a strange key": (rename_setting_key, Problem.FORGED),
    "an unsynced setting of nothing": (
        add(Table.SETTINGS_UNSYNCED, OTHER.encode() + b"\0" + bytes(8) + b"alice\0x"),
        Problem.DANGLING,
    ),
    "an unsynced setting that is none": (add(Table.SETTINGS_UNSYNCED, b"rubbish"), Problem.DANGLING),
    "an unsynced setting for a strange server": (
        lambda txn: txn.put(
            Table.SETTINGS_UNSYNCED, b"strange" + first(txn, Table.SETTINGS_UNSYNCED)[0][len(OTHER) :], b""
        ),
        Problem.DANGLING,
    ),
    "a resync cannot be read": (alter(Table.RESYNC, lambda value: b""), Problem.UNREADABLE),
    "a session cannot be read": (alter(Table.SESSIONS, lambda value: b"[1]"), Problem.UNREADABLE),
    "a session of another type": (
        alter(Table.SESSIONS, lambda value: value.replace(str(NOW).encode(), b"-6.0", 1)),
        Problem.UNREADABLE,
    ),
    "a session of nobody": (
        alter(Table.SESSIONS, lambda value: value.replace(b"alice", b"nobody")),
        Problem.DANGLING,
    ),
    "a session is not listed": (remove(Table.SESSIONS_OF_USER), Problem.NO_INDEX),
    "a session is listed and is not there": (remove(Table.SESSIONS), Problem.DANGLING),
    "a session is listed for another": (
        add(Table.SESSIONS_OF_USER, b"bob\0" + SESSION.session_id.encode()),
        Problem.DANGLING,
    ),
    "a session without a name": (add(Table.SESSIONS_OF_USER, b"bob"), Problem.DANGLING),
}
"""Of users beside their history."""

SUMS: dict[str, tuple[Plant, Problem]] = {
    "a sum is too large": (alter(Table.USAGE, lambda value: pack_number(2**40) + value[8:]), Problem.CONTRADICTION),
    "a sum cannot be read": (alter(Table.USAGE, lambda value: value[:-1]), Problem.UNREADABLE),
    "a sum of nobody": (add(Table.USAGE, b"a b", bytes(32)), Problem.UNREADABLE),
    "a sum of one without items": (add(Table.USAGE, b"nobody", pack_number(5) + bytes(24)), Problem.CONTRADICTION),
    "a sum is missing": (
        lambda txn: [
            txn.put(Table.META, b"usage", pack_number(8)),
            txn.delete(Table.USAGE, first(txn, Table.USAGE)[0]),
        ],
        Problem.NO_INDEX,
    ),
    "the sums reach too far": (add(Table.META, b"usage", pack_number(2**62)), Problem.CONTRADICTION),
    "how far the sums reach cannot be read": (add(Table.META, b"usage", b"x"), Problem.UNREADABLE),
}


META: dict[str, tuple[Plant, Problem]] = {
    "its server is no login": (add(Table.META, b"server_login", b"two words"), Problem.UNREADABLE),
    "its server is no text": (add(Table.META, b"server_login", b"\xff"), Problem.UNREADABLE),
    "the lineage cannot be read": (add(Table.META, b"lineage", b"x"), Problem.UNREADABLE),
    "a place cannot be read": (add(Table.META, b"access_seq x", b"x"), Problem.UNREADABLE),
    "a name is no text": (add(Table.META, b"serv\xe5r_login", b"a.server"), Problem.UNREADABLE),
    "a mark cannot be read": (add(Table.META, b"peer_mark x", b"\xff"), Problem.UNREADABLE),
}


def found_and_mended(folder: Path, plant: Plant, problem: Problem) -> None:
    """Plant damage in a full store, find it, and mend it."""
    path = full_store(folder)
    with opened(path) as store:
        before = {(table, key): value for table in Table for key, value in _rows(store, table)}
        store.write_now(plant)
        planted = {(table, key): value for table in Table for key, value in _rows(store, table)}
        assert planted != before
        report = verify_store(store, OWN, threads=2)
        assert report.counts[problem], report.counts
        assert {(table, key): value for table in Table for key, value in _rows(store, table)} == planted
    mended = repaired(path)
    assert mended.repaired
    assert mended.problems
    assert all(finding.remedy for findings in mended.first.values() for finding in findings if not finding.problem.note)
    with opened(path) as store:
        again = verify_store(store, OWN, threads=1)
        assert again.clean, again.first
        with store.read() as txn:
            check_indexes(txn)
        after = {(table, key) for table in Table for key, _ in _rows(store, table)}
    kept = path.with_name("quarantine")
    lines = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    quarantined = {(Table(line["table"].encode()), base64.b64decode(line["keyB64"])) for line in lines}
    lost = planted.keys() - after
    assert lost <= quarantined, "nothing is thrown away"
    for line in lines:
        value = planted.get((Table(line["table"].encode()), base64.b64decode(line["keyB64"])))
        assert value is None or base64.b64decode(line["valueB64"]) == value or (lost and line["why"])
    if kept.exists():
        assert kept.stat().st_mode & 0o777 == 0o600


def _rows(store: object, table: Table) -> list[tuple[bytes, bytes]]:
    with store.read() as txn:  # type: ignore[attr-defined]
        return list(txn.scan(table))
