"""An account's one secret: the three seeds that come of it, and the recovery key in which a person keeps it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import unicodedata

from shine_node.client.identity import Identity
from shine_node.protocol.errors import ShineError
from shine_node.protocol.logins import is_login

__all__ = [
    "SECRET_BYTES",
    "BadRecoveryKey",
    "derive_seed",
    "hkdf_sha256",
    "make_identity",
    "parse_recovery_key",
    "write_recovery_key",
]

SECRET_BYTES = 32
CHECKSUM_BYTES = 4
KEY_CHARACTERS = -(-(SECRET_BYTES + CHECKSUM_BYTES) * 8 // 5)
GROUP_CHARACTERS = 4
_LABEL = "SHiNE/Recovery:1"
_ALPHABET = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")
_LOOKS_LIKE = {"0": "O", "1": "I or L", "8": "B", "9": "G"}


class BadRecoveryKey(ShineError):
    """A text is no recovery key.

    Args:
        reason: ``no-login``, ``bad-login``, ``bad-character``, ``bad-length`` or ``bad-checksum``.
        detail: what is wrong, and what to do, for a person; it holds no part of the key but a wrong character.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail

    def __str__(self) -> str:
        return f"this is no recovery key: {self.detail}"


def hkdf_sha256(secret: bytes, *, salt: bytes, info: str) -> bytes:
    """Return 32 bytes of HKDF with SHA-256 (RFC 5869): one block of output is all that is needed here.

    Args:
        salt: may be empty.
        info: what the bytes are for, ASCII.
    """
    key = hmac.digest(salt or bytes(32), secret, "sha256")
    return hmac.digest(key, info.encode("ascii") + b"\1", "sha256")


def derive_seed(secret: bytes, purpose: str) -> bytes:
    """Return the 32-byte Ed25519 seed of one of an account's keys: ``root``, ``device`` or ``blockchain``."""
    return hkdf_sha256(secret, salt=b"", info=f"{_LABEL}/{purpose}")


def make_identity(login: str, secret: bytes) -> Identity:
    """Return the login with the keys of its 32-byte secret.

    Raises:
        BadLogin: the login is outside the grammar of §1.
        ValueError: the secret has another length.
    """
    _check_length(secret)
    root, blockchain, device = (derive_seed(secret, purpose) for purpose in ("root", "blockchain", "device"))
    return Identity.from_seeds(login, root=root, blockchain=blockchain, device=device)


def write_recovery_key(login: str, secret: bytes) -> str:
    """Return the recovery key: the login, a colon, and the secret with a checksum in Base32, in groups of four.

    Raises:
        ValueError: the secret has another length than 32 bytes.
    """
    _check_length(secret)
    text = base64.b32encode(secret + _checksum(login, secret)).decode("ascii").rstrip("=")
    groups = (text[start : start + GROUP_CHARACTERS] for start in range(0, len(text), GROUP_CHARACTERS))
    return f"{login}:{'-'.join(groups)}"


def parse_recovery_key(text: str) -> tuple[str, bytes]:
    """Return the login, spelled as it came, and the secret of a recovery key.

    The case of letters, spaces and line breaks do not count, nor do dashes after the colon.

    Raises:
        BadRecoveryKey: with what is wrong.
    """
    login, colon, written = "".join(text.split()).partition(":")
    if not colon:
        raise BadRecoveryKey("no-login", "it must begin with the login and a colon, as in alice:ABCD-EFGH-…")
    if not is_login(login):
        raise BadRecoveryKey("bad-login", "what stands before the colon is no login")
    key = "".join(character for character in written if unicodedata.category(character) != "Pd").upper()
    for character in key:
        if character not in _ALPHABET:
            hint = f" (perhaps {_LOOKS_LIKE[character]})" if character in _LOOKS_LIKE else ""
            raise BadRecoveryKey("bad-character", f"it has letters A to Z and digits 2 to 7, not {character!a}{hint}")
    if len(key) != KEY_CHARACTERS:
        raise BadRecoveryKey("bad-length", f"it has {len(key)} characters after the colon, not {KEY_CHARACTERS}")
    data = base64.b32decode(key + "=" * (-len(key) % 8))
    secret, checksum = data[:SECRET_BYTES], data[SECRET_BYTES:]
    whole = base64.b32encode(data).decode("ascii").rstrip("=") == key  # else the bits left over are not zero
    if not whole or not hmac.compare_digest(checksum, _checksum(login, secret)):
        raise BadRecoveryKey("bad-checksum", "a character is wrong or two are exchanged, or it is of another login")
    return login, secret


def _checksum(login: str, secret: bytes) -> bytes:
    return hashlib.sha256(_LABEL.encode() + login.lower().encode("ascii") + secret).digest()[:CHECKSUM_BYTES]


def _check_length(secret: bytes) -> None:
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"a secret has {SECRET_BYTES} bytes, not {len(secret)}")
