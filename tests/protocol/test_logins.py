"""Logins and blockchain names: the grammar of PROTOCOL.md §1 and §3."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shine_node.protocol.errors import BadLogin
from shine_node.protocol.logins import check_login, is_blockchain_name, is_login, login_key
from tests.protocol.strategies import logins

GOOD = ["a", "Z", "0", "alice", "Carol.X-1", "a_", "9.-_", "x" * 30]
BAD = ["", ".a", "-a", "_a", "x" * 31, "a b", "a|b", "a@b", "a\n", "\na", "é", "аlice", "a\x00", "\ud800", "١"]


@pytest.mark.parametrize("text", GOOD)
def test_a_login(text: str) -> None:
    assert is_login(text)
    assert check_login(text) == text


@pytest.mark.parametrize("text", BAD, ids=ascii)
def test_no_login(text: str) -> None:
    assert not is_login(text)
    with pytest.raises(BadLogin, match="peerLogin must be 1 to 30 of"):
        check_login(text, field="peerLogin")


@given(logins)
def test_a_login_and_its_key_are_logins(login: str) -> None:
    assert is_login(login)
    assert is_login(login_key(login))
    assert login_key(login_key(login)) == login_key(login) == login.lower()


@given(st.text(max_size=40))
def test_a_text_is_a_login_only_of_these_characters(text: str) -> None:
    letters = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")
    expected = 1 <= len(text) <= 30 and text[0] in letters and set(text) <= letters | set("_.-")
    assert is_login(text) is expected


@pytest.mark.parametrize("name", ["kim-001", "KIM-999", "Kim-000"])
def test_a_blockchain_name(name: str) -> None:
    assert is_blockchain_name(name, "Kim")


@pytest.mark.parametrize(
    "name",
    [
        "",
        "kim",
        "kim-",
        "kim-01",
        "kim-0001",
        "kim-abc",
        "kim001",
        "kim-001\n",
        "bob-001",
        "-001",
        "kim-١٢٣",
        "xkim-001",
    ],
    ids=ascii,
)
def test_no_blockchain_name(name: str) -> None:
    assert not is_blockchain_name(name, "kim")


def test_a_sign_whose_lower_case_is_a_letter_is_not_that_letter() -> None:
    kelvin = "\N{KELVIN SIGN}im-001"
    assert kelvin.lower() == "kim-001"
    assert not is_blockchain_name(kelvin, "kim")


@given(logins, st.integers(0, 999))
def test_every_login_has_its_thousand_names(login: str, number: int) -> None:
    assert is_blockchain_name(f"{login.swapcase()}-{number:03}", login)
