"""Who is known here: users by login, their routes, and the way in for their access records (PROTOCOL.md §3)."""

from __future__ import annotations

import logging

from shine_node.clock import Clock
from shine_node.crypto.pool import CryptoPool
from shine_node.protocol.access import AccessRecord, AccessServer, User, check_standing, is_newer, signed_text
from shine_node.protocol.errors import BadSignature, RateLimited, StorageFull, UserAlreadyExists
from shine_node.store.changes import KeyChange
from shine_node.store.environment import Store, Transaction
from shine_node.store.layout import Table
from shine_node.store.resync import begin_resync
from shine_node.store.sessions import close_sessions
from shine_node.store.users import (
    access_servers,
    add_record,
    count_records,
    find_logins,
    get_records,
    get_registration,
    get_user,
    has_record,
    other_server,
)

__all__ = ["TooManyUsers", "Users"]

log = logging.getLogger(__name__)

MAX_CACHED = 10_000
MAX_STRANGERS = 100_000
"""Users of other servers that are known here: whoever makes up logins shall not fill the disk with them."""
MAX_RECORDS_A_USER = 200
"""All records are kept for good, and all go into one answer: the bound keeps both the disk and the frame."""


class TooManyUsers(StorageFull):
    """``MAX_STRANGERS`` users of other servers are known here already; that user's record was not stored."""


class Users:
    """The users that this server knows, read through a bounded cache. Logins are given in lower case.

    Args:
        own_login: this server's login.
    """

    def __init__(self, *, store: Store, crypto: CryptoPool, clock: Clock, own_login: str) -> None:
        self.own_login = own_login.lower()
        self.registrations = 0
        """How many have become users of this server since the start."""
        self._store = store
        self._crypto = crypto
        self._clock = clock
        self._cache: dict[str, User] = {}

    def get(self, login: str) -> User | None:
        """Return a user, or ``None`` if nobody of that login is known here."""
        user = self._cache.get(login)
        if user is None:
            with self._store.read() as txn:
                user = get_user(txn, login)
            if user is not None:
                if len(self._cache) >= MAX_CACHED:
                    del self._cache[next(iter(self._cache))]
                self._cache[login] = user
        return user

    def is_here(self, user: User) -> bool:
        """Say whether this server is an access server of a user."""
        return user.record.names_server(self.own_login)

    def comes_here(self, record: AccessRecord) -> bool:
        """Say whether a record would make somebody a user of this server who is none now: a registration (§3)."""
        if not record.names_server(self.own_login):
            return False
        known = self.get(record.key)
        return known is None or (not self.is_here(known) and is_newer(record, known.record))

    def routes(self, login: str) -> tuple[AccessServer, ...]:
        """Return the current access servers of a user, read anew from the store."""
        with self._store.read() as txn:
            return access_servers(txn, login)

    def other_server(self, login: str) -> AccessServer | None:
        """Return the other access server of a user of this server, read anew from the store."""
        with self._store.read() as txn:
            return other_server(txn, login, self.own_login)

    def shares(self, login: str, server_login: str) -> bool:
        """Say whether a user has this server and that one as access servers, read anew from the store."""
        return _login_of(self.other_server(login)) == server_login.lower()

    def records(self, login: str) -> list[AccessRecord]:
        """Return the signed records of a user, oldest first; what a peer is told of the user."""
        with self._store.read() as txn:
            return [record for record in get_records(txn, login) if record.signature]

    def search(self, prefix: str, limit: int) -> list[str]:
        """Return at most ``limit`` logins with a prefix, spelled as registered."""
        with self._store.read() as txn:
            return find_logins(txn, prefix, limit)

    async def add(
        self,
        record: AccessRecord,
        *,
        must_be_new: bool = False,
        local: bool = False,
        bch_limit: int | None = None,
        brought_by: str = "",
    ) -> bool:
        """Check a record whose fields are right, and store it; the log has whoever becomes a user here.

        Whether the sender may bring it is the caller's to say.

        Args:
            must_be_new: refuse a login that is known.
            local: an unsigned registration of this server alone.
            bch_limit: bytes of the user's chain, kept with the record.
            brought_by: the address that it came from, for the log.

        Returns:
            Whether it is now the newest record.

        Raises:
            UserAlreadyExists, BadFields, RootKeyMismatch, BadSignature: as §3 has it.
            RateLimited: the user has ``MAX_RECORDS_A_USER`` records.
            TooManyUsers: a user of other servers, of whom ``MAX_STRANGERS`` are known.
            ServerBusy, StorageFull: not now.
        """
        self._store.check_room()
        known = self.get(record.key)
        if known is not None and must_be_new:
            raise UserAlreadyExists("this login is taken")
        check_standing(record, known=known and known.record, now_ms=self._clock.now_ms())
        if not local and await self._crypto.verify([(record.solana_key, signed_text(record), record.signature)]) == 0:
            raise BadSignature("the record is not signed by its root key")
        comes_here = self.comes_here(record)
        applied = await self._store.write(lambda txn: self._put(txn, record, must_be_new, local, bch_limit))
        self._cache.pop(record.key, None)
        if applied and comes_here:
            self.registrations += 1
            log.info("%s is a user of this server now%s", record.login, f", from {brought_by}" if brought_by else "")
        return applied

    def _put(
        self, txn: Transaction, record: AccessRecord, must_be_new: bool, local: bool, bch_limit: int | None
    ) -> bool:
        known = get_registration(txn, record.key)
        if known is None:
            if not record.names_server(self.own_login) and txn.count(Table.USERS) >= MAX_STRANGERS:
                raise TooManyUsers("this server knows as many users as it keeps")
        else:
            if must_be_new:
                raise UserAlreadyExists("this login is taken")
            check_standing(record, known=known.record, now_ms=self._clock.now_ms())
            if count_records(txn, record.key) >= MAX_RECORDS_A_USER and not has_record(txn, record):
                raise RateLimited("this user has too many access records", {"retryAfterMs": 86_400_000})
        before = other_server(txn, record.key, self.own_login)
        newest = add_record(txn, record, local=local, bch_limit=bch_limit)
        if newest and known is not None and known.record.device_key != record.device_key:
            close_sessions(txn, record.key)  # they were made with the key that may have been lost
            txn.changes.append(KeyChange(record.key))
        after = other_server(txn, record.key, self.own_login)
        if _login_of(before) != _login_of(after) and known is not None:
            # The new other server has nothing of this user yet: all entries go to it (§6).
            begin_resync(txn, record.key, former=_login_of(before))
        return newest


def _login_of(server: AccessServer | None) -> str:
    return server.server_login.lower() if server is not None else ""
