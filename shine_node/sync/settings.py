"""The feed of settings: those that a user's other server has not acknowledged, and their way in (PROTOCOL.md §6)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from shine_node.clock import Clock
from shine_node.peers.waiting import all_results
from shine_node.protocol.errors import Refusal, StorageFull
from shine_node.protocol.settings import setting_payload
from shine_node.store.environment import Transaction
from shine_node.store.settings import acknowledge_setting, read_unsynced
from shine_node.sync.defects import Defects
from shine_node.sync.owners import sharing
from shine_node.sync.serving import FeedPage

__all__ = ["SettingsApply", "SettingsFeed"]


class SettingsFeed:
    """What a peer fetches with ``SettingsSyncBatch``.

    Args:
        own_login: this server's login, in lower case.
    """

    def __init__(self, own_login: str) -> None:
        self._own_login = own_login

    def page(
        self,
        txn: Transaction,
        server: str,
        *,
        login: str | None,
        after: bytes,
        limit: int,
        max_bytes: int,
        peer_bytes: int | None = None,
    ) -> FeedPage:
        """Return the next unsynced settings of the owners that have both servers."""
        serves = sharing(txn, server, own_login=self._own_login, login=login)
        page = read_unsynced(
            txn, server, serves=serves, after=after, limit=limit, max_bytes=max_bytes, peer_bytes=peer_bytes
        )
        entries = [(entry.sync_id, entry.row, setting_payload(entry.setting)) for entry in page.entries]
        return FeedPage(entries, page.cursor, page.more, page.too_large)

    def acknowledge(self, txn: Transaction, server: str, mark: object) -> None:
        """Take note that the peer has stored one revision of one setting."""
        if not isinstance(mark, bytes):
            raise AssertionError("a mark of this feed")
        acknowledge_setting(txn, mark)


class SettingsApply:
    """Stores items of ``SettingsSyncBatch``.

    Args:
        learn: takes the peer's login and an item, checks it and stores it; raises ``Refusal`` where it cannot.
    """

    def __init__(self, learn: Callable[[str, Mapping[str, Any]], Awaitable[None]], clock: Clock) -> None:
        self._learn = learn
        self._defects = Defects(clock)

    async def __call__(self, server_login: str, items: Sequence[Mapping[str, Any]]) -> list[Refusal | None]:
        """Store items that a peer gives, side by side, and return for each why it is not stored.

        Raises:
            StorageFull: the store has no room.
        """
        refusals = await all_results(self._apply(server_login, item) for item in items)
        for refusal in refusals:
            if isinstance(refusal, StorageFull):
                raise refusal
        return refusals

    async def _apply(self, server_login: str, item: Mapping[str, Any]) -> Refusal | None:
        try:
            await self._learn(server_login, item)
        except Refusal as refusal:
            return refusal
        except Exception:
            return self._defects.refusal(server_login)
        return None
