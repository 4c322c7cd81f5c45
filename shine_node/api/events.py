"""Events: tells the live sessions of users what has changed, once it is on disk (PROTOCOL.md §8.2)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from shine_node.api.live import KEY_REPLACED, SIGNED_OUT, Live
from shine_node.directory.users import Users
from shine_node.protocol.encoding import encode_base64
from shine_node.protocol.keys import MessageKey
from shine_node.store.changes import Change, ItemChange, KeyChange, SignOut
from shine_node.store.layout import Direction
from shine_node.store.unreadable import UnreadableRow

__all__ = ["Events"]


class Events:
    """Makes events of changes, in the order of their commits: a message comes before what becomes of it.

    Where nobody listens nothing is made. What catches up makes events like all else, as many as a session reads: one
    that falls back is cut at ``limits.maxOutboundBytes``, and finds everything in its chats.
    """

    def __init__(self, *, live: Live, users: Users) -> None:
        self._live = live
        self._users = users

    def tell(self, changes: Sequence[Change]) -> None:
        """Tell of changes that are on disk; called in the event loop."""
        for change in changes:
            if isinstance(change, KeyChange | SignOut):
                # Not at once: logins that were written before this are given their sessions only in the next turn of
                # the loop. Whoever brought the key is answered in it, too.
                loop = asyncio.get_running_loop()
                why = KEY_REPLACED if isinstance(change, KeyChange) else SIGNED_OUT
                loop.call_soon(loop.call_soon, self._live.end_login, change.login, why)
            elif self._live.has(change.key.owner):
                self._tell(change)

    def _tell(self, change: ItemChange) -> None:
        key, message = change.key, change.key.message
        base = {"baseKey": message.base_key}
        if key.direction is Direction.IN:
            incoming = {"incomingKey": str(MessageKey(message, key.kind)), **base}
            copy = {"fromLogin": self._spelled(key.peer), "blobB64": encode_base64(change.blob)}
            self._live.push(key.owner, "IncomingDirectMessage", incoming | copy)
            return
        outgoing = {"outgoingKey": str(MessageKey(message, key.kind + 1)), **base}
        state = {"deliveryState": change.row.state.wire}
        if change.blob and self._live.has(key.owner, but_not=change.origin):
            copy = {"toLogin": self._spelled(key.peer), "blobB64": encode_base64(change.blob)}
            # Whoever sent it gets an answer instead.
            self._live.push(key.owner, "OutgoingDirectMessage", outgoing | copy | state, but_not=change.origin)
        if change.state_changed:
            self._live.push(key.owner, "DmDeliveryStateChanged", outgoing | state)

    def _spelled(self, login: str) -> str:
        """Return a login in lower case as it was registered, where that can be read."""
        try:
            user = self._users.get(login)
        except UnreadableRow:  # the store has told of it
            user = None
        return user.record.login if user is not None else login
