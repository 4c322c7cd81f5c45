"""Writes a store as the lines of an export, one after the other, from one snapshot."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator

from shine_node.protocol.encoding import encode_base64
from shine_node.store.environment import Transaction
from shine_node.store.layout import SCHEMA_VERSION, Flag, ItemKey, Row, Table
from shine_node.store.lineage import LINEAGE, list_runs
from shine_node.store.messages import get_blobs
from shine_node.store.owner import OWNER_KEY
from shine_node.store.portable import (
    FORMAT,
    VERSION,
    HeldSession,
    HeldSetting,
    encode_line,
    item_line,
    registration_line,
    resync_line,
    session_line,
    setting_line,
)
from shine_node.store.resync import all_resyncs
from shine_node.store.schema import SCHEMA_KEY
from shine_node.store.sessions import all_sessions
from shine_node.store.settings import all_settings, index_row
from shine_node.store.unreadable import UnreadableRow
from shine_node.store.users import get_registration, list_records, other_server

__all__ = ["DERIVED", "count_lines", "export_store"]

_EXPORTED = (
    Table.ACCESS_RECORDS,
    Table.RESYNC,
    Table.SETTINGS,
    Table.SESSIONS,
    Table.HISTORY,
    Table.META,
)
DERIVED = frozenset(set(Table) - set(_EXPORTED) - {Table.CONTAINERS})
"""Tables whose rows follow from those of others; they are made anew by an import. A container is part of its item."""
_OF_THE_FILE = (SCHEMA_KEY, OWNER_KEY)
"""What the first line says."""


def count_lines(txn: Transaction) -> int:
    """Return how many lines an export has, but for one or two."""
    return sum(txn.count(table) for table in _EXPORTED)


def export_store(
    txn: Transaction, *, own_login: str, at_ms: int, program: str, sessions: bool = True
) -> Iterator[bytes]:
    """Yield the lines of all that a store holds; a look at it, which may take long and keeps little in memory.

    Args:
        own_login: this server's login, in lower case.
        at_ms: the clock, Unix milliseconds.
        program: the version of this program.
        sessions: whether sessions are among it.

    Raises:
        StoreError, and what reading damaged rows raises.
    """
    digest, counts = hashlib.sha256(), Counter[str]()
    header = {"format": FORMAT, "version": VERSION, "schema": SCHEMA_VERSION, "serverLogin": own_login}
    first = encode_line({"type": "header", **header, "atMs": at_ms, "program": program})
    digest.update(first)
    yield first
    for line in _lines(txn, own_login, sessions=sessions):
        counts[str(line["type"])] += 1
        encoded = encode_line(line)
        digest.update(encoded)
        yield encoded
    yield encode_line({"type": "end", "counts": dict(counts), "sha256": digest.hexdigest()})


def _lines(txn: Transaction, own_login: str, *, sessions: bool) -> Iterator[dict[str, object]]:
    yield from map(registration_line, list_records(txn))
    yield from map(resync_line, all_resyncs(txn))
    yield from _settings(txn, own_login)
    if sessions:
        yield from _sessions(txn)
    yield from _items(txn, own_login)
    yield from _meta(txn)


def _settings(txn: Transaction, own_login: str) -> Iterator[dict[str, object]]:
    for changed_at_ms, setting in all_settings(txn):
        other = _other(txn, setting.key, own_login)
        waits = other and txn.get(Table.SETTINGS_UNSYNCED, index_row(other, changed_at_ms, setting)) is not None
        yield setting_line(HeldSetting(setting, changed_at_ms, "" if waits else other))


def _sessions(txn: Transaction) -> Iterator[dict[str, object]]:
    for session in all_sessions(txn):
        registration = get_registration(txn, session.login)
        if registration is not None:
            yield session_line(HeldSession(session, registration.record.device_key))


def _items(txn: Transaction, own_login: str) -> Iterator[dict[str, object]]:
    owner, other = "", ""
    for encoded_key, value in txn.scan(Table.HISTORY):
        key, row = ItemKey.decode(encoded_key), Row.decode(value)
        if key.owner != owner:
            owner, other = key.owner, _other(txn, key.owner, own_login)
        synced = "" if row.flags & (Flag.UNSYNCED | Flag.REMOVED) else other
        yield item_line(key, row, synced, get_blobs(txn, row))


def _meta(txn: Transaction) -> Iterator[dict[str, object]]:
    for key, value in txn.scan(Table.META):
        try:
            name = key.decode("ascii")
        except UnicodeDecodeError:
            raise UnreadableRow("the name of a row of meta", key) from None
        if key == LINEAGE:
            runs = [[run.hex(), end] for run, end in list_runs(txn, txn.snapshot())]
            yield {"type": "meta", "name": name, "runs": runs}
        elif key not in _OF_THE_FILE:
            yield {"type": "meta", "name": name, "valueB64": encode_base64(value)}


def _other(txn: Transaction, owner: str, own_login: str) -> str:
    server = other_server(txn, owner, own_login)
    return server.server_login.lower() if server is not None else ""
