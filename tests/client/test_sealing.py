"""Sealed bodies: the vectors, and what does not open."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shine_node.client.identity import KeyPair
from shine_node.client.sealing import (
    SEAL_BYTES,
    BadReaderKey,
    BadSeal,
    SealingUnavailable,
    check_sealing,
    open_sealed,
    seal,
)
from tests.support.vectors import cases

READER = KeyPair.from_seed(b"\5" * 32)
OTHER = KeyPair.from_seed(b"\6" * 32)
BASE_KEY = "alice|bob|1774700595000|7"
REASONS = {
    "tag": "sealed for another key or another message, or was changed",
    "layout": "another layout",
    "not UTF-8": "no text",
    "all-zero shared secret": "secret of zeros",
}


@pytest.mark.parametrize("case", cases("sealed"))
def test_the_vectors(case: dict[str, Any]) -> None:
    reader = KeyPair.from_seed(bytes.fromhex(case["readerSeedHex"]))
    body = bytes.fromhex(case["bodyHex"])
    if not case["opens"]:
        with pytest.raises(BadSeal, match=REASONS[case["reason"]]):
            open_sealed(body, reader, case["baseKey"])
        return
    assert open_sealed(body, reader, case["baseKey"]) == case["text"]
    again = seal(
        case["text"],
        reader.public,
        case["baseKey"],
        ephemeral=bytes.fromhex(case["ephemeralSecretHex"]),
        iv=bytes.fromhex(case["ivHex"]),
    )
    assert again == body


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_what_is_sealed_opens(text: str) -> None:
    body = seal(text, READER.public, BASE_KEY)
    assert len(body) == SEAL_BYTES + len(text.encode())
    assert open_sealed(body, READER, BASE_KEY) == text
    with pytest.raises(BadSeal):
        open_sealed(body, OTHER, BASE_KEY)
    with pytest.raises(BadSeal):
        open_sealed(body, READER, BASE_KEY + "1")


def test_the_cases_that_need_no_vectors() -> None:
    with pytest.raises(BadSeal, match="layout"):
        open_sealed(b"\1" * (SEAL_BYTES - 1), READER, BASE_KEY)
    with pytest.raises(BadSeal, match="layout"):
        open_sealed(b"\2" * SEAL_BYTES, READER, BASE_KEY)
    with pytest.raises(BadSeal, match="zeros"):
        open_sealed(b"\1" + bytes(SEAL_BYTES), READER, BASE_KEY)


def test_a_sealed_body_that_holds_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    class Bytes(str):
        def encode(self, *_: str) -> bytes:  # type: ignore[override]
            return b"\xff"

    with pytest.raises(BadSeal, match="no text"):
        open_sealed(seal(Bytes("x"), READER.public, BASE_KEY), READER, BASE_KEY)


def test_two_seals_of_one_text_differ() -> None:
    one, other = (seal("x", READER.public, BASE_KEY) for _ in range(2))
    assert one[1:33] != other[1:33]
    assert one[33:45] != other[33:45]


@pytest.mark.parametrize("key", [bytes(32), b"\1" + bytes(31), b"\xff" * 32, b"short"])
def test_keys_that_nothing_can_be_sealed_for(key: bytes) -> None:
    with pytest.raises(BadReaderKey, match="no usable Ed25519 key"):
        seal("x", key, BASE_KEY)


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    check_sealing()
    body = seal("x", READER.public, BASE_KEY)
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    for attempt in (
        check_sealing,
        lambda: seal("x", READER.public, BASE_KEY),
        lambda: open_sealed(body, READER, BASE_KEY),
    ):
        with pytest.raises(SealingUnavailable, match=r"shine-node\[client\].*python3-cryptography"):
            attempt()
