"""What two servers of one user must hold in the end, and when they may have called the recipient's (PROTOCOL.md §4–§6).

Neither knows anything of tables, sessions or acknowledgements: only what was taken, when, and how it came.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple, Self

from shine_node.protocol.container import Container, parse_container
from shine_node.protocol.settings import Setting
from shine_node.store.layout import Direction, ItemKey, Kind, pack_number
from tests.store.rooms import MAX_BODY
from tests.sync.history import History

__all__ = ["Calls", "Truth"]

OFFSETS = (0, 30_000, 300_000, 1_500_000, 3_600_000)
ASKED_FROM = 3
"""The first attempt before which the other server is asked."""


class Truth:
    """What was taken at either of the two servers: of each message, and of each setting, what has to stay of it."""

    def __init__(self) -> None:
        self.settings: dict[str, Setting] = {}
        self._copies: dict[ItemKey, tuple[bytes, bytes]] = {}

    def note(self, incoming: bytes, outgoing: bytes) -> None:
        """Take note of a pair, or of a copy that came in (``outgoing`` is empty)."""
        copy = _parse(incoming)
        if outgoing:
            self._note(ItemKey.of(_parse(outgoing)), incoming, outgoing)
            if copy.message.to_login.lower() != copy.message.from_login.lower():
                return  # the recipient is elsewhere
        self._note(ItemKey.of(copy), incoming, b"")

    def note_setting(self, setting: Setting) -> None:
        """Take note of a setting."""
        known = self.settings.get(setting.param)
        if known is None or (setting.time_ms, setting.signature) > (known.time_ms, known.signature):
            self.settings[setting.param] = setting

    def only(self, histories: Iterable[History], settings: Iterable[Iterable[Setting]]) -> None:
        """Forget what is in none of these: a server that was restored was the only one that had it."""
        self._copies.clear()
        self.settings.clear()
        for history in histories:
            for key, blobs in history.items.items():
                if blobs is not None:
                    self._note(key, *blobs)
        for some in settings:
            for setting in some:
                self.note_setting(setting)

    def history(self) -> History:
        """What both have to hold."""
        items: dict[ItemKey, tuple[bytes, bytes] | None] = dict(self._copies)
        marks: dict[bytes, int] = {}
        for key, (incoming, _) in self._copies.items():
            reference = _parse(incoming).reference
            if reference is None:
                continue
            if key.kind is Kind.TOMBSTONE:
                removed = ItemKey(key.owner, key.peer, Kind.MESSAGE, reference.time_ms, reference.nonce, key.direction)
                items[removed] = None
                continue
            read = Direction.IN if key.direction is Direction.OUT else Direction.OUT
            mark = f"{key.owner}\0{key.peer}\0".encode() + bytes((read,))
            marks[mark] = max(marks.get(mark, 0), reference.time_ms)
        return History(items, {mark: pack_number(time_ms) for mark, time_ms in marks.items()})

    def _note(self, key: ItemKey, incoming: bytes, outgoing: bytes) -> None:
        known = self._copies.get(key)
        if known is None or _order(incoming, outgoing) > _order(*known):
            self._copies[key] = incoming, outgoing


class Came(NamedTuple):
    """When a revision of a pair came, in Unix milliseconds, and whether by synchronisation."""

    at_ms: int
    synced: bool


class Event(NamedTuple):
    """Something that a server did for the delivery of a revision of a pair.

    ``asked`` the other server, which ``told`` that it is delivered; ``tried`` to bring it, or ``stored`` it.
    """

    what: str
    at_ms: int


class Calls:
    """What one server did for the delivery of each revision of a pair that came to it, by the incoming copy."""

    def __init__(self) -> None:
        self._came: dict[bytes, Came] = {}
        self._events: dict[bytes, list[Event]] = {}

    def copy(self) -> Self:
        """Return what a backup of the server is to know: how all came, and nothing of what was done since."""
        calls = type(self)()
        calls._came = dict(self._came)
        return calls

    def came(self, blob: bytes, now_ms: int, *, synced: bool) -> None:
        """Take note that a revision was stored."""
        self._came[blob] = Came(now_ms, synced)

    def did(self, what: str, blob: bytes, now_ms: int) -> None:
        """Take note of an ``Event``."""
        self._events.setdefault(blob, []).append(Event(what, now_ms))

    def check(self) -> None:
        """Nothing was done but what the schedule has."""
        for blob, events in self._events.items():
            _check(self._came[blob], _parse(blob), events)


def _check(came: Came, copy: Container, events: list[Event]) -> None:
    """Calls come at the times of §5.3 at the earliest, each after a question where there has to be one (§6)."""
    accepted_ms = min(came.at_ms, copy.effective_ms) if came.synced else came.at_ms
    passed = sum(offset <= came.at_ms - accepted_ms for offset in OFFSETS)
    too_old = passed == len(OFFSETS)
    first, calls = max(0, passed - 1), 0
    for number, event in enumerate(events):
        if event.what in ("told", "stored"):
            assert number == len(events) - 1, "it was delivered, and is gone on with"
        if event.what in ("tried", "stored"):
            assert not too_old, "it came by synchronisation an hour after it was sent"
            assert first + calls < len(OFFSETS), "more often than the schedule has it"
            age = event.at_ms - accepted_ms
            assert age >= OFFSETS[first + calls], "earlier than the schedule has it"
            if sum(offset <= age for offset in OFFSETS) >= ASKED_FROM:
                assert number, "without a question before"
                assert events[number - 1] == Event("asked", event.at_ms), "without a question before"
            calls += 1


def _order(incoming: bytes, outgoing: bytes) -> tuple[int, bytes, bytes]:
    """Which of two revisions stays: the greater."""
    copy = _parse(incoming)
    return copy.revision_ms, copy.signature, hashlib.sha256(incoming + outgoing).digest()


def _parse(blob: bytes) -> Container:
    return parse_container(blob, max_body_bytes=MAX_BODY)
