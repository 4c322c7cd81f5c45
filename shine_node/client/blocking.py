"""The list of those from whom a user takes nothing: read from a server, changed, signed and sent back (§8.4).

What the server gives counts as far as the user has signed it: nothing that it makes up is signed on as the user's own.
"""

from __future__ import annotations

from shine_node.client.connection import Connection
from shine_node.client.history import MOST_BODY_BYTES, BadAnswer
from shine_node.client.identity import Identity
from shine_node.client.settings import make_setting
from shine_node.protocol.blocking import BLOCKED_PARAM, MAX_BLOCKED, blocked_logins, blocked_value
from shine_node.protocol.container import CLIENT_AHEAD_MS
from shine_node.protocol.errors import Refusal, ShineError
from shine_node.protocol.settings import (
    SignatureInvalid,
    check_setting_clock,
    check_setting_key,
    parse_setting,
    setting_payload,
    setting_text,
)
from shine_node.protocol.signatures import is_signed_by

__all__ = ["ListContended", "TooManyBlocked", "change_blocked", "read_blocked"]

TRIES = 3


class TooManyBlocked(ShineError):
    """The list has as many logins as servers heed."""


class ListContended(ShineError):
    """Another device has changed the list in the same moment, again and again."""


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
        ListContended: what was written did not last.
        ClientError: as ``read_blocked``, and what the server says of the new list.
    """
    key = login.lower()
    logins, time_ms = await _read(connection, user)
    if (key in logins) is blocked:
        return logins, False
    for _ in range(TRIES):
        if blocked and len(logins) >= MAX_BLOCKED:
            raise TooManyBlocked(f"{MAX_BLOCKED} logins are blocked, as many as servers heed: unblock one first")
        logins = [*logins, key] if blocked else [other for other in logins if other != key]
        # Of two settings the later one counts, whatever this machine's clock says; none may be far ahead.
        setting = make_setting(user, BLOCKED_PARAM, blocked_value(logins), time_ms=max(now_ms, time_ms + 1))
        try:
            check_setting_clock(setting, now_ms=now_ms, ahead_ms=CLIENT_AHEAD_MS)
        except Refusal:
            raise BadAnswer("the list is of a time far ahead: is the clock of this machine right?") from None
        await connection.request("UpsertUserParam", setting_payload(setting))
        logins, time_ms = await _read(connection, user)  # another device's list may be later, and counts then
        if (key in logins) is blocked:
            return logins, True
    raise ListContended("the list of the blocked is being changed elsewhere: try again in a moment")


async def _read(connection: Connection, user: Identity) -> tuple[list[str], int]:
    answer = await connection.request("GetUserParam", {"login": user.login, "param": BLOCKED_PARAM})
    if answer.get("exists") is not True:
        return [], 0
    try:
        setting = parse_setting(answer, max_value_bytes=MOST_BODY_BYTES)
        check_setting_key(setting, user.device.public)
        is_own = (setting.key, setting.param) == (user.login.lower(), BLOCKED_PARAM)
        if not is_own or not is_signed_by(user.device.public, setting_text(setting), setting.signature):
            raise SignatureInvalid("the list of the blocked is not signed by its user")
    except Refusal as problem:
        raise BadAnswer(problem.detail) from None
    return blocked_logins(setting.value), setting.time_ms
