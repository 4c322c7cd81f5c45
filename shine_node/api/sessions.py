"""Operations of sessions: challenge, create, log in, list, close (PROTOCOL.md §8.1)."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from shine_node.api.connection import Connection, Handler, LiveSession
from shine_node.api.failed_logins import FailedLogins
from shine_node.api.live import Live
from shine_node.clock import Clock
from shine_node.directory.users import Users
from shine_node.protocol.encoding import encode_base64
from shine_node.protocol.errors import BadSignature, UnknownUser
from shine_node.protocol.session_errors import DeviceKeyNotActual
from shine_node.protocol.sessions import (
    AuthChallenge,
    Session,
    SessionChallenge,
    Signed,
    check_create,
    check_session_login,
    parse_create,
    parse_session_login,
    read_named_login,
    read_session_id,
    session_not_found,
)
from shine_node.store.environment import Store, Transaction
from shine_node.store.sessions import add_session, close_session, get_session, list_sessions, renew_session
from shine_node.store.users import get_registration

__all__ = ["MAX_SESSIONS_A_USER", "SessionOperations", "Verify"]

MAX_SESSIONS_A_USER = 50
SECRET_BYTES = 32

Verify = Callable[[Sequence[tuple[bytes, bytes, bytes]]], Awaitable[int | None]]
"""Checks signatures (key, text, signature) and returns the index of the first that is wrong, ``None`` if all hold."""


class SessionOperations:
    """Proves who a client is, once per connection, and keeps what it was told for the next time.

    Args:
        live: gets each connection that has proven its session.
        verify: checks signatures away from the event loop.
        failed: makes those wait whose log-ins fail too often.
    """

    def __init__(
        self, *, store: Store, users: Users, clock: Clock, live: Live, verify: Verify, failed: FailedLogins
    ) -> None:
        self._store = store
        self._users = users
        self._clock = clock
        self._live = live
        self._verify = verify
        self._failed = failed

    @property
    def handlers(self) -> dict[str, Handler]:
        """The operations by name."""
        guard = self._failed.guard
        return {
            "AuthChallenge": guard(self.auth_challenge, "login"),
            "CreateAuthSession": guard(self.create_auth_session, "login"),
            "SessionChallenge": guard(self.session_challenge, "sessionId"),
            "SessionLogin": guard(self.session_login, "sessionId"),
            "ListSessions": self.list_sessions,
            "CloseActiveSession": self.close_active_session,
        }

    async def auth_challenge(self, connection: Connection, payload: dict[str, Any]) -> Mapping[str, object]:
        """Give the connection a nonce to create a session with, in place of an earlier one."""
        login = read_named_login(payload).lower()
        if self._users.get(login) is None:
            raise UnknownUser("no such user is registered here")
        challenge = AuthChallenge(login, new_nonce(), self._clock.now_ms())
        connection.auth_challenge = challenge
        return {"authNonce": challenge.nonce}

    async def create_auth_session(self, connection: Connection, payload: dict[str, Any]) -> Mapping[str, object]:
        """Create a session by the user's device key; the connection has it from then on."""
        challenge, connection.auth_challenge = connection.auth_challenge, None  # spent, whatever comes of it
        request = parse_create(payload)
        login = request.login.lower()
        now_ms = self._clock.now_ms()
        await self._prove(check_create(request, challenge=challenge, user=self._users.get(login), now_ms=now_ms))
        session = Session(
            session_id=new_nonce().rstrip("="),
            login=login,
            session_key=request.session_key,
            storage_pwd=request.storage_pwd,
            client_info=request.client_info,
            request_info=connection.user_agent,
            created_ms=now_ms,
            authenticated_ms=now_ms,
        )

        def add(txn: Transaction) -> list[Session]:
            known = get_registration(txn, login)
            if known is None or encode_base64(known.record.device_key) != request.device_key:
                raise DeviceKeyNotActual("deviceKey has been replaced while this was being checked")
            return add_session(txn, session, greatest=MAX_SESSIONS_A_USER)

        gone = await self._store.write(add)
        for old in gone:
            self._live.end_session(_live(old))
        self._live.attach(connection, _live(session))
        return {"sessionId": session.session_id}

    async def session_challenge(self, connection: Connection, payload: dict[str, Any]) -> Mapping[str, object]:
        """Give the connection a nonce to log in to a session with, in place of an earlier one."""
        session_id = read_session_id(payload)
        if self._find(session_id) is None:
            raise session_not_found()
        challenge = SessionChallenge(session_id, new_nonce(), self._clock.now_ms())
        connection.session_challenge = challenge
        return {"nonce": challenge.nonce}

    async def session_login(self, connection: Connection, payload: dict[str, Any]) -> Mapping[str, object]:
        """Log in to a session by its key; the connection has it from then on."""
        challenge, connection.session_challenge = connection.session_challenge, None  # spent, whatever comes of it
        request = parse_session_login(payload)
        now_ms = self._clock.now_ms()
        session = self._find(request.session_id)
        await self._prove(check_session_login(request, challenge=challenge, session=session, now_ms=now_ms))
        # A session that is closed after this write is closed with this connection: results come back in the order of
        # the writes, so that it is attached by then.
        session = await self._store.write(
            lambda txn: renew_session(
                txn,
                request.session_id,
                client_info=request.client_info,
                request_info=connection.user_agent,
                now_ms=now_ms,
            )
        )
        self._live.attach(connection, _live(session))
        return {"storagePwd": session.storage_pwd}

    async def list_sessions(self, connection: Connection, payload: dict[str, Any]) -> Mapping[str, object]:
        """Return the user's sessions, the one that authenticated last first."""
        login = connection.need_session().login
        with self._store.read() as txn:
            sessions = list_sessions(txn, login)
        return {"sessions": [_entry(session) for session in sessions]}

    async def close_active_session(self, connection: Connection, payload: dict[str, Any]) -> Mapping[str, object]:
        """Remove one of the user's sessions, and end its connections."""
        login = connection.need_session().login
        session_id = read_session_id(payload)
        await self._store.write(lambda txn: close_session(txn, session_id, login=login))
        self._live.end_session(LiveSession(login, session_id), asking=connection)
        return {}

    def _find(self, session_id: str) -> Session | None:
        with self._store.read() as txn:
            return get_session(txn, session_id)

    async def _prove(self, signed: Signed) -> None:
        if await self._verify([signed]) is not None:
            raise BadSignature("the request is not signed by the key that it names")


def new_nonce() -> str:
    """Return 32 random bytes, in Base64."""
    return encode_base64(secrets.token_bytes(SECRET_BYTES))


def _live(session: Session) -> LiveSession:
    return LiveSession(session.login, session.session_id)


def _entry(session: Session) -> dict[str, object]:
    return {
        "sessionId": session.session_id,
        "clientInfoFromClient": session.client_info,
        "clientInfoFromRequest": session.request_info,
        "geo": "",  # the server does not ask anybody where an address is
        "lastAuthenticatedAtMs": session.authenticated_ms,
    }
