"""``ServerHello``: what is said and what is heard."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shine_node.protocol.errors import BadFields, BadLogin, BadRequestFormat, Refusal, UnsupportedProtocol
from shine_node.protocol.hello import CAPABILITIES, PROTOCOL_VERSION, Hello, hello_payload, parse_hello

SEEDS = {  # the request of the seed, §1
    "serverLogin": "shineupme",
    "protocolVersion": 1,
    "capabilities": ["dm-sync", "settings-sync", "block-sync", "connection-pool"],
}


def test_the_hello_of_the_seed_is_understood() -> None:
    hello = parse_hello(SEEDS | {"accepted": True, "unknown": {}})
    assert hello == Hello("shineupme", 1, frozenset(SEEDS["capabilities"]))


def test_what_is_said_is_what_is_heard() -> None:
    payload = hello_payload("Server1")
    assert payload == {"serverLogin": "Server1", "protocolVersion": 1, "capabilities": list(CAPABILITIES)}
    assert parse_hello(payload) == Hello("Server1", PROTOCOL_VERSION, frozenset(CAPABILITIES))


def test_a_capability_is_in_force_where_both_name_it() -> None:
    hello = Hello("server2", 1, frozenset({"connection-pool", "time-travel"}))
    assert hello.in_force("connection-pool")
    assert not hello.in_force("time-travel")  # this server does not name it
    assert not Hello("server2", 1, frozenset()).in_force("connection-pool")  # that one does not
    assert set(CAPABILITIES) <= {"dm-sync", "settings-sync", "block-sync", "connection-pool"}
    assert len(CAPABILITIES) == len(set(CAPABILITIES))


@pytest.mark.parametrize("capabilities", [None, [], [5, None, {}]], ids=repr)
def test_a_peer_without_capabilities(capabilities: list[object] | None) -> None:
    assert parse_hello(SEEDS | {"capabilities": capabilities}).capabilities == frozenset()


@pytest.mark.parametrize("version", [0, 2, 2**53 - 1])
def test_another_version_is_426(version: int) -> None:
    with pytest.raises(UnsupportedProtocol, match="this server speaks protocolVersion 1") as refused:
        parse_hello(SEEDS | {"protocolVersion": version})
    assert refused.value.status == 426


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ({"serverLogin": None}, BadFields),
        ({"serverLogin": ""}, BadFields),
        ({"serverLogin": "a b"}, BadLogin),
        ({"serverLogin": 5}, BadRequestFormat),
        ({"protocolVersion": None}, BadFields),
        ({"protocolVersion": -1}, BadFields),
        ({"protocolVersion": "1"}, BadRequestFormat),
        ({"protocolVersion": True}, BadRequestFormat),
        ({"capabilities": "dm-sync"}, BadRequestFormat),
    ],
)
def test_a_hello_with_a_wrong_field(change: dict[str, Any], refusal: type[Refusal]) -> None:
    with pytest.raises(refusal):
        parse_hello(SEEDS | change)


values = st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.lists(st.integers() | st.text(max_size=4))


@given(st.dictionaries(st.sampled_from(list(SEEDS)), values | st.sampled_from(list(SEEDS.values()))))
def test_a_hello_raises_nothing_but_refusals(payload: dict[str, Any]) -> None:
    try:
        assert parse_hello(payload).protocol_version == PROTOCOL_VERSION
    except Refusal as refusal:
        assert refusal.status in (400, 426)
