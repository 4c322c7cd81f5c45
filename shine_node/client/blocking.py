"""The list of those from whom a user takes nothing: read from a server, changed, signed and sent back (§8.4).

The server that gives the list is the one that heeds it: that it might lie about it gains it nothing.
"""

from __future__ import annotations

from shine_node.client.connection import Connection
from shine_node.client.history import BadAnswer
from shine_node.client.identity import Identity
from shine_node.client.settings import make_setting
from shine_node.protocol.blocking import BLOCKED_PARAM, MAX_BLOCKED, blocked_logins, blocked_value
from shine_node.protocol.encoding import read_number, read_optional_text
from shine_node.protocol.errors import Refusal, ShineError
from shine_node.protocol.settings import setting_payload

__all__ = ["TooManyBlocked", "change_blocked", "read_blocked"]


class TooManyBlocked(ShineError):
    """The list has as many logins as servers heed."""


async def read_blocked(connection: Connection, user: Identity) -> list[str]:
    """Return the logins that a user has blocked, in lower case, the earliest first.

    Raises:
        ClientError: there was no answer, or none that can be read.
    """
    return (await _read(connection, user))[0]


async def change_blocked(
    connection: Connection, user: Identity, login: str, *, blocked: bool, now_ms: int
) -> tuple[list[str], bool]:
    """Block a login or let it write again; the user's other server learns of it by itself.

    Returns:
        The list as it is now, and whether it has changed.

    Raises:
        TooManyBlocked: it would be one login too many.
        ClientError: as ``read_blocked``, and what the server says of the new list.
    """
    logins, time_ms = await _read(connection, user)
    key = login.lower()
    if (key in logins) is blocked:
        return logins, False
    if blocked and len(logins) >= MAX_BLOCKED:
        raise TooManyBlocked(f"{MAX_BLOCKED} logins are blocked, as many as servers heed: unblock one first")
    logins = [*logins, key] if blocked else [other for other in logins if other != key]
    # Of two settings the later one counts, whatever this machine's clock says.
    setting = make_setting(user, BLOCKED_PARAM, blocked_value(logins), time_ms=max(now_ms, time_ms + 1))
    await connection.request("UpsertUserParam", setting_payload(setting))
    return logins, True


async def _read(connection: Connection, user: Identity) -> tuple[list[str], int]:
    answer = await connection.request("GetUserParam", {"login": user.login, "param": BLOCKED_PARAM})
    if answer.get("exists") is not True:
        return [], 0
    try:
        return blocked_logins(read_optional_text(answer, "value")), read_number(answer, "time_ms")
    except Refusal as problem:
        raise BadAnswer(problem.detail) from None
