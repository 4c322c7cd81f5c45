"""The settings of the users of this server: the way in for them, and out again (PROTOCOL.md §8.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from shine_node.clock import Clock
from shine_node.crypto.pool import CryptoPool
from shine_node.directory.lookup import Lookup
from shine_node.directory.users import Users
from shine_node.protocol.access import User
from shine_node.protocol.blocking import BLOCKED_PARAM, check_blocked
from shine_node.protocol.container import CLIENT_AHEAD_MS, PEER_AHEAD_MS
from shine_node.protocol.errors import NotAccessServer, UserNotFound
from shine_node.protocol.settings import (
    Setting,
    check_setting_clock,
    check_setting_key,
    parse_setting,
    setting_text,
    signature_invalid,
)
from shine_node.store.environment import Store
from shine_node.store.settings import get_setting, put_setting

__all__ = ["MAX_SETTINGS_A_USER", "Settings"]

MAX_SETTINGS_A_USER: Final = 1000
"""Names of settings that a user's clients may fill at one server."""
MAX_MERGED: Final = 2 * MAX_SETTINGS_A_USER
"""What two servers that were apart can have between them: both must be able to take all of it."""


class Settings:
    """Checks settings in the order of §8.4 and stores them; nothing is stored of what is refused.

    Args:
        max_value_bytes: ``limits.maxBodyBytes``.
    """

    def __init__(
        self,
        *,
        store: Store,
        crypto: CryptoPool,
        users: Users,
        lookup: Lookup,
        clock: Clock,
        max_value_bytes: int,
    ) -> None:
        self._store = store
        self._crypto = crypto
        self._users = users
        self._lookup = lookup
        self._clock = clock
        self._max_value_bytes = max_value_bytes

    async def owner(self, login: str, *, ask_peers: bool) -> User:
        """Return a user of this server.

        Args:
            login: in lower case.
            ask_peers: whether others are asked for one who is not known here; not for a peer (§2).

        Raises:
            UserNotFound: nobody of that login is known.
            NotAccessServer: the user is at home elsewhere.
        """
        user = self._users.get(login)
        if user is None and ask_peers:
            user = await self._lookup.find(login)
        if user is None:
            raise UserNotFound("no such user is known here")
        if not self._users.is_here(user):
            raise NotAccessServer(f"this server is not an access server of {user.record.login}")
        return user

    async def submit(self, payload: Mapping[str, Any], *, ask_peers: bool) -> bool:
        """Take a setting from a client, and say whether it was stored: an older one is a success too.

        It must be signed by the key of its time, and that key must be the newest one (§3).

        Args:
            ask_peers: as for ``owner``.

        Raises:
            BadFields, BadRequestFormat, BadLogin, BadBase64, TooLarge: a field is wrong, or it is one name too many.
            UserNotFound, NotAccessServer, DeviceKeyMismatch, SignatureInvalid: in this order.
            ServerBusy, StorageFull: not now.
        """
        setting = self._parse(payload, CLIENT_AHEAD_MS)
        if setting.param == BLOCKED_PARAM:
            check_blocked(setting.value)  # not of one that another server has taken: both must become equal
        owner = await self.owner(setting.key, ask_peers=ask_peers)
        key = owner.fresh_key_at(setting.time_ms)
        return await self._take(setting, key, most=MAX_SETTINGS_A_USER, from_server=None)

    async def learn(self, from_server: str, payload: Mapping[str, Any]) -> None:
        """Take a setting that the owner's other server has: an item of ``SettingsSyncBatch`` (§6).

        It must be signed by the key of the record that was in force at its time.

        Args:
            from_server: the peer that gives it.

        Raises:
            Refusal: as for ``submit``.
        """
        setting = self._parse(payload, PEER_AHEAD_MS)
        owner = await self.owner(setting.key, ask_peers=False)
        key = owner.device_key_at(setting.time_ms)
        await self._take(setting, key, most=MAX_MERGED, from_server=from_server)

    def get(self, login: str, param: str) -> Setting | None:
        """Return a setting of a login in lower case."""
        with self._store.read() as txn:
            return get_setting(txn, login, param)

    def _parse(self, payload: Mapping[str, Any], ahead_ms: int) -> Setting:
        setting = parse_setting(payload, max_value_bytes=self._max_value_bytes)
        check_setting_clock(setting, now_ms=self._clock.now_ms(), ahead_ms=ahead_ms)
        return setting

    async def _take(self, setting: Setting, key: bytes | None, *, most: int, from_server: str | None) -> bool:
        if self.get(setting.key, setting.param) != setting:  # what is stored is right, whatever the keys are now
            self._store.check_room()
            check_setting_key(setting, key)
            checks = [(setting.device_key, setting_text(setting), setting.signature)]
            if await self._crypto.verify(checks) is not None:
                raise signature_invalid(setting)
        now_ms, own_login = self._clock.now_ms(), self._users.own_login
        return await self._store.write(
            lambda txn: put_setting(
                txn, setting, now_ms=now_ms, own_login=own_login, most=most, from_server=from_server
            ),
            size=len(setting.value),
        )
