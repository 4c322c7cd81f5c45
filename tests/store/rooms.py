"""What the tests of the store share: users, signed pairs made to order, and a check of all indexes."""

from __future__ import annotations

import functools
import hashlib
import resource
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from shine_node.client.identity import Identity
from shine_node.protocol.access import AccessServer
from shine_node.protocol.container import FORMAT_REFERENCE, FORMAT_TEXT, Container, encode_unsigned, parse_container
from shine_node.protocol.keys import MessageId
from shine_node.protocol.pair import Pair, check_pair
from shine_node.protocol.schedule import DeliveryState, Schedule
from shine_node.store.environment import Store, Transaction
from shine_node.store.layout import (
    Flag,
    ItemKey,
    Kind,
    OpenDelivery,
    Row,
    Table,
    decode_containers,
    pack_number,
    time_key,
)
from shine_node.store.outbox import former_servers
from shine_node.store.usage import Usage, Used, usage_rows
from shine_node.store.users import add_record, other_server
from shine_node.store.verifying.findings import Problem
from shine_node.store.verifying.verify import verify_store

OWN = "own.server"
NOW = 1_774_700_000_000
MIB = 2**20
MAP_SIZE = 64 * MIB
MAX_BODY = 2**24
SCHEDULE = Schedule((0, 30, 300, 1500, 3600))


@functools.cache
def identity(login: str) -> Identity:
    """Return a user whose keys follow from the login."""
    seeds = (hashlib.sha256(f"{what} of {login.lower()}".encode()).digest() for what in ("root", "chain", "device"))
    root, blockchain, device = seeds
    return Identity.from_seeds(login, root=root, blockchain=blockchain, device=device)


def servers(*logins: str) -> tuple[AccessServer, ...]:
    """Return access servers of these logins."""
    return tuple(AccessServer(login, f"wss://{login.lower()}.example/ws") for login in logins)


def register(txn: Transaction, login: str, *server_logins: str, time_ms: int = NOW) -> None:
    """Store a user with these access servers."""
    add_record(txn, identity(login).access_record(servers(*server_logins), time_ms=time_ms))


@contextmanager
def opened(path: Path, *, map_size: int = MAP_SIZE) -> Iterator[Store]:
    """Open a store whose writer does not run: ``write_now`` writes."""
    store = Store(path, map_size=map_size)
    try:
        yield store
    finally:
        store.close()


@contextmanager
def greatest_file_size(size: int) -> Iterator[None]:
    """Let the system refuse to make any file longer than this, as a disk without room does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@functools.cache
def make_copy(
    from_login: str,
    to_login: str,
    message_type: int,
    *,
    time_ms: int = NOW,
    nonce: int = 1,
    revision_ms: int = 0,
    body: bytes = b"hello",
) -> Container:
    """Return one signed copy; the body of a receipt or tombstone is its reference."""
    unsigned = encode_unsigned(
        to_login=to_login,
        from_login=from_login,
        time_ms=time_ms,
        nonce=nonce,
        message_type=message_type,
        body=body,
        body_format=FORMAT_TEXT if message_type <= 2 else FORMAT_REFERENCE,
        revision_ms=revision_ms,
    )
    return parse_container(unsigned + identity(from_login).device.sign(unsigned), max_body_bytes=MAX_BODY)


def make_pair(
    from_login: str,
    to_login: str,
    kind: Kind = Kind.MESSAGE,
    *,
    time_ms: int = NOW,
    nonce: int = 1,
    revision_ms: int = 0,
    body: bytes = b"hello",
    own_body: bytes | None = None,
) -> Pair:
    """Return a signed pair; ``own_body`` is that of the sender's copy where it differs."""
    same = {"time_ms": time_ms, "nonce": nonce, "revision_ms": revision_ms}
    outgoing_body = body if own_body is None else own_body
    return check_pair(
        make_copy(from_login, to_login, kind, body=body, **same),
        make_copy(from_login, to_login, kind + 1, body=outgoing_body, **same),
    )


def tombstone_of(message: MessageId, *, time_ms: int = NOW + 500, nonce: int = 7) -> Pair:
    """Return the pair that removes a message."""
    reference = message.base_key.encode()
    return make_pair(message.from_login, message.to_login, Kind.TOMBSTONE, time_ms=time_ms, nonce=nonce, body=reference)


def receipt_of(message: MessageId, *, time_ms: int = NOW + 500, nonce: int = 8) -> Pair:
    """Return the receipt by which a message's recipient says that it is read."""
    reference = message.base_key.encode()
    return make_pair(message.to_login, message.from_login, Kind.RECEIPT, time_ms=time_ms, nonce=nonce, body=reference)


def first_delivery(now_ms: int = NOW, lease_ms: int = 60_000) -> OpenDelivery:
    """Return the schedule that a new pair begins with: its first attempt is held by whoever stored it."""
    return OpenDelivery(now_ms, 0, now_ms, now_ms + lease_ms)


def read_rows(txn: Transaction) -> dict[ItemKey, Row]:
    """Return every row of the history."""
    return {ItemKey.decode(key): Row.decode(value) for key, value in txn.scan(Table.HISTORY)}


def check_indexes(txn: Transaction, own_login: str = OWN) -> dict[ItemKey, Row]:
    """Compare the tables that follow from others with what they have to hold, and return the history.

    An accepted row is exactly once in ``due_attempts``, or in ``due_settling`` where it is only asked about, at its
    next look; an unsynced one exactly once in ``outbox_unsynced``, under its owner's other server; a row with a number
    has its containers, which are those of its key and revision, and none where it is removed. There is nothing else in
    these tables. A row of ``settings_unsynced`` names a setting as it is, under its owner's other server.
    """
    rows = read_rows(txn)
    due: dict[Table, dict[bytes, bytes]] = {Table.DUE_ATTEMPTS: {}, Table.DUE_SETTLING: {}}
    unsynced: dict[bytes, bytes] = {}
    numbers: dict[bytes, ItemKey] = {}
    for key, row in rows.items():
        assert (row.state is DeliveryState.ACCEPTED) == (row.delivery is not None), key
        if row.delivery is not None:
            due_at_ms = row.delivery.lease_until_ms or row.delivery.next_at_ms
            table = Table.DUE_SETTLING if row.flags & Flag.SETTLING else Table.DUE_ATTEMPTS
            due[table][time_key(due_at_ms, row.seq)] = key.encode()
        if row.flags & Flag.UNSYNCED:
            other = other_server(txn, key.owner, own_login)
            servers = [other.server_login.lower()] if other is not None else []
            moving = former_servers(txn, key.owner)
            entries = [server.encode() + b"\0" + time_key(row.changed_at_ms, row.seq) for server in servers + moving]
            if moving:
                entries = [entry for entry in entries if txn.get(Table.OUTBOX_UNSYNCED, entry) is not None]
            assert entries, key
            unsynced.update(dict.fromkeys(entries, key.encode()))
        if row.seq:
            number = pack_number(row.seq)
            assert number not in numbers, (key, numbers[number])
            numbers[number] = key
            _check_containers(key, row, txn.get(Table.CONTAINERS, number))
        else:
            assert row.removed, key
    for table, wanted in due.items():
        assert dict(txn.scan(table)) == wanted, table
    assert dict(txn.scan(Table.OUTBOX_UNSYNCED)) == unsynced
    assert {number for number, _ in txn.scan(Table.CONTAINERS)} == set(numbers)
    _check_settings(txn, own_login)
    _check_usage(txn, rows)
    _verify(txn, own_login)
    return rows


def _verify(txn: Transaction, own_login: str) -> None:
    """What the product's own look through a store finds; both must agree. Signatures are left out."""

    class Snapshot:
        def read(self) -> AbstractContextManager[Transaction]:
            return nullcontext(txn)

    report = verify_store(Snapshot(), own_login.lower(), threads=0)
    del report.counts[Problem.FORGED]  # some tests sign their settings with keys of nobody
    assert report.clean, report.first


def _check_usage(txn: Transaction, rows: dict[ItemKey, Row]) -> None:
    """What is counted of each owner, as a start would count it, is what is stored."""
    stored: Counter[str] = Counter()
    for key, row in rows.items():
        value = txn.get(Table.CONTAINERS, pack_number(row.seq)) if row.seq else b""
        stored[key.owner] += sum(map(len, decode_containers(value))) if value else 0
    tail, nothing = Usage().committed(txn), Used(0, 0, 0)
    counted = {owner: used for owner, used, _ in usage_rows(txn)}
    for owner in stored.keys() | counted.keys() | tail.added.keys():
        used = counted.get(owner, nothing).plus(tail.added.get(owner, nothing))
        assert used.stored_bytes == stored[owner], owner


def _check_settings(txn: Transaction, own_login: str) -> None:
    """Each row of the index names the revision that is there, under its owner's other server."""
    for entry in txn.scan_keys(Table.SETTINGS_UNSYNCED):
        server, _, rest = entry.partition(b"\0")
        other = other_server(txn, rest[8:].partition(b"\0")[0].decode(), own_login)
        assert other is not None, entry
        assert server == other.server_login.lower().encode(), entry
        value = txn.get(Table.SETTINGS, rest[8:])
        assert value is not None, entry
        assert value[:8] == rest[:8], entry


def _check_containers(key: ItemKey, row: Row, value: bytes | None) -> None:
    assert value is not None, key
    if row.removed:
        assert value == b"", key
        return
    incoming, outgoing = decode_containers(value)
    copies = [parse_container(blob, max_body_bytes=MAX_BODY) for blob in (incoming, outgoing) if blob]
    assert len(copies) == key.direction, key
    if len(copies) == 2:
        check_pair(*copies)
    assert ItemKey.of(copies[-1]) == key
    assert copies[0].revision_ms == row.revision_ms
