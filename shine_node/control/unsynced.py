"""``MarkUnsynced`` of the operator: the other servers of users get all settings and messages again (PROTOCOL.md §6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shine_node.directory.settings import Settings
from shine_node.protocol.encoding import read_login
from shine_node.sync.resync import Resync

__all__ = ["MarkUnsynced"]


class MarkUnsynced:
    """Answers ``MarkUnsynced``."""

    def __init__(self, *, settings: Settings, resync: Resync) -> None:
        self._settings = settings
        self._resync = resync

    async def mark_unsynced(self, payload: Mapping[str, Any]) -> dict[str, object]:
        """Begin it for ``login``, or for all users of this server without one; the work goes on by itself.

        Returns:
            How many entries are sent again: ``settings`` and ``messages``.

        Raises:
            BadLogin, BadFields, BadRequestFormat: no login.
            UserNotFound, NotAccessServer: not a user of this server.
            ServerBusy, StorageFull: not now.
        """
        if payload.get("login") is None:
            return (await self._resync.begin_all())._asdict()
        owner = await self._settings.owner(read_login(payload).lower(), ask_peers=False)
        return (await self._resync.begin(owner.key))._asdict()
