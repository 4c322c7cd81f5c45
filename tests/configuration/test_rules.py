from pathlib import Path

import pytest

from shine_node.configuration.model import SyncServer
from shine_node.configuration.options import OPTIONS, PEERS
from shine_node.configuration.rules import broken_rules
from tests.configuration.test_kinds import AROUND

DEFAULTS = {
    option.name: option.kind.parse(option.example if option.default is None else option.default, AROUND)
    for option in OPTIONS
    if option.section != PEERS
}
FRIEND = {"friend": SyncServer("Friend", "wss://friend.example/ws")}


def broken(peers=FRIEND, **changes):
    values = {**DEFAULTS, **{name.replace("__", "."): value for name, value in changes.items()}}
    return list(broken_rules(values, peers))


def names(peers=FRIEND, **changes):
    return [rule.name for rule in broken(peers, **changes)]


def test_the_defaults_break_no_rule():
    assert broken() == []
    assert list(broken_rules({}, FRIEND)) == []


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_value_that_was_wrong_by_itself_is_not_asked(name):
    assert list(broken_rules({key: value for key, value in DEFAULTS.items() if key != name}, FRIEND)) == []


def test_a_caller_waits_as_long_as_a_request():
    assert broken(server__pool__callerTimeoutSeconds=12) == []
    (rule,) = broken(server__pool__callerTimeoutSeconds=11)
    assert rule.name == "server.pool.callerTimeoutSeconds"
    assert "= 11 is below" in rule.text and "at least 12" in rule.text


@pytest.mark.parametrize(
    ("body", "block", "frame", "broken_by"),
    [
        (65536, 1, 4 * 65536 + 65536, []),
        (65536, 1, 4 * 65536 + 65535, ["limits.maxBodyBytes"]),
        (1, 524288, 799540, []),  # 1.4 x 524288 is 734003.2
        (1, 524288, 799539, ["limits.maxBlockBytes"]),
        (1, 5, 65536 + 7, ["limits.maxBodyBytes"][:0]),
        (1, 5, 65536 + 6, ["limits.maxBlockBytes"]),
        (16777216, 4194304, 65536, ["limits.maxBodyBytes", "limits.maxBlockBytes"]),
    ],
)
def test_a_frame_holds_a_message_and_a_block(body, block, frame, broken_by):
    rules = broken(limits__maxBodyBytes=body, limits__maxBlockBytes=block, limits__maxFrameBytes=frame)
    assert [rule.name for rule in rules] == ["limits.maxFrameBytes"] * len(broken_by)
    assert all(name in rule.text for name, rule in zip(broken_by, rules, strict=True))


def test_certificate_and_key_come_together():
    pem = Path("/x.pem")
    assert names(server__tlsCert=pem) == ["server.tlsCert"]
    assert names(server__tlsKey=pem) == ["server.tlsKey"]
    assert names(server__tlsCert=pem, server__tlsKey=pem) == []


def test_registration_with_a_token_needs_one():
    assert names(registration__mode="token") == ["registration.mode"]
    assert names(registration__mode="token", registration__token="geheim") == []
    assert names(registration__mode="open", registration__token="geheim") == []


def test_without_encryption_only_where_it_is_allowed():
    insecure = {"friend": SyncServer("friend", "ws://friend.example/ws")}
    url = "ws://127.0.0.1:1/ws"
    assert names(server__url=url) == ["server.url"]
    (rule,) = broken(insecure)
    assert (rule.name, rule.peer) == ("sync_servers.url", "friend")
    assert "allowInsecurePeers" in rule.text
    assert names(insecure, server__url=url, server__pool__allowInsecurePeers=True) == []


def test_this_server_is_no_peer_of_itself():
    (rule,) = broken({"myserver": SyncServer("MyServer", "wss://other.example/ws")})
    assert (rule.name, rule.peer) == ("sync_servers.login", "myserver")
    (rule,) = broken({"friend": SyncServer("friend", DEFAULTS["server.url"])})
    assert (rule.name, rule.peer) == ("sync_servers.url", "friend")
