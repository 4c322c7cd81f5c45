"""Signed pairs: what a client makes is what the specification says and a server takes."""

from __future__ import annotations

import pytest

from shine_node.client.identity import Identity
from shine_node.client.messages import (
    SignedPair,
    make_edit,
    make_message,
    make_receipt,
    make_sealed_edit,
    make_sealed_message,
    make_tombstone,
)
from shine_node.client.sealing import open_sealed
from shine_node.protocol.container import FORMAT_OPAQUE, FORMAT_REFERENCE, FORMAT_SEALED, FORMAT_TEXT, Container
from shine_node.protocol.encoding import decode_base64
from shine_node.protocol.pair import check_pair, parse_pair
from shine_node.protocol.signatures import is_signed_by

NOW_MS = 1_774_700_000_000
ALICE = Identity.generate("Alice")
BOB = Identity.generate("bob")


def checked(pair: SignedPair, signer: Identity) -> tuple[Container, Container]:
    """The two containers after every check that needs no store."""
    incoming, outgoing = parse_pair(pair.incoming, pair.outgoing, max_body_bytes=65536)
    check_pair(incoming, outgoing)
    for container in (incoming, outgoing):
        assert is_signed_by(signer.device.public, container.signed_part, container.signature)
    assert pair.message == incoming.message
    assert pair.base_key == incoming.message.base_key
    assert pair.incoming_key == str(incoming.key)
    assert pair.outgoing_key == str(outgoing.key)
    assert pair.revision_ms == incoming.revision_ms
    assert decode_base64(str(pair.payload["incomingBlobB64"]), "incomingBlobB64") == pair.incoming
    assert decode_base64(str(pair.payload["outgoingBlobB64"]), "outgoingBlobB64") == pair.outgoing
    return incoming, outgoing


def test_a_text_message() -> None:
    incoming, outgoing = checked(make_message(ALICE, "Bob", "привет", time_ms=NOW_MS), ALICE)
    assert (incoming.message_type, outgoing.message_type) == (1, 2)
    assert (incoming.from_login, incoming.to_login) == ("Alice", "Bob")
    assert (incoming.time_ms, incoming.revision_ms, incoming.body_format) == (NOW_MS, 0, FORMAT_TEXT)
    assert incoming.body.decode() == outgoing.body.decode() == "привет"


def test_opaque_bytes() -> None:
    incoming, _ = checked(make_message(ALICE, "bob", b"\xff\x00", time_ms=NOW_MS), ALICE)
    assert (incoming.body_format, incoming.body) == (FORMAT_OPAQUE, b"\xff\x00")


def test_two_messages_of_one_moment_differ() -> None:
    pairs = [make_message(ALICE, "bob", "x", time_ms=NOW_MS) for _ in range(10)]
    assert len({pair.base_key for pair in pairs}) == 10


def test_an_edit_keeps_the_keys() -> None:
    pair = make_message(ALICE, "bob", "frist", time_ms=NOW_MS)
    edit = make_edit(ALICE, pair.message, "first", revision_ms=NOW_MS + 5)
    incoming, _ = checked(edit, ALICE)
    assert (edit.base_key, edit.outgoing_key) == (pair.base_key, pair.outgoing_key)
    assert (incoming.body, incoming.revision_ms) == (b"first", NOW_MS + 5)


def test_a_receipt_names_a_message_of_the_other_side() -> None:
    pair = make_message(ALICE, "bob", "x", time_ms=NOW_MS)
    incoming, outgoing = checked(make_receipt(BOB, pair.message, time_ms=NOW_MS + 1), BOB)
    assert (incoming.message_type, outgoing.message_type) == (3, 4)
    assert (incoming.from_login, incoming.to_login) == ("bob", "alice")
    assert incoming.body_format == FORMAT_REFERENCE
    assert incoming.reference == outgoing.reference == pair.message


def test_a_tombstone_names_a_message_of_the_author() -> None:
    pair = make_message(ALICE, "bob", "x", time_ms=NOW_MS)
    incoming, outgoing = checked(make_tombstone(ALICE, pair.message, time_ms=NOW_MS + 1), ALICE)
    assert (incoming.message_type, outgoing.message_type) == (5, 6)
    assert (incoming.from_login, incoming.to_login) == ("Alice", "bob")
    assert incoming.reference == outgoing.reference == pair.message


def test_nobody_edits_removes_or_reads_the_messages_of_others() -> None:
    message = make_message(ALICE, "bob", "x", time_ms=NOW_MS).message
    with pytest.raises(ValueError, match="was not sent by bob"):
        make_edit(BOB, message, "y", revision_ms=NOW_MS + 1)
    with pytest.raises(ValueError, match="was not sent by bob"):
        make_tombstone(BOB, message, time_ms=NOW_MS + 1)
    with pytest.raises(ValueError, match="was not sent to Alice"):
        make_receipt(ALICE, message, time_ms=NOW_MS + 1)
    with pytest.raises(ValueError, match="later than the message"):
        make_edit(ALICE, message, "y", revision_ms=NOW_MS)


def test_each_sealed_copy_opens_for_the_one_who_keeps_it() -> None:
    pair = make_sealed_message(ALICE, "Bob", "first", reader=BOB.device.public, time_ms=NOW_MS)
    edit = make_sealed_edit(ALICE, pair.message, "second", reader=BOB.device.public, revision_ms=NOW_MS + 1)
    assert (edit.base_key, edit.revision_ms) == (pair.base_key, NOW_MS + 1)
    for made, text in ((pair, "first"), (edit, "second")):
        incoming, outgoing = checked(made, ALICE)
        assert incoming.body_format == outgoing.body_format == FORMAT_SEALED
        assert open_sealed(incoming.body, BOB.device, made.base_key) == text
        assert open_sealed(outgoing.body, ALICE.device, made.base_key) == text


def test_a_sealed_edit_obeys_the_rules_of_edits() -> None:
    pair = make_sealed_message(ALICE, "bob", "x", reader=BOB.device.public, time_ms=NOW_MS)
    with pytest.raises(ValueError, match="not sent by bob"):
        make_sealed_edit(BOB, pair.message, "y", reader=ALICE.device.public, revision_ms=NOW_MS + 1)
    with pytest.raises(ValueError, match="later"):
        make_sealed_edit(ALICE, pair.message, "y", reader=BOB.device.public, revision_ms=NOW_MS)
