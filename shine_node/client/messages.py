"""Signed pairs as a client makes them: messages, edits, read receipts and tombstones (PROTOCOL.md §4)."""

from __future__ import annotations

import secrets
from typing import NamedTuple

from shine_node.client.identity import Identity
from shine_node.client.sealing import seal
from shine_node.protocol.container import (
    FORMAT_OPAQUE,
    FORMAT_REFERENCE,
    FORMAT_SEALED,
    FORMAT_TEXT,
    MESSAGE_IN,
    RECEIPT_IN,
    TOMBSTONE_IN,
    encode_unsigned,
)
from shine_node.protocol.encoding import encode_base64
from shine_node.protocol.keys import MessageId, MessageKey

__all__ = [
    "SignedPair",
    "make_edit",
    "make_message",
    "make_receipt",
    "make_sealed_edit",
    "make_sealed_message",
    "make_tombstone",
]


class SignedPair(NamedTuple):
    """Both signed copies of one message, and the keys by which servers know it."""

    incoming: bytes
    outgoing: bytes
    message: MessageId
    incoming_type: int
    revision_ms: int

    @property
    def base_key(self) -> str:
        """What binds the two copies."""
        return self.message.base_key

    @property
    def incoming_key(self) -> str:
        """The key of the recipient's copy."""
        return str(MessageKey(self.message, self.incoming_type))

    @property
    def outgoing_key(self) -> str:
        """The key of the sender's copy, also called ``messageKey``."""
        return str(MessageKey(self.message, self.incoming_type + 1))

    @property
    def payload(self) -> dict[str, object]:
        """The payload of ``SendMessagePair`` (§5.2)."""
        return {
            "incomingBlobB64": encode_base64(self.incoming),
            "outgoingBlobB64": encode_base64(self.outgoing),
        }


class _Body(NamedTuple):
    """The bodies of the two copies, of one format."""

    incoming: bytes
    outgoing: bytes
    body_format: int


def make_message(author: Identity, to_login: str, body: str | bytes, *, time_ms: int) -> SignedPair:
    """Return a new message with a random nonce: a text, or opaque bytes, the same in both copies.

    Args:
        author: the sender; its device key signs both copies.
        to_login: the recipient; it may be the author.
        body: text goes as UTF-8 (``bodyFormat`` 1), bytes as they are (0).
        time_ms: when it was written, Unix milliseconds.
    """
    message = MessageId(author.key, to_login.lower(), time_ms, secrets.randbits(32))
    return _pair(author, to_login, message, MESSAGE_IN, _same_body(body))


def make_sealed_message(author: Identity, to_login: str, text: str, *, reader: bytes, time_ms: int) -> SignedPair:
    """Return a new message with a random nonce, each copy sealed for the one who keeps it (§4.1).

    Args:
        author: the sender; its device key signs both copies and opens the outgoing one.
        to_login: the recipient; it may be the author.
        reader: the recipient's Ed25519 device key, which opens the incoming copy.
        time_ms: when it was written, Unix milliseconds.

    Raises:
        BadReaderKey, SealingUnavailable.
    """
    message = MessageId(author.key, to_login.lower(), time_ms, secrets.randbits(32))
    return _pair(author, to_login, message, MESSAGE_IN, _sealed_body(author, message, text, reader))


def make_edit(author: Identity, message: MessageId, body: str | bytes, *, revision_ms: int) -> SignedPair:
    """Return an edit: the keys of the message, another body, and a later time.

    Raises:
        ValueError: the message is not the author's, or ``revision_ms`` is not after its time.
    """
    _check_edit(author, message, revision_ms)
    return _pair(author, message.to_login, message, MESSAGE_IN, _same_body(body), revision_ms=revision_ms)


def make_sealed_edit(author: Identity, message: MessageId, text: str, *, reader: bytes, revision_ms: int) -> SignedPair:
    """Return an edit as ``make_edit`` does, sealed as by ``make_sealed_message``.

    Raises:
        ValueError: the message is not the author's, or ``revision_ms`` is not after its time.
        BadReaderKey, SealingUnavailable.
    """
    _check_edit(author, message, revision_ms)
    body = _sealed_body(author, message, text, reader)
    return _pair(author, message.to_login, message, MESSAGE_IN, body, revision_ms=revision_ms)


def make_receipt(reader: Identity, message: MessageId, *, time_ms: int) -> SignedPair:
    """Return a read receipt for a message and all before it in the same direction; it goes to the message's author.

    Raises:
        ValueError: the message was not sent to the reader.
    """
    if message.to_login != reader.key:
        raise ValueError(f"{message.base_key} was not sent to {reader.login}")
    return _reference(reader, message.from_login, RECEIPT_IN, message, time_ms)


def make_tombstone(author: Identity, message: MessageId, *, time_ms: int) -> SignedPair:
    """Return a tombstone, which removes both copies' bodies everywhere and for good; it goes to the recipient.

    Raises:
        ValueError: the message is not the author's.
    """
    _check_author(author, message)
    return _reference(author, message.to_login, TOMBSTONE_IN, message, time_ms)


def _check_author(author: Identity, message: MessageId) -> None:
    if message.from_login != author.key:
        raise ValueError(f"{message.base_key} was not sent by {author.login}")


def _check_edit(author: Identity, message: MessageId, revision_ms: int) -> None:
    _check_author(author, message)
    if revision_ms <= message.time_ms:
        raise ValueError("an edit must be later than the message")


def _sealed_body(author: Identity, message: MessageId, text: str, reader: bytes) -> _Body:
    incoming, outgoing = (seal(text, key, message.base_key) for key in (reader, author.device.public))
    return _Body(incoming, outgoing, FORMAT_SEALED)


def _same_body(body: str | bytes) -> _Body:
    if isinstance(body, str):
        data = body.encode()
        return _Body(data, data, FORMAT_TEXT)
    return _Body(body, body, FORMAT_OPAQUE)


def _reference(signer: Identity, to_login: str, incoming_type: int, named: MessageId, time_ms: int) -> SignedPair:
    message = MessageId(signer.key, to_login.lower(), time_ms, secrets.randbits(32))
    data = named.base_key.encode()
    return _pair(signer, to_login, message, incoming_type, _Body(data, data, FORMAT_REFERENCE))


def _pair(
    signer: Identity, to_login: str, message: MessageId, incoming_type: int, body: _Body, *, revision_ms: int = 0
) -> SignedPair:
    copies: list[bytes] = []
    for message_type, data in ((incoming_type, body.incoming), (incoming_type + 1, body.outgoing)):
        unsigned = encode_unsigned(
            to_login=to_login,
            from_login=signer.login,
            time_ms=message.time_ms,
            nonce=message.nonce,
            message_type=message_type,
            body=data,
            body_format=body.body_format,
            revision_ms=revision_ms,
        )
        copies.append(unsigned + signer.device.sign(unsigned))
    return SignedPair(copies[0], copies[1], message, incoming_type, revision_ms)
