"""Lines of exports: there and back again, and what is none."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shine_node.client.settings import make_setting
from shine_node.protocol.container import Container
from shine_node.protocol.encoding import encode_base64
from shine_node.protocol.errors import BadFields, BadJson, Refusal
from shine_node.protocol.schedule import DeliveryState
from shine_node.protocol.sessions import Session
from shine_node.store.layout import Flag, ItemKey, OpenDelivery, Row
from shine_node.store.portable import (
    HeldSession,
    HeldSetting,
    Item,
    encode_line,
    item_line,
    parse_item,
    parse_line,
    parse_registration,
    parse_resync,
    parse_runs,
    parse_session,
    parse_setting_line,
    registration_line,
    resync_line,
    session_line,
    setting_line,
)
from shine_node.store.resync import Part, Resync
from shine_node.store.users import Registration
from tests.store.rooms import NOW, OWN, identity, make_copy, make_pair, servers, tombstone_of

pytestmark = pytest.mark.core

ACCEPTED, DELIVERED, FAILED = DeliveryState.ACCEPTED, DeliveryState.DELIVERED, DeliveryState.FAILED
PAIR = make_pair("Alice", "bob", revision_ms=NOW + 3, own_body=b"mine")
NOTHING = Row(Flag.NONE, DELIVERED, 1, NOW + 3, 5, 6)
DIGEST = b"d" * 32
u64 = st.integers(0, 2**64 - 1)


def carried(line: dict[str, object]) -> dict[str, Any]:
    return parse_line(encode_line(line))


def of_pair(row: Row, synced: str = "") -> Item:
    return Item(ItemKey.of(PAIR.outgoing), row, synced, *PAIR)


def of_copy(copy: Container) -> Item:
    return Item(ItemKey.of(copy), Row(Flag.NONE, DELIVERED, 1, 0, 5, 1), "", copy)


ITEMS = [
    of_pair(NOTHING),
    of_pair(NOTHING._replace(state=FAILED), "other"),
    of_pair(NOTHING._replace(state=ACCEPTED, delivery=OpenDelivery(-(2**63), 255, 2**64 - 1, 0))),
    of_pair(NOTHING._replace(state=ACCEPTED, flags=Flag.SETTLING, delivery=OpenDelivery(1, 0, 2, 3))),
    of_pair(NOTHING._replace(changed_at_ms=2**64 - 1, version=2**32 - 1)),
    of_copy(make_copy("carol", "alice", 1)),
    of_copy(tombstone_of(PAIR.incoming.message).incoming),
    Item(ItemKey.of(PAIR.outgoing), Row(Flag.REMOVED, FAILED, 1, 7, 8, 9, None, DIGEST), ""),
    Item(ItemKey.of(PAIR.incoming), Row(Flag.REMOVED, DELIVERED, 0, 0, 8, 1), ""),
]


@pytest.mark.parametrize("item", ITEMS)
def test_items(item: Item) -> None:
    blobs = (b"", b"") if item.row.removed else item.blobs
    assert parse_item(carried(item_line(item.key, item.row, item.synced, blobs))) == item
    if not item.row.removed:
        assert ItemKey.of(item.container) == item.key


@given(revision=u64, changed=u64, version=st.integers(0, 2**32 - 1), digest=st.binary(min_size=32, max_size=32))
def test_any_numbers(revision: int, changed: int, version: int, digest: bytes) -> None:
    row = Row(Flag.REMOVED, DELIVERED, 1, revision, changed, version, None, digest)
    item = Item(ItemKey.of(PAIR.outgoing), row, "")
    assert parse_item(carried(item_line(item.key, item.row, "", (b"", b"")))) == item


def test_records() -> None:
    record = identity("Alice").access_record(servers(OWN, "other"), time_ms=NOW)
    insecure = record._replace(access_servers=(record.access_servers[0]._replace(url="ws://x/ws"),))
    for registration in (
        Registration(record, local=False, bch_limit=None),
        Registration(insecure, local=False, bch_limit=0),
        Registration(record._replace(time_ms=0, signature=b""), local=True, bch_limit=2**53 - 1),
    ):
        back = parse_registration(carried(registration_line(registration)))
        assert (back.record, back.local, back.bch_limit) == (
            registration.record,
            registration.local,
            registration.bch_limit,
        )


@pytest.mark.parametrize("synced", ["", "other"])
def test_settings(synced: str) -> None:
    held = HeldSetting(make_setting(identity("Alice"), "theme", "тёмная\n", time_ms=NOW), 7, synced)
    assert parse_setting_line(carried(setting_line(held))) == held


def test_sessions() -> None:
    held = HeldSession(Session("s" * 43, "alice", "ed25519/k", "pä", "", "me", 1, 2), b"k" * 32)
    assert parse_session(carried(session_line(held))) == held


@pytest.mark.parametrize("part", list(Part))
def test_unfinished_work(part: Part) -> None:
    for work in (Resync("alice", "", 0, part, b""), Resync("alice", "other", 5, part, b"alice\0\xff")):
        assert parse_resync(carried(resync_line(work))) == work


def test_runs() -> None:
    assert parse_runs({"runs": [["0102030405060708", 1], ["ff" * 8, 2**64 - 1]]}) == [
        (b"\1\2\3\4\5\6\7\x08", 1),
        (b"\xff" * 8, 2**64 - 1),
    ]
    for runs in (None, 5, [5], [[1, 1]], [["xx", 1]], [["00", 1]], [["ff" * 8, 0]], [["ff" * 8, True]], [["ff" * 8]]):
        with pytest.raises(BadFields):
            parse_runs({"runs": runs})
    with pytest.raises(BadFields):
        parse_runs({})


@pytest.mark.parametrize(("data", "error"), [(b"{", BadJson), (b"1", BadJson), (b'{"type":""}', BadFields)])
def test_what_is_no_line(data: bytes, error: type[Refusal]) -> None:
    with pytest.raises(error):
        parse_line(data)


OPEN = {"acceptedAtMs": 1, "attempts": 0, "nextAtMs": 1, "leaseUntilMs": 0}
OTHER = encode_base64(make_pair("alice", "bob").outgoing.blob)


@pytest.mark.parametrize(
    "fields",
    [
        {"key": "alice|bob|1|1|0"},
        {"key": "alice|bob|1774700000000|1|4"},
        {"key": "alice|bob|1774700000001|1|2"},
        {"state": "lost"},
        {"state": None},
        {"state": "accepted"},
        {"delivery": OPEN},
        {"delivery": 5},
        {"state": "accepted", "delivery": {}},
        {"state": "accepted", "delivery": {**OPEN, "settling": 1}},
        {"state": "accepted", "delivery": {**OPEN, "attempts": 256}},
        {"state": "accepted", "delivery": {**OPEN, "acceptedAtMs": -(2**63) - 1}},
        {"revisionMs": NOW + 4},
        {"revisionMs": -1},
        {"revisionMs": True},
        {"revisionMs": 1.0},
        {"version": 2**32},
        {"changedAtMs": None},
        {"synced": "?"},
        {"removed": "yes"},
        {"removed": True, "digestB64": "AAAA"},
        {"removed": True, "synced": "other"},
        {"removed": True, "state": "accepted", "delivery": OPEN},
        {"incomingB64": None},
        {"incomingB64": "AAAA"},
        {"outgoingB64": None},
        {"outgoingB64": OTHER},
    ],
)
def test_items_that_do_not_fit(fields: dict[str, object]) -> None:
    line = carried(item_line(ITEMS[0].key, ITEMS[0].row, "", ITEMS[0].blobs))
    parse_item(line)
    with pytest.raises(Refusal):
        parse_item({**line, **fields})


def test_a_copy_that_came_in_has_no_delivery() -> None:
    item = ITEMS[5]
    line = carried(item_line(item.key, item.row, "", item.blobs))
    with pytest.raises(BadFields):
        parse_item({**line, "state": "accepted", "delivery": OPEN})


@pytest.mark.parametrize(
    "fields",
    [{"part": "x"}, {"afterB64": encode_base64(bytes(501))}, {"afterB64": "?"}, {"owner": ""}, {"sinceMs": -1}],
)
def test_work_that_is_none(fields: dict[str, object]) -> None:
    with pytest.raises(Refusal):
        parse_resync({**resync_line(Resync("alice", "", 0, Part.SETTINGS, b"")), **fields})


@pytest.mark.parametrize("fields", [{"sessionId": "s"}, {"sessionId": "é" * 43}, {"login": "?"}, {"createdMs": "1"}])
def test_sessions_that_are_none(fields: dict[str, object]) -> None:
    held = HeldSession(Session("s" * 43, "alice", "k", "", "", "", 1, 2), b"k" * 32)
    with pytest.raises(Refusal):
        parse_session({**session_line(held), **fields})


def test_a_line_is_json_of_one_line() -> None:
    data = encode_line({"type": "x", "text": "a\nb"})
    assert data.count(b"\n") == 1 and data.endswith(b"\n")
    assert orjson.loads(data) == {"type": "x", "text": "a\nb"}
