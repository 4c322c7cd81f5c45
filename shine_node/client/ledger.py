"""What a watcher knows already, so that nothing is shown twice, and what it learns that is new. Pure."""

from __future__ import annotations

from typing import NamedTuple

from shine_node.client.history import Message, of_oneself, peer_of
from shine_node.protocol.keys import MessageId

__all__ = ["Change", "Ledger"]


class Change(NamedTuple):
    """Something new.

    ``kind`` is ``message`` (not known before), ``edited``, ``deleted``, ``state`` (of the delivery) or ``read`` (a
    receipt covers the message ``key`` and all before it in its direction). ``message`` is there for the first two.
    """

    kind: str
    key: MessageId
    peer: str
    out: bool
    state: str | None = None
    message: Message | None = None


class _Known(NamedTuple):
    revision_ms: int
    content: int
    state: str | None
    deleted: bool
    proven: bool


class Ledger:
    """What is known of the messages of one user, whose login is given in lower case."""

    def __init__(self, user: str) -> None:
        self._user = user
        self._known: dict[MessageId, _Known] = {}
        self._read_ms: dict[tuple[str, bool], int] = {}

    def __len__(self) -> int:
        return len(self._known)

    def note(self, message: Message) -> list[Change]:
        """Take note of a message as it is now, and return what of it is new.

        An older revision is nothing new, and neither is what is not proven where a proven one is known. What is deleted
        stays so. That it is read counts of a proven message only: a mark covers all before it, and its time must not
        be one of the server's choosing.
        """
        known = self._known.get(message.key)
        if known is not None and (known.deleted or not (message.deleted or _stands(message, known))):
            return []
        state = message.state or (known.state if known is not None else None)
        now = _Known(
            message.revision_ms, hash((message.text, message.problem)), state, message.deleted, message.is_proven
        )
        self._known[message.key] = now
        changes: list[Change] = []
        if now.deleted:
            changes += [self._change("deleted", message.key)] if known is not None else []  # else nobody has seen it
        elif known is None:
            changes.append(self._change("message", message.key, message.state, message))
        elif now[:2] != known[:2]:
            changes.append(self._change("edited", message.key, message.state, message))
        elif state != known.state:
            changes.append(self._change("state", message.key, state))
        if message.read and message.is_proven:
            changes += self.note_read(message.key)
        return changes

    def note_state(self, key: MessageId, state: str) -> list[Change]:
        """Take note of a delivery's state."""
        known = self._known.get(key)
        if known is not None:
            if known.deleted or known.state == state:
                return []
            self._known[key] = known._replace(state=state)
        return [self._change("state", key, state)]

    def note_read(self, key: MessageId) -> list[Change]:
        """Take note of a read receipt for a message and all before it in its direction."""
        chat = peer_of(key, self._user), of_oneself(key, self._user)
        if key.time_ms <= self._read_ms.get(chat, -1):
            return []
        self._read_ms[chat] = key.time_ms
        return [self._change("read", key)]

    def note_deleted(self, key: MessageId) -> list[Change]:
        """Take note of a tombstone."""
        known = self._known.get(key, _Known(0, 0, None, False, False))
        self._known[key] = known._replace(deleted=True)
        return [] if known.deleted else [self._change("deleted", key)]

    def forget(self, key: MessageId) -> None:
        """Let a message be new again, whatever is known of it; one that was deleted stays so."""
        known = self._known.get(key)
        if known is not None and not known.deleted:
            del self._known[key]

    def forget_before(self, time_ms: int) -> None:
        """Forget all messages that were written before a time, Unix milliseconds."""
        for key in [key for key in self._known if key.time_ms < time_ms]:
            del self._known[key]

    def _change(self, kind: str, key: MessageId, state: str | None = None, message: Message | None = None) -> Change:
        return Change(kind, key, peer_of(key, self._user), of_oneself(key, self._user), state, message)


def _stands(message: Message, known: _Known) -> bool:
    """Say whether a message can take the place of what is known of it."""
    if not known.proven:
        return True
    return message.is_proven and message.revision_ms >= known.revision_ms
