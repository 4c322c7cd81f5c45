"""What the judges of rows look up in one snapshot: users with the keys of all times, servers, contents of items."""

from __future__ import annotations

import contextlib
from collections.abc import Set
from typing import NamedTuple

from shine_node.protocol.access import AccessServer, User, make_user, record_order
from shine_node.protocol.logins import is_login
from shine_node.store.environment import Transaction
from shine_node.store.layout import ItemKey, Row, Table, pack_number, unpack_number
from shine_node.store.outbox import former_servers
from shine_node.store.users import Registration, access_servers, encode_servers, history_key, other_server
from shine_node.store.verifying.findings import Check, Finding
from shine_node.store.verifying.records import UNREADABLE, is_signed, needs_no_signature, read_record

__all__ = ["UNREADABLE", "Author", "Context", "Record", "is_entry_of"]

MAX_USERS = 10_000
_KEY_BYTES = 32
_NUMBERS_BYTES = 16
"""The time and the number at the end of a key in ``access_history``."""

Record = tuple[bytes, bytes, Registration]
"""The key and the value in ``access_records``, and what they say."""


class Author(NamedTuple):
    """What is known of somebody who signs."""

    user: User
    """By the records that hold."""
    lost: tuple[bytes, ...]
    """Device keys of which the record is gone: they prove nothing, and what they signed is not forged for that."""

    def keys_at(self, time_ms: int) -> tuple[bytes, ...]:
        """Return the key that was in force at a time, then the others."""
        others = (key for _, key in self.user.device_keys)
        return tuple(dict.fromkeys((self.user.device_key_at(time_ms), *others, *self.lost)))


class Context:
    """One snapshot, and what has been found in it.

    Args:
        txn: the snapshot.
        own_login: this server's login in lower case; ``None`` where it is not known, and then every server of a user
            counts as the user's other one.
        authors: who was looked up before, also in earlier snapshots.
        detailed: whether a finding is to say all that goes with it, which a first look need not know.
        forged: the values in ``access_records`` that should be signed and are not, where all have been looked at;
            ``None`` has each checked when it is needed.
    """

    def __init__(
        self,
        txn: Transaction,
        own_login: str | None,
        authors: dict[str, Author | None] | None = None,
        *,
        detailed: bool = True,
        forged: Set[bytes] | None = None,
    ) -> None:
        self.txn = txn
        self.detailed = detailed
        self.findings: list[Finding] = []
        self.checks: list[Check] = []
        self._own_login = own_login
        self._forged = forged
        self._authors: dict[str, Author | None] = {} if authors is None else authors
        self._others: dict[str, list[str]] = {}
        self._moving: dict[str, list[str]] = {}

    def author(self, login: str) -> Author | None:
        """Return a user with the device keys of all times, ``None`` where no record of the login holds."""
        if login not in self._authors:
            if len(self._authors) >= MAX_USERS:
                del self._authors[next(iter(self._authors))]
            records = [record.record for _, _, record in self.records(login)]
            self._authors[login] = Author(make_user(records), tuple(self._lost_keys(login))) if records else None
        return self._authors[login]

    def holds(self, seq: bytes, value: bytes, registration: Registration) -> bool:
        """Say whether an access record is what was stored: its signature, or without one the indexes, bear it out."""
        if not needs_no_signature(registration):
            return value not in self._forged if self._forged is not None else is_signed(registration.record)
        record = registration.record
        newest = self.txn.get(Table.USERS, record.key.encode())
        if newest == value:
            return True
        entry = history_key(record.key, record.time_ms, unpack_number(seq))
        if self.txn.get(Table.ACCESS_HISTORY, entry) != record.device_key:
            return False
        other = read_record(newest) if newest is not None else None
        if other is None or other.record.key != record.key or not needs_no_signature(other):
            return True
        return self.has_servers(registration)

    def has_servers(self, registration: Registration) -> bool:
        """Say whether the current servers of a user are those of a record."""
        record = registration.record
        return self.txn.get(Table.ACCESS_CURRENT, record.key.encode()) == encode_servers(record.access_servers)

    def record(self, seq: bytes) -> Record | None:
        """Return the record of a number if it holds."""
        value = self.txn.get(Table.ACCESS_RECORDS, seq) if len(seq) == 8 else None
        registration = read_record(value) if value is not None else None
        if value is None or registration is None or not self.holds(seq, value, registration):
            return None
        return seq, value, registration

    def records(self, login: str) -> list[Record]:
        """Return the records of a login that hold, in the order in which they were learned.

        Those that have another root key than the first of them are not among them; a record without a signature does
        not say which is the first where there is one with it.
        """
        if not is_login(login):
            return []
        found: list[Record] = []
        for entry in self.txn.scan_keys(Table.ACCESS_HISTORY, prefix=login.encode() + b"\0"):
            record = self.record(entry[-8:])
            if record is not None and is_entry_of(entry, record):
                found.append(record)
        found.sort(key=lambda record: (needs_no_signature(record[2]), record[0]))
        same = [record for record in found if record[2].record.solana_key == found[0][2].record.solana_key]
        return sorted(same, key=lambda record: record[0])

    def newest(self, login: str) -> Record | None:
        """Return the newest of the records of a login."""
        return max(reversed(self.records(login)), key=lambda record: record_order(record[2].record), default=None)

    def lost_entry(self, registration: Registration) -> bytes | None:
        """Return the entry among the keys that a record must have had, if there is no record of its number any more."""
        record = registration.record
        for entry in self._lost_entries(record.key.encode() + b"\0" + pack_number(record.time_ms)):
            if self.txn.get(Table.ACCESS_HISTORY, entry) == record.device_key:
                return entry
        return None

    def is_lost(self, entry: bytes, device_key: bytes) -> bool:
        """Say whether an entry among the keys is all that is left of a record of somebody who is known."""
        login, zero, rest = entry.partition(b"\0")
        if not zero or len(rest) != _NUMBERS_BYTES or len(device_key) != _KEY_BYTES:
            return False
        if self.txn.get(Table.USERS, login) is None or self.record(entry[-8:]) is not None:
            return False
        known = [record.record for _, _, record in self.records(login.decode("ascii", "replace"))]
        return (unpack_number(rest[:8]), device_key) not in [(record.time_ms, record.device_key) for record in known]

    def _lost_keys(self, login: str) -> list[bytes]:
        entries = self._lost_entries(login.encode() + b"\0")
        keys = (self.txn.get(Table.ACCESS_HISTORY, entry) for entry in entries)
        return [key for key in keys if key is not None and len(key) == _KEY_BYTES]

    def _lost_entries(self, prefix: bytes) -> list[bytes]:
        entries = self.txn.scan_keys(Table.ACCESS_HISTORY, prefix=prefix)
        return [entry for entry in entries if self.record(entry[-8:]) is None]

    def others(self, owner: str) -> list[str]:
        """Return the logins of the servers, in lower case, under which entries of an owner may stand now."""
        if not is_login(owner):
            return []
        if owner not in self._others:
            servers: list[AccessServer] = []
            with contextlib.suppress(*UNREADABLE):
                if self._own_login is None:
                    servers = list(access_servers(self.txn, owner))
                elif (server := other_server(self.txn, owner, self._own_login)) is not None:
                    servers = [server]
            self._others[owner] = [server.server_login.lower() for server in servers]
        return self._others[owner]

    def moving(self, owner: str) -> list[str]:
        """Return the servers of before, from which entries of an owner are being moved."""
        if not is_login(owner):
            return []
        if owner not in self._moving:
            self._moving[owner] = []
            with contextlib.suppress(*UNREADABLE):
                self._moving[owner] = former_servers(self.txn, owner)
        return self._moving[owner]

    def row(self, key: bytes) -> Row | None:
        """Return the row of an item, ``None`` where there is none that can be read."""
        try:
            item = ItemKey.decode(key)
            value = self.txn.get(Table.HISTORY, key) if is_login(item.owner) and is_login(item.peer) else None
            return Row.decode(value) if value is not None else None
        except UNREADABLE:
            return None

    def claims(self, key: bytes, seq: int) -> Row | None:
        """Return the row of an item if it claims the content of a number."""
        row = self.row(key)
        return row if row is not None and row.seq == seq else None

    def content(self, seq: int) -> bytes | None:
        """Return the content of a number."""
        return self.txn.get(Table.CONTAINERS, pack_number(seq))


def is_entry_of(entry: bytes, record: Record) -> bool:
    """Say whether a key in ``access_history`` is that of a record; pure."""
    seq, _, registration = record
    return history_key(registration.record.key, registration.record.time_ms, unpack_number(seq)) == entry
