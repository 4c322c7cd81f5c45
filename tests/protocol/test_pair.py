"""The two copies of a message: the vectors as far as format, clock, pair and signature go, and each rule by itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shine_node.protocol.container import CLIENT_AHEAD_MS, Container, check_clock, parse_container
from shine_node.protocol.errors import BadContainer, PairMismatch, Refusal, TooLarge
from shine_node.protocol.pair import Pair, check_pair, parse_incoming, parse_pair
from shine_node.protocol.signatures import is_signed_by
from tests.protocol.strategies import container_fields, signed
from tests.support.vectors import cases, load_vectors

# What a vector's reason must leave in the message.
REASONS = {
    "types": "must be of types 1 and 2, 3 and 4, or 5 and 6",
    "logins, timeMs or nonce": "the same logins, timeMs and nonce",
    "revisionMs": "the same revisionMs",
    "references differ": "name the same message",
    "missing bytes: signature": "missing bytes: signature",
    "missing bytes: magic": "missing bytes: magic",
    "trailing bytes": "bytes too many",
    "body": "the body is over",
    "timeMs ahead of the clock": "timeMs is ahead",
}
AFTER_THE_PAIR = {"USER_NOT_FOUND", "NOT_ACCESS_SERVER", "BAD_SIGNATURE"}
"""What only the intake can say, with users at hand: at this level such a case is a pair."""

TEXT: dict[str, Any] = {
    "to_login": "bob",
    "from_login": "alice",
    "time_ms": 1000,
    "nonce": 7,
    "message_type": 1,
    "revision_ms": 0,
    "body_format": 1,
    "body": b"text",
}
RECEIPT = TEXT | {"message_type": 3, "body_format": 3, "body": b"bob|alice|5|6"}
TOMBSTONE = TEXT | {"message_type": 5, "body_format": 3, "body": b"alice|bob|5|6"}


def container(fields: dict[str, Any]) -> Container:
    return parse_container(signed(fields), max_body_bytes=100)


def second(fields: dict[str, Any], **change: object) -> dict[str, Any]:
    """The fields of the outgoing copy of an incoming one."""
    return fields | {"message_type": fields["message_type"] + 1} | change


def make_pair(case: dict[str, Any]) -> Pair:
    file = load_vectors("pairs")
    now_ms = case.get("nowMs", file["nowMs"])
    blobs = bytes.fromhex(case["incomingHex"]), bytes.fromhex(case["outgoingHex"])
    copies = parse_pair(*blobs, max_body_bytes=file["maxBodyBytes"])
    for copy in copies:
        check_clock(copy, now_ms=now_ms, ahead_ms=CLIENT_AHEAD_MS)
    return check_pair(*copies)


@pytest.mark.parametrize("case", cases("pairs"))
def test_a_pair_of_the_vectors(case: dict[str, Any]) -> None:
    if case["error"] is not None and case["error"] not in AFTER_THE_PAIR:
        with pytest.raises(Refusal) as refused:
            make_pair(case)
        assert (refused.value.status, refused.value.code) == (case["status"], case["error"])
        assert REASONS.get(case["reason"], "") in refused.value.detail
        return
    pair = make_pair(case)
    assert pair.incoming.message == pair.outgoing.message
    keys = {login.lower(): known for login, known in load_vectors("pairs")["keys"].items()}
    if case["error"] in ("USER_NOT_FOUND", "NOT_ACCESS_SERVER"):
        unknown = {pair.incoming.message.from_login, pair.incoming.message.to_login} - set(keys)
        assert bool(unknown) is (case["error"] == "USER_NOT_FOUND")
        return
    device_key = bytes.fromhex(keys[pair.incoming.message.from_login]["deviceKeyHex"])
    unsigned = [
        name for name, copy in pair._asdict().items() if not is_signed_by(device_key, copy.signed_part, copy.signature)
    ]
    if case["error"] == "BAD_SIGNATURE":
        assert unsigned[0] == case["reason"]
        return
    assert unsigned == []
    assert pair.outgoing.message.base_key == case["baseKey"]
    assert (str(pair.incoming.key), str(pair.outgoing.key)) == (case["incomingKey"], case["outgoingKey"])


@pytest.mark.parametrize("fields", [TEXT, RECEIPT, TOMBSTONE], ids=["message", "receipt", "tombstone"])
def test_two_copies_are_a_pair(fields: dict[str, Any]) -> None:
    incoming, outgoing = container(fields), container(second(fields))
    assert check_pair(incoming, outgoing) == Pair(incoming, outgoing)


def test_bodies_formats_and_spelling_may_differ() -> None:
    outgoing = container(second(TEXT, body=b"\x01sealed", body_format=2, to_login="BOB", from_login="Alice"))
    assert check_pair(container(TEXT), outgoing).outgoing is outgoing


@pytest.mark.parametrize(
    ("incoming", "outgoing", "message"),
    [
        (TEXT, TEXT, "types"),
        (second(TEXT), TEXT, "types"),
        (second(TEXT), second(TEXT), "types"),
        (second(TEXT), second(second(TEXT), body_format=3, body=b"bob|alice|5|6"), "types"),  # 2 and 3
        (TEXT, second(RECEIPT), "types"),
        (TEXT, second(TEXT, nonce=8), "the same logins, timeMs and nonce"),
        (TEXT, second(TEXT, time_ms=1001), "the same logins, timeMs and nonce"),
        (TEXT, second(TEXT, to_login="carol"), "the same logins, timeMs and nonce"),
        (TEXT, second(TEXT, from_login="carol"), "the same logins, timeMs and nonce"),
        (TEXT, second(TEXT, revision_ms=1001), "the same revisionMs"),
        (RECEIPT, second(RECEIPT, body=b"bob|alice|5|7"), "name the same message"),
        (TOMBSTONE, second(TOMBSTONE, body=b"alice|bob|5|7"), "name the same message"),
    ],
)
def test_no_pair(incoming: dict[str, Any], outgoing: dict[str, Any], message: str) -> None:
    with pytest.raises(PairMismatch, match=message):
        check_pair(container(incoming), container(outgoing))


def test_both_copies_are_parsed_the_incoming_one_first() -> None:
    good, long = signed(TEXT), signed(TEXT | {"body": b"x" * 101})
    assert parse_pair(good, signed(second(TEXT)), max_body_bytes=100) == (container(TEXT), container(second(TEXT)))
    with pytest.raises(TooLarge):
        parse_pair(long, b"", max_body_bytes=100)
    with pytest.raises(BadContainer, match="magic"):
        parse_pair(good, b"", max_body_bytes=100)


def test_a_recipient_takes_incoming_copies_only() -> None:
    for fields in (TEXT, RECEIPT, TOMBSTONE):
        assert parse_incoming(signed(fields), max_body_bytes=100) == container(fields)
        with pytest.raises(BadContainer, match="this is the sender's copy"):
            parse_incoming(signed(second(fields)), max_body_bytes=100)


@given(container_fields(message_types=(1, 3, 5)), st.data())
def test_any_incoming_copy_has_one_partner_and_no_other(fields: dict[str, Any], data: st.DataObject) -> None:
    incoming = container(fields)
    assert check_pair(incoming, container(second(fields))).incoming is incoming
    other = container(data.draw(container_fields()))
    if other.message != incoming.message:
        with pytest.raises(PairMismatch):
            check_pair(incoming, other)
