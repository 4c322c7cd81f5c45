from pathlib import Path

import pytest

from shine_node.api.pages import PATH
from shine_node.cli.check_configuration import (
    ENDPOINT_PATH,
    PRODUCERS,
    find_blocked,
    find_listening,
    find_own_url,
    find_peers,
    find_registration,
    find_registration_token,
)
from shine_node.cli.findings import Level, Situation
from shine_node.config import config_from_mapping

TLS = {"tlsCert": "c", "tlsKey": "k"}


def situation(server=None, **sections):
    own = {"login": "home", "url": "wss://home.example/ws", **(server or {})}
    return Situation(config_from_mapping({"server": own, **sections}), Path("node.toml"))


def levels(findings):
    return [finding.level for finding in findings]


def test_the_path_is_that_of_the_endpoint():
    assert ENDPOINT_PATH == PATH


def test_the_defaults_are_well():
    findings = [finding for producer in PRODUCERS for finding in producer(situation())]
    assert set(levels(findings)) == {Level.OK}


@pytest.mark.parametrize(
    ("server", "level"),
    [
        ({"listen": ["127.0.0.1:1", "[::1]:1", "localhost:2"]}, Level.OK),
        ({"listen": ":1"}, Level.WARNING),
        ({"listen": ["127.0.0.1:1", "192.168.1.2:1"]}, Level.WARNING),
        ({"listen": "node.example:1"}, Level.WARNING),
        ({"listen": ":1", **TLS}, Level.OK),
    ],
)
def test_where_it_listens(server, level):
    (finding,) = find_listening(situation(server))
    assert finding.level is level


def test_what_a_proxy_must_send():
    (finding,) = find_listening(situation())
    assert finding.level is Level.OK and "X-Forwarded-For" in finding.text


def test_blocks_that_shut_out_too_much():
    assert find_blocked(situation()) == []
    peers = [{"login": "Friend", "url": "wss://friend.example/ws"}, {"login": "other", "url": "wss://other.example/ws"}]
    blocked = {"blockedPeers": ["friend", "foe"], "blockedAddresses": ["0.0.0.0/0", "192.0.2.0/24", "::/0"]}
    found = find_blocked(situation(sync_servers=peers, limits=blocked))
    assert levels(found) == [Level.WARNING] * 3
    assert found[0].text.startswith("Friend is a peer and is blocked")
    assert "all of IPv4" in found[1].text and "all of IPv6" in found[2].text


def test_only_the_exposed_addresses_are_named():
    (finding,) = find_listening(situation({"listen": ["127.0.0.1:1", "[::]:2"]}))
    assert finding.text.startswith("[::]:2: others can reach this")


@pytest.mark.parametrize(
    ("url", "allowed", "expected"),
    [
        ("wss://home.example/ws", False, [Level.OK]),
        ("wss://1.1.1.1/ws", False, [Level.OK]),
        ("wss://home.example/chat/ws", False, [Level.WARNING]),
        ("wss://home.example", False, [Level.WARNING]),
        ("wss://192.168.1.2/ws", False, [Level.WARNING]),
        ("wss://[::1]:7070/ws", False, [Level.WARNING]),
        ("wss://localhost/", False, [Level.WARNING, Level.WARNING]),
        ("wss://192.168.1.2/ws", True, [Level.OK]),
    ],
)
def test_the_own_url(url, allowed, expected):
    assert levels(find_own_url(situation({"url": url, "pool": {"allowPrivatePeers": allowed}}))) == expected


def test_an_own_url_that_is_still_to_be_set():
    (finding,) = find_own_url(situation({"url": "wss://pi-12ab.invalid/ws"}))
    assert finding.level is Level.WARNING and "is a placeholder" in finding.text


def test_peers_that_no_link_may_go_to():
    peers = [
        {"login": "a", "url": "wss://a.example/ws"},
        {"login": "b", "url": "wss://10.0.0.1/ws"},
        {"login": "c", "url": "wss://localhost:1/ws"},
    ]
    findings = find_peers(situation(sync_servers=peers))
    assert levels(findings) == [Level.WARNING] * 2
    assert findings[0].text.startswith("b at wss://10.0.0.1/ws is a private address")
    assert find_peers(situation({"pool": {"allowPrivatePeers": True}}, sync_servers=peers)) == []


@pytest.mark.parametrize(
    ("registration", "expected"),
    [
        ({}, [Level.OK]),
        ({"mode": "token", "token": "geheim"}, [Level.OK]),
        ({"token": "geheim"}, [Level.WARNING]),
        ({"mode": "open"}, [Level.OK]),
        ({"mode": "open", "allowUnsigned": True}, [Level.WARNING]),
        ({"mode": "open", "allowUnsigned": True, "token": "geheim"}, [Level.WARNING] * 2),
    ],
)
def test_registration(registration, expected):
    findings = find_registration(situation(registration=registration))
    assert levels(findings) == expected
    assert not any("geheim" in finding.text for finding in findings)


@pytest.mark.parametrize(
    ("registration", "expected"),
    [
        ({"mode": "token", "token": "geheim"}, [Level.WARNING]),
        ({"mode": "token", "token": "x" * 15}, [Level.WARNING]),
        ({"mode": "token", "token": "x" * 16}, []),
        ({"token": "geheim"}, []),
        ({"mode": "open"}, []),
    ],
)
def test_a_token_that_could_be_guessed(registration, expected):
    findings = find_registration_token(situation(registration=registration))
    assert levels(findings) == expected
    assert not any("geheim" in finding.text or "xxx" in finding.text for finding in findings)
