"""The envelope: every vector that needs no connection, the order of the checks, and that nothing else is raised."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shine_node.protocol.container import parse_container
from shine_node.protocol.encoding import read_base64, read_login, read_optional_number, read_text
from shine_node.protocol.envelope import (
    Answer,
    BadEnvelope,
    Request,
    decode_answer,
    decode_request,
    encode_answer,
    encode_event,
    encode_refusal,
    encode_request,
)
from shine_node.protocol.errors import (
    BadFields,
    BadJson,
    BadPayload,
    BadRequestFormat,
    EmptyJson,
    NoOp,
    NoPayload,
    Refusal,
    ServerBusy,
    ShineError,
    UnknownOp,
)
from shine_node.protocol.keys import parse_message_key
from tests.support.vectors import cases, frame_of

# What each operation of the vectors reads of its payload; that is as far as this level goes.
OPERATIONS = {
    "Ping": lambda payload: payload,
    "GetServerInfo": lambda payload: payload,
    "GetDmDeliveryStatus": lambda payload: (
        parse_message_key(read_text(payload, "messageKey")),
        read_optional_number(payload, "revisionMs"),
    ),
    "GetUserAccess": read_login,
    "GetUser": read_login,
    "ReceiveIncomingMessage": lambda payload: parse_container(
        read_base64(payload, "incomingBlobB64"), max_body_bytes=65536
    ),
    "SendMessagePair": lambda payload: (
        read_base64(payload, "incomingBlobB64"),
        read_base64(payload, "outgoingBlobB64"),
    ),
    "AuthChallenge": lambda payload: payload,
    "ListSessions": lambda payload: payload,
    "GetDirectMessages": lambda payload: payload,
    "ListDialogs": lambda payload: payload,
    "DmSyncBatch": lambda payload: payload,
}
LATER = {"NOT_AUTHENTICATED", "FORBIDDEN", "UNKNOWN_USER", "EMPTY_LOGIN", "USER_NOT_FOUND"}
"""What only a node with connections and users can answer: at this level such a request is a good one."""


def of_connections(case: dict[str, Any]) -> bool:
    """Whether a case is about frames and closing, which the endpoint's tests try."""
    return any("close" in answer for answer in case["anyOf"])


def answer_to(frame: str) -> dict[str, Any]:
    """What a node answers, as far as it can be said without one."""
    try:
        request = decode_request(frame, OPERATIONS)
    except BadEnvelope as bad:
        return json.loads(encode_refusal(bad.op, bad.request_id, bad.refusal))  # type: ignore[no-any-return]
    try:
        OPERATIONS[request.op](request.payload)
    except Refusal as refusal:
        return json.loads(encode_refusal(request.op, request.request_id, refusal))  # type: ignore[no-any-return]
    return json.loads(encode_answer(request.op, request.request_id, {}))  # type: ignore[no-any-return]


def matches(answer: dict[str, Any], allowed: dict[str, Any]) -> bool:
    error = None if allowed["error"] in LATER else allowed["error"]
    status = 200 if error is None else allowed["status"]
    named = {name: value for name, value in allowed.items() if name in ("op", "requestId")}
    return (answer["status"], answer.get("error")) == (status, error) and named.items() <= answer.items()


@pytest.mark.parametrize(
    "case", [case for case in cases("envelope") if not of_connections(case.values[0] or {"anyOf": []})]
)
def test_a_frame_of_the_vectors(case: dict[str, Any]) -> None:
    frame = frame_of(case)
    assert isinstance(frame, str)
    answer = answer_to(frame)
    assert any(matches(answer, allowed) for allowed in case["anyOf"]), answer


# Requests

OPS = {"Ping": None}


def refused(frame: str) -> BadEnvelope:
    with pytest.raises(BadEnvelope) as bad:
        decode_request(frame, OPS)
    assert isinstance(bad.value, ShineError)
    return bad.value


def frame_with(**change: object) -> str:
    members: dict[str, object] = {"op": "Ping", "requestId": "r", "payload": {"ts": 1}} | change
    return json.dumps({name: value for name, value in members.items() if value is not ...})


def test_a_request() -> None:
    assert decode_request(frame_with(), OPS) == Request("Ping", "r", {"ts": 1})
    assert decode_request(encode_request("Ping", "r", {"ts": 1}), OPS) == Request("Ping", "r", {"ts": 1})
    assert decode_request(frame_with(extra=[1], status=5), OPS).payload == {"ts": 1}
    for missing in (..., None):
        assert decode_request(frame_with(requestId=missing), OPS).request_id is None


@pytest.mark.parametrize("frame", ["", " ", " \r\n\t "])
def test_a_blank_frame(frame: str) -> None:
    bad = refused(frame)
    assert (type(bad.refusal), bad.op, bad.request_id) == (EmptyJson, None, None)


@pytest.mark.parametrize(
    "frame",
    [
        "hello",
        "{",
        "{}x",
        "[]",
        "5",
        "null",
        '"Ping"',
        '{"op":NaN}',
        '{"x":"\\ud800"}',
        '{"x":"\ud800"}',
        "\ufeff{}",
        "[" * 5000,
    ],
    ids=lambda frame: ascii(frame[:12]),
)
def test_what_is_no_json_object(frame: str) -> None:
    bad = refused(frame)
    assert (type(bad.refusal), bad.op, bad.request_id) == (BadJson, None, None)


@pytest.mark.parametrize(
    ("change", "refusal", "op", "request_id"),
    [
        ({"op": ...}, NoOp, None, "r"),
        ({"op": None}, NoOp, None, "r"),
        ({"op": ""}, NoOp, "", "r"),
        ({"op": ..., "requestId": 5, "payload": ...}, NoOp, None, None),
        ({"op": 5}, BadRequestFormat, None, "r"),
        ({"op": ["Ping"], "requestId": 5}, BadRequestFormat, None, None),
        ({"requestId": 5}, BadRequestFormat, "Ping", None),
        ({"requestId": False, "payload": ...}, BadRequestFormat, "Ping", None),
        ({"op": "Pong"}, UnknownOp, "Pong", "r"),
        ({"op": "Pong", "payload": ...}, UnknownOp, "Pong", "r"),
        ({"op": "ping", "requestId": ...}, UnknownOp, "ping", None),
        ({"payload": ...}, NoPayload, "Ping", "r"),
        ({"payload": None}, NoPayload, "Ping", "r"),
        ({"payload": []}, BadPayload, "Ping", "r"),
        ({"payload": "{}"}, BadPayload, "Ping", "r"),
        ({"payload": False}, BadPayload, "Ping", "r"),
    ],
)
def test_the_checks_in_their_order_and_what_is_echoed(
    change: dict[str, object], refusal: type[Refusal], op: str | None, request_id: str | None
) -> None:
    bad = refused(frame_with(**change))
    assert (type(bad.refusal), bad.op, bad.request_id) == (refusal, op, request_id)


def test_of_duplicate_names_the_last_one_counts() -> None:
    frame = '{"op":"Pong","op":"Ping","requestId":"a","requestId":"b","payload":5,"payload":{"x":1,"x":2}}'
    assert decode_request(frame, OPS) == Request("Ping", "b", {"x": 2})


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_sixty_four_levels_and_no_more(opening: str, closing: str) -> None:
    def nested(levels: int) -> str:
        inner = opening * levels + ("1" if opening != "[" else "") + closing * levels
        return '{"op":"Ping","requestId":"r","payload":{"x":' + inner + "}}"

    assert decode_request(nested(62), OPS).op == "Ping"  # the envelope and its payload are two of the levels
    for levels in (63, 200, 1000, 50_000):
        bad = refused(nested(levels))
        assert (type(bad.refusal), bad.op, bad.request_id) == (BadJson, None, None)
    assert "64 levels" in refused(nested(63)).refusal.detail


@pytest.mark.parametrize(
    "texts",
    [
        ["[" * 200],
        ["]" * 200],
        ["[", "]"] * 100,
        ['"' * 50 + "[" * 100, "\\", "{" * 100 + "\\"],
        ["\\" * number + '"' * number + "[" for number in range(100)],
        ["ж[", "\u2028{", "\n[\t\x00"] * 70,
    ],
)
def test_brackets_in_texts_are_no_levels(texts: list[str]) -> None:
    for ascii_only in (True, False):
        document: object = texts
        for _ in range(61):
            document = [document, *texts[:2]]
        frame = json.dumps({"op": "Ping", "payload": {"x": document}}, ensure_ascii=ascii_only)
        assert decode_request(frame, OPS).payload == {"x": document}
        deeper = json.dumps({"op": "Ping", "payload": {"x": [document]}}, ensure_ascii=ascii_only)
        assert type(refused(deeper).refusal) is BadJson


def levels_of(document: object) -> int:
    """How deep a document is nested, counted the plain way."""
    deepest, waiting = 0, [(document, 1)]
    while waiting:
        value, level = waiting.pop()
        if isinstance(value, dict | list):
            deepest = max(deepest, level)
            waiting += [(member, level + 1) for member in (value.values() if isinstance(value, dict) else value)]
    return deepest


@given(st.lists(st.integers(-70, 70), max_size=60), st.sampled_from(["[]", "{}", "mixed"]), st.booleans())
def test_levels_are_counted_right_however_the_brackets_lie(steps: list[int], kind: str, texts: bool) -> None:
    """Climbs and falls of any length, around the limit of 64 levels as elsewhere."""
    words: list[str] = []
    open_ones: list[str] = []
    for step in [*steps, -len(steps) * 70]:
        for _ in range(abs(step)):
            if step > 0:
                kind_now = "[]" if kind == "[]" or (kind == "mixed" and len(words) % 3) else "{}"
                comma = "," if words and words[-1] in "]}" else ""
                # Each name is another one: of equal ones the reader would drop all but the last, and what is in them.
                name = f'"{"]" + chr(92) * 2 if texts else ""}{len(words)}":' if open_ones[-1:] == ["{}"] else ""
                words += [comma, name, kind_now[0]] if comma or name else [kind_now[0]]
                open_ones.append(kind_now)
            elif open_ones:
                words.append(open_ones.pop()[1])
    frame = '{"op":"Ping","payload":{"x":[' + "".join(words) + "]}}"
    document = orjson.loads(frame)
    if levels_of(document) > 64:
        assert type(refused(frame).refusal) is BadJson
    else:
        assert decode_request(frame, OPS).payload == document["payload"]


def walks(up: int, down: int) -> str:
    """A MiB of brackets that climb and fall by so much, between the levels 1 and 60."""
    there, back = "[" * up + "]" * down, "[" * down + "]" * up
    times = max(1, 60 // max(1, abs(up - down)))
    turn = there * times + back * times if up != down else there
    return turn * (2**20 // len(turn))


@pytest.mark.parametrize(
    "brackets",
    [
        "[]" * 2**19,
        *(walks(up, down) for up, down in ((60, 60), (2, 1), (17, 16), (33, 31))),
        "[" * 2**19 + "]" * 2**19,
        "[" * 5000 + ("]" * 4990 + "[" * 4990) * 100,
        "]" * 2**20,
        ("]" * 5000 + "[" * 60) * 200,
        '"["' * 2**18,
        '"' * 2**20,
        "[" * 70 + "\\" * 2**20,
    ],
    ids=lambda brackets: f"{brackets[:12]}…",
)
def test_no_text_takes_long_to_look_through(brackets: str) -> None:
    """Milliseconds; the bound is for slow machines, and far below what repeated passes would take."""
    began = time.thread_time()
    with suppress(BadEnvelope):
        decode_request('{"op":"Ping","payload":{"x":[' + brackets + "]}}", OPS)
    assert time.thread_time() - began < 2


def test_many_brackets_are_not_deep() -> None:
    wide = {"x": [[[], {}, "[[["]] * 100, "y": {str(number): {} for number in range(100)}}
    assert decode_request(frame_with(payload=wide), OPS).payload == wide


# Answers


def test_an_answer() -> None:
    success = encode_answer("Ping", "r", {"ts": 5})
    assert json.loads(success) == {"op": "Ping", "requestId": "r", "status": 200, "ok": True, "payload": {"ts": 5}}
    answer = decode_answer(success)
    assert answer == Answer("r", 200, "", "", {"ts": 5})
    assert answer.ok
    assert decode_answer(success.encode()) == answer


def test_a_refusal() -> None:
    frame = encode_refusal("Ping", None, ServerBusy("come later", {"retryAfterMs": 250}))
    assert json.loads(frame) == {
        "op": "Ping",
        "requestId": None,
        "status": 503,
        "ok": False,
        "error": "SERVER_BUSY",
        "message": "come later",
        "payload": {"retryAfterMs": 250},
    }
    answer = decode_answer(frame)
    assert answer == Answer(None, 503, "SERVER_BUSY", "come later", {"retryAfterMs": 250})
    assert not answer.ok
    assert json.loads(encode_refusal(None, None, BadFields("no")))["payload"] == {}


def test_an_event_is_no_answer() -> None:
    frame = encode_event("IncomingDirectMessage", "e1", {"fromLogin": "alice"})
    assert json.loads(frame) == {
        "op": "IncomingDirectMessage",
        "requestId": "e1",
        "status": 200,
        "ok": True,
        "event": True,
        "payload": {"fromLogin": "alice"},
    }
    assert decode_answer(frame) is None


@pytest.mark.parametrize(
    ("status", "ok"), [(100, False), (199, False), (200, True), (299, True), (300, False), (426, False), (599, False)]
)
def test_status_decides(status: int, ok: bool) -> None:
    answer = decode_answer(json.dumps({"requestId": "r", "status": status, "ok": not ok}))
    assert answer is not None
    assert answer.ok is ok


@pytest.mark.parametrize(
    "frame",
    [
        "",
        "x",
        "[]",
        "5",
        "{}",
        '{"status":"200"}',
        '{"status":true}',
        '{"status":99}',
        '{"status":600}',
        '{"status":2e2}',
        b"\xff",
    ],
)
def test_what_is_no_answer(frame: str | bytes) -> None:
    assert decode_answer(frame) is None


def test_members_of_a_wrong_type_are_passed_over() -> None:
    frame = json.dumps({"requestId": 5, "status": 400, "error": 7, "message": [], "payload": "x"})
    assert decode_answer(frame) == Answer(None, 400, "", "", {})


def test_a_refusal_without_an_id_says_whether_it_is_for_the_rate() -> None:
    assert Answer(None, 429, "RATE_LIMITED", "", {}).refuses_unread
    assert not Answer("1", 429, "RATE_LIMITED", "", {}).refuses_unread
    assert not Answer(None, 400, "BAD_JSON", "", {}).refuses_unread


# Properties

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
payloads = st.dictionaries(texts, json_values, max_size=4)
members = st.dictionaries(st.sampled_from(["op", "requestId", "payload", "status", "event", "error"]), json_values)


@given(texts, payloads)
def test_a_request_comes_back(request_id: str, payload: dict[str, Any]) -> None:
    assert decode_request(encode_request("Ping", request_id, payload), OPS) == Request("Ping", request_id, payload)


@given(texts, payloads)
def test_an_answer_comes_back(request_id: str, payload: dict[str, Any]) -> None:
    assert decode_answer(encode_answer("Ping", request_id, payload)) == Answer(request_id, 200, "", "", payload)


def check_frame(frame: str) -> None:
    try:
        request = decode_request(frame, OPS)
    except BadEnvelope as bad:
        assert bad.refusal.status == 400
        json.loads(encode_refusal(bad.op, bad.request_id, bad.refusal))  # what is echoed can be written
    else:
        assert request.op in OPS
    decode_answer(frame)


@given(st.text(max_size=60) | st.text('{}[]":,\\ntrufalse0123456789.eE+- ', max_size=60))
def test_any_text_is_a_request_or_a_bad_envelope(frame: str) -> None:
    check_frame(frame)


@given(members, st.data())
def test_any_object_is_a_request_or_a_bad_envelope(document: dict[str, Any], data: st.DataObject) -> None:
    frame = orjson.dumps(document).decode()
    check_frame(frame)
    check_frame(frame[: data.draw(st.integers(0, len(frame)))])


@given(st.binary(max_size=60))
def test_any_bytes_are_an_answer_or_none(frame: bytes) -> None:
    decode_answer(frame)
