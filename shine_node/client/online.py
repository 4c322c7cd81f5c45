"""An account that is online: a connection with a session at the first of its servers that answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

from shine_node.client.connection import ClientError, ConnectFailed, Connection, RequestRefused
from shine_node.client.history import History
from shine_node.client.identity import Identity
from shine_node.client.joining import NotRegistered, find_registered
from shine_node.client.keyfile import Account, load_key_file, update_key_file
from shine_node.client.people import People
from shine_node.client.session import begin_session
from shine_node.clock import Clock
from shine_node.protocol.access import AccessServer
from shine_node.protocol.errors import Refusal

__all__ = ["CONNECT_SECONDS", "Online", "connect_first", "is_passing", "make_people", "online", "read_online"]

T = TypeVar("T")

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
async def connect_first(
    servers: Iterable[AccessServer], *, open_timeout: float = CONNECT_SECONDS
) -> AsyncIterator[tuple[Connection, AccessServer]]:
    """Connect to the first of some servers that answers, for the block.

    Args:
        open_timeout: seconds that each may take.

    Raises:
        ConnectFailed: none did; what is said is about all of them.
    """
    problems: list[ConnectFailed] = []
    for server in servers:
        try:
            connection = await Connection.open(server.url, open_timeout=open_timeout)
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
async def online(
    keys: Path, *, clock: Clock, max_events: int = 1024, last: AccessServer | None = None
) -> AsyncIterator[Online]:
    """Go online with the account of a key file, for the block: at the first of its servers that lets it in.

    Args:
        last: a server to be tried after the others: it has just failed.

    Raises:
        KeyFileError: the file cannot be used.
        NotRegistered: no server has the account yet.
        ClientError: no server let it in; the error is one that passes, where there is such a one.
        Refusal: an answer lacks what it must have.
    """
    account = load_key_file(keys)
    problems: list[ClientError | Refusal | NotRegistered] = []
    for server in sorted(account.servers, key=lambda server: server == last):
        try:
            connection = await Connection.open(server.url, open_timeout=CONNECT_SECONDS, max_events=max_events)
        except ConnectFailed as failed:
            problems.append(failed)
            continue
        async with connection:
            try:
                account = await find_registered(connection, keys, account, clock=clock)
                await _log_in(connection, server, keys, account, clock)
            except (ClientError, Refusal, NotRegistered) as failed:
                problems.append(failed)
                continue
            user, people = account.identity, make_people(keys, account, clock=clock)
            yield Online(connection, server, user, people, History(connection, user, people))
            return
    raise max(reversed(problems), key=_hope)


async def read_online(keys: Path, read: Callable[[Online], Awaitable[T]], *, clock: Clock) -> T:
    """Return what is read with an account that is online; all anew at its other server where one fails half-way.

    Raises:
        KeyFileError, NotRegistered, ClientError, Refusal: as ``online``; or reading has failed at both.
    """
    last: AccessServer | None = None
    while True:
        failed_at: AccessServer | None = None
        try:
            async with online(keys, clock=clock, last=last) as at:
                failed_at = at.server
                return await read(at)
        except (ClientError, Refusal) as problem:
            if failed_at is None or last is not None or not _hope(problem):
                raise
            last = failed_at


def _hope(problem: ClientError | Refusal | NotRegistered) -> int:
    """Say how much of a problem may pass: a server that could not be asked counts, whatever the other one says."""
    if isinstance(problem, NotRegistered):
        return 2  # what a person is to do about it is known
    return 1 if isinstance(problem, Refusal) or is_passing(problem) else 0


async def _log_in(connection: Connection, server: AccessServer, keys: Path, account: Account, clock: Clock) -> None:
    saved = account.sessions.get(server.url)
    session = await begin_session(connection, account.identity, saved, clock=clock, client_info="shine-node")
    if session is not saved:
        await update_key_file(
            keys,
            lambda current: current._replace(sessions={**current.sessions, server.url: session}),
            clock=clock,
        )
