"""Users' settings, and which of them an owner's other server has not acknowledged (PROTOCOL.md §6, §8.4).

That a setting is ``synced`` is the absence of its row in ``settings_unsynced``. The row names one revision: it holds
the time of the change, which no two revisions share. An owner without another server has no rows: when one comes, all
of the owner's settings become unsynced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import orjson

from shine_node.protocol.encoding import decode_base64
from shine_node.protocol.errors import Refusal, TooLarge
from shine_node.protocol.settings import Setting, is_newer_setting, setting_payload
from shine_node.store.environment import Transaction
from shine_node.store.layout import Table, pack_number, unpack_number
from shine_node.store.lineage import note_doubt
from shine_node.store.outbox import former_servers
from shine_node.store.unreadable import UnreadableRow
from shine_node.store.users import other_server

__all__ = [
    "MAX_LOOKED_AT",
    "SettingsPage",
    "UnsyncedSetting",
    "acknowledge_setting",
    "all_settings",
    "count_settings",
    "decode_setting",
    "get_setting",
    "index_row",
    "list_settings",
    "mark_settings",
    "put_setting",
    "read_unsynced",
    "setting_in",
]

MAX_LOOKED_AT = 2000
"""Rows that one page looks at, so that settings of other owners cannot make it long."""
MAX_BYTES_A_STEP = 4 * 2**20
"""What one step of ``mark_settings`` reads, about: values may be long."""
FRAME_BYTES = 128
"""What a setting takes beside its JSON as it travels: its ``syncId``, which holds its login and its name."""
_NUMBER_BYTES = 8


class UnsyncedSetting(NamedTuple):
    """A setting as it is sent; the index row names its revision."""

    row: bytes
    sync_id: str
    setting: Setting


class SettingsPage(NamedTuple):
    """Some settings, where the next page begins, whether there is more, and the first that was passed over."""

    entries: list[UnsyncedSetting]
    cursor: bytes
    more: bool
    too_large: str = ""
    """The ``syncId`` of the first setting that was passed over because the asking server could not take it."""


def get_setting(txn: Transaction, login: str, param: str) -> Setting | None:
    """Return a setting of a login in lower case."""
    value = txn.get(Table.SETTINGS, _key(login, param))
    return setting_in(value) if value is not None else None


def setting_in(value: bytes) -> Setting:
    """Return the setting that a value of the table holds."""
    return decode_setting(value)[1]


def list_settings(txn: Transaction, login: str, *, after: str = "") -> Iterator[Setting]:
    """Yield the settings of a login in lower case by name, those behind a name if one is given.

    One that cannot be read is told in the log and passed over.
    """
    start = _key(login, after)
    for key, value in txn.scan(Table.SETTINGS, start, prefix=_key(login, "")):
        if key == start:
            continue
        try:
            setting = setting_in(value)
        except UnreadableRow as error:
            txn.pass_over(error)
        else:
            yield setting


def all_settings(txn: Transaction) -> Iterator[tuple[int, Setting]]:
    """Yield every setting, by login and name, and when it has changed, Unix milliseconds.

    Raises:
        UnreadableRow: one cannot be read.
    """
    for _, value in txn.scan(Table.SETTINGS):
        yield decode_setting(value)


def index_row(server: str, changed_at_ms: int, setting: Setting) -> bytes:
    """Return the row that a revision of a setting has in ``settings_unsynced`` until a server has acknowledged it."""
    return _index_row(server, changed_at_ms, _key(setting.key, setting.param))


def count_settings(txn: Transaction, login: str) -> int:
    """Count the settings of a login in lower case."""
    return sum(1 for _ in txn.scan_keys(Table.SETTINGS, prefix=_key(login, "")))


def put_setting(
    txn: Transaction, setting: Setting, *, now_ms: int, own_login: str, most: int, from_server: str | None = None
) -> bool:
    """Store a checked setting if it is newer than the one that is there.

    Args:
        now_ms: the time of the change, Unix milliseconds.
        own_login: this server's login, in lower case.
        most: how many names the owner may have.
        from_server: who brought it, where it came by synchronisation. The owner's other server has it then; where it is
            an older one, that server has yet to learn of the newer one.

    Returns:
        Whether it was stored.

    Raises:
        TooLarge: it would be one name too many.
    """
    key = _key(setting.key, setting.param)
    server = other_server(txn, setting.key, own_login)
    other = server.server_login.lower() if server is not None else None
    synced = other is not None and from_server is not None and from_server.lower() == other
    value = txn.get(Table.SETTINGS, key)
    if value is None:
        if count_settings(txn, setting.key) >= most:
            raise TooLarge(f"{setting.login} has {most} settings, as many as this server keeps: use one of their names")
        changed_at_ms = now_ms
    else:
        known_since_ms, known = decode_setting(value)
        if not is_newer_setting(setting, known):
            if other is not None and synced:
                older = setting.order != known.order
                _set_entry(txn, other, known_since_ms, key, unsynced=older)
                if not older:
                    note_doubt(txn, other, known_since_ms)
            return False
        for former in (other, *former_servers(txn, setting.key)):
            if former is not None:
                _set_entry(txn, former, known_since_ms, key, unsynced=False)
        # Two revisions have two times, whatever the clock: a row of the index names one revision.
        changed_at_ms = max(now_ms, known_since_ms + 1)
    txn.put(Table.SETTINGS, key, pack_number(changed_at_ms) + orjson.dumps(setting_payload(setting)))
    if other is not None:
        if synced:
            note_doubt(txn, other, changed_at_ms)
        else:
            _set_entry(txn, other, changed_at_ms, key, unsynced=True)
    return True


def read_unsynced(
    txn: Transaction,
    server: str,
    *,
    serves: Callable[[str], bool],
    after: bytes,
    limit: int,
    max_bytes: int,
    peer_bytes: int | None = None,
) -> SettingsPage:
    """Return the next unsynced settings, oldest change first; one in any case, unless the server cannot take it.

    Args:
        server: the asking server's login.
        serves: whether an owner (in lower case) has both servers now, and was asked for.
        after: the cursor of the page before, ``b""`` to begin.
        limit: how many at most.
        max_bytes: of all settings as they travel.
        peer_bytes: what the asking server can take of them at once; ``None``: it has not said so. A setting that alone
            takes more is passed over, and no more than ``max_bytes`` of such are looked at.
    """
    room = max_bytes if peer_bytes is None else min(max_bytes, peer_bytes)
    prefix = server.lower().encode() + b"\0"
    entries: list[UnsyncedSetting] = []
    cursor, too_large = after, ""
    size, passed, looked_at = 0, 0, 0
    for row in txn.scan_keys(Table.SETTINGS_UNSYNCED, max(after, prefix), prefix=prefix):
        if row == after:
            continue
        if looked_at == MAX_LOOKED_AT:
            return SettingsPage(entries, cursor, True, too_large)
        looked_at += 1
        key = row[len(prefix) + _NUMBER_BYTES :]
        value, login, param = None, "", ""
        try:
            login, param = _parts_of(key)
            value = txn.get(Table.SETTINGS, key) if serves(login) else None
            changed_at_ms, setting = decode_setting(value) if value is not None else (0, None)
        except UnreadableRow as error:
            txn.pass_over(error)
            setting = None
        if value is not None and setting is not None:
            length = FRAME_BYTES + len(value) - _NUMBER_BYTES
            if entries and (len(entries) == limit or size + length > room):
                return SettingsPage(entries, cursor, True, too_large)
            sync_id = f"{changed_at_ms:x}/{login}/{param}"
            if peer_bytes is not None and length > peer_bytes:
                too_large, passed = too_large or sync_id, passed + length
                if passed > max_bytes:
                    return SettingsPage(entries, row, True, too_large)
            else:
                entries.append(UnsyncedSetting(row, sync_id, setting))
                size += length
        cursor = row
    return SettingsPage(entries, cursor, False, too_large)


def acknowledge_setting(txn: Transaction, row: bytes) -> bool:
    """Take note that a server has stored the revision of a row of ``read_unsynced``; of a later one it says nothing.

    Returns:
        Whether there was anything to note.
    """
    return txn.delete(Table.SETTINGS_UNSYNCED, row)


def mark_settings(
    txn: Transaction, owner: str, *, former: str, other: str, since_ms: int, after: bytes, limit: int
) -> tuple[int, bytes | None]:
    """Make settings of an owner unsynced, a bounded number at a time.

    Args:
        owner: in lower case.
        former: the login of the server under which they stood before, empty if there was none.
        other: the login of the owner's other server now, empty if there is none.
        since_ms: settings that have not changed since stay as they are.
        after: where the step before ended, ``b""`` to begin.
        limit: how many at most.

    Returns:
        How many were looked at, and where the next step begins: ``None`` where this was the last one.
    """
    prefix = _key(owner, "")
    count, size = 0, 0
    for key in txn.scan_keys(Table.SETTINGS, max(after, prefix), prefix=prefix):
        if key == after:
            continue
        if count == limit or size > MAX_BYTES_A_STEP:
            return count, after
        value = txn.get(Table.SETTINGS, key) or b""
        try:
            changed_at_ms = unpack_number(value[:_NUMBER_BYTES])
        except UnreadableRow as error:
            txn.pass_over(error)
        else:
            if former and changed_at_ms >= since_ms:
                _set_entry(txn, former, changed_at_ms, key, unsynced=False)
            if other and changed_at_ms >= since_ms:
                _set_entry(txn, other, changed_at_ms, key, unsynced=True)
        count, size, after = count + 1, size + len(value), key
    return count, None


def _set_entry(txn: Transaction, server: str, changed_at_ms: int, key: bytes, *, unsynced: bool) -> None:
    row = _index_row(server, changed_at_ms, key)
    if unsynced:
        txn.put(Table.SETTINGS_UNSYNCED, row, b"")
    else:
        txn.delete(Table.SETTINGS_UNSYNCED, row)


def _index_row(server: str, changed_at_ms: int, key: bytes) -> bytes:
    return server.lower().encode() + b"\0" + pack_number(changed_at_ms) + key


def _parts_of(key: bytes) -> tuple[str, str]:
    """Return the login and the name that a key is made of."""
    try:
        login, param = key.decode().split("\0")
    except ValueError:
        raise UnreadableRow("a row of settings to be sent", key) from None
    return login, param


def _key(login: str, param: str) -> bytes:
    return f"{login}\0{param}".encode()


def decode_setting(value: bytes) -> tuple[int, Setting]:
    """Return what a value in ``settings`` holds: the time of the change, Unix milliseconds, and the setting.

    Raises:
        UnreadableRow: these bytes are no such value.
    """
    try:
        stored = orjson.loads(value[_NUMBER_BYTES:])
        setting = Setting(
            stored["login"],
            stored["param"],
            stored["time_ms"],
            stored["value"],
            decode_base64(stored["device_key"], "device_key"),
            decode_base64(stored["signature"], "signature"),
        )
        changed_at_ms = unpack_number(value[:_NUMBER_BYTES])
    except (ValueError, KeyError, TypeError, Refusal):
        raise UnreadableRow("a setting", value) from None
    texts = (setting.login, setting.param, setting.value)
    if not all(isinstance(text, str) for text in texts) or type(setting.time_ms) is not int or changed_at_ms >= 2**62:
        raise UnreadableRow("a setting", value)
    return changed_at_ms, setting
