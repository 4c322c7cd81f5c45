"""Base64 and the reading of fields: exactly the canonical texts, and the right refusal for each wrong value."""

from __future__ import annotations

import base64
import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shine_node.protocol.encoding import (
    MAX_NUMBER,
    decode_base64,
    encode_base64,
    read_base64,
    read_limit,
    read_list,
    read_login,
    read_number,
    read_optional_number,
    read_optional_text,
    read_text,
)
from shine_node.protocol.errors import BadBase64, BadFields, BadLogin, BadRequestFormat, Refusal

NOT_TEXTS = [5, 1.5, True, [], {}, ["a"]]
NOT_NUMBERS = ["5", True, False, [], {}, 1.5, -0.5, 0.0]
BEYOND = [2**53, 2**63, 2**64 - 1, -1, float(2**64), -float(2**64), 1e300, -1e300, math.inf, -math.inf]


def read(value: object) -> dict[str, object]:
    return {"field": value}


# Base64


@given(st.binary(max_size=200))
def test_bytes_come_back(data: bytes) -> None:
    assert decode_base64(encode_base64(data), "field") == data
    assert encode_base64(data) == base64.b64encode(data).decode()


def is_canonical(text: str) -> bool:
    """Exactly what an encoder writes is canonical; said without the decoder under test."""
    try:
        return base64.b64encode(base64.b64decode(text)).decode() == text
    except ValueError:
        return False


@given(st.text("AQgwB/+=", max_size=9) | st.text("ABZz09+/=-_ \n", max_size=12) | st.text(max_size=8))
@example("")
@example("=")
@example("====")
@example("QUI=")
@example("QUJ=")
@example("QQ==")
@example("QR==")
@example("QQ==QQ==")
@example("QUI===")
@example("AAAA=")
@example("AAAA==")
@example("AAAA====")
@example("QUI=\n")
@example("\ud800")
def test_the_decoder_takes_exactly_the_canonical_texts(text: str) -> None:
    if is_canonical(text):
        assert encode_base64(decode_base64(text, "field")) == text
    else:
        with pytest.raises(BadBase64, match="field must be Base64"):
            decode_base64(text, "field")


@pytest.mark.parametrize("text", ["QQ", "QQ=", "_-8=", "Q Q=", " QQ==", "QQ== ", "QQ\n==", "жж==", "A", "A===", "=QQ="])
def test_what_is_no_base64(text: str) -> None:
    with pytest.raises(BadBase64, match="blob must be Base64 with padding"):
        decode_base64(text, "blob")


@pytest.mark.parametrize("text", ["QR==", "QUJ=", "//==", "///="])
def test_left_over_bits_must_be_zero(text: str) -> None:
    with pytest.raises(BadBase64, match="blob must be Base64 without left-over bits or pads"):
        decode_base64(text, "blob")


# Texts


def test_a_text() -> None:
    assert read_text(read("ж"), "field") == "ж"
    assert read_optional_text(read("ж"), "field") == "ж"
    assert read_optional_text(read(""), "field", "default") == ""
    assert read_login(read("Alice"), "field") == "Alice"
    assert read_login({"login": "Alice"}) == "Alice"
    assert read_base64(read("QQ=="), "field") == b"A"


@pytest.mark.parametrize("payload", [{}, read(None), read("")])
def test_a_required_text_that_is_not_there(payload: dict[str, Any]) -> None:
    for reader in (read_text, read_login, read_base64):
        with pytest.raises(BadFields, match="field is missing or empty"):
            reader(payload, "field")


@pytest.mark.parametrize("payload", [{}, read(None)])
def test_an_optional_text_that_is_not_there(payload: dict[str, Any]) -> None:
    assert read_optional_text(payload, "field") == ""
    assert read_optional_text(payload, "field", "default") == "default"


@pytest.mark.parametrize("value", NOT_TEXTS, ids=repr)
def test_what_is_no_text(value: object) -> None:
    for reader in (read_text, read_optional_text, read_login, read_base64):
        with pytest.raises(BadRequestFormat, match="field must be a text"):
            reader(read(value), "field")


def test_a_text_outside_its_grammar() -> None:
    with pytest.raises(BadLogin, match="field must be 1 to 30"):
        read_login(read("a b"), "field")
    with pytest.raises(BadBase64):
        read_base64(read("A"), "field")


# Numbers


@pytest.mark.parametrize("value", [0, 1, MAX_NUMBER])
def test_a_number(value: int) -> None:
    assert MAX_NUMBER == 2**53 - 1
    assert read_number(read(value), "field") == read_optional_number(read(value), "field") == value


@pytest.mark.parametrize("payload", [{}, read(None)])
def test_a_number_that_is_not_there(payload: dict[str, Any]) -> None:
    assert read_optional_number(payload, "field") is None
    with pytest.raises(BadFields, match="field is missing"):
        read_number(payload, "field")


@pytest.mark.parametrize("value", BEYOND, ids=repr)
def test_a_number_outside_the_range(value: float) -> None:
    for reader in (read_number, read_optional_number):
        with pytest.raises(BadFields, match="field must be from 0"):
            reader(read(value), "field")


@pytest.mark.parametrize("value", NOT_NUMBERS, ids=repr)
def test_what_is_no_number(value: object) -> None:
    for reader in (read_number, read_optional_number):
        with pytest.raises(BadRequestFormat, match="field must be a whole number"):
            reader(read(value), "field")
    with pytest.raises(BadRequestFormat, match="field must be a whole number"):
        read_limit(read(value), 100, 500, "field")


@pytest.mark.parametrize(
    ("value", "limit"),
    [
        (None, 100),
        (1, 1),
        (499, 499),
        (500, 500),
        (501, 500),
        (0, 1),
        (-5, 1),
        *((v, 1 if v < 0 else 500) for v in BEYOND),
    ],
    ids=repr,
)
def test_a_limit_is_clamped(value: float | None, limit: int) -> None:
    found = read_limit({"limit": value}, 100, 500)
    assert found == limit
    assert type(found) is int
    assert read_limit({}, 100, 500) == 100


# Lists


def test_a_list() -> None:
    assert read_list(read([1, "a"]), "field") == [1, "a"]
    assert read_list(read(None), "field") == read_list({}, "field") == read_list(read([]), "field") == []


@pytest.mark.parametrize("value", [5, "a", {}, True], ids=repr)
def test_what_is_no_list(value: object) -> None:
    with pytest.raises(BadRequestFormat, match="field must be a list"):
        read_list(read(value), "field")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(json_values)
def test_readers_raise_nothing_but_refusals(value: object) -> None:
    readers = (read_text, read_optional_text, read_login, read_base64, read_number, read_optional_number, read_list)
    for reader in readers:
        try:
            reader(read(value), "field")
        except Refusal as refusal:
            assert refusal.status == 400
    try:
        assert 1 <= read_limit(read(value), 100, 500, "field") <= 500
    except BadRequestFormat:
        assert value is not None
