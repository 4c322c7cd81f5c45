"""The one secret of an account: its seeds and its recovery key, against vectors that are computed anew here."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given
from hypothesis import strategies as st

from shine_node.client.identity import KeyPair
from shine_node.client.secret import (
    BadRecoveryKey,
    derive_seed,
    hkdf_sha256,
    make_identity,
    parse_recovery_key,
    write_recovery_key,
)
from shine_node.protocol.errors import BadLogin
from shine_node.protocol.logins import LOGIN_PATTERN
from tests.support.vectors import REPOSITORY

VECTORS: dict[str, Any] = json.loads((REPOSITORY / "tests" / "web" / "recovery.json").read_text(encoding="ascii"))
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"


def each(kind: str) -> list[Any]:
    return [pytest.param(case, id=case.get("name", case.get("login"))) for case in VECTORS[kind]]


def seed_by_the_book(secret: bytes, purpose: str) -> bytes:
    return HKDF(SHA256(), 32, None, f"SHiNE/Recovery:1/{purpose}".encode()).derive(secret)


def key_by_the_book(login: str, secret: bytes) -> str:
    """The recovery key, with Base32 as arithmetic."""
    data = secret + hashlib.sha256(b"SHiNE/Recovery:1" + login.lower().encode() + secret).digest()[:4]
    number = int.from_bytes(data) << 2  # 288 bits are 57 characters and three bits; two more make it 58
    text = "".join(ALPHABET[number >> 5 * place & 31] for place in reversed(range(58)))
    return f"{login}:" + "-".join(text[start : start + 4] for start in range(0, 58, 4))


@pytest.mark.parametrize("case", each("cases"))
def test_the_vectors_and_the_module_follow_the_book(case: dict[str, str]) -> None:
    login, secret = case["login"], bytes.fromhex(case["secretHex"])
    for purpose in ("root", "device", "blockchain"):
        seed = seed_by_the_book(secret, purpose)
        assert case[f"{purpose}SeedHex"] == seed.hex()
        assert derive_seed(secret, purpose) == seed
    assert case["recoveryKey"] == key_by_the_book(login, secret) == write_recovery_key(login, secret)
    assert parse_recovery_key(case["recoveryKey"]) == (login, secret)


@pytest.mark.parametrize("case", each("reads"))
def test_how_it_is_written_does_not_count(case: dict[str, str]) -> None:
    assert parse_recovery_key(case["text"]) == (case["login"], bytes.fromhex(case["secretHex"]))


@pytest.mark.parametrize("case", each("refused"))
def test_what_is_wrong_is_told(case: dict[str, str]) -> None:
    with pytest.raises(BadRecoveryKey) as refused:
        parse_recovery_key(case["text"])
    assert refused.value.reason == case["reason"]
    assert str(refused.value) == f"this is no recovery key: {refused.value.detail}"
    assert case["text"] not in str(refused.value) or not case["text"]


def test_a_hint_for_a_digit_that_is_none() -> None:
    with pytest.raises(BadRecoveryKey, match=r"not '0' \(perhaps O\)"):
        parse_recovery_key("bob:0")


def test_keys_of_an_identity() -> None:
    secret = bytes(range(32))
    alice = make_identity("Alice", secret)
    assert (alice.login, alice.blockchain_name) == ("Alice", "Alice-001")
    assert alice.root == KeyPair.from_seed(seed_by_the_book(secret, "root"))
    assert alice.device == KeyPair.from_seed(seed_by_the_book(secret, "device"))
    assert alice.blockchain == KeyPair.from_seed(seed_by_the_book(secret, "blockchain"))
    with pytest.raises(BadLogin):
        make_identity("al ice", secret)


@pytest.mark.parametrize("length", [0, 31, 33])
def test_a_secret_of_another_length(length: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        make_identity("alice", bytes(length))
    with pytest.raises(ValueError, match="32 bytes"):
        write_recovery_key("alice", bytes(length))


@given(st.from_regex(LOGIN_PATTERN, fullmatch=True), st.binary(min_size=32, max_size=32))
def test_every_key_comes_back_and_every_wrong_character_is_noticed(login: str, secret: bytes) -> None:
    key = write_recovery_key(login, secret)
    assert parse_recovery_key(key) == (login, secret)
    place = len(login) + 1
    other = ALPHABET[(ALPHABET.index(key[place]) + 1) % 32]
    with pytest.raises(BadRecoveryKey):
        parse_recovery_key(key[:place] + other + key[place + 1 :])


@given(st.binary(max_size=80), st.binary(max_size=70))
def test_hkdf(secret: bytes, salt: bytes) -> None:
    assert hkdf_sha256(secret, salt=salt, info="what for") == HKDF(SHA256(), 32, salt, b"what for").derive(secret)
