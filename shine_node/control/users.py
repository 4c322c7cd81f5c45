"""``AddUser`` of the operator: a signed record, or a user of this server alone, whatever ``registration.mode`` says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from shine_node.config import Config
from shine_node.directory.users import Users
from shine_node.protocol.access import AccessRecord, AccessServer, parse_identity, parse_record
from shine_node.protocol.encoding import read_optional_number
from shine_node.protocol.errors import BadFields, BadRequestFormat

__all__ = ["AddUser", "NewUser", "add_user", "read_new_user"]


class NewUser(NamedTuple):
    """What the operator wants to be known: a record whose fields are right.

    ``local`` says that it is not signed: the login must be new, and its user is never passed on to peers.
    """

    record: AccessRecord
    local: bool
    bch_limit: int | None


class AddUser:
    """Answers ``AddUser``: reads the payload, and stores what it holds."""

    def __init__(self, *, config: Config, users: Users) -> None:
        self._config = config
        self._users = users

    async def add_user(self, payload: Mapping[str, Any]) -> dict[str, object]:
        """Do as ``read_new_user`` and ``add_user`` have it."""
        return await add_user(self._users, read_new_user(payload, self._config))


def read_new_user(payload: Mapping[str, Any], config: Config) -> NewUser:
    """Read the payload of a request: ``record``, as it travels, or ``identity``, the login, its chain and its keys.

    Pure. ``bchLimit`` may stand in either.

    Raises:
        BadFields, BadRequestFormat, BadLogin, BadBlockchainName, BadKeyFormat, BadBase64.
    """
    given = [name for name in ("record", "identity") if payload.get(name) is not None]
    if len(given) != 1:
        raise BadFields("give either record or identity")
    user = payload[given[0]]
    if not isinstance(user, dict):
        raise BadRequestFormat(f"{given[0]} must be an object")
    local = given == ["identity"]
    if local:
        login, blockchain_name, keys = parse_identity(user)
        own = AccessServer(config.server.login, config.server.url)
        record = AccessRecord(login, blockchain_name, *keys, (own,), 0, b"")
    else:
        record = parse_record(user, allow_insecure=config.server.pool.allow_insecure_peers)
    return NewUser(record, local, read_optional_number(user, "bchLimit"))


async def add_user(users: Users, new: NewUser) -> dict[str, object]:
    """Store a user, or a newer record of one, and return the payload of the answer.

    Returns:
        ``login``, whether it was ``known``, whether the record was ``applied`` as the newest one, and whether it names
        this server: ``servedHere``.

    Raises:
        UserAlreadyExists, BadFields, RootKeyMismatch, BadSignature: as §3 has it.
        RateLimited, ServerBusy, StorageFull: not now.
    """
    record = new.record
    known = users.get(record.key) is not None
    applied = await users.add(
        record, must_be_new=new.local, local=new.local, bch_limit=new.bch_limit, brought_by="its operator"
    )
    served = record.names_server(users.own_login)
    return {"login": record.login, "known": known, "applied": applied, "servedHere": served}
