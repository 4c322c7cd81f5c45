"""How an account comes into being on this machine: registered anew, or recovered from its recovery key."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from shine_node.client.connection import ClientError, Connection, RequestRefused
from shine_node.client.joining import LoginTaken, NotRegistered, find_registered
from shine_node.client.keyfile import (
    Account,
    KeyFileError,
    create_key_file,
    load_key_file,
    remove_key_file,
    update_key_file,
)
from shine_node.client.people import parse_person
from shine_node.client.secret import SECRET_BYTES, make_identity
from shine_node.clock import Clock
from shine_node.protocol.access import AccessRecord, AccessServer, is_server_url, record_payload
from shine_node.protocol.encoding import encode_base64
from shine_node.protocol.errors import RegistrationClosed, ShineError
from shine_node.protocol.logins import check_login, is_login

__all__ = ["AwaitsOperator", "NamelessServer", "NotThisAccount", "ServerToUse", "prepare", "recover", "register"]


class NamelessServer(ClientError):
    """A server does not say its name, which the access record has to hold."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url = url

    def __str__(self) -> str:
        return f"{self.url} does not say what it is called: give it as NAME={self.url}"


class AwaitsOperator(ClientError):
    """A server is closed: its operator has to add the account, with this record. The keys stay in the key file."""

    def __init__(self, account: Account, record: AccessRecord, server_login: str) -> None:
        super().__init__(account.login, server_login)
        self.account = account
        self.record = record
        self.server_login = server_login

    def __str__(self) -> str:
        login, server = self.account.login, self.server_login
        return f"{login} is not registered yet: {server} is closed, and its operator adds all users"


class NotThisAccount(ShineError):
    """The server knows the login with other keys than those of the recovery key."""


class ServerToUse(NamedTuple):
    """A server as a person names it: its URL, its login where that is given, and the token that it asks for."""

    url: str
    login: str = ""
    token: str = ""


class _Described(NamedTuple):
    """A server as it is reached from here, and as it stands in an access record; and whether only its operator adds."""

    here: AccessServer
    recorded: AccessServer
    closed: bool


async def register(keys: Path, login: str, servers: Sequence[ServerToUse], *, clock: Clock) -> Account:
    """Make an account with new keys, in a new key file, and register it at one or two servers.

    The file is written first, so that no account is lost. If the first server refuses, it is removed again, unless that
    server is closed; after any other failure this function goes on where it was, if it is called again with the same
    login.

    Raises:
        BadLogin: it is no login.
        KeyFileError: the file is there already and holds another account, or cannot be written.
        AwaitsOperator: a server is closed, and its operator has not added the account yet.
        ClientError: a server cannot be reached, or refuses.
    """
    begun = await _begin(keys, login, servers, clock)
    for number, (server, one) in enumerate(zip(servers, begun.at, strict=True)):
        refused = await _add(one.here, begun.record, server.token)
        if refused is None:
            continue
        if refused.code == RegistrationClosed.code and one.closed:
            raise AwaitsOperator(begun.account, begun.record, one.here.server_login)
        if begun.is_new and number == 0 and not refused.retryable:
            remove_key_file(keys)  # nobody has taken its keys
        raise refused

    def complete(current: Account) -> Account:
        return current._replace(servers=tuple(one.here for one in begun.at), registered=True)

    return await update_key_file(keys, complete, clock=clock)


async def prepare(keys: Path, login: str, servers: Sequence[ServerToUse], *, clock: Clock) -> AccessRecord:
    """Make an account with new keys, in a new key file, and return its record for the operators of one or two servers.

    It is registered nowhere. Called again with the same login and servers, it returns a record of the same keys, also
    when they are registered.

    Raises:
        BadLogin, KeyFileError: as ``register``.
        LoginTaken: a server knows the login with other keys.
        ClientError: a server cannot be reached; the record has to hold its name and address.
    """
    begun = await _begin(keys, login, servers, clock, also_registered=True)
    for one in begun.at:
        try:
            async with await Connection.open(one.here.url) as connection:
                await find_registered(connection, keys, begun.account, clock=clock)
        except LoginTaken:
            if begun.is_new:
                remove_key_file(keys)
            raise
        except NotRegistered:
            continue
    return begun.record


async def recover(keys: Path, login: str, secret: bytes, server: ServerToUse) -> Account:
    """Make a key file for an account that is known at a server, and return what it holds.

    Args:
        secret: what ``parse_recovery_key`` returned.
        server: any server that knows the account; its access servers are taken from the record.

    Raises:
        KeyFileError: the file is there already, or cannot be written.
        PersonUnknown: the server does not know the account; BadPerson: nor does it have a proper record.
        NotThisAccount: the account has other keys.
        ClientError: the server cannot be reached.
    """
    _must_not_be(keys)
    user = make_identity(login, secret)
    async with await Connection.open(server.url) as connection:
        answer = await connection.request("GetUserAccess", {"login": login})
        asked = await _name_of(connection, server)
    record = parse_person(answer, login).record
    if record.solana_key != user.root.public or record.device_key != user.device.public:
        raise NotThisAccount(f"{record.login} has other keys now: this recovery key is not for it, or no longer")
    at = [
        AccessServer(one.server_login, server.url if one.server_login.lower() == asked else one.url)
        for one in record.access_servers
    ]
    at.sort(key=lambda one: one.url != server.url)  # the one that is known to answer first
    if not at:
        raise NotThisAccount(f"{record.login} has no access server now: there is nowhere to go online")
    account = Account(record.login, secret, tuple(at), True, {}, {})
    create_key_file(keys, account)
    return account


class _Begun(NamedTuple):
    """An account whose keys are in the key file, with a new record of it."""

    account: Account
    is_new: bool
    at: list[_Described]
    record: AccessRecord


async def _begin(
    keys: Path, login: str, servers: Sequence[ServerToUse], clock: Clock, *, also_registered: bool = False
) -> _Begun:
    check_login(login)
    account = _begun(keys, login, also_registered=also_registered)
    is_new = account is None
    described = [await _describe(server) for server in servers]
    at = tuple(one.here for one in described)
    if account is None:
        account = Account(login, secrets.token_bytes(SECRET_BYTES), at, False, {}, {})
        create_key_file(keys, account)
    elif account.servers != at:  # where the operator adds it, it is looked for
        if account.registered:
            _must_not_be(keys)
        account = await update_key_file(keys, lambda current: current._replace(servers=at), clock=clock)
    record = account.identity.access_record((one.recorded for one in described), time_ms=clock.now_ms())
    return _Begun(account, is_new, described, record)


def _begun(keys: Path, login: str, *, also_registered: bool) -> Account | None:
    """Return the account whose registration was begun with this file; ``None`` where there is no file.

    Raises:
        KeyFileError: it holds another account, or one that is registered and is not to be.
    """
    if not keys.exists():
        return None
    account = load_key_file(keys)
    if account.login != login or (account.registered and not also_registered):
        _must_not_be(keys)
    return account


def _must_not_be(keys: Path) -> None:
    if keys.exists():
        raise KeyFileError(f"{keys} is there already, and is never overwritten: name another file with --keys")


async def _describe(server: ServerToUse) -> _Described:
    async with await Connection.open(server.url) as connection:
        info = await connection.request("GetServerInfo", {})
    login = server.login or info.get("serverLogin")
    if not isinstance(login, str) or not is_login(login):
        raise NamelessServer(server.url)
    public = info.get("url")  # where others reach it; from here, another address may lead to it too
    if not isinstance(public, str) or not is_server_url(public, allow_insecure=True):
        public = server.url
    closed = info.get("registration") == "closed"
    return _Described(AccessServer(login, server.url), AccessServer(login, public), closed)


async def _name_of(connection: Connection, server: ServerToUse) -> str:
    info = await connection.request("GetServerInfo", {})
    name = server.login or info.get("serverLogin")
    return name.lower() if isinstance(name, str) else ""


async def _add(server: AccessServer, record: AccessRecord, token: str) -> RequestRefused | None:
    """Register a record at a server, and return its refusal if it does not know the record's keys already.

    It does so after an earlier try, or from the other server.
    """
    payload = {**record_payload(record), **({"registrationToken": token} if token else {})}
    async with await Connection.open(server.url) as connection:
        try:
            await connection.request("AddUser", payload)
        except RequestRefused as refused:
            known = await connection.request("GetUserAccess", {"login": record.login})
            if known.get("exists") is True and known.get("solanaKey") != encode_base64(record.solana_key):
                return RequestRefused("AddUser", 409, "USER_ALREADY_EXISTS", "this login is taken: choose another", {})
            if known.get("exists") is not True:
                return refused
            await connection.request("SetUserAccess", payload)
    return None
