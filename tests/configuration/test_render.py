import tomllib
from pathlib import Path

import pytest

from shine_node.config import config_from_mapping
from shine_node.configuration.options import OPTIONS, SECTIONS
from shine_node.configuration.render import render_config

FILE = Path(__file__).resolve().parents[2] / "conf" / "shine-node.toml"
OWN = {"server": {"login": "home", "url": "wss://home.example/ws"}}


REMEDY = "render_config() of shine_node.configuration.render makes it: write its result there"


def test_the_file_of_the_repository_is_what_the_table_makes():
    assert FILE.read_text(encoding="utf-8") == render_config(), REMEDY


def test_as_it_is_it_sets_nothing():
    table = tomllib.loads(render_config())
    table["server"].update(OWN["server"])
    assert config_from_mapping(table) == config_from_mapping(OWN)


def test_with_every_option_uncommented_it_sets_the_defaults():
    text = "\n".join(
        line[1:] if line.startswith("#") and line[1:2] != " " else line for line in render_config().split("\n")
    )
    table = tomllib.loads(text)
    assert table.pop("sync_servers") == [{"login": "friend", "url": "wss://friend.example/ws"}]
    assert table["server"].pop("login") == "myserver"
    assert table["server"].pop("url") == "wss://myserver.example/ws"
    table["server"].update(OWN["server"])
    assert config_from_mapping(table) == config_from_mapping(OWN)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_every_option_is_described(option):
    start = "[[sync_servers]]" if option.section == "sync_servers" else f"[{option.section}]"
    part = render_config().partition(f"{start}\n")[2]
    before = part[: part.index(f"\n#{option.key} = {option.default_text}\n")]
    words = " ".join(before.rpartition("\n\n")[2].replace("# ", " ").split())
    default = f"Default: {option.default_text}." if option.default is not None else "Required."
    reload = "Reloaded." if option.reloads else "Needs a restart."
    assert words == " ".join(f"{option.text} Allowed: {option.kind.expected}. {default} {reload}".split())


def test_sections_are_described():
    words = " ".join(render_config().replace("#", " ").split())
    assert all(section.text in words for section in SECTIONS)


def test_lines_are_short():
    assert all(len(line) <= 100 for line in render_config().split("\n"))


def test_settings_that_are_chosen():
    text = render_config({"server.login": 'q"\\', "server.listen": [":1", ":2"], "server.pool.allowPrivatePeers": True})
    assert tomllib.loads(text)["server"] == {
        "login": 'q"\\',
        "listen": [":1", ":2"],
        "info": {},
        "pool": {"allowPrivatePeers": True},
    }
    assert '#login = "myserver"' not in text and "#url = " in text
