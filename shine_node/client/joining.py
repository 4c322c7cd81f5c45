"""An account that a server's operator has to add: its record for the operator, and finding out that it was added."""

from __future__ import annotations

import asyncio
from pathlib import Path

from shine_node.client.connection import ClientError, Connection
from shine_node.client.keyfile import Account, update_key_file
from shine_node.client.people import PersonError
from shine_node.clock import Clock
from shine_node.protocol.encoding import encode_base64

__all__ = ["LoginTaken", "NotRegistered", "ask_servers", "find_registered"]

ASK_SECONDS = 15.0


class NotRegistered(PersonError):
    """The account was made and no server that was asked has it yet."""

    code = "UNKNOWN_USER"

    def __str__(self) -> str:
        return (
            f"{self.login} is not registered yet: if the server's operator has its record, wait until it is added;"
            f" if not, run `shine-node account new {self.login} --server URL` again"
        )


class LoginTaken(NotRegistered):
    """A server knows the login with the keys of somebody else."""

    code = "USER_ALREADY_EXISTS"

    def __str__(self) -> str:
        return (
            f"{self.login} is somebody else at this server, or this account with later keys: make an account with"
            " another login and key file (--keys), or get the later keys with `shine-node account recover`"
        )


async def find_registered(connection: Connection, keys: Path, account: Account, *, clock: Clock) -> Account:
    """Return an account of which it is known that a server has it; the key file remembers what was found out.

    Raises:
        NotRegistered: this server does not have it; LoginTaken: it has another one's keys for the login.
        ClientError, KeyFileError.
    """
    if account.registered:
        return account
    known = await connection.request("GetUserAccess", {"login": account.login})
    if known.get("exists") is not True:
        raise NotRegistered(account.login)
    user = account.identity
    own = encode_base64(user.root.public), encode_base64(user.device.public)
    if (known.get("solanaKey"), known.get("deviceKey")) != own:
        raise LoginTaken(account.login)
    return await update_key_file(keys, lambda current: current._replace(registered=True), clock=clock)


async def ask_servers(keys: Path, account: Account, *, clock: Clock) -> Account:
    """Return an account as it stands now: where it was not registered, each of its servers is asked, for 15 s at most.

    Raises:
        LoginTaken, KeyFileError: it is no use to wait.
    """
    for server in account.servers if not account.registered else ():
        try:
            async with asyncio.timeout(ASK_SECONDS), await Connection.open(server.url) as connection:
                return await find_registered(connection, keys, account, clock=clock)
        except LoginTaken:
            raise
        except (ClientError, NotRegistered, TimeoutError):
            continue  # the other one may know better
    return account
