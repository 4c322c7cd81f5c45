"""Every sub-database, and how its keys and values are encoded, in one table.

========================  ==========================================================  ==============================
sub-database              key                                                         value
========================  ==========================================================  ==============================
``meta``                  name                                                        text or number
``users``                 login                                                       newest record, as JSON
``access_current``        login                                                       its access servers
``access_records``        seq, in the order in which they were learned                record, as JSON
``access_history``        login 0 timeMs seq                                          device key
``history``               owner 0 peer 0 kind timeMs nonce direction                  ``Row``: what is known of an item
``containers``            seq, rising                                                 the container(s) of an item
``due_attempts``          time of the next look, seq                                  key in ``history``
``due_settling``          as ``due_attempts``, of messages that are only asked about  key in ``history``
``outbox_unsynced``       other server 0 changedAtMs seq                              key in ``history``
``settings``              login 0 param                                               changedAtMs, setting as JSON
``settings_unsynced``     other server 0 changedAtMs login 0 param                    empty
``resync``                owner 0 number                                              former server 0 part, how far
``read_marks``            owner 0 peer 0 direction                                    timeMs up to which it is read
``sessions``              sessionId                                                   session, as JSON
``sessions_of_user``      login 0 sessionId                                           empty
``usage``                 owner                                                       what is stored, and up to where
========================  ==========================================================  ==============================

An *item* is one owner's entry: a pair (the sender's, both copies) or one incoming copy (the recipient's). Its key sorts
a chat by time, so the same tree finds a message by its key and lists a chat. Its row is small and changes; its
containers are large and do not. Keys of ``containers``, ``due_attempts`` and ``outbox_unsynced`` rise, so that a
message touches few pages. The time-keyed two hold open work only: a terminal delivery or a synced entry is not in them.

Logins are in lower case; numbers are big-endian, so that bytes sort as numbers.
"""

from __future__ import annotations

import enum
import struct
from typing import Final, NamedTuple

from shine_node.protocol.container import Container
from shine_node.protocol.keys import MessageId
from shine_node.protocol.schedule import DeliveryState
from shine_node.store.unreadable import UnreadableRow

__all__ = [
    "SCHEMA_VERSION",
    "Direction",
    "Flag",
    "ItemKey",
    "Kind",
    "OpenDelivery",
    "Row",
    "Table",
    "decode_containers",
    "encode_containers",
    "is_flagged",
    "pack_number",
    "time_key",
    "unpack_number",
]

SCHEMA_VERSION: Final = 1


class Table(enum.Enum):
    """The sub-databases."""

    __hash__ = object.__hash__  # members are looked up by identity many times a message; Enum would hash their names

    META = b"meta"
    USERS = b"users"
    ACCESS_CURRENT = b"access_current"
    ACCESS_RECORDS = b"access_records"
    ACCESS_HISTORY = b"access_history"
    HISTORY = b"history"
    CONTAINERS = b"containers"
    DUE_ATTEMPTS = b"due_attempts"
    DUE_SETTLING = b"due_settling"
    RESYNC = b"resync"
    OUTBOX_UNSYNCED = b"outbox_unsynced"
    SETTINGS = b"settings"
    SETTINGS_UNSYNCED = b"settings_unsynced"
    READ_MARKS = b"read_marks"
    SESSIONS = b"sessions"
    SESSIONS_OF_USER = b"sessions_of_user"
    USAGE = b"usage"


class Kind(enum.IntEnum):
    """What an item is; the number is the odd ``messageType``."""

    MESSAGE = 1
    RECEIPT = 3
    TOMBSTONE = 5


class Direction(enum.IntEnum):
    """Whose copy an item is: the owner received it, or the owner sent it."""

    IN = 1
    OUT = 2


class Flag(enum.IntFlag):
    """Marks of a row."""

    NONE = 0
    REMOVED = 1
    """A tombstone took the bodies away for good."""
    UNSYNCED = 2
    """The owner's other server has not acknowledged this revision; there is a row in ``outbox_unsynced``."""
    SETTLING = 4
    """It came by synchronisation, too old to be sent: the owner's other server is asked what became of it (§6)."""
    SENT_HERE = 8
    """It was sent through this server: it counts for ``limits.maxMessagesPerDay``."""


# To have an enumeration find its member of a number takes longer than all else about a key or a row.
_KINDS = {message_type: Kind(message_type - 1 + message_type % 2) for message_type in range(1, 7)}
"""By ``messageType``."""
_DIRECTIONS = {int(direction): direction for direction in Direction}
_FLAGS = {number: Flag(number) for number in range(16)}
_STATES = {int(state): state for state in DeliveryState}
_ACCEPTED = int(DeliveryState.ACCEPTED)
_NUMBER = struct.Struct(">Q")
_ITEM_TAIL = struct.Struct(">BQIB")
_TIME_SEQ = struct.Struct(">QQ")
_ROW = struct.Struct(">BBQQQI")
_OPEN = struct.Struct(">qBQQ")
_LENGTH = struct.Struct(">I")
_MOST = 2**62
"""More than any time or number that was ever given; what is added to one below it still fits into 64 bits."""
_MOST_VERSIONS = 2**31


class ItemKey(NamedTuple):
    """The key of an item; logins in lower case."""

    owner: str
    peer: str
    kind: Kind
    time_ms: int
    nonce: int
    direction: Direction

    def encode(self) -> bytes:
        """Return the key in ``history``."""
        tail = _ITEM_TAIL.pack(self.kind, self.time_ms, self.nonce, self.direction)
        return f"{self.owner}\0{self.peer}\0".encode("ascii") + tail

    @classmethod
    def decode(cls, key: bytes) -> ItemKey:
        """Return what ``encode`` was given.

        Raises:
            UnreadableRow: these bytes are no such key.
        """
        try:
            owner, peer, _ = key.split(b"\0", 2)
            kind, time_ms, nonce, direction = _ITEM_TAIL.unpack_from(key, len(owner) + len(peer) + 2)
            # Its logins are ASCII: what is read is encoded again, to find the row.
            return cls(
                owner.decode("ascii"), peer.decode("ascii"), _KINDS[kind], time_ms, nonce, _DIRECTIONS[direction]
            )
        except (ValueError, KeyError, struct.error):
            raise UnreadableRow("a key of a message", key) from None

    @classmethod
    def outgoing(cls, message: MessageId, message_type: int) -> ItemKey:
        """Return the key of the sender's item of a message, receipt or tombstone of either type of it."""
        kind = _KINDS[message_type]
        return cls(message.from_login, message.to_login, kind, message.time_ms, message.nonce, Direction.OUT)

    @classmethod
    def incoming(cls, message: MessageId, message_type: int) -> ItemKey:
        """Return the key of the recipient's item of a message, receipt or tombstone of either type of it."""
        kind = _KINDS[message_type]
        return cls(message.to_login, message.from_login, kind, message.time_ms, message.nonce, Direction.IN)

    @classmethod
    def of(cls, container: Container) -> ItemKey:
        """Return the key of the item that a copy belongs to."""
        make = cls.incoming if container.incoming else cls.outgoing
        return make(container.message, container.message_type)

    @property
    def message(self) -> MessageId:
        """The message that the item is a copy of."""
        if self.direction is Direction.OUT:
            return MessageId(self.owner, self.peer, self.time_ms, self.nonce)
        return MessageId(self.peer, self.owner, self.time_ms, self.nonce)


class OpenDelivery(NamedTuple):
    """The schedule of a delivery that is not terminal; Unix milliseconds.

    ``attempts`` is the number of the latest attempt made; ``lease_until_ms`` is 0 where nobody holds the row.
    ``accepted_at_ms`` can be negative: a board without a battery clock may find, in the first minutes of 1970, a
    delivery that is older than that.
    """

    accepted_at_ms: int
    attempts: int
    next_at_ms: int
    lease_until_ms: int

    @property
    def due_at_ms(self) -> int:
        """When the row is looked at next: at the end of its lease, or at its next attempt."""
        return self.lease_until_ms or self.next_at_ms


class Row(NamedTuple):
    """What is known of an item.

    ``seq`` finds its containers; 0 for a message that was removed before it came. ``version`` rises with each change of
    the delivery, so that a result is written only by whoever still holds the claim. ``delivery`` is there only while
    the state is ``ACCEPTED``; ``digest`` only where the item is removed.
    """

    flags: Flag
    state: DeliveryState
    seq: int
    revision_ms: int
    changed_at_ms: int
    version: int
    delivery: OpenDelivery | None = None
    digest: bytes = b""

    @property
    def removed(self) -> bool:
        """Whether a tombstone took the bodies away."""
        return bool(self.flags & Flag.REMOVED)

    def encode(self) -> bytes:
        """Return the value in ``history``."""
        head = _ROW.pack(self.flags, self.state, self.seq, self.revision_ms, self.changed_at_ms, self.version)
        return head + _OPEN.pack(*self.delivery) if self.delivery else head + self.digest

    @classmethod
    def decode(cls, value: bytes) -> Row:
        """Return what was encoded.

        Raises:
            UnreadableRow: these bytes are no such row, or hold a number that nobody can have given.
        """
        try:
            flags, state, seq, revision_ms, changed_at_ms, version = _ROW.unpack_from(value)
            delivery, digest = None, b""
            if state == _ACCEPTED:
                delivery = OpenDelivery(*_OPEN.unpack_from(value, _ROW.size))
                fits = -_MOST < delivery.accepted_at_ms < _MOST and delivery.due_at_ms < _MOST
            else:
                digest, fits = value[_ROW.size :], True
            if fits and seq < _MOST and changed_at_ms < _MOST and version < _MOST_VERSIONS:
                return cls(_FLAGS[flags], _STATES[state], seq, revision_ms, changed_at_ms, version, delivery, digest)
        except (KeyError, struct.error):
            pass
        raise UnreadableRow("a row of a message", value)


def encode_containers(incoming: bytes, outgoing: bytes) -> bytes:
    """Return the value in ``containers``; ``outgoing`` is empty for a recipient's item."""
    return _LENGTH.pack(len(incoming)) + incoming + outgoing


def decode_containers(value: bytes) -> tuple[bytes, bytes]:
    """Return the incoming and the outgoing copy, the latter empty for a recipient's item.

    Raises:
        UnreadableRow: there is no length.
    """
    try:
        (length,) = _LENGTH.unpack_from(value)
    except struct.error:
        raise UnreadableRow("the contents of a message", value) from None
    return value[4 : 4 + length], value[4 + length :]


def pack_number(number: int) -> bytes:
    """Encode a number of 64 bits so that it sorts."""
    return _NUMBER.pack(number)


def unpack_number(data: bytes) -> int:
    """Decode what ``pack_number`` gave.

    Raises:
        UnreadableRow: these bytes are no number.
    """
    try:
        return int(_NUMBER.unpack(data)[0])
    except struct.error:
        raise UnreadableRow("a number", data) from None


def is_flagged(value: bytes, flag: Flag) -> bool:
    """Say of a row in ``history``, encoded, whether it has a mark; cheaper than decoding. One of no bytes has none."""
    return bool(value) and bool(value[0] & flag)


def time_key(time_ms: int, seq: int) -> bytes:
    """Return a key that sorts by time, then by ``seq``."""
    return _TIME_SEQ.pack(time_ms, seq)
