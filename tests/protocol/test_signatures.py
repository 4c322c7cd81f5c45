"""Ed25519: the known answer of RFC 8032, and everything that a lenient verifier would let through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shine_node.protocol.encoding import encode_base64
from shine_node.protocol.errors import BadKeyFormat
from shine_node.protocol.signatures import KEY_BYTES, decode_key, is_signed_by, key_pair, sign
from tests.protocol.strategies import PUBLIC_KEY, SECRET_KEY

ORDER = 2**252 + 27742317777372353535851937790883648493
PRIME = 2**255 - 19
NEUTRAL = (1).to_bytes(32, "little")
SMALL_ORDER = [  # the points of small order, canonical encodings
    bytes(32),
    NEUTRAL,
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
    bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),
    bytes.fromhex("ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
]


def test_the_first_known_answer_of_rfc_8032() -> None:
    public_key, secret_key = key_pair(bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"))
    assert public_key.hex() == "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    signature = sign(secret_key, b"")
    assert signature.hex() == (
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
        "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
    )
    assert is_signed_by(public_key, b"", signature)


@given(st.binary(max_size=100), st.integers(0, 511))
def test_a_signature_verifies_and_no_bit_of_it_may_change(message: bytes, bit: int) -> None:
    signature = bytearray(sign(SECRET_KEY, message))
    assert len(signature) == 64
    assert is_signed_by(PUBLIC_KEY, message, bytes(signature))
    assert not is_signed_by(PUBLIC_KEY, message + b"x", bytes(signature))
    signature[bit // 8] ^= 1 << bit % 8
    assert not is_signed_by(PUBLIC_KEY, message, bytes(signature))


@pytest.mark.parametrize("length", [0, 63, 65, 128])
def test_a_signature_of_another_length(length: int) -> None:
    assert not is_signed_by(PUBLIC_KEY, b"text", (sign(SECRET_KEY, b"text") * 2)[:length])


@pytest.mark.parametrize("length", [0, 31, 33, 64])
def test_a_key_of_another_length(length: int) -> None:
    assert not is_signed_by((PUBLIC_KEY * 2)[:length], b"text", sign(SECRET_KEY, b"text"))


def test_s_must_be_below_the_group_order() -> None:
    signature = sign(SECRET_KEY, b"text")
    s = int.from_bytes(signature[32:], "little")
    assert s < ORDER
    for again in (1, 2, 3):
        other = signature[:32] + (s + again * ORDER).to_bytes(32, "little")
        assert not is_signed_by(PUBLIC_KEY, b"text", other)


@pytest.mark.parametrize("key", SMALL_ORDER, ids=bytes.hex)
def test_keys_and_r_of_small_order_are_refused(key: bytes) -> None:
    for r in SMALL_ORDER:
        assert not is_signed_by(key, b"text", r + bytes(32))
        assert not is_signed_by(PUBLIC_KEY, b"text", r + sign(SECRET_KEY, b"text")[32:])
    with pytest.raises(BadKeyFormat, match="deviceKey must be the Base64 of a usable Ed25519 public key"):
        decode_key(encode_base64(key), "deviceKey")


def test_a_key_that_is_not_canonical_is_refused() -> None:
    for y in (PRIME, PRIME + 1, 2**255 - 1):
        with pytest.raises(BadKeyFormat):
            decode_key(encode_base64(y.to_bytes(32, "little")), "deviceKey")
        assert not is_signed_by(y.to_bytes(32, "little"), b"text", NEUTRAL + bytes(32))


def test_a_key() -> None:
    assert len(PUBLIC_KEY) == KEY_BYTES
    assert decode_key(encode_base64(PUBLIC_KEY), "deviceKey") == PUBLIC_KEY


@pytest.mark.parametrize("text", ["", "A", PUBLIC_KEY.hex(), encode_base64(PUBLIC_KEY)[:-1], "ж"])
def test_what_is_no_base64_of_a_key(text: str) -> None:
    with pytest.raises(BadKeyFormat, match="solanaKey must be"):
        decode_key(text, "solanaKey")


@pytest.mark.parametrize("key", [PUBLIC_KEY[:31], PUBLIC_KEY + b"\x00", b"\x02" + bytes(31)], ids=bytes.hex)
def test_bytes_that_are_no_key(key: bytes) -> None:
    with pytest.raises(BadKeyFormat, match="usable Ed25519"):
        decode_key(encode_base64(key), "deviceKey")


@given(st.binary(max_size=40), st.binary(max_size=40), st.binary(max_size=70) | st.binary(min_size=64, max_size=64))
def test_arbitrary_bytes_verify_nothing_and_raise_nothing(key: bytes, message: bytes, signature: bytes) -> None:
    assert not is_signed_by(key, message, signature)
