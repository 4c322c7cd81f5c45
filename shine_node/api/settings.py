"""Operations about users' settings (PROTOCOL.md §6, §8.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from shine_node.api.connection import Connection, Handler
from shine_node.directory.settings import MAX_MERGED, Settings
from shine_node.protocol.encoding import read_limit, read_login
from shine_node.protocol.errors import Forbidden
from shine_node.protocol.settings import read_param, setting_payload
from shine_node.store.environment import Transaction
from shine_node.store.readers import Readers
from shine_node.store.settings import list_settings
from shine_node.sync.resync import Resync

__all__ = ["SettingsOperations"]

ENVELOPE_BYTES = 1024


class SettingsOperations:
    """Takes settings, shows them to anyone, and has an owner's entries sent to the other server again.

    Args:
        max_frame_bytes: ``limits.maxFrameBytes``; the encoded answer takes at most half of it, yet holds one setting.
    """

    def __init__(self, *, settings: Settings, readers: Readers, resync: Resync, max_frame_bytes: int) -> None:
        self._settings = settings
        self._readers = readers
        self._resync = resync
        self._page_bytes = max_frame_bytes // 2 - ENVELOPE_BYTES

    @property
    def handlers(self) -> dict[str, Handler]:
        """The operations by name."""
        return {
            "UpsertUserParam": self.upsert_user_param,
            "GetUserParam": self.get_user_param,
            "ListUserParams": self.list_user_params,
            "MarkAllUserSettingsUnsynced": self.mark_all_user_settings_unsynced,
        }

    async def upsert_user_param(self, connection: Connection, payload: dict[str, Any]) -> Mapping[str, object]:
        """Take a setting; no session is needed, the signature is the authority. An older one changes nothing."""
        await self._settings.submit(payload, ask_peers=connection.hello is None)
        return {}

    async def get_user_param(self, connection: Connection, payload: dict[str, Any]) -> Mapping[str, object]:
        """Return a setting as its user signed it, or that there is none."""
        login, param = read_login(payload).lower(), read_param(payload)
        await self._settings.owner(login, ask_peers=connection.hello is None)
        setting = self._settings.get(login, param)
        if setting is None:
            return {"exists": False}
        return {"exists": True, **setting_payload(setting)}

    async def list_user_params(self, connection: Connection, payload: dict[str, Any]) -> Mapping[str, object]:
        """Return the settings of a user by name; where they do not fit into one answer, ``cursor`` has the rest."""
        login = read_login(payload).lower()
        cursor = read_param(payload, "cursor") if payload.get("cursor") else ""
        limit = read_limit(payload, MAX_MERGED, MAX_MERGED)
        owner = await self._settings.owner(login, ask_peers=connection.hello is None)

        def read(txn: Transaction) -> Mapping[str, object]:
            params: list[Mapping[str, object]] = []
            last, left = cursor, self._page_bytes
            for setting in list_settings(txn, login, after=cursor):
                entry = setting_payload(setting)
                left -= len(orjson.dumps(entry)) + 1
                if params and (len(params) == limit or left < 0):
                    return _page(owner.record.login, params, last, more=True)
                params.append(entry)
                last = setting.param
            return _page(owner.record.login, params, last, more=False)

        async with connection.pages:
            await connection.outbound.until_taken()
            return await self._readers.run(read)

    async def mark_all_user_settings_unsynced(
        self, connection: Connection, payload: dict[str, Any]
    ) -> Mapping[str, object]:
        """Have all of the owner's settings and messages sent to the other server again, bit by bit."""
        login = connection.need_session().login
        if payload.get("login") is not None and read_login(payload).lower() != login:
            raise Forbidden("this is for the user of the session alone")
        async with connection.pages:
            counts = await self._resync.begin(login)
        return counts._asdict()


def _page(login: str, params: list[Mapping[str, object]], cursor: str, *, more: bool) -> Mapping[str, object]:
    return {"login": login, "params": params, "cursor": cursor, "hasMore": more}
