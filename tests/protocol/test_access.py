"""Access records: every vector, each field's refusal, the order of the checks, and the keys of all times."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shine_node.protocol.access import (
    AccessRecord,
    AccessServer,
    User,
    check_record,
    is_newer,
    is_server_url,
    make_user,
    parse_identity,
    parse_record,
    record_order,
    record_payload,
    signed_text,
)
from shine_node.protocol.container import CLIENT_AHEAD_MS, parse_container
from shine_node.protocol.encoding import encode_base64
from shine_node.protocol.errors import (
    BadBase64,
    BadBlockchainName,
    BadFields,
    BadKeyFormat,
    BadLogin,
    BadRequestFormat,
    BadSignature,
    Refusal,
    RootKeyMismatch,
)
from shine_node.protocol.signatures import is_signed_by, key_pair, sign
from tests.protocol.strategies import PUBLIC_KEY, SECRET_KEY, logins
from tests.support.vectors import cases, load_vectors

NOW_MS = 1_774_700_600_000
BLOCKCHAIN_KEY, DEVICE_KEY, NEW_DEVICE_KEY = (key_pair(bytes((number,)) * 32)[0] for number in (1, 2, 3))
SERVERS = (AccessServer("Server1", "wss://one.example/ws"), AccessServer("server2", "wss://two.example:8443/ws?x=1"))


def make_record(secret_key: bytes = SECRET_KEY, **change: Any) -> AccessRecord:
    """A signed record of Alice; what is named is changed before it is signed."""
    unsigned = AccessRecord("Alice", "alice-001", PUBLIC_KEY, BLOCKCHAIN_KEY, DEVICE_KEY, SERVERS, NOW_MS, b"")
    unsigned = unsigned._replace(**change)
    return unsigned._replace(signature=sign(secret_key, signed_text(unsigned)))


def payload(**change: object) -> dict[str, object]:
    """The record as it travels, with members changed after it was signed."""
    return record_payload(make_record()) | change


# The vectors


@pytest.mark.parametrize("case", cases("access_records"))
def test_a_record_of_the_vectors(case: dict[str, Any]) -> None:
    allow_insecure = case.get("allowInsecureUrl", False)
    now_ms = case.get("nowMs", load_vectors("access_records")["nowMs"])
    known = parse_record(case["stored"], allow_insecure=allow_insecure) if "stored" in case else None
    status, error, applied = 200, None, None
    try:
        record = parse_record(case["record"], allow_insecure=allow_insecure)
        assert signed_text(record).decode() == case["text"]
        assert record_payload(record) == case["record"]
        applied = check_record(record, known=known, now_ms=now_ms)
    except Refusal as refusal:
        status, error = refusal.status, refusal.code
    assert (status, error, applied) == (case["status"], case["error"], case.get("applied"))


@pytest.mark.parametrize("case", cases("key_history"))
def test_the_key_of_its_time_in_the_vectors(case: dict[str, Any]) -> None:
    records = [
        make_record(device_key=bytes.fromhex(entry["deviceKeyHex"]), time_ms=entry["timeMs"])
        for entry in case["records"]
    ]
    user = make_user(records)
    container = parse_container(bytes.fromhex(case["hex"]), max_body_bytes=65536)
    find = user.fresh_key_at if case["fresh"] else user.device_key_at
    key = find(container.effective_ms)
    signed = key is not None and is_signed_by(key, container.signed_part, container.signature)
    answer = (200, None) if signed else (422, "BAD_SIGNATURE")
    assert answer == (case["status"], case["error"])


# Fields


def test_a_record_comes_back_as_it_was_sent() -> None:
    record = make_record()
    assert parse_record(record_payload(record) | {"bchLimit": 5, "op": "x"}, allow_insecure=False) == record
    assert record.key == "alice"
    assert record.names_server("SERVER1")
    assert record.names_server("server2")
    assert not record.names_server("server3")
    assert parse_record(record_payload(make_record(access_servers=())), allow_insecure=False).access_servers == ()


def test_the_signed_text_is_that_of_the_specification() -> None:
    assert signed_text(make_record()).decode().split("\n") == [
        "SHiNE/UserAccess:1",
        "Alice",
        "alice-001",
        encode_base64(PUBLIC_KEY),
        encode_base64(BLOCKCHAIN_KEY),
        encode_base64(DEVICE_KEY),
        "2",
        "Server1 wss://one.example/ws",
        "server2 wss://two.example:8443/ws?x=1",
        str(NOW_MS),
    ]


def test_an_unsigned_record_travels_without_time_and_signature() -> None:
    unsigned = record_payload(make_record()._replace(signature=b"", time_ms=0))
    assert set(payload()) - set(unsigned) == {"timeMs", "signatureB64"}
    login, blockchain_name, keys = parse_identity(unsigned)
    assert (login, blockchain_name, keys) == ("Alice", "alice-001", (PUBLIC_KEY, BLOCKCHAIN_KEY, DEVICE_KEY))


SERVER = {"serverLogin": "server1", "url": "wss://one.example/ws"}


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ({"login": None}, BadFields),
        ({"login": ""}, BadLogin),
        ({"login": "a b"}, BadLogin),
        ({"login": 5}, BadRequestFormat),
        ({"blockchainName": None}, BadFields),
        ({"blockchainName": "bob-001"}, BadBlockchainName),
        ({"blockchainName": 5}, BadRequestFormat),
        ({"solanaKey": None}, BadFields),
        ({"blockchainKey": 5}, BadRequestFormat),
        ({"deviceKey": "AAAA"}, BadKeyFormat),
        ({"deviceKey": encode_base64(bytes(32))}, BadKeyFormat),
        ({"accessServers": None}, BadFields),
        ({"accessServers": {}}, BadRequestFormat),
        ({"accessServers": ["server1"]}, BadRequestFormat),
        ({"accessServers": [SERVER | {"serverLogin": None}]}, BadFields),
        ({"accessServers": [SERVER | {"serverLogin": "a b"}]}, BadFields),
        ({"accessServers": [SERVER | {"serverLogin": 5}]}, BadRequestFormat),
        ({"accessServers": [SERVER | {"url": ""}]}, BadFields),
        ({"accessServers": [SERVER | {"url": "ws://one.example/ws"}]}, BadFields),
        ({"accessServers": [SERVER, SERVER | {"serverLogin": "SERVER1"}]}, BadFields),
        ({"accessServers": [SERVER | {"serverLogin": name} for name in "abc"]}, BadFields),
        ({"timeMs": None}, BadFields),
        ({"timeMs": 2**53}, BadFields),
        ({"timeMs": "5"}, BadRequestFormat),
        ({"signatureB64": None}, BadFields),
        ({"signatureB64": "AAA"}, BadBase64),
        ({"signatureB64": 5}, BadRequestFormat),
    ],
)
def test_a_record_with_a_wrong_field(change: dict[str, object], refusal: type[Refusal]) -> None:
    with pytest.raises(Refusal) as refused:
        parse_record(payload(**change), allow_insecure=False)
    assert type(refused.value) is refusal


@pytest.mark.parametrize("url", ["wss://a", "wss://one.example:8443/ws?x=1", "wss://[::1]/ws", "wss://" + "x" * 250])
def test_a_server_url(url: str) -> None:
    assert is_server_url(url, allow_insecure=False)
    assert is_server_url(url, allow_insecure=True)
    assert not is_server_url(url.replace("wss", "ws", 1), allow_insecure=False)
    assert is_server_url(url.replace("wss", "ws", 1), allow_insecure=True)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "wss://",
        "http://a",
        "WSS://a",
        "wss:/a",
        "a",
        "wss://a b",
        "wss://a\n",
        "\nwss://a",
        "wss://é",
        "wss://" + "x" * 251,
    ],
    ids=ascii,
)
def test_no_server_url(url: str) -> None:
    assert not is_server_url(url, allow_insecure=True)
    with pytest.raises(BadFields):
        parse_record(payload(accessServers=[SERVER | {"url": url}]), allow_insecure=True)


# The checks after the fields


def test_a_first_record_is_applied() -> None:
    assert check_record(make_record(), known=None, now_ms=NOW_MS) is True


def test_a_record_from_the_future() -> None:
    limit = NOW_MS + CLIENT_AHEAD_MS
    assert check_record(make_record(time_ms=limit), known=None, now_ms=NOW_MS)
    with pytest.raises(BadFields, match="timeMs is ahead of the clock by more than 15 minutes"):
        check_record(make_record(time_ms=limit + 1), known=None, now_ms=NOW_MS)


def test_the_first_root_key_counts_also_before_signature_and_age() -> None:
    other_public, other_secret = key_pair(bytes(32))
    record = make_record(other_secret, solana_key=other_public)
    for arriving in (record, record._replace(signature=bytes(64)), record._replace(time_ms=0)):
        with pytest.raises(RootKeyMismatch):
            check_record(arriving, known=make_record(), now_ms=NOW_MS)
    with pytest.raises(BadFields):  # the clock stands before the root key
        check_record(record._replace(time_ms=2 * NOW_MS), known=make_record(), now_ms=NOW_MS)


@pytest.mark.parametrize("change", [{"signature": bytes(64)}, {"signature": b""}, {"time_ms": 0}, {"login": "alice"}])
def test_a_record_that_its_root_key_did_not_sign(change: dict[str, Any]) -> None:
    for known in (None, make_record()):
        with pytest.raises(BadSignature):
            check_record(make_record()._replace(**change), known=known, now_ms=NOW_MS)


def test_the_newest_record_wins_and_of_two_equal_ones_the_greater_signature() -> None:
    known = make_record()
    assert check_record(make_record(time_ms=NOW_MS + 1), known=known, now_ms=NOW_MS) is True
    assert check_record(make_record(time_ms=NOW_MS - 1), known=known, now_ms=NOW_MS) is False
    assert check_record(known, known=known, now_ms=NOW_MS) is False
    twin = make_record(device_key=NEW_DEVICE_KEY)
    greater, smaller = sorted((known, twin), key=lambda record: record.signature, reverse=True)
    assert check_record(greater, known=smaller, now_ms=NOW_MS) is True
    assert check_record(smaller, known=greater, now_ms=NOW_MS) is False
    assert is_newer(greater, smaller)
    assert not is_newer(smaller, greater)
    assert record_order(greater) > record_order(smaller)


# Users


def test_a_user_without_history() -> None:
    user = make_user([make_record()])
    assert user == User(make_record(), ((NOW_MS, DEVICE_KEY),))
    assert user.key == "alice"
    for time_ms in (0, NOW_MS, 2 * NOW_MS):
        assert user.device_key_at(time_ms) == user.fresh_key_at(time_ms) == DEVICE_KEY


def test_each_time_has_its_key_and_only_the_newest_is_fresh() -> None:
    newest = make_record(device_key=NEW_DEVICE_KEY, time_ms=2000)
    for records in ([make_record(time_ms=1000), newest], [newest, make_record(time_ms=1000)]):
        user = make_user(records)
        assert user.record == newest
        for time_ms, key in ((0, DEVICE_KEY), (1000, DEVICE_KEY), (1999, DEVICE_KEY), (2000, NEW_DEVICE_KEY)):
            assert user.device_key_at(time_ms) == key
            assert user.fresh_key_at(time_ms) == (key if key == NEW_DEVICE_KEY else None)


def test_the_other_server() -> None:
    user = make_user([make_record()])
    assert user.other_server("SERVER1") == SERVERS[1]
    assert user.other_server("server2") == SERVERS[0]
    assert user.other_server("server3") is None  # this server is none of the two
    assert make_user([make_record(access_servers=SERVERS[:1])]).other_server("server1") is None


# Properties

servers = st.lists(
    st.builds(AccessServer, logins, st.text("abc.:/?=", min_size=1, max_size=20).map("wss://".__add__)),
    max_size=2,
    unique_by=lambda server: server.server_login.lower(),
).map(tuple)


@given(logins, servers, st.integers(0, NOW_MS))
def test_what_is_signed_is_parsed_and_accepted(
    login: str, access_servers: tuple[AccessServer, ...], time_ms: int
) -> None:
    record = make_record(
        login=login, blockchain_name=f"{login.swapcase()}-007", access_servers=access_servers, time_ms=time_ms
    )
    again = parse_record(record_payload(record), allow_insecure=False)
    assert again == record
    assert check_record(again, known=None, now_ms=NOW_MS)


@given(
    st.lists(
        st.tuples(st.integers(0, 20), st.sampled_from((DEVICE_KEY, NEW_DEVICE_KEY, BLOCKCHAIN_KEY))),
        min_size=1,
        max_size=6,
    ),
    st.integers(0, 25),
    st.randoms(use_true_random=False),
)
def test_the_key_in_force_does_not_hang_on_the_order_of_learning(
    history: list[tuple[int, bytes]], time_ms: int, random: Any
) -> None:
    records = [make_record(time_ms=at, device_key=key) for at, key in history]
    user = make_user(records)
    random.shuffle(records)
    assert make_user(records) == user
    before = [record for record in records if record.time_ms <= time_ms]
    in_force = max(before, key=record_order) if before else min(records, key=record_order)
    assert user.device_key_at(time_ms) == in_force.device_key
    assert user.fresh_key_at(time_ms) in (None, user.record.device_key)


@given(
    st.dictionaries(
        st.sampled_from(sorted(payload())),
        st.none() | st.text(max_size=5) | st.integers() | st.lists(st.just(SERVER), max_size=3),
    )
)
def test_a_broken_record_raises_nothing_but_refusals(change: dict[str, object]) -> None:
    try:
        record = parse_record(payload(**change), allow_insecure=False)
        check_record(record, known=make_record(), now_ms=NOW_MS)
    except Refusal as refusal:
        assert refusal.status in (400, 409, 422)
