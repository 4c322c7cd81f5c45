import dataclasses
import re
import tomllib

from shine_node.configuration.kinds import Secret
from shine_node.configuration.model import Config
from shine_node.configuration.options import OPTIONS, PEERS, REQUIRED, SECTIONS, options_of
from tests.configuration.test_kinds import AROUND

RELOADED = {
    "server.tlsCert",
    "server.tlsKey",
    "sync_servers.login",
    "sync_servers.url",
    "storage.minFreeMiB",
    "log.level",
    "log.format",
    *(
        option.name
        for option in options_of("limits")
        if option.key not in ("maxBodyBytes", "maxBlockBytes", "maxFrameBytes")
    ),
}
"""The sizes are not among them: they have to fit each other, and parts are made for them when the node starts."""


def test_names_are_unique_and_belong_to_a_section():
    names = [option.name for option in OPTIONS]
    assert len(set(names)) == len(names)
    sections = [section.name for section in SECTIONS]
    assert len(set(sections)) == len(sections)
    assert list(dict.fromkeys(option.section for option in OPTIONS)) == sections
    assert [option for name in sections for option in options_of(name)] == list(OPTIONS)


def test_the_classes_have_the_attributes_of_the_table():
    hints = {field.name: field.type for field in dataclasses.fields(Config)}
    assert set(hints) == {section.name.split(".")[0] for section in SECTIONS}
    attributes = {option.attribute for option in OPTIONS}
    assert {"ping_idle_seconds", "map_size_mib", "schedule_seconds", "tls_cert", "ca_file", "data_dir"} <= attributes
    assert all(re.fullmatch("[a-z]+(?:_[a-z]+)*", attribute) for attribute in attributes)


def test_every_default_and_example_is_allowed():
    for option in OPTIONS:
        written = option.example if option.default is REQUIRED else option.default
        option.kind.parse(written, AROUND)
        option.kind.parse_default(written, AROUND)
        assert tomllib.loads(f"key = {option.default_text}")["key"] == written
        assert bool(option.example) == (option.default is REQUIRED)


def test_what_has_no_default():
    required = {option.name for option in OPTIONS if option.default is REQUIRED}
    assert required == {"server.login", "server.url", f"{PEERS}.login", f"{PEERS}.url"}


def test_what_is_reloaded():
    assert {option.name for option in OPTIONS if option.reloads} == RELOADED


def test_descriptions_are_one_sentence_or_two():
    for text in (*(option.text for option in OPTIONS), *(section.text for section in SECTIONS)):
        assert text[0].isupper() and text.endswith(".") and "\n" not in text


def test_the_token_is_a_secret():
    assert [option.name for option in OPTIONS if isinstance(option.kind, Secret)] == ["registration.token"]
