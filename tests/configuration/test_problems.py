from shine_node.configuration.problems import ConfigError, Origin, Problem
from shine_node.protocol.errors import ShineError


def test_a_problem_names_file_and_line_where_known():
    assert str(Problem(Origin("f.toml", 3), "is bad")) == "f.toml:3: is bad"
    assert str(Problem(Origin("f.toml"), "is bad")) == "f.toml: is bad"
    assert str(Problem(Origin(), "is bad")) == "is bad"


def test_the_error_has_a_line_for_each():
    problems = [Problem(Origin("f", 1), "a"), Problem(Origin("f", 2), "b")]
    error = ConfigError(iter(problems))
    assert isinstance(error, ShineError)
    assert error.problems == tuple(problems)
    assert str(error) == "f:1: a\nf:2: b"
