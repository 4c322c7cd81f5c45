"""Who is connected: the live connections of each login and session, and the events that go to them (PROTOCOL.md §8)."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from shine_node.api.connection import Connection, LiveSession
from shine_node.protocol.envelope import encode_event

__all__ = ["KEY_REPLACED", "SIGNED_OUT", "Live"]

POLICY_VIOLATION = 1008
_CLOSED = "this session was closed"
KEY_REPLACED = "the device key was replaced: create a session with the new one"
SIGNED_OUT = "the operator of this server has ended all sessions of this user: create a new one"


class Live:
    """The connections that have a session, by login (in lower case). For the event loop only."""

    def __init__(self) -> None:
        self._by_login: dict[str, dict[Connection, None]] = {}  # sets that keep the order of arrival

    @property
    def connections(self) -> int:
        """How many connections have a session."""
        return sum(len(connections) for connections in self._by_login.values())

    def has(self, login: str, *, but_not: object = None) -> bool:
        """Say whether anybody would get an event for a login; ``but_not`` as for ``push``."""
        connections = self._by_login.get(login, ())
        return len(connections) > (but_not in connections)

    def attach(self, connection: Connection, session: LiveSession) -> None:
        """Give a connection its session, in place of the one that it may have."""
        known = connection.session is not None
        self.detach(connection)
        connection.session = session
        self._by_login.setdefault(session.login, {})[connection] = None
        if not known:
            connection.call_when_ended(self.detach)

    def detach(self, connection: Connection) -> None:
        """Take a connection's session away; without one nothing happens."""
        session, connection.session = connection.session, None
        if session is None:
            return
        connections = self._by_login[session.login]
        del connections[connection]
        if not connections:
            del self._by_login[session.login]

    def end_session(self, session: LiveSession, *, asking: Connection | None = None) -> None:
        """End all connections of a session at once; the one that asks for it gets its answer first."""
        for connection in list(self._by_login.get(session.login, ())):
            if connection.session != session:
                continue
            self.detach(connection)
            if connection is asking:
                connection.end_after_answer(POLICY_VIOLATION, _CLOSED)
            else:
                connection.outbound.end(POLICY_VIOLATION, _CLOSED)

    def end_login(self, login: str, why: str = KEY_REPLACED) -> None:
        """End all connections of a login in lower case, whose sessions are gone, such as for another device key."""
        for connection in list(self._by_login.get(login, ())):
            self.detach(connection)
            connection.outbound.end(POLICY_VIOLATION, why)

    def push(self, login: str, op: str, payload: Mapping[str, object], *, but_not: object = None) -> None:
        """Send an event to every live session of a login; it is encoded once, if anybody gets it.

        Args:
            login: in lower case.
            but_not: a connection that knows already.
        """
        connections = [connection for connection in self._by_login.get(login, ()) if connection is not but_not]
        if not connections:
            return
        text = encode_event(op, secrets.token_hex(8), payload)
        for connection in connections:
            connection.outbound.push(text)
