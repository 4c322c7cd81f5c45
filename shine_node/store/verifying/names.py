"""The keys of rows in a form that people can read; pure."""

from __future__ import annotations

import struct

from shine_node.store.layout import Direction, ItemKey, Table, unpack_number

__all__ = ["readable"]

_TIMED = {Table.ACCESS_HISTORY, Table.OUTBOX_UNSYNCED}


def readable(table: Table, key: bytes) -> str:
    """Return a table and the key of one of its rows as text, whatever bytes the key has."""
    try:
        name = _name(table, key)
    except (ValueError, struct.error, KeyError):
        name = f"0x{key.hex()}"
    return f"{table.value.decode()}: {name}"


def _name(table: Table, key: bytes) -> str:
    if table is Table.HISTORY:
        return _item(ItemKey.decode(key))
    if table in (Table.CONTAINERS, Table.ACCESS_RECORDS):
        return f"number {unpack_number(key)}"
    if table in (Table.DUE_ATTEMPTS, Table.DUE_SETTLING):
        return f"at {unpack_number(key[:8])}, number {unpack_number(key[8:])}"
    if table in _TIMED:
        return f"{_text(key[:-17])}, at {unpack_number(key[-16:-8])}, number {unpack_number(key[-8:])}"
    if table is Table.SETTINGS_UNSYNCED:
        server, _, rest = key.partition(b"\0")
        return f"{_text(server)}, at {unpack_number(rest[:8])}, {_text(rest[8:])}"
    if table is Table.RESYNC:
        return f"{_text(key[:-9])}, number {unpack_number(key[-8:])}"
    if table is Table.READ_MARKS:
        return f"{_text(key[:-2])}, {Direction(key[-1]).name.lower()}"
    return _text(key)


def _item(key: ItemKey) -> str:
    who = f"{key.kind.name.lower()} {key.message.base_key}"
    return f"{who} of {key.owner}, {'sent' if key.direction is Direction.OUT else 'received'}"


def _text(data: bytes) -> str:
    text = data.decode()
    if not text.replace("\0", "").isprintable():
        raise ValueError("not printable")
    return text.replace("\0", "/")
