"""What there is to read: the newest messages of one chat or of all, or those that are unread, and marking them read."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable

from shine_node.client.history import History, Message
from shine_node.client.identity import Identity
from shine_node.client.messages import SignedPair, make_receipt

__all__ = ["make_receipts", "newest_messages", "unread_messages"]


async def newest_messages(history: History, peer: str | None, limit: int) -> list[Message]:
    """Return the newest messages of a chat, or of all chats, the oldest of them first.

    Args:
        peer: whose chat; of all chats if ``None``.
        limit: how many at most.

    Raises:
        ClientError, SealingUnavailable.
    """
    if peer is not None:
        return _sorted(await _take(history.chat(peer, page_limit=limit), limit))
    found: list[Message] = []
    async for dialog in history.dialogs():
        if len(found) == limit and dialog.last.time_ms < found[-1].time_ms:
            break  # all further chats are older still
        found += await _take(history.chat(dialog.last.peer, page_limit=limit), limit)
        found = heapq.nlargest(limit, found, key=_order)
    return _sorted(found)


async def unread_messages(history: History, peer: str | None, limit: int) -> list[Message]:
    """Return the oldest of the messages that came in and are unread, in the order of their times.

    Of each chat they are its oldest unread ones without a gap, so that a receipt for the last covers no other.

    Args:
        peer: whose chat; of all chats if ``None``.
        limit: how many at most.

    Raises:
        ClientError, SealingUnavailable.
    """
    found: list[Message] = []
    peer = peer.lower() if peer is not None else None
    async for dialog in history.dialogs():
        if dialog.unread and peer in (None, dialog.last.peer):
            found = heapq.nsmallest(
                limit, [*found, *await _oldest_unread(history, dialog.last.peer, limit)], key=_order
            )
        if peer == dialog.last.peer:
            break
    return found


def make_receipts(user: Identity, messages: Iterable[Message], now_ms: Callable[[], int]) -> list[SignedPair]:
    """Return a read receipt for the newest unread message of each chat; it covers those before it.

    A message that nobody has proven gets none; one whose problem is its content was seen, with that problem.
    """
    newest: dict[str, Message] = {}
    for message in sorted(messages, key=_order):
        if message.is_proven and not (message.out or message.read):
            newest[message.peer] = message
    return [make_receipt(user, message.key, time_ms=now_ms()) for message in newest.values()]


async def _oldest_unread(history: History, peer: str, limit: int) -> list[Message]:
    unread: deque[Message] = deque(maxlen=limit)  # of what comes newest first the last ones stay
    async for message in history.chat(peer):
        if message.out:
            continue
        if message.read and message.is_proven:  # and so are all before it
            break
        if not message.deleted:
            unread.append(message)
    return list(unread)


async def _take(messages: AsyncIterator[Message], limit: int) -> list[Message]:
    taken: list[Message] = []
    async for message in messages:
        taken.append(message)
        if len(taken) == limit:
            break
    return taken


def _sorted(messages: Iterable[Message]) -> list[Message]:
    return sorted(messages, key=_order)


def _order(message: Message) -> tuple[int, int, str]:
    return message.time_ms, message.key.nonce, message.peer
