"""Messages and changes as lines, of which none may act on a terminal."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shine_node.cli.lines import change_fields, change_line, json_line, message_fields, message_line, visible
from shine_node.client.history import Message
from shine_node.client.ledger import Change
from shine_node.protocol.keys import MessageId

KEY = MessageId("alice", "bob", 1_774_700_000_123, 7)
BASE_KEY = "alice|bob|1774700000123|7"


def message(**changes: Any) -> Message:
    return Message(KEY, "bob", True, 0, "hello", "delivered", False, False, None)._replace(**changes)


def after_time(line: str) -> str:
    assert line[4] == line[7] == "-" and line[19:21] == "  "
    return line[21:]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Привет, 世界! é 👍🏽", "Привет, 世界! é 👍🏽"),
        ("two\nlines\r\n\tand a tab", "two\\nlines\\r\\n\\tand a tab"),
        ("\x1b[31mred\x07\x7f\x9b1m", "\\x1b[31mred\\x07\\x7f\\x9b1m"),
        ("\u202eturned\u202c \u2066x\u2069\u200f\u061c", "\\u202eturned\\u202c \\u2066x\\u2069\\u200f\\u061c"),
        ("\u2028\u2029\ufeff", "\\u2028\\u2029\\ufeff"),
        ("👩\u200d🚀 می\u200cخواهم", "👩\u200d🚀 می\u200cخواهم"),
    ],
)
def test_what_is_shown_of_a_text(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(st.text())
def test_no_text_acts_on_a_terminal(text: str) -> None:
    shown = visible(text)
    assert not {unicodedata.category(character) for character in shown} & {"Cc", "Zl", "Zp", "Cs"}
    assert not {unicodedata.bidirectional(character) for character in shown} & {"LRE", "RLE", "LRO", "RLO", "PDF"}
    assert len(message_line(message(text=text)).splitlines()) == 1
    line = json_line(message_fields(message(text=text)))
    assert line.isascii() and line.isprintable()
    assert json.loads(line)["text"] == text


def test_a_message() -> None:
    assert json.loads(json_line(message_fields(message()))) == {
        "type": "message",
        "key": BASE_KEY,
        "peer": "bob",
        "out": True,
        "timeMs": 1_774_700_000_123,
        "revisionMs": 0,
        "text": "hello",
        "state": "delivered",
        "read": False,
        "deleted": False,
        "problem": None,
    }


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "to bob [delivered]: hello"),
        ({"state": None}, "to bob: hello"),
        ({"read": True, "revision_ms": 5}, "to bob [edited, delivered, read]: hello"),
        ({"out": False, "state": None}, "bob: hello"),
        ({"out": False, "state": None, "text": "[read]: x"}, "bob: [read]: x"),
        ({"deleted": True, "revision_ms": 5, "text": None}, "to bob [deleted, delivered]:"),
        (
            {"out": False, "state": None, "text": None, "problem": "bad-signature"},
            "bob [cannot be shown: bad-signature]:",
        ),
    ],
)
def test_a_message_for_a_person(changes: dict[str, Any], line: str) -> None:
    assert after_time(message_line(message(**changes))) == line


def test_no_state_acts_on_a_terminal() -> None:
    assert after_time(message_line(message(state="\x1b[2J"))) == "to bob [\\x1b[2J]: hello"
    state = Change("state", KEY, "bob", True, "\x1b]0;x\x07")
    assert after_time(change_line(state)) == "the message to bob is \\x1b]0;x\\x07"


def test_a_time_beyond_the_calendar() -> None:
    late = KEY._replace(time_ms=2**64 - 1)
    assert message_line(message(key=late)) == "18446744073709551615 ms  to bob [delivered]: hello"


def test_changes() -> None:
    edited = Change("edited", KEY, "bob", True, "delivered", message(revision_ms=9))
    assert change_fields(edited) == message_fields(message(revision_ms=9), "edited")
    assert change_line(edited) == message_line(message(revision_ms=9))
    common = {"key": BASE_KEY, "peer": "bob", "out": True, "timeMs": 1_774_700_000_123}
    state = Change("state", KEY, "bob", True, "failed")
    assert change_fields(state) == {"type": "state", **common, "state": "failed"}
    assert after_time(change_line(state)) == "the message to bob is failed"
    read = Change("read", KEY, "bob", True)
    assert change_fields(read) == {"type": "read", **common}
    assert after_time(change_line(read)) == "the message to bob is read, and all before it"
    deleted = Change("deleted", KEY, "bob", False)
    assert change_fields(deleted) == {"type": "deleted", **common, "out": False}
    assert after_time(change_line(deleted)) == "the message from bob is deleted"
