"""What is new to a watcher, and what is not."""

from __future__ import annotations

from typing import Any

import pytest

from shine_node.client.history import Message, Problem
from shine_node.client.ledger import Change, Ledger
from shine_node.protocol.keys import MessageId

IN, OUT = MessageId("bob", "alice", 100, 1), MessageId("alice", "bob", 200, 2)


def incoming(**changes: Any) -> Message:
    return Message(IN, "bob", False, 0, "hello", None, False, False, None)._replace(**changes)


def outgoing(**changes: Any) -> Message:
    return Message(OUT, "bob", True, 0, "answer", "accepted", False, False, None)._replace(**changes)


def test_a_message_is_new_once() -> None:
    ledger = Ledger("alice")
    assert ledger.note(incoming()) == [Change("message", IN, "bob", False, None, incoming())]
    assert ledger.note(incoming()) == []
    assert len(ledger) == 1


def test_an_edit_and_what_is_older() -> None:
    ledger = Ledger("alice")
    ledger.note(incoming())
    edit = incoming(revision_ms=150, text="hallo")
    assert ledger.note(edit) == [Change("edited", IN, "bob", False, None, edit)]
    assert ledger.note(incoming()) == []
    assert ledger.note(edit) == []
    other = incoming(revision_ms=150, text="the one that won")
    assert [change.kind for change in ledger.note(other)] == ["edited"]
    same_text = incoming(revision_ms=160, text="the one that won")
    assert [change.kind for change in ledger.note(same_text)] == ["edited"]


def test_states() -> None:
    ledger = Ledger("alice")
    assert ledger.note(outgoing()) == [Change("message", OUT, "bob", True, "accepted", outgoing())]
    assert ledger.note_state(OUT, "delivered") == [Change("state", OUT, "bob", True, "delivered")]
    assert ledger.note_state(OUT, "delivered") == []
    assert ledger.note(outgoing(state="delivered")) == []
    assert ledger.note(outgoing(state=None)) == []
    assert ledger.note(outgoing(state="failed")) == [Change("state", OUT, "bob", True, "failed")]
    unknown = OUT._replace(nonce=9)
    assert ledger.note_state(unknown, "failed") == [Change("state", unknown, "bob", True, "failed")]


def test_what_was_deleted_stays_so() -> None:
    ledger = Ledger("alice")
    ledger.note(outgoing(revision_ms=300))
    deleted = outgoing(text=None, deleted=True)
    assert ledger.note(deleted) == [Change("deleted", OUT, "bob", True)]
    assert ledger.note(outgoing(revision_ms=400)) == []
    assert ledger.note_state(OUT, "delivered") == []
    assert ledger.note_deleted(OUT) == []
    ledger.forget(OUT)
    assert ledger.note(outgoing(revision_ms=400)) == []


def test_what_was_deleted_before_it_was_seen() -> None:
    ledger = Ledger("alice")
    assert ledger.note(incoming(text=None, deleted=True)) == []
    assert ledger.note(incoming()) == []
    assert ledger.note_deleted(OUT) == [Change("deleted", OUT, "bob", True)]
    assert ledger.note(outgoing()) == []


def test_what_is_not_proven_takes_the_place_of_nothing_that_is() -> None:
    ledger = Ledger("alice")
    ledger.note(incoming(revision_ms=150))
    for problem in (Problem.BAD_CONTAINER, Problem.BAD_SIGNATURE, Problem.UNKNOWN_SENDER, Problem.ROOT_KEY_CHANGED):
        assert ledger.note(incoming(revision_ms=2**53 - 1, text=None, problem=problem)) == []
    edit = incoming(revision_ms=160, text="edit")
    assert ledger.note(edit) == [Change("edited", IN, "bob", False, None, edit)]
    sealed = incoming(revision_ms=170, text=None, problem=Problem.SEALED)
    assert [change.kind for change in ledger.note(sealed)] == ["edited"], "signed, though not for this key"


def test_what_is_proven_takes_the_place_of_what_is_not() -> None:
    ledger = Ledger("alice")
    unproven = incoming(revision_ms=2**53 - 1, text=None, problem=Problem.BAD_SIGNATURE)
    assert [change.kind for change in ledger.note(unproven)] == ["message"]
    assert ledger.note(incoming()) == [Change("edited", IN, "bob", False, None, incoming())]


@pytest.mark.parametrize(
    "unproven", [{"deleted": True}, *({"problem": Problem.BAD_SIGNATURE, "revision_ms": ms} for ms in (0, 2**53 - 1))]
)
def test_a_mark_counts_of_a_proven_message_only(unproven: dict[str, Any]) -> None:
    ledger = Ledger("alice")
    ledger.note(outgoing())
    invented = outgoing(key=OUT._replace(time_ms=2**53 - 1), text=None, read=True)._replace(**unproven)
    assert [change.kind for change in ledger.note(invented)] in ([], ["message"])
    ledger.note(outgoing(text=None, read=True)._replace(**unproven))
    assert ledger.note_read(OUT) == [Change("read", OUT, "bob", True)]


def test_receipts() -> None:
    ledger = Ledger("alice")
    ledger.note(outgoing())
    assert ledger.note_read(OUT) == [Change("read", OUT, "bob", True)]
    assert ledger.note_read(OUT) == []
    assert ledger.note(outgoing(read=True)) == []
    assert ledger.note_read(OUT._replace(time_ms=199)) == []
    assert [change.kind for change in ledger.note(incoming(read=True))] == ["message", "read"]
    later = OUT._replace(time_ms=201)
    assert ledger.note_read(later) == [Change("read", later, "bob", True)]


def test_forgetting() -> None:
    ledger = Ledger("alice")
    ledger.note(incoming())
    ledger.note(outgoing())
    ledger.forget_before(200)
    assert len(ledger) == 1
    assert [change.kind for change in ledger.note(incoming())] == ["message"]
    ledger.forget(OUT)
    ledger.forget(OUT)
    assert [change.kind for change in ledger.note(outgoing())] == ["message"]
