"""Settings: the grammar, the signed text, bounds, clock and keys, which of two counts; every vector."""

from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shine_node.protocol.access import AccessRecord, User, make_user
from shine_node.protocol.container import CLIENT_AHEAD_MS, PEER_AHEAD_MS
from shine_node.protocol.errors import BadBase64, BadFields, BadLogin, BadRequestFormat, Refusal, TooLarge
from shine_node.protocol.settings import (
    DeviceKeyMismatch,
    Setting,
    SignatureInvalid,
    check_setting_clock,
    check_setting_key,
    is_newer_setting,
    parse_setting,
    read_param,
    setting_payload,
    setting_text,
    signature_invalid,
)
from shine_node.protocol.signatures import is_signed_by
from tests.protocol.strategies import logins
from tests.support.vectors import cases, load_vectors

pytestmark = pytest.mark.core

NOW = 1_774_700_600_000
MAX_VALUE = 65_536
KEY, SIGNATURE = b"\1" * 32, b"\2" * 64
SETTING = Setting("Alice", "theme", NOW, "dark", KEY, SIGNATURE)
PAYLOAD = setting_payload(SETTING)

settings = st.builds(
    Setting,
    logins,
    st.from_regex(r"[A-Za-z_.:\-]([A-Za-z0-9_.:\-]{0,62}[A-Za-z_.:\-])?", fullmatch=True),
    st.integers(0, 2**53 - 1),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    st.binary(min_size=1, max_size=40),
    st.binary(min_size=1, max_size=80),
)


def parsed(**change: object) -> Setting:
    return parse_setting(PAYLOAD | change, max_value_bytes=MAX_VALUE)


# The vectors


def user_of(login: str) -> User:
    key = bytes.fromhex(load_vectors("user_params")["keys"][login]["deviceKeyHex"])
    return make_user([AccessRecord(login, f"{login}-001", b"", b"", key, (), 0, b"")])


def submit(case: dict[str, Any]) -> bool:
    """Make every check of a case in its order and say whether the setting would be stored."""
    setting = parse_setting(case["payload"], max_value_bytes=MAX_VALUE)
    check_setting_clock(setting, now_ms=load_vectors("user_params")["nowMs"], ahead_ms=CLIENT_AHEAD_MS)
    check_setting_key(setting, user_of(case["user"]).fresh_key_at(setting.time_ms))
    if not is_signed_by(setting.device_key, setting_text(setting), setting.signature):
        raise signature_invalid(setting)
    stored = case.get("stored")
    return stored is None or is_newer_setting(setting, parse_setting(stored, max_value_bytes=MAX_VALUE))


@pytest.mark.parametrize("case", cases("user_params"))
def test_vector(case: dict[str, Any]) -> None:
    if case["error"] is None:
        assert submit(case) is case["applied"]
        setting = parse_setting(case["payload"], max_value_bytes=MAX_VALUE)
        assert setting_text(setting).decode() == case["text"]
        assert setting_payload(setting) == case["payload"]
    else:
        with pytest.raises(Refusal) as refused:
            submit(case)
        assert (refused.value.status, refused.value.code) == (case["status"], case["error"])


# Fields


@given(settings)
def test_a_setting_comes_back_from_its_payload(setting: Setting) -> None:
    assert parse_setting(setting_payload(setting) | {"more": 1}, max_value_bytes=MAX_VALUE) == setting
    assert setting.key == setting.login.lower()


@pytest.mark.parametrize("param", ["a", "theme", "x-", ".", "a1b", ":a:", "_", "A" * 64])
def test_names_that_are_allowed(param: str) -> None:
    assert read_param({"param": param}) == param
    assert read_param({"cursor": param}, "cursor") == param


@pytest.mark.parametrize(
    "param", ["1", "1a", "a1", "a b", "a/b", "a\n", "\na", "ä", "a\u0660", "", "A" * 65, "a\0", "theme\u200b"]
)
def test_names_that_are_not(param: str) -> None:
    with pytest.raises(BadFields, match="param"):
        read_param({"param": param})


def test_the_characters_of_a_name() -> None:
    allowed = {chr(code) for code in range(0x250) if _is_param(f"a{chr(code)}a")}
    assert allowed == set(string.ascii_letters + string.digits + "_.:-")


def _is_param(text: str) -> bool:
    try:
        return read_param({"param": text}) == text
    except BadFields:
        return False


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"login": None}, BadFields),
        ({"login": ""}, BadFields),
        ({"login": 5}, BadRequestFormat),
        ({"login": "a b"}, BadLogin),
        ({"param": None}, BadFields),
        ({"param": ["a"]}, BadRequestFormat),
        ({"time_ms": None}, BadFields),
        ({"time_ms": -1}, BadFields),
        ({"time_ms": 2**53}, BadFields),
        ({"time_ms": "5"}, BadRequestFormat),
        ({"value": None}, BadFields),
        ({"value": 5}, BadRequestFormat),
        ({"device_key": None}, BadFields),
        ({"device_key": "="}, BadBase64),
        ({"signature": ""}, BadFields),
        ({"signature": PAYLOAD["signature"][:-1]}, BadBase64),  # type: ignore[index]
    ],
    ids=repr,
)
def test_fields_that_are_wrong(change: dict[str, object], error: type[Refusal]) -> None:
    with pytest.raises(error):
        parsed(**change)


def test_an_empty_value_is_one() -> None:
    assert parsed(value="").value == ""


def test_the_first_field_that_is_wrong_decides() -> None:
    with pytest.raises(BadLogin):
        parsed(login="a b", param="1", value=None, signature="=")
    with pytest.raises(BadFields, match="param"):
        parsed(param="1", time_ms="5", value="x" * (MAX_VALUE + 1))
    with pytest.raises(TooLarge):
        parsed(value="x" * (MAX_VALUE + 1), device_key="=")


@pytest.mark.parametrize(
    ("longest", "too_long"),
    [
        ("x" * 100, "x" * 101),
        ("ж" * 50, "ж" * 50 + "x"),  # bytes are counted, not characters
        ("\1" * 66 + "x" * 4, "\1" * 66 + "x" * 5),  # six bytes each in JSON: 400 fit into a frame
        ('"' * 100, '"' * 101),
    ],
    ids=ascii,
)
def test_a_value_is_bounded(longest: str, too_long: str) -> None:
    assert parse_setting(PAYLOAD | {"value": longest}, max_value_bytes=100).value == longest
    with pytest.raises(TooLarge, match="at most 100 bytes"):
        parse_setting(PAYLOAD | {"value": too_long}, max_value_bytes=100)


# The signature


def test_the_text_that_is_signed_has_no_separators() -> None:
    assert setting_text(SETTING) == f"SHiNe/UserParameter:Alicetheme{NOW}dark".encode()
    assert setting_text(SETTING._replace(value="темно\n")) == f"SHiNe/UserParameter:Alicetheme{NOW}темно\n".encode()


def test_what_is_said_of_a_signature_that_does_not_hold() -> None:
    refusal = signature_invalid(SETTING)
    assert isinstance(refusal, SignatureInvalid)
    assert (refusal.status, refusal.code, refusal.retryable) == (403, "SIGNATURE_INVALID", False)
    assert str(refusal) == "SIGNATURE_INVALID: theme of Alice is not signed by device_key"


# The clock and the key


@pytest.mark.parametrize(("ahead_ms", "words"), [(CLIENT_AHEAD_MS, "15 minutes"), (PEER_AHEAD_MS, "1440 minutes")])
def test_the_clock(ahead_ms: int, words: str) -> None:
    check_setting_clock(SETTING._replace(time_ms=NOW + ahead_ms), now_ms=NOW, ahead_ms=ahead_ms)
    check_setting_clock(SETTING._replace(time_ms=0), now_ms=NOW, ahead_ms=ahead_ms)
    with pytest.raises(BadFields, match=words):
        check_setting_clock(SETTING._replace(time_ms=NOW + ahead_ms + 1), now_ms=NOW, ahead_ms=ahead_ms)


def test_the_key() -> None:
    check_setting_key(SETTING, KEY)
    for key, words in ((b"\3" * 32, "not the one of Alice"), (b"", "not the one of Alice"), (None, "replaced")):
        with pytest.raises(DeviceKeyMismatch, match=words) as refused:
            check_setting_key(SETTING, key)
        assert (refused.value.status, refused.value.code) == (403, "DEVICE_KEY_MISMATCH")
        assert not refused.value.retryable


# Which one counts


def test_the_later_one_counts_and_of_two_equal_ones_the_greater_signature() -> None:
    later = SETTING._replace(time_ms=NOW + 1, signature=b"\0" * 64)
    greater = SETTING._replace(value="light", signature=b"\2" * 63 + b"\3")
    for newer, older in ((later, SETTING), (greater, SETTING), (later, greater)):
        assert is_newer_setting(newer, older)
        assert not is_newer_setting(older, newer)
    assert not is_newer_setting(SETTING, SETTING)


@given(st.lists(settings, min_size=1, max_size=5))
def test_whatever_the_order_of_arrival_one_and_the_same_stays(arrivals: list[Setting]) -> None:
    def last(order: list[Setting]) -> tuple[int, bytes]:
        stays = order[0]
        for setting in order[1:]:
            if is_newer_setting(setting, stays):
                stays = setting
        return stays.order

    assert last(arrivals) == last(arrivals[::-1]) == max(setting.order for setting in arrivals)
