import datetime
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shine_node.configuration.toml import is_list, toml_value

SCALARS = st.text(st.characters(exclude_categories=["Cs"])) | st.booleans() | st.integers(-(2**63), 2**63 - 1)


@given(SCALARS | st.lists(SCALARS, max_size=17))
def test_what_is_written_reads_back(value):
    assert tomllib.loads(f"key = {toml_value(value)}")["key"] == value


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"a": 1}, "{…}"),
        ([[1], {"a": 1}], "[[…], {…}]"),
        (list(range(18)), "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, …]"),
        ((1, 2), "[1, 2]"),
        (2**64, "(a huge number)"),
        (1.5, "1.5"),
        (float("nan"), "nan"),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        ("\x7f \ud800", '"\\u007f \\ud800"'),
    ],
)
def test_what_no_option_holds_is_hinted_at(value, shown):
    assert toml_value(value) == shown


def test_lists():
    assert is_list([]) and is_list(()) and not is_list("text") and not is_list({})


def test_numbers_that_python_refuses_to_write_in_decimals():
    assert toml_value(int("f" * 5000, 16)) == "(a huge number)"
