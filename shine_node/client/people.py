"""Who the others are: their signed records, checked, each under the root key that was first seen for the login."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from shine_node.client.connection import Connection
from shine_node.clock import Clock
from shine_node.protocol.access import AccessRecord, User, make_user, parse_record, signed_text
from shine_node.protocol.encoding import read_list
from shine_node.protocol.errors import ShineError
from shine_node.protocol.signatures import is_signed_by

__all__ = ["BadPerson", "People", "PersonError", "PersonUnknown", "RecordReplaced", "RootKeyChanged", "parse_person"]

MOST_REMEMBERED = 1000
"""How many users' records are kept at a time; those of more are asked for anew."""
FAILURE_SECONDS = 30.0
"""For so long nobody is asked again about a user for whom there was no good answer."""

Pin: TypeAlias = Callable[[str, bytes, int], Awaitable[None]]


class PersonError(ShineError):
    """A user whose keys cannot be relied upon, or are not known; ``code`` says so in the manner of §2."""

    code = "USER_NOT_FOUND"

    def __init__(self, login: str) -> None:
        super().__init__(login)
        self.login = login


class PersonUnknown(PersonError):
    """The server knows no such user, and finds none at the servers that it is connected with."""

    def __str__(self) -> str:
        return f"nobody is known as {self.login}: check the spelling, or try again when their server can be reached"


class BadPerson(PersonError):
    """The records that the server gave are not signed as they must be, or there is no signed one."""

    code = "BAD_SIGNATURE"

    def __str__(self) -> str:
        return f"the server has no properly signed record of {self.login}: their keys cannot be relied upon"


class RootKeyChanged(PersonError):
    """The login has another root key than was first seen: it may be another person's, or the server is lying."""

    code = "ROOT_KEY_MISMATCH"

    def __str__(self) -> str:
        return (
            f"{self.login} has another root key than before, and may be somebody else: nothing is sealed for this key."
            " If you are sure that it is right, remove the old one from rootKeys in the key file"
        )


class RecordReplaced(PersonError):
    """The server gave an older record than one that was seen before: its device key may have been stolen since."""

    code = "DEVICE_KEY_NOT_ACTUAL"

    def __str__(self) -> str:
        return (
            f"the server has only an older record of {self.login} than was seen before, and nothing is sealed for a key"
            " that was replaced: try again later, or at your other server"
        )


class People:
    """The users that an account deals with, as its server tells of them.

    Args:
        root_keys: by login in lower case, as first seen.
        pin: called with the login, the root key and the newest record's ``timeMs`` of each user who is seen for the
            first time, or with a newer record than before; keeps them.
        record_times: the ``timeMs`` of the newest record that was seen, Unix milliseconds, by login in lower case.
    """

    def __init__(
        self, root_keys: Mapping[str, bytes], pin: Pin, *, clock: Clock, record_times: Mapping[str, int] | None = None
    ) -> None:
        self._root_keys = dict(root_keys)
        self._record_times = dict(record_times or {})
        self._pin = pin
        self._clock = clock
        self._found: dict[str, tuple[User | PersonError, float]] = {}

    async def find(self, connection: Connection, login: str, *, at_most_seconds_old: float | None = None) -> User:
        """Return a user by the newest records that are known, asked for once where that is recent enough.

        Args:
            login: in any case.
            at_most_seconds_old: how old the answer may be; of any age if left out.

        Raises:
            PersonUnknown, BadPerson, RootKeyChanged, RecordReplaced.
            RequestRefused, RequestTimedOut, ConnectionLost.
        """
        key = login.lower()
        now = self._clock.monotonic()
        if key in self._found:
            found, since = self._found[key]
            if isinstance(found, PersonError):
                if now - since <= FAILURE_SECONDS:
                    raise found
            elif at_most_seconds_old is None or now - since <= at_most_seconds_old:
                return found
        try:
            user = await self._look_up(connection, login)
        except PersonError as problem:
            self._remember(key, problem)
            raise
        self._remember(key, user)
        return user

    async def _look_up(self, connection: Connection, login: str) -> User:
        user = parse_person(await _ask(connection, login), login)
        root_key, time_ms = user.record.solana_key, user.record.time_ms
        if self._root_keys.get(user.key, root_key) != root_key:
            raise RootKeyChanged(user.record.login)
        # Where a person has removed the root key, to have another one believed, its records do not count either.
        newest_ms = self._record_times.get(user.key, -1) if user.key in self._root_keys else -1
        if time_ms < newest_ms:
            raise RecordReplaced(user.record.login)
        if time_ms > newest_ms:
            await self._pin(user.key, root_key, time_ms)
            self._root_keys[user.key] = root_key
            self._record_times[user.key] = time_ms
        return user

    def _remember(self, key: str, found: User | PersonError) -> None:
        if len(self._found) >= MOST_REMEMBERED:
            self._found.clear()
        self._found[key] = found, self._clock.monotonic()


def parse_person(answer: Mapping[str, Any], login: str) -> User:
    """Return the user of an answer to ``GetUserAccess``: every record of it, by one root key, properly signed.

    Raises:
        PersonUnknown: there is no such user.
        BadPerson: a record is of somebody else, is not signed, or not as it must be.
    """
    if answer.get("exists") is not True:
        raise PersonUnknown(login)
    try:
        older = read_list(answer, "history")
        if not all(isinstance(one, dict) for one in older):
            raise BadPerson(login)
        records = [parse_record(one, allow_insecure=True) for one in [answer, *older]]
    except ShineError:
        raise BadPerson(login) from None
    newest = records[0]
    if not all(_belongs(record, login, newest.solana_key) for record in records):
        raise BadPerson(login)
    return make_user(records)


def _belongs(record: AccessRecord, login: str, root_key: bytes) -> bool:
    if record.key != login.lower() or record.solana_key != root_key:
        return False
    return is_signed_by(root_key, signed_text(record), record.signature)


async def _ask(connection: Connection, login: str) -> dict[str, Any]:
    answer = await connection.request("GetUserAccess", {"login": login})
    if answer.get("exists") is True:
        return answer
    # That operation tells what the server knows itself; this one makes it look the login up elsewhere.
    await connection.request("GetUser", {"login": login})
    return await connection.request("GetUserAccess", {"login": login})
