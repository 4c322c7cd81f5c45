"""What is seen of a frame without decoding it, and that looking costs nothing whatever the frame is."""

from __future__ import annotations

import time

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shine_node.protocol.envelope import encode_request
from shine_node.protocol.glimpse import GLIMPSE_CHARACTERS, glimpse

LONG = "x" * 20_000
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)


@pytest.mark.parametrize(
    ("frame", "seen"),
    [
        (encode_request("Echo", "7", {"pad": LONG}), ("Echo", "7")),
        (f'{{"requestId":"7","op":"Echo","payload":"{LONG}"}}', ("Echo", "7")),
        (f' {{\n "op" : "Echo" ,\t"requestId" : "7" , "payload":"{LONG}"}}', ("Echo", "7")),
        (f'{{"op":"Echo","payload":{{"pad":"{LONG}"}},"requestId":"7"}}', ("Echo", "7")),
        (f'{{"payload":{{"pad":"{LONG}"}} , "requestId" : "7" , "op":"Echo" }}\r\n', ("Echo", "7")),
        (f'{{"requestId":"7","payload":{{"pad":"{LONG}"}}}}', (None, "7")),
        (f'{{"requestId":"1","op":"Echo","payload":"{LONG}","requestId":"7"}}', ("Echo", "7")),  # the last one counts
        ('{"op":"Echo"}', ("Echo", None)),
        ('{"op":"","requestId":"письмо"}', ("", "письмо")),
    ],
)
def test_what_stands_first_or_last_is_seen(frame: str, seen: tuple[str | None, str | None]) -> None:
    assert glimpse(frame) == seen


@pytest.mark.parametrize(
    "frame",
    [
        "",
        "[" * 20_000,
        f'{{"payload":{{"pad":"{LONG}","op":"Echo","requestId":"7"}}}}',  # of the payload, not of the envelope
        f'{{"payload":{{"op":"Echo","requestId":"7","pad":"{LONG}"}}}}',
        f'{{"pad":"{LONG},\\"op\\":\\"Echo\\",\\"requestId\\":\\"7\\"}}"}}',  # within a text
        f'[{{"op":"Echo","requestId":"7"}},"{LONG}"]',
        '{"op":7,"requestId":"7"',
        f'{{"requestId":7,"op":null,"pad":"{LONG}"}}',
        f'{{"requestId":"\\u0041","op":"\\n","pad":"{LONG}"}}',
        f'{{"requestId":"\n","pad":"{LONG}"}}',
        f'{{"requestId":"{LONG}","pad":1}}',
        f'{{"payload":"{LONG}","requestId":"7"',
    ],
)
def test_nothing_else_is_taken_for_it(frame: str) -> None:
    assert glimpse(frame) == (None, None)


@given(texts, texts, st.permutations(["op", "requestId", "payload"]))
def test_nothing_wrong_is_seen_of_a_request(op: str, request_id: str, order: list[str]) -> None:
    request = {"op": op, "requestId": request_id, "payload": {"op": op[::-1], "requestId": request_id + "!"}}
    seen = glimpse(orjson.dumps({name: request[name] for name in order}).decode())
    assert seen[0] in (op, None) and seen[1] in (request_id, None)
    plain = not set('"\\') & set(op + request_id) and (op + request_id).isprintable()
    assert not plain or seen == (op, request_id)


@pytest.mark.parametrize(
    "piece", ["[", "{", '"', ",", " ", '{"op":"', ',"op":"', ',"op":"x"', ',"requestId"', ', "op" : "x" ', "\\", "}"]
)
def test_no_frame_makes_it_slow(piece: str) -> None:
    frame = piece * (2**20 // len(piece))
    least = min(_seconds(frame) for _ in range(5))
    assert least < 0.02, f"{least:.4f} s for {GLIMPSE_CHARACTERS} characters of either end"


def _seconds(frame: str) -> float:
    begun = time.thread_time()  # of this thread alone: others may be busy
    glimpse(frame)
    return time.thread_time() - begun
