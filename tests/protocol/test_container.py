"""The container: every vector, each rule by itself, and the order of the checks against a slow reader of the table."""

from __future__ import annotations

import hashlib
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shine_node.protocol.container import (
    CLIENT_AHEAD_MS,
    FORMAT_OPAQUE,
    FORMAT_REFERENCE,
    FORMAT_SEALED,
    FORMAT_TEXT,
    MESSAGE_IN,
    MESSAGE_OUT,
    PEER_AHEAD_MS,
    RECEIPT_IN,
    RECEIPT_OUT,
    SIGNATURE_BYTES,
    TOMBSTONE_IN,
    TOMBSTONE_OUT,
    Container,
    check_clock,
    encode_unsigned,
    parse_container,
)
from shine_node.protocol.errors import BadContainer, BadFields, BadSignature, Refusal, TooLarge
from shine_node.protocol.keys import MessageId
from shine_node.protocol.signatures import is_signed_by, key_pair, sign
from tests.protocol.strategies import PUBLIC_KEY, U64, container_fields, containers, mutated_containers, signed
from tests.support.vectors import cases, load_vectors

NOW_MS = 1_774_700_600_000
LIMIT = 1000
PLAIN: dict[str, Any] = {
    "to_login": "Bob",
    "from_login": "alice",
    "time_ms": NOW_MS,
    "nonce": 7,
    "message_type": MESSAGE_IN,
    "revision_ms": 0,
    "body_format": FORMAT_TEXT,
    "body": "Привет".encode(),
}
RECEIPT = PLAIN | {"message_type": RECEIPT_IN, "body_format": FORMAT_REFERENCE, "body": b"bob|alice|5|6"}

# What a vector's reason must leave in the message; a reason that is not here says only which stage refused.
REASONS = {
    "magic": "magic",
    "version": "unknown version",
    "login: toLogin": "toLogin is not a login",
    "login: fromLogin": "fromLogin is not a login",
    "type": "unknown messageType",
    "format": "unknown bodyFormat",
    "format not allowed for the type": "not allowed for this messageType",
    "edit of a receipt or tombstone": "cannot be edited",
    "revision not after the message": "revisionMs is not after timeMs",
    "not UTF-8": "not valid UTF-8",
    "reference: not a baseKey": "not a baseKey",
    "reference: numbers": "not a baseKey",
    "reference: not of these two users": "these two users",
    "trailing bytes": "bytes too many",
    "body": "the body is over",
    "timeMs ahead of the clock": "timeMs is ahead",
    "revisionMs ahead of the clock": "revisionMs is ahead",
}


def parse(blob: bytes, limit: int = LIMIT) -> Container:
    return parse_container(blob, max_body_bytes=limit)


# The vectors


@pytest.mark.parametrize("case", cases("containers_valid"))
def test_a_valid_container_of_the_vectors(case: dict[str, Any]) -> None:
    file = load_vectors("containers_valid")
    blob = bytes.fromhex(case["hex"])
    public_key, secret_key = key_pair(bytes.fromhex(case["signerSeedHex"]))
    assert public_key.hex() == case["publicKeyHex"]
    assert hashlib.sha256(blob).hexdigest() == case["sha256"]

    unsigned = encode_unsigned(
        to_login=case["toLogin"],
        from_login=case["fromLogin"],
        time_ms=case["timeMs"],
        nonce=case["nonce"],
        message_type=case["messageType"],
        revision_ms=case["revisionMs"],
        body_format=case["bodyFormat"],
        body=bytes.fromhex(case["bodyHex"]),
    )
    assert unsigned + sign(secret_key, unsigned) == blob

    container = parse(blob, file["maxBodyBytes"])
    assert (container.to_login, container.from_login) == (case["toLogin"], case["fromLogin"])
    assert (container.time_ms, container.nonce, container.revision_ms) == (
        case["timeMs"],
        case["nonce"],
        case["revisionMs"],
    )
    assert (container.message_type, container.body_format) == (case["messageType"], case["bodyFormat"])
    assert container.body.hex() == case["bodyHex"]
    assert container.signed_part + container.signature == container.blob == blob
    assert container.message.base_key == case["baseKey"]
    assert str(container.key) == case["key"]
    assert container.incoming is (case["keyName"] == "incomingKey")
    check_clock(container, now_ms=case.get("nowMs", file["nowMs"]), ahead_ms=CLIENT_AHEAD_MS)
    assert is_signed_by(public_key, container.signed_part, container.signature)


def check_all(case: dict[str, Any]) -> None:
    """Parse, then clock, then signature, as the vectors of invalid containers are to be run."""
    file = load_vectors("containers_invalid")
    container = parse(bytes.fromhex(case["hex"]), file["maxBodyBytes"])
    check_clock(container, now_ms=case.get("nowMs", file["nowMs"]), ahead_ms=CLIENT_AHEAD_MS)
    if not is_signed_by(bytes.fromhex(case["publicKeyHex"]), container.signed_part, container.signature):
        raise BadSignature("the container is not signed by this key")


@pytest.mark.parametrize("case", cases("containers_invalid"))
def test_an_invalid_container_of_the_vectors(case: dict[str, Any]) -> None:
    with pytest.raises(Refusal) as refused:
        check_all(case)
    assert (refused.value.status, refused.value.code) == (case["status"], case["error"])
    reason = case["reason"]
    expected = reason if reason.startswith("missing bytes") else REASONS.get(reason, "")
    assert expected in refused.value.detail


# Each rule by itself


def test_the_fields_come_back_and_the_copy_knows_its_keys() -> None:
    blob = signed(PLAIN | {"revision_ms": NOW_MS + 1})
    container = parse(blob)
    assert container == Container(
        to_login="Bob",
        from_login="alice",
        time_ms=NOW_MS,
        nonce=7,
        message_type=MESSAGE_IN,
        revision_ms=NOW_MS + 1,
        body_format=FORMAT_TEXT,
        body="Привет".encode(),
        signature=blob[-64:],
        blob=blob,
        message=MessageId("alice", "bob", NOW_MS, 7),
        reference=None,
    )
    assert container.signed_part == blob[:-SIGNATURE_BYTES]
    assert str(container.key) == f"alice|bob|{NOW_MS}|7|1"
    assert container.incoming
    assert container.effective_ms == NOW_MS + 1
    outgoing = parse(signed(PLAIN | {"message_type": MESSAGE_OUT}))
    assert not outgoing.incoming
    assert outgoing.effective_ms == NOW_MS
    assert outgoing.message == container.message


@pytest.mark.parametrize(
    ("message_type", "author", "reader"),
    [
        (RECEIPT_IN, "bob", "alice"),
        (RECEIPT_OUT, "bob", "alice"),
        (TOMBSTONE_IN, "alice", "bob"),
        (TOMBSTONE_OUT, "alice", "bob"),
    ],
)
def test_a_receipt_speaks_of_the_other_sides_message_and_a_tombstone_of_the_own(
    message_type: int, author: str, reader: str
) -> None:
    fields = RECEIPT | {"message_type": message_type}
    assert parse(signed(fields | {"body": f"{author}|{reader}|5|6".encode()})).reference == MessageId(
        author, reader, 5, 6
    )
    with pytest.raises(BadContainer, match="these two users in this direction"):
        parse(signed(fields | {"body": f"{reader}|{author}|5|6".encode()}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"to_login": ".bob"}, "toLogin is not a login"),
        ({"from_login": ""}, "fromLogin is not a login"),
        ({"message_type": 0}, "unknown messageType"),
        ({"message_type": 7}, "unknown messageType"),
        ({"revision_ms": NOW_MS}, "revisionMs is not after timeMs"),
        ({"body_format": 4}, "unknown bodyFormat"),
        ({"body_format": FORMAT_REFERENCE}, "not allowed for this messageType"),
        ({"message_type": RECEIPT_OUT}, "not allowed for this messageType"),
        ({"message_type": TOMBSTONE_IN, "revision_ms": NOW_MS + 1}, "cannot be edited"),
        ({"body": b"\xff"}, "not valid UTF-8"),
        (RECEIPT | {"body": b"\xff"}, "not valid UTF-8"),
        (RECEIPT | {"body": b"bob|alice|5"}, "not a baseKey"),
        (RECEIPT | {"body": b"bob|carol|5|6"}, "these two users"),
    ],
)
def test_a_broken_rule_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadContainer, match=message):
        parse(signed(PLAIN | change))


def test_a_login_that_is_not_ascii_is_no_login() -> None:
    blob = signed(PLAIN).replace(b"\x05alice", b"\x05al\xc3\xa9e")
    with pytest.raises(BadContainer, match="fromLogin is not a login"):
        parse(blob)


@pytest.mark.parametrize("blob", [b"SHiNE_dm" + signed(PLAIN)[8:], b"SHINE_DM\x01", b"SHINE_DM", bytes(200)])
def test_another_magic(blob: bytes) -> None:
    with pytest.raises(BadContainer, match="the magic is not SHiNE_DM"):
        parse(blob)


@pytest.mark.parametrize("version", [0, 2, 255])
def test_another_version(version: int) -> None:
    with pytest.raises(BadContainer, match="unknown version"):
        parse(signed(PLAIN)[:8] + bytes((version,)) + signed(PLAIN)[9:])


def test_each_cut_names_the_first_field_that_is_not_whole() -> None:
    blob = signed(PLAIN)
    fields = [
        ("magic", 8),
        ("version", 1),
        ("toLogin", 4),
        ("fromLogin", 6),
        ("timeMs", 8),
        ("nonce", 4),
        ("messageType", 2),
        ("revisionMs", 8),
        ("bodyFormat", 1),
        ("bodyLen", 4),
        ("body", len(PLAIN["body"])),
        ("signature", 64),
    ]
    assert sum(size for _, size in fields) == len(blob)
    start = 0
    for field, size in fields:
        for cut in range(start, start + size):
            with pytest.raises(BadContainer) as refused:
                parse(blob[:cut])
            assert refused.value.detail == f"missing bytes: {field}"
        start += size
    with pytest.raises(BadContainer, match="bytes too many"):
        parse(blob + b"\x00")


def test_the_limit_of_the_body() -> None:
    assert len(parse(signed(PLAIN | {"body": b"x" * LIMIT})).body) == LIMIT
    over = signed(PLAIN | {"body": b"x" * (LIMIT + 1)})
    for blob in (over, over[:60]):  # also where bytes are missing
        with pytest.raises(TooLarge, match="the body is over 1000 bytes"):
            parse(blob)
    with pytest.raises(BadContainer, match="unknown messageType"):  # a field before it decides
        parse(signed(PLAIN | {"body": b"x" * (LIMIT + 1), "message_type": 9}))


def test_empty_bodies_and_time_zero_are_valid() -> None:
    for body_format in (FORMAT_OPAQUE, FORMAT_TEXT, FORMAT_SEALED):
        container = parse(signed(PLAIN | {"body": b"", "time_ms": 0, "body_format": body_format}))
        assert (container.body, container.time_ms) == (b"", 0)


@pytest.mark.parametrize(("ahead_ms", "minutes"), [(CLIENT_AHEAD_MS, 15), (PEER_AHEAD_MS, 24 * 60)])
def test_the_clock(ahead_ms: int, minutes: int) -> None:
    assert ahead_ms == minutes * 60_000
    limit = NOW_MS + ahead_ms
    check_clock(parse(signed(PLAIN | {"time_ms": limit})), now_ms=NOW_MS, ahead_ms=ahead_ms)
    check_clock(parse(signed(PLAIN | {"revision_ms": limit})), now_ms=NOW_MS, ahead_ms=ahead_ms)
    with pytest.raises(BadFields, match=f"timeMs is ahead of the clock by more than {minutes} minutes"):
        check_clock(parse(signed(PLAIN | {"time_ms": limit + 1})), now_ms=NOW_MS, ahead_ms=ahead_ms)
    with pytest.raises(BadFields, match="revisionMs is ahead"):
        check_clock(parse(signed(PLAIN | {"revision_ms": limit + 1})), now_ms=NOW_MS, ahead_ms=ahead_ms)


@pytest.mark.parametrize("ahead_ms", [CLIENT_AHEAD_MS, PEER_AHEAD_MS])
def test_a_reference_names_no_message_from_the_future(ahead_ms: int) -> None:
    limit = NOW_MS + PEER_AHEAD_MS
    for message_type, users in ((RECEIPT_IN, "bob|alice"), (TOMBSTONE_IN, "alice|bob"), (TOMBSTONE_OUT, "alice|bob")):
        fields = RECEIPT | {"message_type": message_type}
        for time_ms in (0, NOW_MS, limit):
            near = parse(signed(fields | {"body": f"{users}|{time_ms}|6".encode()}))
            check_clock(near, now_ms=NOW_MS, ahead_ms=ahead_ms)
        for time_ms in (limit + 1, 2**53 - 1, 2**64 - 1):
            far = parse(signed(fields | {"body": f"{users}|{time_ms}|6".encode()}))
            with pytest.raises(BadFields, match="the reference names a message from the future"):
                check_clock(far, now_ms=NOW_MS, ahead_ms=ahead_ms)


# Properties


@given(container_fields())
def test_what_is_built_is_parsed(fields: dict[str, Any]) -> None:
    container = parse(signed(fields))
    assert {name: getattr(container, name) for name in fields} == fields
    assert is_signed_by(PUBLIC_KEY, container.signed_part, container.signature)
    assert (container.reference is not None) is (fields["body_format"] == FORMAT_REFERENCE)


def slow_reading(blob: bytes, limit: int) -> str | None:
    """Read a container as the table of §4 stands there, field by field: the first rule that is broken, or ``None``.

    Written apart from the parser, without its shortcuts, to hold "the first failure decides" against it.
    """
    rest = blob

    def take(size: int, field: str) -> bytes:
        nonlocal rest
        if len(rest) < size:
            raise EOFError(f"missing bytes: {field}")
        taken, rest = rest[:size], rest[size:]
        return taken

    def number(size: int, field: str) -> int:
        return int.from_bytes(take(size, field))

    def is_login(raw: bytes, alphabet: bytes = b"_.-") -> bool:
        good = all(chr(byte).isascii() and (chr(byte).isalnum() or byte in alphabet) for byte in raw)
        return 1 <= len(raw) <= 30 and good and raw[0] not in alphabet

    try:
        if take(8, "magic") != b"SHiNE_DM":
            return "the magic is not SHiNE_DM"
        if number(1, "version") != 1:
            return "unknown version"
        to_login = take(number(1, "toLogin"), "toLogin")
        if not is_login(to_login):
            return "toLogin is not a login"
        from_login = take(number(1, "fromLogin"), "fromLogin")
        if not is_login(from_login):
            return "fromLogin is not a login"
        time_ms = number(8, "timeMs")
        number(4, "nonce")
        message_type = number(2, "messageType")
        if message_type not in (1, 2, 3, 4, 5, 6):
            return "unknown messageType"
        revision_ms = number(8, "revisionMs")
        if revision_ms and message_type > 2:
            return "a receipt or tombstone cannot be edited"
        if 0 < revision_ms <= time_ms:
            return "revisionMs is not after timeMs"
        body_format = number(1, "bodyFormat")
        if body_format > 3:
            return "unknown bodyFormat"
        if (body_format == 3) is not (message_type > 2):
            return "this bodyFormat is not allowed for this messageType"
        body_len = number(4, "bodyLen")
        if body_len > limit:
            return f"the body is over {limit} bytes"
        body = take(body_len, "body")
        if body_format in (1, 3):
            try:
                body.decode()
            except UnicodeDecodeError:
                return "the body is not valid UTF-8"
        if body_format == 3:
            parts = body.split(b"|")
            numbers = parts[2:]
            if len(parts) != 4 or not all(is_login(login) and login == login.lower() for login in parts[:2]):
                return "the reference is not a baseKey"
            if not all(raw.isdigit() and str(int(raw)).encode() == raw for raw in numbers):
                return "the reference is not a baseKey"
            if int(numbers[0]) >= 2**64 or int(numbers[1]) >= 2**32:
                return "the reference is not a baseKey"
            direction = [from_login.lower(), to_login.lower()]
            if parts[:2] != (direction if message_type > 4 else direction[::-1]):
                return "the reference is not a message of these two users in this direction"
        take(64, "signature")
    except EOFError as missing:
        return str(missing)
    return "bytes too many" if rest else None


def check_against_the_slow_reading(blob: bytes, limit: int) -> None:
    try:
        container = parse(blob, limit)
    except (BadContainer, TooLarge) as refusal:
        assert refusal.detail == slow_reading(blob, limit)
        assert isinstance(refusal, TooLarge) is refusal.detail.startswith("the body is over")
    else:
        assert slow_reading(blob, limit) is None
        again = encode_unsigned(**{name: getattr(container, name) for name in PLAIN})
        assert again + container.signature == blob  # one container has one form


@given(mutated_containers(), st.sampled_from((0, 10, LIMIT)))
def test_a_mutated_container_is_judged_as_by_the_slow_reading(blob: bytes, limit: int) -> None:
    check_against_the_slow_reading(blob, limit)


@given(containers, st.data())
def test_a_cut_container_is_judged_as_by_the_slow_reading(blob: bytes, data: st.DataObject) -> None:
    check_against_the_slow_reading(blob[: data.draw(st.integers(0, len(blob)))], LIMIT)


@given(
    st.tuples(
        st.integers(0, U64) | st.integers(0, 3),
        st.integers(0, 8),
        st.just(0) | st.integers(0, 4) | st.integers(0, U64),
        st.integers(0, 5),
        st.integers(0, 20),
    ),
    st.integers(0, 27),
)
def test_the_numbers_are_judged_in_the_order_of_the_table_also_where_they_are_cut(
    numbers: tuple[int, int, int, int, int], cut: int
) -> None:
    time_ms, message_type, revision_ms, body_format, body_len = numbers
    middle = struct.pack(">QIHQBI", time_ms, 2**31, message_type, revision_ms, body_format, body_len)
    check_against_the_slow_reading(b"SHiNE_DM\x01\x03bob\x01a" + middle[:cut], 10)


@given(st.binary(max_size=300) | st.binary(max_size=300).map(b"SHiNE_DM\x01".__add__))
def test_arbitrary_bytes_are_refused_and_raise_nothing_else(blob: bytes) -> None:
    check_against_the_slow_reading(blob, LIMIT)
