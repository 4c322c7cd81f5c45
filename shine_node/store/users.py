"""Users and all of their access records (PROTOCOL.md §3)."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

import orjson

from shine_node.protocol.access import (
    AccessRecord,
    AccessServer,
    User,
    is_newer,
    make_user,
    record_order,
    record_payload,
)
from shine_node.protocol.encoding import decode_base64, encode_base64
from shine_node.protocol.errors import Refusal
from shine_node.protocol.logins import is_login
from shine_node.protocol.signatures import KEY_BYTES
from shine_node.store.environment import Transaction
from shine_node.store.layout import Table, pack_number, unpack_number
from shine_node.store.unreadable import UnreadableRow

__all__ = [
    "Registration",
    "SharedPage",
    "access_servers",
    "add_record",
    "count_records",
    "decode_registration",
    "decode_servers",
    "encode_servers",
    "find_logins",
    "get_records",
    "get_registration",
    "get_user",
    "has_record",
    "history_key",
    "list_records",
    "list_users",
    "other_server",
    "records_after",
    "shared_after",
]


class Registration:
    """What a server keeps of a user beside the records: whether the user is local to it, and the chain's limit.

    ``local`` users were registered without a signed record; they are never passed on to peers. ``bch_limit`` is in
    bytes, ``None`` where none was asked for.
    """

    __slots__ = ("bch_limit", "local", "record")

    def __init__(self, record: AccessRecord, *, local: bool, bch_limit: int | None) -> None:
        self.record = record
        self.local = local
        self.bch_limit = bch_limit


class SharedPage(NamedTuple):
    """Newest records of owners of two servers."""

    records: list[tuple[int, AccessRecord]]
    """With the numbers under which this server learned them, which rise."""
    seq: int
    """Up to which number it has been looked."""
    more: bool


def add_record(txn: Transaction, record: AccessRecord, *, local: bool = False, bch_limit: int | None = None) -> bool:
    """Store a checked record of a login that may be new; the same record again changes nothing.

    Superseded records are kept too: history stays signed by the keys of its time.

    Returns:
        Whether it became the newest one.
    """
    known = get_registration(txn, record.key)
    if known is not None and has_record(txn, record):
        return False
    seq = txn.next_seq(Table.ACCESS_RECORDS)
    newest = known is None or is_newer(record, known.record)
    if bch_limit is None and known is not None:
        bch_limit = known.bch_limit
    value = _encode(record, local=local, bch_limit=bch_limit)
    txn.put(Table.ACCESS_RECORDS, pack_number(seq), value)
    txn.put(Table.ACCESS_HISTORY, history_key(record.key, record.time_ms, seq), record.device_key)
    if newest:
        txn.put(Table.USERS, record.key.encode(), value)
        txn.put(Table.ACCESS_CURRENT, record.key.encode(), encode_servers(record.access_servers))
    return newest


def access_servers(txn: Transaction, login: str) -> tuple[AccessServer, ...]:
    """Return the current access servers of a login in lower case; none for an unknown one.

    This is ``user_access_servers_current``: small, so that each delivery can read it anew.

    Raises:
        UnreadableRow: neither that nor the newest record, which says the same, can be read.
    """
    value = txn.get(Table.ACCESS_CURRENT, login.encode())
    try:
        return decode_servers(value) if value else ()
    except UnreadableRow as error:
        return _servers_of_record(txn, login, error)


def other_server(txn: Transaction, login: str, own_login: str) -> AccessServer | None:
    """Return the access server of a user that is not this one, if this one is among them and there is another.

    Args:
        login: the user, in lower case.
        own_login: this server's login, in lower case.

    Raises:
        UnreadableRow: as ``access_servers``.
    """
    value = txn.get(Table.ACCESS_CURRENT, login.encode())
    try:
        return _other_of(value, own_login) if value else None
    except UnreadableRow as error:
        return _other_of(encode_servers(_servers_of_record(txn, login, error)), own_login)


def get_registration(txn: Transaction, login: str) -> Registration | None:
    """Return the newest record of a login in lower case, and what is kept beside it.

    Raises:
        UnreadableRow: it cannot be read.
    """
    value = txn.get(Table.USERS, login.encode())
    try:
        return decode_registration(value) if value is not None else None
    except UnreadableRow as error:
        raise error.named(f"the row of the user {login}") from None


def has_record(txn: Transaction, record: AccessRecord) -> bool:
    """Say whether exactly this record is stored; only those of its time are looked at."""
    prefix = record.key.encode() + b"\0" + pack_number(record.time_ms)
    return any(_same(record, other) for other in _records(txn, prefix))


def count_records(txn: Transaction, login: str) -> int:
    """Count the records of a login in lower case."""
    return sum(1 for _ in txn.scan(Table.ACCESS_HISTORY, prefix=login.encode() + b"\0"))


def get_user(txn: Transaction, login: str) -> User | None:
    """Return a user with the device keys of all times; ``login`` in lower case."""
    registration = get_registration(txn, login)
    if registration is None:
        return None
    newest = registration.record
    history = [
        (unpack_number(key[-16:-8]), device_key)
        for key, device_key in txn.scan(Table.ACCESS_HISTORY, prefix=login.encode() + b"\0")
        if _is_history(txn, login, key, device_key)
    ]
    if len({time_ms for time_ms, _ in history}) < len(history):
        # The signatures, which only the records have, order those of one time.
        records = get_records(txn, login)
        return make_user(records if any(_same(newest, record) for record in records) else [*records, newest])
    return User(newest, tuple(history) or ((newest.time_ms, newest.device_key),))


def get_records(txn: Transaction, login: str) -> list[AccessRecord]:
    """Return all records of a login in lower case, oldest first."""
    return sorted(_records(txn, login.encode() + b"\0"), key=record_order)


def find_logins(txn: Transaction, prefix: str, limit: int) -> list[str]:
    """Return at most ``limit`` logins that begin with a prefix, whatever its case, spelled as registered."""
    logins: list[str] = []
    for _, value in txn.scan(Table.USERS, prefix=prefix.lower().encode()):
        if len(logins) == limit:
            break
        logins += [found.record.login for found in _readable(txn, value)]
    return logins


def list_users(txn: Transaction) -> Iterator[Registration]:
    """Yield every user that is known here, by login; one that cannot be read is told in the log and passed over."""
    for key, value in txn.scan(Table.USERS):
        yield from _readable(txn, value, f"the row of the user {key.decode('ascii', 'replace')}")


def list_records(txn: Transaction) -> Iterator[Registration]:
    """Yield every record that is known here, in the order in which they were learned.

    Raises:
        UnreadableRow: one cannot be read.
    """
    for _, value in txn.scan(Table.ACCESS_RECORDS):
        yield decode_registration(value)


def records_after(txn: Transaction, seq: int, limit: int) -> list[tuple[int, AccessRecord, bool]]:
    """Return at most ``limit`` records learned after a number: the number, the record, whether it is local."""
    found: list[tuple[int, AccessRecord, bool]] = []
    for key, value in txn.scan(Table.ACCESS_RECORDS, pack_number(seq + 1)):
        if len(found) == limit:
            break
        number = _learned_as(key)
        if number is not None:
            found += [(number, known.record, known.local) for known in _readable(txn, value)]
    return found


def shared_after(txn: Transaction, server: str, own_login: str, *, seq: int, rows: int) -> SharedPage:
    """Return the newest records, learned after a number, of those who have this server and a certain other one.

    Args:
        server: the other server's login, in lower case.
        own_login: this server's login, in lower case.
        rows: how many records are looked at, at most.
    """
    found: list[tuple[int, AccessRecord]] = []
    for looked_at, (key, value) in enumerate(txn.scan(Table.ACCESS_RECORDS, pack_number(seq + 1))):
        if looked_at == rows:
            return SharedPage(found, seq, True)
        seq = _learned_as(key) or seq
        try:
            login = _login_in(value)
            other = other_server(txn, login, own_login)
            if other is not None and other.server_login.lower() == server:
                record, newest = decode_registration(value).record, get_registration(txn, login)
                if newest is not None and _same(record, newest.record):
                    found.append((seq, record))
        except UnreadableRow as error:
            txn.pass_over(error)
    return SharedPage(found, seq, False)


def _records(txn: Transaction, prefix: bytes) -> Iterator[AccessRecord]:
    """Yield the records of a stretch of the history of a login; one that is lost does not hide the others."""
    for key, _ in txn.scan(Table.ACCESS_HISTORY, prefix=prefix):
        value = txn.get(Table.ACCESS_RECORDS, key[-8:])
        if value is not None:
            yield from (found.record for found in _readable(txn, value))


def _readable(txn: Transaction, value: bytes, what: str = "an access record") -> tuple[Registration, ...]:
    """Return what a row holds, nothing where it cannot be read: that is told in the log."""
    try:
        return (decode_registration(value),)
    except UnreadableRow as error:
        txn.pass_over(error.named(what))
        return ()


def _is_history(txn: Transaction, login: str, key: bytes, device_key: bytes) -> bool:
    """Say whether a row of the keys that a user has had can be one; else that is told in the log."""
    fits = len(key) == len(login) + 1 + 16 and len(device_key) == KEY_BYTES
    if not fits:
        txn.pass_over(UnreadableRow(f"a key of {login}", key))
    return fits


def _servers_of_record(txn: Transaction, login: str, error: UnreadableRow) -> tuple[AccessServer, ...]:
    """Return the access servers that the newest record names, in the place of a row that says so too."""
    txn.pass_over(error)
    known = get_registration(txn, login)
    return known.record.access_servers if known is not None else ()


def _learned_as(key: bytes) -> int | None:
    """Return the number of a record, ``None`` where a key is none."""
    return unpack_number(key) if len(key) == 8 else None


def _login_in(value: bytes) -> str:
    """Return the login of a record, in lower case; cheaper than to read all of it."""
    try:
        login = orjson.loads(value)["login"]
        if isinstance(login, str) and login.isascii() and login:
            return login.lower()
    except (ValueError, KeyError, TypeError):
        pass
    raise UnreadableRow("an access record", value)


def _same(record: AccessRecord, other: AccessRecord) -> bool:
    return record_order(record) == record_order(other)


def history_key(login: str, time_ms: int, seq: int) -> bytes:
    """Return the key in ``access_history`` of a record of a login in lower case."""
    return login.encode() + b"\0" + pack_number(time_ms) + pack_number(seq)


def encode_servers(servers: tuple[AccessServer, ...]) -> bytes:
    """Return the value in ``access_current``."""
    return "\n".join(f"{server.server_login} {server.url}" for server in servers).encode()


@functools.lru_cache(maxsize=1024)
def _other_of(value: bytes, own_login: str) -> AccessServer | None:
    servers = decode_servers(value)
    if not any(server.server_login.lower() == own_login for server in servers):
        return None
    return next((server for server in servers if server.server_login.lower() != own_login), None)


@functools.lru_cache(maxsize=1024)  # few distinct values: most users of a server share their servers
def decode_servers(value: bytes) -> tuple[AccessServer, ...]:
    """Return what a value in ``access_current`` holds, which is not empty.

    Raises:
        UnreadableRow: these bytes are no such value.
    """
    try:
        servers = tuple(AccessServer(*entry.split(" ")) for entry in value.decode().split("\n"))
    except (ValueError, TypeError):
        raise UnreadableRow("the access servers of a user", value) from None
    if not all(is_login(server.server_login) for server in servers):
        raise UnreadableRow("the access servers of a user", value)
    return servers


def _encode(record: AccessRecord, *, local: bool, bch_limit: int | None) -> bytes:
    # Named here because an unsigned record travels without them.
    proof = {"timeMs": record.time_ms, "signatureB64": encode_base64(record.signature)}
    return orjson.dumps({**record_payload(record), **proof, "local": local, "bchLimit": bch_limit})


def decode_registration(value: bytes) -> Registration:
    """Return what a value in ``users`` or ``access_records`` holds.

    Raises:
        UnreadableRow: these bytes are no such value.
    """
    try:
        stored = orjson.loads(value)
        record = AccessRecord(
            stored["login"],
            stored["blockchainName"],
            decode_base64(stored["solanaKey"], "solanaKey"),
            decode_base64(stored["blockchainKey"], "blockchainKey"),
            decode_base64(stored["deviceKey"], "deviceKey"),
            tuple(AccessServer(server["serverLogin"], server["url"]) for server in stored["accessServers"]),
            stored["timeMs"],
            decode_base64(stored["signatureB64"], "signatureB64"),
        )
        registration = Registration(record, local=stored["local"], bch_limit=stored["bchLimit"])
    except (ValueError, KeyError, TypeError, AttributeError, Refusal):
        raise UnreadableRow("an access record", value) from None
    if not _fits(registration):
        raise UnreadableRow("an access record", value)
    return registration


def _fits(registration: Registration) -> bool:
    """Say whether every part is of its kind; what a record says is for `verify` to judge."""
    record, limit = registration.record, registration.bch_limit
    texts = [record.blockchain_name, *(text for server in record.access_servers for text in server)]
    return (
        isinstance(record.login, str)
        and is_login(record.login)
        and all(isinstance(text, str) for text in texts)
        and all(is_login(server.server_login) for server in record.access_servers)
        and all(len(key) == KEY_BYTES for key in (record.solana_key, record.blockchain_key, record.device_key))
        and type(record.time_ms) is int
        and 0 <= record.time_ms < 2**62
        and isinstance(registration.local, bool)
        and (limit is None or type(limit) is int)
    )
