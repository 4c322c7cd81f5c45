"""Sessions of clients, and which of them a user has (PROTOCOL.md §8.1). Each function is called in a transaction."""

from __future__ import annotations

from collections.abc import Iterator

import orjson

from shine_node.protocol.session_errors import SessionOfAnotherUser
from shine_node.protocol.sessions import Session, session_not_found
from shine_node.store.changes import SignOut
from shine_node.store.environment import Transaction
from shine_node.store.layout import Table
from shine_node.store.unreadable import UnreadableRow

__all__ = [
    "SESSION_ID_CHARACTERS",
    "add_session",
    "all_sessions",
    "close_session",
    "close_sessions",
    "decode_session",
    "get_session",
    "list_sessions",
    "renew_session",
    "sign_out",
]

SESSION_ID_CHARACTERS = 43
"""32 bytes in Base64 without padding."""


def get_session(txn: Transaction, session_id: str) -> Session | None:
    """Return a session; any text may be asked for.

    Raises:
        UnreadableRow: it cannot be read.
    """
    key = session_id.encode()
    if len(key) != SESSION_ID_CHARACTERS:  # LMDB takes neither an empty key nor a long one
        return None
    value = txn.get(Table.SESSIONS, key)
    return decode_session(session_id, value) if value is not None else None


def list_sessions(txn: Transaction, login: str) -> list[Session]:
    """Return the sessions of a login in lower case, the one that authenticated last first.

    One that cannot be read is told in the log and passed over.
    """
    prefix = _owner_prefix(login)
    sessions: list[Session] = []
    for key, _ in txn.scan(Table.SESSIONS_OF_USER, prefix=prefix):
        try:
            session = get_session(txn, key[len(prefix) :].decode("ascii", "replace"))
        except UnreadableRow as error:
            txn.pass_over(error)
        else:
            sessions += [session] if session is not None else []
    return sorted(sessions, key=lambda session: (session.authenticated_ms, session.created_ms), reverse=True)


def all_sessions(txn: Transaction) -> Iterator[Session]:
    """Yield every session, by ``sessionId``.

    Raises:
        UnreadableRow: one cannot be read.
    """
    for key, value in txn.scan(Table.SESSIONS):
        yield decode_session(key.decode("ascii", "replace"), value)


def add_session(txn: Transaction, session: Session, *, greatest: int) -> list[Session]:
    """Store a new session; a user has at most ``greatest``.

    Returns:
        The sessions that had to go for it: those that authenticated longest ago.
    """
    gone = list_sessions(txn, session.login)[greatest - 1 :]
    for old in gone:
        _delete(txn, old)
    _put(txn, session)
    txn.put(Table.SESSIONS_OF_USER, _owner_prefix(session.login) + session.session_id.encode(), b"")
    return gone


def renew_session(
    txn: Transaction, session_id: str, *, client_info: str | None, request_info: str, now_ms: int
) -> Session:
    """Take note that a session has authenticated, and from where; ``None`` keeps what the client said of itself.

    Raises:
        SessionNotFound: it has been closed meanwhile.
    """
    session = get_session(txn, session_id)
    if session is None:
        raise session_not_found()
    session = session._replace(
        client_info=session.client_info if client_info is None else client_info,
        request_info=request_info,
        authenticated_ms=now_ms,
    )
    _put(txn, session)
    return session


def close_session(txn: Transaction, session_id: str, *, login: str) -> None:
    """Remove a session of a login in lower case.

    Raises:
        SessionNotFound, SessionOfAnotherUser: nothing was removed.
    """
    session = get_session(txn, session_id)
    if session is None:
        raise session_not_found()
    if session.login != login:
        raise SessionOfAnotherUser("this session is not yours to close")
    _delete(txn, session)


def close_sessions(txn: Transaction, login: str) -> None:
    """Remove all sessions of a login in lower case, such as when the device key that made them is replaced."""
    prefix = _owner_prefix(login)
    for key in list(txn.scan_keys(Table.SESSIONS_OF_USER, prefix=prefix)):  # also of those that cannot be read
        txn.delete(Table.SESSIONS_OF_USER, key)
        if len(key) > len(prefix):
            txn.delete(Table.SESSIONS, key[len(prefix) :])


def decode_session(session_id: str, value: bytes) -> Session:
    """Return the session that a value in ``sessions`` holds.

    Raises:
        UnreadableRow: these bytes are no such value.
    """
    try:
        session = Session(session_id, *orjson.loads(value))
    except (ValueError, TypeError):
        raise UnreadableRow("a session", value) from None
    kinds = (str,) * 6 + (int,) * 2
    if any(type(field) is not kind for field, kind in zip(session, kinds, strict=True)):
        raise UnreadableRow("a session", value)
    return session


def sign_out(txn: Transaction, login: str) -> int:
    """Remove all sessions of a login in lower case, and have its connections end once that is on disk.

    Returns:
        How many there were.
    """
    count = len(list_sessions(txn, login))
    close_sessions(txn, login)
    txn.changes.append(SignOut(login))
    return count


def _put(txn: Transaction, session: Session) -> None:
    txn.put(Table.SESSIONS, session.session_id.encode(), orjson.dumps(session[1:]))


def _delete(txn: Transaction, session: Session) -> None:
    txn.delete(Table.SESSIONS, session.session_id.encode())
    txn.delete(Table.SESSIONS_OF_USER, _owner_prefix(session.login) + session.session_id.encode())


def _owner_prefix(login: str) -> bytes:
    return login.encode() + b"\0"
