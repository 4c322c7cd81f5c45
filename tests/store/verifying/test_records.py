"""Access records by themselves: what can be read, and what has to be signed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from shine_node.store.layout import Table
from shine_node.store.verifying.records import find_forged, is_signed, needs_no_signature, read_record
from tests.store.rooms import opened
from tests.store.verifying.full import full_store

Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def values(tmp_path: Path) -> dict[str, bytes]:
    """The rows of users, by login."""
    with opened(full_store(tmp_path)) as store, store.read() as txn:
        return {key.decode(): value for key, value in txn.scan(Table.USERS)}


def changed(value: bytes, change: Change) -> bytes:
    fields = orjson.loads(value)
    change(fields)
    return orjson.dumps(fields)


def test_what_holds(values: dict[str, bytes]) -> None:
    for login, value in values.items():
        registration = read_record(value)
        assert registration is not None
        assert registration.record.login == login
        assert needs_no_signature(registration) is (login == "dave")
        assert is_signed(registration.record) is (login != "dave")
    assert find_forged(values.values()) == []


@pytest.mark.parametrize("login", ["alice", "dave"])
@pytest.mark.parametrize(
    "change",
    [
        lambda fields: fields.pop("local"),
        lambda fields: fields.update(local=1),
        lambda fields: fields.update(bchLimit=-1),
        lambda fields: fields.update(bchLimit="many"),
        lambda fields: fields.update(timeMs="0"),
        lambda fields: fields.update(timeMs=-1),
        lambda fields: fields.update(login="a b"),
        lambda fields: fields.update(login=["alice"]),
        lambda fields: fields.update(deviceKey="?"),
        lambda fields: fields["accessServers"].append({"serverLogin": "x", "url": 5}),
        lambda fields: fields["accessServers"].append({}),
        lambda fields: fields["accessServers"].append({"serverLogin": "x y", "url": "wss://x/ws"}),
    ],
)
def test_what_cannot_be_read(values: dict[str, bytes], login: str, change: Change) -> None:
    value = changed(values[login], change)
    assert read_record(value) is None
    assert find_forged([value]) == []


def test_rubbish_cannot_be_read() -> None:
    for value in (b"", b"[]", b"null", b"\xff", b'{"login":"alice"}'):
        assert read_record(value) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda fields: fields.update(login="dove"),
        lambda fields: fields.update(blockchainName="dave_001"),
        lambda fields: fields.update(solanaKey="A" * 43 + "="),
        lambda fields: fields["accessServers"].append({"serverLogin": "x", "url": "wsx://x/ws"}),
    ],
)
def test_without_a_signature_the_form_has_to_be_right(values: dict[str, bytes], change: Change) -> None:
    assert read_record(changed(values["dave"], change)) is None
    forged = changed(values["alice"], change)
    assert read_record(forged) is not None
    assert find_forged([values["alice"], forged, values["dave"]]) == [forged]
