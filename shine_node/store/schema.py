"""What is looked at in a store that is opened: the version of its schema, and how far its numbers have come.

A node brings a store of an older schema to its own when it opens it, by ``STEPS``; whoever only reads refuses it.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from shine_node.protocol.errors import ShineError
from shine_node.store.files import StoreUnsuitable
from shine_node.store.layout import SCHEMA_VERSION, Table, pack_number, unpack_number

if TYPE_CHECKING:
    from shine_node.store.environment import Transaction

__all__ = [
    "NUMBERED",
    "SCHEMA_KEY",
    "STEPS",
    "StoreOutdated",
    "check_schema",
    "last_numbers",
    "migrate",
    "read_schema",
    "write_schema",
]

log = logging.getLogger(__name__)

NUMBERED = (Table.CONTAINERS, Table.ACCESS_RECORDS)
"""The tables that are keyed by a number which never goes back."""

SCHEMA_KEY = b"schema"

Step = Callable[["Transaction"], object]

STEPS: Final[dict[int, Step]] = {}
"""By the number of a schema: what makes it of the one before, in the transaction that it is given.

All tables are there. It gives no numbers of ``containers`` and ``access_records``, and what it changes is in memory
until the commit: a step that would rewrite all containers needs another way. Whatever ends it, the store is as it was.
"""


class StoreOutdated(StoreUnsuitable):
    """The store is of an older schema: the node brings it to its own when it opens it."""


def read_schema(txn: Transaction, path: Path, *, version: int = SCHEMA_VERSION) -> int | None:
    """Return the number of a store's schema; ``None`` of a new one, which has none yet.

    Args:
        version: of this program.

    Raises:
        StoreUnsuitable: a newer version of this program has written it.
        UnreadableRow: what stands there is no number.
    """
    stored = txn.get(Table.META, SCHEMA_KEY)
    if stored is None:
        return None
    number = unpack_number(stored)
    if number > version:
        raise StoreUnsuitable(
            f"{path} was written by a newer version of this program (schema {number}, this one knows {version}):"
            " install that version again, or restore a backup that an older one has made"
        )
    return number


def check_schema(txn: Transaction, path: Path) -> bool:
    """Say whether a store has a schema at all, which then is that of this program.

    Raises:
        StoreOutdated: it is of an older schema.
        StoreUnsuitable, UnreadableRow: as ``read_schema``.
    """
    number = read_schema(txn, path)
    if number is not None and number < SCHEMA_VERSION:
        raise StoreOutdated(
            f"{path} was written by an older version of this program (schema {number}, this one has {SCHEMA_VERSION}):"
            " start the node first, which brings its store up to date; `restore` does so with a backup"
        )
    return number is not None


def migrate(txn: Transaction, path: Path, *, steps: Mapping[int, Step] = STEPS, version: int = SCHEMA_VERSION) -> None:
    """Bring a store to the schema of this program, step by step, in one transaction; a new one gets its number.

    Args:
        steps: by the number of the schema that each leads to.
        version: of this program.

    Raises:
        StoreUnsuitable: as ``read_schema``, or a step is not known, or a row is not as the step needs it.
        UnreadableRow: as ``read_schema``; lmdb.Error: there is no room, or the file is damaged.
    """
    number = read_schema(txn, path, version=version)
    if number is None or number == version:
        if number is None:
            write_schema(txn, version)
        return
    try:
        for following in range(number + 1, version + 1):
            steps[following](txn)
    except (ShineError, ValueError, LookupError, TypeError, struct.error) as error:
        raise StoreUnsuitable(
            f"{path} cannot be brought from schema {number} to {version} ({error!r}); nothing of it was changed:"
            " install the version of this program that has written it again, or restore a backup"
        ) from error
    write_schema(txn, version)
    log.info("%s is brought from schema %d to %d", path, number, version)


def write_schema(txn: Transaction, version: int = SCHEMA_VERSION) -> None:
    """Write the number of the schema that a store has from now on."""
    txn.put(Table.META, SCHEMA_KEY, pack_number(version))


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
