"""What is looked at in a store that is opened: the version of its schema, and how far its numbers have come."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from shine_node.store.files import StoreUnsuitable
from shine_node.store.layout import SCHEMA_VERSION, Table, pack_number, unpack_number

if TYPE_CHECKING:
    from shine_node.store.environment import Transaction

__all__ = ["NUMBERED", "SCHEMA_KEY", "check_schema", "last_numbers", "write_schema"]

NUMBERED = (Table.CONTAINERS, Table.ACCESS_RECORDS)
"""The tables that are keyed by a number which never goes back."""

SCHEMA_KEY = b"schema"


def check_schema(txn: Transaction, path: Path) -> bool:
    """Say whether a store has a schema at all; a new one has none yet.

    Raises:
        StoreUnsuitable: a newer version of this program has written it.
        UnreadableRow: what stands there is no number.
    """
    stored = txn.get(Table.META, SCHEMA_KEY)
    if stored is None:
        return False
    if unpack_number(stored) > SCHEMA_VERSION:
        raise StoreUnsuitable(
            f"{path} was written by a newer version of this program (schema {unpack_number(stored)},"
            f" this one knows {SCHEMA_VERSION}): install that version again, or restore a backup"
        )
    return True


def write_schema(txn: Transaction) -> None:
    """Write the version of this program into a new store."""
    txn.put(Table.META, SCHEMA_KEY, pack_number(SCHEMA_VERSION))


def last_numbers(txn: Transaction, least: int) -> dict[Table, int]:
    """Return the greatest number of each table that has numbers, or ``least`` where that is greater.

    Both ends of every table are read, so that damage there shows now.

    Raises:
        UnreadableRow: a key is no number.
    """
    numbers: dict[Table, int] = {}
    for table in Table:
        next(txn.scan(table), None)
        last = txn.last_key(table)
        if table in NUMBERED:
            numbers[table] = max(unpack_number(last) if last else 0, least)
    return numbers
