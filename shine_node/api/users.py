"""Operations about users and their access records (PROTOCOL.md §3)."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from shine_node.api.connection import Connection, Handler
from shine_node.api.failed_logins import FailedLogins
from shine_node.config import Config
from shine_node.directory.lookup import Lookup
from shine_node.directory.users import Users
from shine_node.protocol.access import AccessRecord, AccessServer, parse_identity, parse_record, record_payload
from shine_node.protocol.encoding import encode_base64, read_login, read_optional_number, read_optional_text, read_text
from shine_node.protocol.errors import Forbidden, RegistrationClosed

__all__ = ["UserOperations"]

SEARCH_LIMIT = 5
ENVELOPE_BYTES = 1024
_SIGNED_FIELDS = ("accessServers", "timeMs", "signatureB64")


class UserOperations:
    """Registers users, takes their newer records, and says who is known here.

    Args:
        vouches: whether a peer's word is enough for the first record of a login.
        failed: counts the tokens that are wrong, and makes those wait who guess at it.
    """

    def __init__(
        self,
        *,
        config: Config,
        users: Users,
        lookup: Lookup,
        vouches: Callable[[str, AccessRecord], bool],
        failed: FailedLogins,
    ) -> None:
        self.config = config
        """In force now."""
        self._users = users
        self._lookup = lookup
        self._vouches = vouches
        self._failed = failed

    @property
    def handlers(self) -> dict[str, Handler]:
        """The operations by name."""
        return {
            "AddUser": self.add_user,
            "SetUserAccess": self.set_user_access,
            "GetUserAccess": self.get_user_access,
            "GetUser": self.get_user,
            "SearchUsers": self.search_users,
        }

    async def add_user(self, connection: Connection, payload: dict[str, Any]) -> Mapping[str, object]:
        """Register a login that is new here."""
        unsigned = all(payload.get(field) is None for field in _SIGNED_FIELDS)
        if unsigned and self.config.registration.allow_unsigned:
            login, blockchain_name, keys = parse_identity(payload)
            own = AccessServer(self.config.server.login, self.config.server.url)
            record = AccessRecord(login, blockchain_name, *keys, (own,), 0, b"")
        else:
            record = self._parse(payload)
        bch_limit = read_optional_number(payload, "bchLimit")
        self._may_register(connection, payload)
        await self._users.add(
            record, must_be_new=True, local=unsigned, bch_limit=bch_limit, brought_by=connection.address
        )
        return {}

    async def set_user_access(self, connection: Connection, payload: dict[str, Any]) -> Mapping[str, object]:
        """Take a newer record of a login that is known, or a first one from whoever may bring it.

        One by which a user from elsewhere comes to this server is a registration like any other.
        """
        record = self._parse(payload)
        if self._users.get(record.key) is None:
            self._may_bring_first(connection, record, payload)
        elif self._users.comes_here(record):
            self._may_register(connection, payload)
        return {"applied": await self._users.add(record, brought_by=connection.address)}

    async def get_user_access(self, connection: Connection, payload: dict[str, Any]) -> Mapping[str, object]:
        """Return all records of a user, from local knowledge only.

        Of more records than half a frame holds, the oldest are left out.
        """
        login = read_login(payload).lower()
        user = self._users.get(login)
        if user is None:
            return {"exists": False}
        newest = record_payload(user.record)
        older = [record_payload(record) for record in self._users.records(login) if record != user.record]
        room = self.config.limits.max_frame_bytes // 2 - ENVELOPE_BYTES - len(orjson.dumps(newest))
        return {"exists": True, **newest, "history": _newest_that_fit(older, room)}

    async def get_user(self, connection: Connection, payload: dict[str, Any]) -> Mapping[str, object]:
        """Return the keys of a user; peers are asked, for a client, about one that is not known here."""
        login = read_login(payload).lower()
        user = self._users.get(login)
        if user is None and connection.hello is None:
            user = await self._lookup.find(login)
        if user is None:
            return {"exists": False}
        record = user.record
        return {
            "exists": True,
            "login": record.login,
            "blockchainName": record.blockchain_name,
            "solanaKey": encode_base64(record.solana_key),
            "blockchainKey": encode_base64(record.blockchain_key),
            "deviceKey": encode_base64(record.device_key),
        }

    async def search_users(self, connection: Connection, payload: dict[str, Any]) -> Mapping[str, object]:
        """Return logins that begin with a prefix."""
        return {"logins": self._users.search(read_text(payload, "prefix"), SEARCH_LIMIT)}

    def _parse(self, payload: dict[str, Any]) -> AccessRecord:
        return parse_record(payload, allow_insecure=self.config.server.pool.allow_insecure_peers)

    def _comes_here(self, record: AccessRecord) -> bool:
        return record.names_server(self.config.server.login)

    def _may_bring_first(self, connection: Connection, record: AccessRecord, payload: dict[str, Any]) -> None:
        """Say who may make a login known by ``SetUserAccess``: a registration, or a peer that may vouch for it (§3)."""
        if self._comes_here(record):
            self._may_register(connection, payload)
            return
        if connection.hello is not None and self._vouches(connection.hello.server_login, record):
            return
        raise Forbidden("the first record of a login must come from one of its own servers, or by AddUser")

    def _may_register(self, connection: Connection, payload: dict[str, Any]) -> None:
        registration = self.config.registration
        if registration.mode == "closed":
            raise RegistrationClosed("this server takes no registrations: ask its owner to add you")
        if registration.mode == "token":
            token = read_optional_text(payload, "registrationToken")
            right = hmac.compare_digest(token.encode(), registration.token.encode())
            # Who gives none does not guess: so a client finds out that one is wanted.
            if not token or not self._failed.check_token(connection.address, right):
                raise RegistrationClosed("this server takes registrations with its token only: ask its owner for it")


def _newest_that_fit(records: list[dict[str, object]], room: int) -> list[dict[str, object]]:
    """Return the last ones of some records, as many as take at most ``room`` bytes."""
    first = len(records)
    while first and (room := room - len(orjson.dumps(records[first - 1])) - 1) >= 0:
        first -= 1
    return records[first:]
