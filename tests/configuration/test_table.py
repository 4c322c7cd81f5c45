import pytest

from shine_node.configuration.kinds import Number
from shine_node.configuration.table import REQUIRED, Option, Section


def test_an_option_has_a_name_and_an_attribute():
    option = Option("server.pool", "pingIdleSeconds", Number(1, 9), 5, "Seconds.")
    assert (option.name, option.attribute) == ("server.pool.pingIdleSeconds", "ping_idle_seconds")
    assert (option.default_text, option.reloads) == ("5", False)


@pytest.mark.parametrize(
    ("key", "attribute"),
    [("mapSizeMiB", "map_size_mib"), ("maxStoredMiBPerUser", "max_stored_mib_per_user"), ("url", "url")],
)
def test_attributes_are_as_python_writes_them(key, attribute):
    assert Option("a", key, Number(1, 9), 5, "Text.").attribute == attribute


def test_one_without_a_default_shows_its_example():
    assert Option("server", "login", Number(1, 9), REQUIRED, "Text.", example="me").default_text == '"me"'


def test_a_section_needs_a_restart_unless_it_says_otherwise():
    assert not Section("server", "Text.").reloads
