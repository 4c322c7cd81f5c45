"""Looks once at every row of a store: whether it can be read, and whether the tables have as many as they must."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from shine_node.store.deliveries import due_table
from shine_node.store.environment import StoreError, Transaction
from shine_node.store.layout import ItemKey, Row, Table, decode_containers, encode_containers, unpack_number
from shine_node.store.resync import all_resyncs
from shine_node.store.sessions import all_sessions
from shine_node.store.settings import all_settings
from shine_node.store.unreadable import UnreadableRow
from shine_node.store.users import decode_registration, decode_servers, list_records

__all__ = ["count_rows", "look_through"]

_ONE_EACH = (
    (Table.ACCESS_CURRENT, Table.USERS),
    (Table.ACCESS_HISTORY, Table.ACCESS_RECORDS),
    (Table.SESSIONS_OF_USER, Table.SESSIONS),
)


def count_rows(txn: Transaction) -> dict[Table, int]:
    """Return how many rows each table has."""
    return {table: txn.count(table) for table in Table}


def look_through(txn: Transaction, seen: Callable[[], object] = lambda: None) -> list[str]:
    """Read every row of every table, whatever it says; signatures are not checked.

    Args:
        seen: called for each row.

    Returns:
        Where a table does not have as many rows as others have it; empty if all is well.

    Raises:
        StoreError: a row cannot be read.
    """
    wanted: dict[Table, int] = dict.fromkeys((Table.CONTAINERS, Table.DUE_ATTEMPTS, Table.DUE_SETTLING), 0)
    found: dict[Table, int] = {}
    for table in Table:
        found[table] = 0
        try:
            for _ in _rows(txn, table, wanted):
                found[table] += 1
                seen()
        except UnreadableRow as error:
            raise StoreError(f"row {found[table] + 1} of {table.name.lower()} cannot be read: {error.what}") from None
        if found[table] != txn.count(table):
            raise StoreError(f"{table.name.lower()} has {found[table]} rows, and says that it has {txn.count(table)}")
    wanted.update({table: found[other] for table, other in _ONE_EACH})
    return [
        f"{table.name.lower()} has {found[table]} rows where there must be {number}"
        for table, number in wanted.items()
        if found[table] != number
    ]


def _rows(txn: Transaction, table: Table, wanted: dict[Table, int]) -> Iterator[object]:
    """Yield something for each row of a table, once it has been read."""
    if table is Table.HISTORY:
        return _history(txn, wanted)
    if table is Table.ACCESS_CURRENT:
        return (decode_servers(value) for _, value in txn.scan(table) if value)
    if table in (Table.DUE_ATTEMPTS, Table.DUE_SETTLING):
        return (ItemKey.decode(value) for _, value in txn.scan(table))
    if table is Table.CONTAINERS:
        return _containers(txn)
    if table is Table.USERS:
        return (decode_registration(value) for _, value in txn.scan(table))
    readers: dict[Table, Callable[[Transaction], Iterator[object]]] = {
        Table.ACCESS_RECORDS: list_records,
        Table.SETTINGS: all_settings,
        Table.SESSIONS: all_sessions,
        Table.RESYNC: all_resyncs,
    }
    return readers[table](txn) if table in readers else txn.scan(table)


def _history(txn: Transaction, wanted: dict[Table, int]) -> Iterator[Row]:
    for key, value in txn.scan(Table.HISTORY):
        ItemKey.decode(key)
        row = Row.decode(value)
        if row.seq:
            wanted[Table.CONTAINERS] += 1
        if row.delivery is not None:
            wanted[due_table(row)] += 1
        yield row


def _containers(txn: Transaction) -> Iterator[int]:
    for key, value in txn.scan(Table.CONTAINERS):
        if value:
            incoming, outgoing = decode_containers(value)
            if value != encode_containers(incoming, outgoing):
                raise UnreadableRow("the contents of a message", value)
        yield unpack_number(key)
