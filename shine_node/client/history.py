"""The history of an account as its server keeps it: opened, and believed only where the signatures hold (§8.2)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

from shine_node.client.connection import ClientError, Connection
from shine_node.client.identity import Identity
from shine_node.client.people import People, PersonError, RootKeyChanged
from shine_node.client.sealing import BadSeal, open_sealed
from shine_node.protocol.container import (
    FORMAT_SEALED,
    FORMAT_TEXT,
    MESSAGE_IN,
    MESSAGE_OUT,
    Container,
    parse_container,
)
from shine_node.protocol.encoding import read_base64, read_list, read_login, read_number, read_optional_text, read_text
from shine_node.protocol.errors import BadFields, Refusal
from shine_node.protocol.keys import MessageId, parse_base_key
from shine_node.protocol.schedule import DeliveryState
from shine_node.protocol.signatures import is_signed_by

__all__ = ["BadAnswer", "Dialog", "History", "Message", "Problem", "of_oneself", "peer_of", "read_state"]

MOST_BODY_BYTES = 16 * 1024 * 1024
"""The greatest ``limits.maxBodyBytes`` that a server can have (§10)."""
MOST_EMPTY_PAGES = 100
"""So many pages without an entry may follow each other: a server passes over a bounded number of rows at a time."""
KEYS_MAY_BE_OLD_SECONDS = 30.0
"""After a signature that does not hold, a user's records are asked for again if they are older than this."""

_STATES = frozenset(state.wire for state in DeliveryState)


class BadAnswer(ClientError):
    """The server's answer lacks what it must have."""

    def __str__(self) -> str:
        return f"the server's answer is not well-formed: {super().__str__()}"


class Problem:
    """Why a message has no text; the names are those of the JSON lines."""

    SEALED = "sealed-for-another-key"
    NOT_TEXT = "not-text"
    BAD_CONTAINER = "bad-container"
    BAD_SIGNATURE = "bad-signature"
    UNKNOWN_SENDER = "unknown-sender"
    ROOT_KEY_CHANGED = "root-key-changed"


_OF_PROVEN_ONES = frozenset({None, Problem.SEALED, Problem.NOT_TEXT})


class Message(NamedTuple):
    """One message of a chat, as its owner sees it.

    ``key`` is the ``baseKey``. ``peer`` is in lower case. ``state`` is that of the delivery, of outgoing ones only.
    ``text`` is ``None`` where the message is deleted or there is a ``problem``, one of ``Problem``. ``revision_ms`` is
    that of a proven message, else 0. ``read`` and ``deleted`` are the server's word.
    """

    key: MessageId
    peer: str
    out: bool
    revision_ms: int
    text: str | None
    state: str | None
    read: bool
    deleted: bool
    problem: str | None

    @property
    def time_ms(self) -> int:
        """When it was written, Unix milliseconds."""
        return self.key.time_ms

    @property
    def is_proven(self) -> bool:
        """Whether its sender has signed it: what is not proven, or deleted, is the server's word alone."""
        return not self.deleted and self.problem in _OF_PROVEN_ONES


class Dialog(NamedTuple):
    """A chat: the other side as it spells itself, the newest message, and how many are unread, at most 1000."""

    peer: str
    last: Message
    unread: int


class History:
    """Reads the history of one user over a connection that has the user's session."""

    def __init__(self, connection: Connection, user: Identity, people: People) -> None:
        self._connection = connection
        self._user = user
        self._people = people

    async def page(self, peer: str, cursor: str | None = None, limit: int = 100) -> tuple[list[Message], str | None]:
        """Return messages of a chat, the newest first, and the cursor for those before them, ``None`` at the end.

        Raises:
            BadAnswer, RequestRefused, RequestTimedOut, ConnectionLost, SealingUnavailable.
        """
        payload = {"peerLogin": peer, "limit": limit, **({} if cursor is None else {"cursor": cursor})}
        answer = await self._connection.request("GetDirectMessages", payload)
        try:
            messages = [await self._message(entry, peer.lower()) for entry in _entries(answer, "messages")]
            return messages, _next_cursor(answer)
        except Refusal as problem:
            raise BadAnswer(problem.detail) from None

    async def chat(self, peer: str, *, page_limit: int = 100) -> AsyncIterator[Message]:
        """Yield the messages of a chat, the newest first, asked for in pages; raises as ``page``."""
        pages = _Pages()
        while pages.more:
            messages, cursor = await self.page(peer, pages.cursor, page_limit)
            pages.turn(len(messages), cursor)
            for message in messages:
                yield message

    async def dialogs(self) -> AsyncIterator[Dialog]:
        """Yield the chats, the one with the newest message first; raises as ``page``."""
        pages = _Pages()
        while pages.more:
            payload = {} if pages.cursor is None else {"cursor": pages.cursor}
            answer = await self._connection.request("ListDialogs", payload)
            try:
                dialogs = [await self._dialog(entry) for entry in _entries(answer, "dialogs")]
                pages.turn(len(dialogs), _next_cursor(answer))
            except Refusal as problem:
                raise BadAnswer(problem.detail) from None
            for dialog in dialogs:
                yield dialog

    async def check(self, blob: bytes, key: MessageId) -> Container | str:
        """Return what a blob holds if it is of this message and signed by its sender, else one of ``Problem``.

        Raises:
            RequestRefused, RequestTimedOut, ConnectionLost: the sender could not be looked up.
        """
        try:
            container = parse_container(blob, max_body_bytes=MOST_BODY_BYTES)
        except Refusal:
            return Problem.BAD_CONTAINER
        if container.message != key:
            return Problem.BAD_CONTAINER
        try:
            signed = await self._is_signed(container)
        except RootKeyChanged:
            return Problem.ROOT_KEY_CHANGED
        except PersonError:
            return Problem.UNKNOWN_SENDER
        return container if signed else Problem.BAD_SIGNATURE

    async def message(
        self,
        blob: bytes,
        key: MessageId,
        *,
        out: bool,
        state: str | None = None,
        read: bool = False,
    ) -> Message:
        """Return the message that an owner's copy holds; one with a problem is returned as well, and says so.

        Args:
            key: what the server calls it; the blob must say the same.
            out: whether it is the owner's own, the outgoing copy.
            state: of the delivery, as the server tells.
            read: whether a receipt covers it, as the server tells.

        Raises:
            RequestRefused, RequestTimedOut, ConnectionLost, SealingUnavailable.
        """
        checked = await self.check(blob, key)
        if isinstance(checked, Container) and checked.message_type != (MESSAGE_OUT if out else MESSAGE_IN):
            checked = Problem.BAD_CONTAINER
        revision_ms = checked.revision_ms if isinstance(checked, Container) else 0
        text, problem = (None, checked) if isinstance(checked, str) else self._open(checked)
        return Message(key, peer_of(key, self._user.key), out, revision_ms, text, state, read, False, problem)

    def _open(self, container: Container) -> tuple[str | None, str | None]:
        """Return the text of a container, or the problem with it."""
        if container.body_format == FORMAT_TEXT:
            return container.body.decode(), None
        if container.body_format != FORMAT_SEALED:
            return None, Problem.NOT_TEXT
        try:
            return open_sealed(container.body, self._user.device, container.message.base_key), None
        except BadSeal:
            return None, Problem.SEALED

    async def _is_signed(self, container: Container) -> bool:
        for at_most_seconds_old in (None, KEYS_MAY_BE_OLD_SECONDS):
            sender = await self._people.find(
                self._connection, container.message.from_login, at_most_seconds_old=at_most_seconds_old
            )
            key = sender.device_key_at(container.effective_ms)
            if is_signed_by(key, container.signed_part, container.signature):
                return True
        return False

    async def _dialog(self, entry: Mapping[str, Any]) -> Dialog:
        peer = read_login(entry, "peerLogin")
        last = entry.get("lastMessage")
        if not isinstance(last, dict):
            raise BadAnswer("lastMessage is missing")
        return Dialog(peer, await self._message(last, peer.lower()), read_number(entry, "unread"))

    async def _message(self, entry: Mapping[str, Any], peer: str) -> Message:
        key = parse_base_key(read_text(entry, "baseKey"))
        out = read_text(entry, "direction") == "out"
        state = read_state(entry) if read_optional_text(entry, "deliveryState") else None
        read = entry.get("read") is True
        if key is None or key[:2] != ((self._user.key, peer) if out else (peer, self._user.key)):
            raise BadAnswer("it lists a message of another chat")
        if entry.get("deleted") is True:
            return Message(key, peer, out, 0, None, state, read, True, None)
        blob = read_base64(entry, "blobB64")
        return await self.message(blob, key, out=out, state=state, read=read)


class _Pages:
    """Where one is in what comes in pages; sees to it that there is an end."""

    def __init__(self) -> None:
        self.cursor: str | None = None
        self.more = True
        self._empty = 0

    def turn(self, entries: int, cursor: str | None) -> None:
        """Go on after a page with so many entries; a cursor of ``None`` says that it was the last.

        Raises:
            BadAnswer: it does not get any further.
        """
        self._empty = 0 if entries else self._empty + 1
        if cursor is not None and (cursor == self.cursor or self._empty > MOST_EMPTY_PAGES):
            raise BadAnswer("it says that there is more, and lists nothing further")
        self.cursor, self.more = cursor, cursor is not None


def peer_of(key: MessageId, user: str) -> str:
    """Return the other side of a message, in lower case; of one to oneself, oneself."""
    return key.to_login if key.from_login == user else key.from_login


def of_oneself(key: MessageId, user: str) -> bool:
    """Say whether a message is one that the user sent, in lower case; one to oneself is."""
    return key.from_login == user


def read_state(payload: Mapping[str, Any]) -> str:
    """Return the state of a delivery that a server tells.

    Raises:
        BadFields: it is missing, or none of those that there are (§5.1).
        BadRequestFormat: it is not a text.
    """
    state = read_text(payload, "deliveryState")
    if state not in _STATES:
        raise BadFields(f"deliveryState must be one of {', '.join(sorted(_STATES))}")
    return state


def _entries(answer: Mapping[str, Any], field: str) -> list[dict[str, Any]]:
    entries = read_list(answer, field)
    if not all(isinstance(entry, dict) for entry in entries):
        raise BadAnswer(f"an entry of {field} is no object")
    return entries


def _next_cursor(answer: Mapping[str, Any]) -> str | None:
    return read_text(answer, "cursor") if answer.get("hasMore") is True else None
