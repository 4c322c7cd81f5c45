"""The keys of messages: how they are written, and what is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shine_node.protocol.errors import BadFields
from shine_node.protocol.keys import MessageId, MessageKey, parse_base_key, parse_decimal, parse_message_key
from tests.protocol.strategies import U32, U64, logins
from tests.support.vectors import load_vectors

message_ids = st.builds(
    MessageId, logins.map(str.lower), logins.map(str.lower), st.integers(0, U64), st.integers(0, U32)
)
NO_BASE_KEYS = [
    "",
    "alice",
    "alice|bob|5",
    "alice|bob|5|6|1",
    "|bob|5|6",
    "alice||5|6",
    "Alice|bob|5|6",
    "alice|BOB|5|6",
    "alice|bob||6",
    "alice|bob|5|",
    "alice|bob|05|6",
    "alice|bob|5|06",
    "alice|bob|+5|6",
    "alice|bob|-5|6",
    "alice|bob|5 |6",
    " alice|bob|5|6",
    "alice|bob|5|6\n",
    "alice|bob|٥|6",
    "alice|bob|18446744073709551616|6",
    "alice|bob|99999999999999999999|6",
    "alice|bob|5|4294967296",
    "alice|bob|5|999999999999999999999999",
    "\N{KELVIN SIGN}im|bob|5|6",
]


def test_keys_are_written_as_in_the_specification() -> None:
    message = MessageId("alice", "bob", 1774700000123, 123456789)
    assert message.base_key == "alice|bob|1774700000123|123456789"
    assert str(MessageKey(message, 1)) == "alice|bob|1774700000123|123456789|1"
    assert str(MessageKey(message, 2)) == "alice|bob|1774700000123|123456789|2"


def test_the_keys_of_the_vectors_come_back() -> None:
    for case in load_vectors("containers_valid")["cases"]:
        message = parse_base_key(case["baseKey"])
        assert message is not None
        assert message.base_key == case["baseKey"]
        assert parse_message_key(case["key"]) == MessageKey(message, case["messageType"])
        assert str(parse_message_key(case["key"])) == case["key"]


@given(message_ids, st.integers(1, 6))
def test_a_key_comes_back(message: MessageId, message_type: int) -> None:
    assert parse_base_key(message.base_key) == message
    key = MessageKey(message, message_type)
    assert parse_message_key(str(key)) == key
    assert parse_message_key(str(key).upper()) == key  # a request may spell the logins as it likes


def test_the_greatest_numbers_are_those_of_the_container() -> None:
    greatest = MessageId("a", "b", 2**64 - 1, 2**32 - 1)
    assert parse_base_key("a|b|18446744073709551615|4294967295") == greatest
    assert parse_message_key("a|b|18446744073709551615|4294967295|6") == MessageKey(greatest, 6)


@pytest.mark.parametrize("text", NO_BASE_KEYS, ids=ascii)
def test_no_base_key(text: str) -> None:
    assert parse_base_key(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "alice|bob|5|6",
        "alice|bob|5|6|1|1",
        "alice|bob|5|6|0",
        "alice|bob|5|6|7",
        "alice|bob|5|6|01",
        "alice|bob|5|6|",
        "al ice|bob|5|6|1",
        "alice|b@b|5|6|1",
        "alice|bob|05|6|1",
        "alice|bob|5|4294967296|1",
        "alice|bob|18446744073709551616|6|1",
        "alice|bob|5|6|1\n",
        "\N{KELVIN SIGN}im|bob|5|6|1",
    ],
    ids=ascii,
)
def test_no_message_key(text: str) -> None:
    with pytest.raises(BadFields, match=r"messageKey must be from\|to\|timeMs\|nonce\|messageType"):
        parse_message_key(text)


@pytest.mark.parametrize(("text", "value"), [("0", 0), ("7", 7), ("10", 10), ("11", None), ("", None), ("00", None)])
def test_a_plain_decimal(text: str, value: int | None) -> None:
    assert parse_decimal(text, 10) == value


@given(st.text(max_size=30) | st.text("ab|0123456789", max_size=30))
def test_any_text_is_a_key_in_its_one_form_or_none(text: str) -> None:
    message = parse_base_key(text)
    assert message is None or message.base_key == text
    try:
        key = parse_message_key(text)
    except BadFields:
        return
    assert str(key) == text.lower()
