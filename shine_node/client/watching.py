"""Watching an account: everything new as it comes, over losses of the connection, nothing missed and nothing twice.

Events tell of what happens while there is a connection (§8.2). After each new connection, and where more events came
than there is room for, the history is read for what has changed since.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from shine_node.client.connection import ClientError, Event, RequestTimedOut
from shine_node.client.history import read_state
from shine_node.client.keyfile import load_key_file
from shine_node.client.ledger import Change, Ledger
from shine_node.client.online import Online, is_passing, online
from shine_node.clock import Clock
from shine_node.protocol.access import AccessServer
from shine_node.protocol.container import (
    MESSAGE_IN,
    MESSAGE_OUT,
    RECEIPT_IN,
    RECEIPT_OUT,
    Container,
)
from shine_node.protocol.encoding import read_base64, read_text
from shine_node.protocol.errors import Refusal
from shine_node.protocol.keys import MessageKey, parse_message_key

__all__ = ["LOOK_BACK_MS", "pause_seconds", "watch"]

LOOK_BACK_MS = 8 * 24 * 60 * 60 * 1000
"""How old a message may be for which the history is read: servers try for a week at most, and clocks may differ."""

PAUSES_SECONDS = (1, 2, 5, 10, 20, 40, 60)
EVENT_SECONDS = 60.0
FORGET_SECONDS = 3600.0
MOST_EVENTS = 10_000
MESSAGE_EVENTS = ("IncomingDirectMessage", "OutgoingDirectMessage")


Show = Callable[[Change], Awaitable[None]]
"""Shows a change. What comes in the meantime waits, within bounds."""


def pause_seconds(tries: int) -> float:
    """Return the pause before the next try to connect, after ``tries`` that were in vain: its upper half is chance."""
    most = PAUSES_SECONDS[min(tries, len(PAUSES_SECONDS) - 1)]
    return most / 2 + most / 2 * random.random()  # noqa: S311  # spreads the clients, guards nothing


async def watch(keys: Path, *, clock: Clock, show: Show, tell: Callable[[str], None] = lambda text: None) -> None:
    """Show everything that is new from now on; this does not end by itself.

    Args:
        keys: the key file.
        show: called with each change, in the order in which they became known; of several at once the oldest first.
        tell: called with a sentence for a person when the connection comes and goes.

    Raises:
        KeyFileError: the key file cannot be used.
        NotRegistered: no server has the account yet.
        RequestRefused: the server does not let this account in, and it is no passing matter.
        SealingUnavailable: a message cannot be opened here.
    """
    ledger = Ledger(load_key_file(keys).login.lower())
    first, tries = True, 0
    last: AccessServer | None = None
    while True:
        try:
            async with online(keys, clock=clock, max_events=MOST_EVENTS, last=last) as at:
                last = at.server  # where it fails now, the other one is tried first
                watcher = _Watcher(at, ledger, clock, show)
                await watcher.catch_up(silently=first)
                first, tries = False, 0
                tell(f"watching {at.user.login} at {at.server.url}")
                await watcher.follow()
        except ClientError as problem:
            if not is_passing(problem):
                raise
            pause = pause_seconds(tries)
            tell(f"{problem}; trying again in {pause:.0f} s")
        except Refusal as problem:
            pause = pause_seconds(tries)
            tell(f"the server's answer is not well-formed: {problem.detail}; trying again in {pause:.0f} s")
        tries += 1
        await clock.sleep(pause)


class _Watcher:
    """One connection's part of the watching."""

    def __init__(self, at: Online, ledger: Ledger, clock: Clock, show: Show) -> None:
        self._at = at
        self._ledger = ledger
        self._clock = clock
        self._show = show
        self._missed = 0
        self._since_ms = 0
        self._chats: set[str] = set()
        self._forget_at = clock.monotonic() + FORGET_SECONDS

    async def catch_up(self, *, silently: bool = False) -> None:
        """Read what has changed; silently at the very beginning, when all that there is counts as known."""
        self._missed = self._at.connection.missed_events
        self._since_ms = self._forget_old()
        self._chats.clear()
        async with self._showing(silently=silently) as changes:
            async for dialog in self._at.history.dialogs():
                if dialog.last.time_ms < self._since_ms:
                    break
                await self._read(dialog.last.peer, changes)
        if silently:
            await self._take_what_came_meanwhile()

    async def follow(self) -> None:
        """Show what events tell, until the connection is lost."""
        while True:
            if self._clock.monotonic() >= self._forget_at:
                self._forget_old()
                self._forget_at = self._clock.monotonic() + FORGET_SECONDS
            try:
                event = await self._at.connection.next_event(timeout=EVENT_SECONDS)
            except RequestTimedOut:
                continue
            await self._take(event)
            if self._at.connection.missed_events != self._missed:
                await self.catch_up()

    async def _take_what_came_meanwhile(self) -> None:
        """Show what has come while all that there is was read: it is part of that, and new all the same."""
        for _ in range(self._at.connection.waiting_events):
            event = await self._at.connection.next_event()
            if event.op in MESSAGE_EVENTS:
                self._ledger.forget(_named_key(event).message)
            await self._take(event)

    def _forget_old(self) -> int:
        since_ms = self._clock.now_ms() - LOOK_BACK_MS
        self._ledger.forget_before(since_ms)
        return since_ms

    async def _read(self, peer: str, changes: list[Change]) -> None:
        self._chats.add(peer)
        async for message in self._at.history.chat(peer):
            if message.time_ms < self._since_ms:
                break
            changes += self._ledger.note(message)

    async def _take(self, event: Event) -> None:
        if event.op == "DmDeliveryStateChanged":
            key = _named_key(event)
            if key.message_type == MESSAGE_OUT and self._is_ours(
                key
            ):  # receipts and tombstones are delivered too, and nobody minds
                await self._show_all(self._ledger.note_state(key.message, read_state(event.payload)))
        elif event.op in MESSAGE_EVENTS:
            await self._take_copy(_named_key(event), event)

    async def _take_copy(self, key: MessageKey, event: Event) -> None:
        if not self._is_ours(key) or event.op != MESSAGE_EVENTS[(key.message_type - 1) % 2]:
            return  # somebody else's copy: nothing of this account's history
        blob = read_base64(event.payload, "blobB64")
        if key.message_type in (MESSAGE_IN, MESSAGE_OUT):
            out = key.message_type == MESSAGE_OUT
            state = read_state(event.payload) if out else None
            message = await self._at.history.message(blob, key.message, out=out, state=state)
            if message.peer not in self._chats:
                await self._read_moved(message.peer)
            await self._show_all(self._ledger.note(message))
            return
        container = await self._at.history.check(blob, key.message)
        if not isinstance(container, Container) or container.reference is None or container.key != key:
            return  # nobody's word: neither read nor deleted
        is_receipt = container.message_type in (RECEIPT_IN, RECEIPT_OUT)  # else it is a tombstone
        note = self._ledger.note_read if is_receipt else self._ledger.note_deleted
        await self._show_all(note(container.reference))

    def _is_ours(self, key: MessageKey) -> bool:
        """Say whether a copy is one that the account keeps: an incoming one to it, or an outgoing one from it."""
        message, user = key.message, self._at.user.key
        return (message.from_login if key.message_type % 2 == 0 else message.to_login) == user

    async def _read_moved(self, peer: str) -> None:
        """Read a chat that was not among those that were listed: it may have moved to the front just then."""
        async with self._showing() as changes:
            await self._read(peer, changes)

    @asynccontextmanager
    async def _showing(self, *, silently: bool = False) -> AsyncIterator[list[Change]]:
        """Show what a block has found, by time; also if the connection is lost half-way, for it counts as known."""
        changes: list[Change] = []
        loss: ClientError | Refusal | None = None
        try:
            yield changes
        except (ClientError, Refusal) as problem:
            loss = problem
        if not silently:
            await self._show_all(sorted(changes, key=lambda change: change.key.time_ms))
        if loss is not None:
            raise loss

    async def _show_all(self, changes: Iterable[Change]) -> None:
        for change in changes:
            await self._show(change)


def _named_key(event: Event) -> MessageKey:
    field = "incomingKey" if event.op == "IncomingDirectMessage" else "outgoingKey"
    return parse_message_key(read_text(event.payload, field))
