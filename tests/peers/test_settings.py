import dataclasses

import pytest

from shine_node.peers.settings import PoolSettings


def test_the_defaults_are_those_of_the_seed() -> None:
    settings = PoolSettings()
    assert settings.ping_idle_seconds == 120
    assert settings.pong_timeout_seconds == 15
    assert settings.request_timeout_seconds == 12
    assert settings.connect_timeout_seconds == 15
    assert settings.caller_timeout_seconds == 35
    assert settings.max_queue_per_peer == 2000
    assert settings.refresh_seconds == 30
    assert not settings.allow_insecure_peers
    assert not settings.allow_private_peers


def test_they_do_not_change_under_way() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        PoolSettings().refresh_seconds = 1  # type: ignore[misc]
