"""A user as its own devices know it: the three key pairs, and the access records that the root key signs."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import NamedTuple

from shine_node.protocol.access import AccessRecord, AccessServer, signed_text
from shine_node.protocol.logins import check_login
from shine_node.protocol.signatures import key_pair, sign

__all__ = ["Identity", "KeyPair"]

SEED_BYTES = 32


class KeyPair(NamedTuple):
    """An Ed25519 key pair; ``secret`` is libsodium's 64 bytes and never leaves the device."""

    public: bytes
    secret: bytes

    @classmethod
    def from_seed(cls, seed: bytes) -> KeyPair:
        """Return the key pair of a 32-byte seed (RFC 8032).

        Raises:
            ValueError: the seed has another length.
        """
        if len(seed) != SEED_BYTES:
            raise ValueError(f"a seed has {SEED_BYTES} bytes, not {len(seed)}")
        return cls(*key_pair(seed))

    def sign(self, message: bytes) -> bytes:
        """Return the 64-byte signature of a message."""
        return sign(self.secret, message)

    def __repr__(self) -> str:
        return f"KeyPair(public={self.public.hex()})"  # the secret must not reach a log or a traceback


class Identity(NamedTuple):
    """A login with its keys: the root key signs access records, the device key messages, the third one blocks (§3)."""

    login: str
    blockchain_name: str
    root: KeyPair
    blockchain: KeyPair
    device: KeyPair

    @classmethod
    def from_seeds(cls, login: str, *, root: bytes, blockchain: bytes, device: bytes, chain: int = 1) -> Identity:
        """Return the identity of three 32-byte seeds; the blockchain is ``<login>-NNN`` with ``chain``, 0–999.

        Raises:
            BadLogin: the login is outside the grammar of §1.
            ValueError: a seed of another length, or a chain outside its range.
        """
        if not 0 <= chain <= 999:
            raise ValueError(f"chain must be from 0 to 999, not {chain}")
        seeds = (root, blockchain, device)
        return cls(check_login(login), f"{login}-{chain:03d}", *(KeyPair.from_seed(seed) for seed in seeds))

    @classmethod
    def generate(cls, login: str) -> Identity:
        """Return an identity with new random keys.

        Raises:
            BadLogin: the login is outside the grammar of §1.
        """
        root, blockchain, device = (secrets.token_bytes(SEED_BYTES) for _ in range(3))
        return cls.from_seeds(login, root=root, blockchain=blockchain, device=device)

    @property
    def key(self) -> str:
        """The login in lower case."""
        return self.login.lower()

    def with_device(self, device: KeyPair) -> Identity:
        """Return the same user with another device key; it counts from the next access record on."""
        return self._replace(device=device)

    def access_record(self, servers: Iterable[AccessServer], *, time_ms: int) -> AccessRecord:
        """Return a signed access record for ``AddUser`` or ``SetUserAccess`` (§3).

        Args:
            servers: at most two access servers.
            time_ms: Unix milliseconds; the newest record of a login wins.
        """
        record = AccessRecord(
            self.login,
            self.blockchain_name,
            self.root.public,
            self.blockchain.public,
            self.device.public,
            tuple(servers),
            time_ms,
            b"",
        )
        return record._replace(signature=self.root.sign(signed_text(record)))
