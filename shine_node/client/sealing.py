"""Sealed bodies: a text that only one reader's device key opens (PROTOCOL.md §4.1).

AES-GCM is of the library ``cryptography``, the extra ``client``: a node never opens a body, and does without it.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from nacl.bindings import (
    crypto_scalarmult,
    crypto_scalarmult_base,
    crypto_sign_ed25519_pk_to_curve25519,
    crypto_sign_ed25519_sk_to_curve25519,
)
from nacl.exceptions import CryptoError

from shine_node.client.identity import KeyPair
from shine_node.client.secret import hkdf_sha256
from shine_node.protocol.errors import ShineError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["SEAL_BYTES", "BadReaderKey", "BadSeal", "SealingUnavailable", "check_sealing", "open_sealed", "seal"]

VERSION = b"\1"
KEY_BYTES = 32
IV_BYTES = 12
TAG_BYTES = 16
SEAL_BYTES = len(VERSION) + KEY_BYTES + IV_BYTES + TAG_BYTES
"""How many bytes a sealed body is longer than its text."""

_INFO = "SHiNE/Sealed:1"
_IV_START = len(VERSION) + KEY_BYTES
_TEXT_START = _IV_START + IV_BYTES


class SealingUnavailable(ShineError):
    """The library ``cryptography`` is not installed."""

    def __str__(self) -> str:
        return (
            "sealed messages need the Python library cryptography: install shine-node[client] with pip,"
            " or the Debian package python3-cryptography"
        )


class BadReaderKey(ShineError):
    """A device key has no image on the other curve, so that nothing can be sealed for it."""

    def __str__(self) -> str:
        return "nothing can be sealed for this device key: it is no usable Ed25519 key"


class BadSeal(ShineError):
    """A body that does not open: it was sealed for another key or another message, changed, or never well-formed."""


def check_sealing() -> None:
    """Find out early whether texts can be sealed and opened here.

    Raises:
        SealingUnavailable.
    """
    _cipher(bytes(KEY_BYTES))


def seal(text: str, reader: bytes, base_key: str, *, ephemeral: bytes | None = None, iv: bytes | None = None) -> bytes:
    """Return a sealed body.

    Args:
        reader: the Ed25519 device key of the one who is to read it.
        base_key: of the message that the body is for; it opens under no other.
        ephemeral: the secret X25519 key, 32 bytes; a new random one if left out, as always but in tests.
        iv: 12 bytes, the same.

    Raises:
        BadReaderKey, SealingUnavailable.
    """
    secret = secrets.token_bytes(KEY_BYTES) if ephemeral is None else ephemeral
    iv = secrets.token_bytes(IV_BYTES) if iv is None else iv
    try:
        reader_x = crypto_sign_ed25519_pk_to_curve25519(reader)
        shared = crypto_scalarmult(secret, reader_x)
    except (CryptoError, ValueError, TypeError):
        raise BadReaderKey from None
    public = crypto_scalarmult_base(secret)
    cipher = _cipher(_key(shared, public, reader_x))
    return VERSION + public + iv + cipher.encrypt(iv, text.encode(), base_key.encode())


def open_sealed(body: bytes, reader: KeyPair, base_key: str) -> str:
    """Return the text of a sealed body.

    Args:
        reader: the device key that it was sealed for.
        base_key: of the message that it came in.

    Raises:
        BadSeal: with the reason.
        SealingUnavailable.
    """
    if len(body) < SEAL_BYTES or not body.startswith(VERSION):
        raise BadSeal("the sealed body has another layout")
    public, iv = body[len(VERSION) : _IV_START], body[_IV_START:_TEXT_START]
    try:
        shared = crypto_scalarmult(crypto_sign_ed25519_sk_to_curve25519(reader.secret), public)
    except CryptoError:  # the binding refuses a shared secret of zeros
        raise BadSeal("the sender's key makes a shared secret of zeros") from None
    cipher = _cipher(_key(shared, public, crypto_sign_ed25519_pk_to_curve25519(reader.public)))
    from cryptography.exceptions import InvalidTag

    try:
        return cipher.decrypt(iv, body[_TEXT_START:], base_key.encode()).decode()
    except InvalidTag:
        raise BadSeal("it is sealed for another key or another message, or was changed") from None
    except UnicodeDecodeError:
        raise BadSeal("what was sealed is no text") from None


def _key(shared: bytes, public: bytes, reader_x: bytes) -> bytes:
    return hkdf_sha256(shared, salt=public + reader_x, info=_INFO)


def _cipher(key: bytes) -> AESGCM:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise SealingUnavailable from None
    return AESGCM(key)
