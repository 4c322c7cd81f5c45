from shine_node.configuration.kinds import Number
from shine_node.configuration.limits import LIMITS
from shine_node.configuration.options import options_of


def test_the_limits_are_a_section_of_the_table():
    assert options_of("limits") == LIMITS
    assert {option.section for option in LIMITS} == {"limits"}


def test_what_may_be_no_limit_says_so():
    for option in LIMITS:
        if isinstance(option.kind, Number):
            assert (option.kind.low == 0) == option.text.endswith("0 is no limit."), option.name
