"""The list of those from whom a user takes nothing: one login to a line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shine_node.protocol.blocking import (
    MAX_BLOCKED,
    MAX_LIST_CHARACTERS,
    MAX_LIST_LINES,
    blocked_logins,
    blocked_value,
    check_blocked,
)
from shine_node.protocol.errors import TooLarge


def test_one_login_to_a_line_in_lower_case_each_once() -> None:
    assert blocked_logins("Mallory\neve\r\n  Trent \n\nMALLORY\nno login\n" + "x" * 31) == ["mallory", "eve", "trent"]
    assert blocked_logins("") == []


def test_what_is_too_long_is_cut() -> None:
    logins = [f"user{number}" for number in range(MAX_BLOCKED + 5)]
    assert blocked_logins(blocked_value(logins)) == logins[:MAX_BLOCKED]


def test_what_is_beyond_the_bounds_is_not_looked_at_and_no_login_is_cut_in_two() -> None:
    assert blocked_logins("\n" * (MAX_LIST_LINES - 1) + "last\nlate") == ["last"]
    assert blocked_logins("\n" * MAX_LIST_LINES + "late") == []
    blank = " " * (MAX_LIST_CHARACTERS - 4)
    assert blocked_logins(blank + "\neve") == ["eve"]
    assert blocked_logins(blank + "\nmallory") == []
    assert blocked_logins("bob\n" + blank[:-4] + "\neve\nlate") == ["bob", "eve"]


def test_a_list_over_the_bounds_may_not_be_stored_and_one_that_holds_all_that_count_may() -> None:
    check_blocked("")
    check_blocked("\r\n".join(["x" * 30] * MAX_BLOCKED) + "\r\n")
    check_blocked("\n" * (MAX_LIST_LINES - 1))
    check_blocked("x" * MAX_LIST_CHARACTERS)
    for wrong in ("\n" * MAX_LIST_LINES, "x" * (MAX_LIST_CHARACTERS + 1)):
        with pytest.raises(TooLarge, match="one login to a line"):
            check_blocked(wrong)


@given(st.text())
def test_any_text_is_a_list(text: str) -> None:
    logins = blocked_logins(text)
    assert blocked_logins(blocked_value(logins)) == logins
