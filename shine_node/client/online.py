"""An account that is online: a connection with a session at the first of its servers that answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from shine_node.client.connection import ClientError, ConnectFailed, Connection, RequestRefused
from shine_node.client.history import History
from shine_node.client.identity import Identity
from shine_node.client.keyfile import Account, KeyFileError, load_key_file, update_key_file
from shine_node.client.people import People
from shine_node.client.session import begin_session
from shine_node.clock import Clock
from shine_node.protocol.access import AccessServer

__all__ = ["Online", "connect_first", "is_passing", "load_registered", "make_people", "online"]

CONNECT_SECONDS = 15.0
MOST_ROOT_KEYS = 20_000
"""So many users' root keys are kept in the key file; of further ones none, so that strangers cannot fill it."""


class Online(NamedTuple):
    """What a client works with while it is online."""

    connection: Connection
    server: AccessServer
    user: Identity
    people: People
    history: History


def is_passing(problem: ClientError) -> bool:
    """Say whether another server, or the same one later, may do better: after a loss, a time-out, or if it is busy."""
    return problem.retryable if isinstance(problem, RequestRefused) else True


def load_registered(keys: Path) -> Account:
    """Return the account of a key file, which a server must have taken.

    Raises:
        KeyFileError.
    """
    account = load_key_file(keys)
    if not account.registered:
        raise KeyFileError(
            f"the account in {keys} is not registered to the end: run `shine-node account new {account.login}` again"
        )
    return account


def make_people(keys: Path, account: Account, *, clock: Clock) -> People:
    """Return the users that an account deals with; root keys and newer records go to its key file."""
    own = account.login.lower()

    async def pin(login: str, root_key: bytes, time_ms: int) -> None:
        def change(account: Account) -> Account:
            root_keys, newest_ms = account.root_keys, time_ms
            if login in root_keys or login == own:
                newest_ms = max(
                    time_ms, account.record_times.get(login, 0)
                )  # another program may have seen a newer one
            elif len(root_keys) >= MOST_ROOT_KEYS:
                return account
            else:
                root_keys = {login: root_key, **root_keys}
            return account._replace(root_keys=root_keys, record_times={**account.record_times, login: newest_ms})

        await update_key_file(keys, change, clock=clock)

    known = {**account.root_keys, own: account.identity.root.public}
    return People(known, pin, clock=clock, record_times=account.record_times)


@asynccontextmanager
async def connect_first(servers: Iterable[AccessServer]) -> AsyncIterator[tuple[Connection, AccessServer]]:
    """Connect to the first of some servers that answers, for the block.

    Raises:
        ConnectFailed: none did; what is said is about all of them.
    """
    problems: list[ConnectFailed] = []
    for server in servers:
        try:
            connection = await Connection.open(server.url, open_timeout=CONNECT_SECONDS)
        except ConnectFailed as problem:
            problems.append(problem)
            continue
        async with connection:
            yield connection, server
        return
    raise ConnectFailed(
        " and ".join(problem.url for problem in problems), "; ".join(problem.detail for problem in problems)
    )


@asynccontextmanager
async def online(keys: Path, *, clock: Clock, max_events: int = 1024) -> AsyncIterator[Online]:
    """Go online with the account of a key file, for the block: at the first of its servers that lets it in.

    Raises:
        KeyFileError: the file cannot be used.
        ClientError: no server let it in; the error is the last one's.
        Refusal: an answer lacks what it must have.
    """
    account = load_registered(keys)
    people = make_people(keys, account, clock=clock)
    problem: ClientError = ConnectFailed("", "no servers")
    for server in account.servers:
        try:
            connection = await Connection.open(server.url, open_timeout=CONNECT_SECONDS, max_events=max_events)
        except ConnectFailed as failed:
            problem = failed
            continue
        async with connection:
            try:
                await _log_in(connection, server, keys, account, clock)
            except ClientError as failed:
                problem = failed
                continue
            user = account.identity
            yield Online(connection, server, user, people, History(connection, user, people))
            return
    raise problem


async def _log_in(connection: Connection, server: AccessServer, keys: Path, account: Account, clock: Clock) -> None:
    saved = account.sessions.get(server.url)
    session = await begin_session(connection, account.identity, saved, clock=clock, client_info="shine-node")
    if session is not saved:
        await update_key_file(
            keys,
            lambda current: current._replace(sessions={**current.sessions, server.url: session}),
            clock=clock,
        )
