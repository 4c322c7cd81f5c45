"""The list of those from whom a user takes nothing: one login to a line."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shine_node.protocol.blocking import MAX_BLOCKED, blocked_logins, blocked_value


def test_one_login_to_a_line_in_lower_case_each_once() -> None:
    assert blocked_logins("Mallory\neve\r\n  Trent \n\nMALLORY\nno login\n" + "x" * 31) == ["mallory", "eve", "trent"]
    assert blocked_logins("") == []


def test_what_is_too_long_is_cut() -> None:
    logins = [f"user{number}" for number in range(MAX_BLOCKED + 5)]
    assert blocked_logins(blocked_value(logins)) == logins[:MAX_BLOCKED]


@given(st.text())
def test_any_text_is_a_list(text: str) -> None:
    logins = blocked_logins(text)
    assert blocked_logins(blocked_value(logins)) == logins
