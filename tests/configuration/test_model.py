import dataclasses

import pytest

from shine_node.config import config_from_mapping
from shine_node.configuration import model
from shine_node.configuration.model import Config, ListenAddress

MAPPING = {
    "server": {"login": "a", "url": "wss://a.example/ws"},
    "registration": {"mode": "token", "token": "geheim"},
}


def test_an_address_is_written_as_it_is_read():
    assert str(ListenAddress("127.0.0.1", 7070)) == "127.0.0.1:7070"
    assert str(ListenAddress("::1", 7070)) == "[::1]:7070"
    assert str(ListenAddress("", 7070)) == ":7070"


def test_addresses_of_this_machine_alone():
    for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost"):
        assert ListenAddress(host, 1).is_loopback
    for host in ("", "0.0.0.0", "::", "192.168.1.2", "node.example"):
        assert not ListenAddress(host, 1).is_loopback


def test_nothing_shows_the_token():
    config = config_from_mapping(MAPPING)
    assert config.registration.token == "geheim"
    assert "geheim" not in repr(config)


def test_everything_is_frozen():
    config = config_from_mapping(MAPPING)
    assert isinstance(config, Config)
    hash(config)
    for part in (config, *(getattr(config, field.name) for field in dataclasses.fields(config))):
        if dataclasses.is_dataclass(part):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(part, dataclasses.fields(part)[0].name, None)


def test_all_names_are_there():
    assert all(hasattr(model, name) for name in model.__all__)
