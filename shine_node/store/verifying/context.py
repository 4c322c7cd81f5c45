"""What the judges of rows look up in one snapshot: users with the keys of all times, servers, contents of items."""

from __future__ import annotations

import contextlib
import struct

from shine_node.protocol.access import AccessServer, User, is_newer, record_order
from shine_node.protocol.errors import ShineError
from shine_node.protocol.logins import is_login
from shine_node.store.environment import Transaction
from shine_node.store.layout import ItemKey, Row, Table, pack_number, unpack_number
from shine_node.store.outbox import former_servers
from shine_node.store.users import Registration, access_servers, decode_registration, history_key, other_server
from shine_node.store.verifying.findings import Check, Finding

__all__ = ["UNREADABLE", "Context", "Record"]

UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, IndexError, struct.error, ShineError)
"""What the decoding of a row raises where its bytes are not those that were written."""
MAX_USERS = 10_000

Record = tuple[bytes, bytes, Registration]
"""The key and the value in ``access_records``, and what they say."""


class Context:
    """One snapshot, and what has been found in it.

    Args:
        txn: the snapshot.
        own_login: this server's login in lower case; ``None`` where it is not known, and then every server of a user
            counts as the user's other one.
        users: users that were looked up before, also in earlier snapshots.
        detailed: whether a finding is to say all that goes with it, which a first look need not know.
    """

    def __init__(
        self,
        txn: Transaction,
        own_login: str | None,
        users: dict[str, User | None] | None = None,
        *,
        detailed: bool = True,
    ) -> None:
        self.txn = txn
        self.detailed = detailed
        self.findings: list[Finding] = []
        self.checks: list[Check] = []
        self._own_login = own_login
        self._users: dict[str, User | None] = {} if users is None else users
        self._others: dict[str, list[str]] = {}
        self._moving: dict[str, list[str]] = {}

    def user(self, login: str) -> User | None:
        """Return a user with the device keys of all times, as far as the records can be read."""
        if login not in self._users:
            if len(self._users) >= MAX_USERS:
                del self._users[next(iter(self._users))]
            records = sorted((record.record for _, _, record in self.records(login)), key=record_order)
            times = tuple((record.time_ms, record.device_key) for record in records)
            self._users[login] = User(records[-1], times) if records else None
        return self._users[login]

    def records(self, login: str) -> list[Record]:
        """Return the records of a login that can be read, in the order in which they were learned."""
        found: list[Record] = []
        if not is_login(login):
            return found
        for entry in self.txn.scan_keys(Table.ACCESS_HISTORY, prefix=login.encode() + b"\0"):
            seq = entry[-8:]
            value = self.txn.get(Table.ACCESS_RECORDS, seq)
            if value is None:
                continue
            with contextlib.suppress(*UNREADABLE):
                registration = decode_registration(value)
                if history_key(registration.record.key, registration.record.time_ms, unpack_number(seq)) == entry:
                    found.append((seq, value, registration))
        return sorted(found, key=lambda record: record[0])

    def newest(self, login: str) -> Record | None:
        """Return the newest of the records of a login."""
        newest: Record | None = None
        for record in self.records(login):
            if newest is None or is_newer(record[2].record, newest[2].record):
                newest = record
        return newest

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
