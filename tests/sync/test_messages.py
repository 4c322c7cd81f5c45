"""The feed of messages: whose entries a peer gets, what acknowledges them, and how an item that came is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from shine_node.protocol.encoding import encode_base64
from shine_node.protocol.errors import (
    BadBase64,
    BadFields,
    BadLogin,
    BadRequestFormat,
    BadSignature,
    Refusal,
    StorageFull,
    UserNotFound,
)
from shine_node.store.environment import Store, Transaction
from shine_node.store.messages import store_pair
from shine_node.sync.messages import MessageApply, MessageFeed
from tests.store.rooms import NOW, OWN, make_pair, opened, register

FEED = MessageFeed(OWN)
PAIR = make_pair("alice", "carol")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    def fill(txn: Transaction) -> None:
        register(txn, "alice", OWN, "Server2")
        register(txn, "dave", OWN, "server2")
        register(txn, "bob", OWN, "server3")
        register(txn, "carol", "r1")
        for number, author in enumerate(("alice", "dave", "bob")):
            pair = make_pair(author, "carol")
            store_pair(txn, pair, now_ms=NOW + number, from_client=False, delivery=None, own_login=OWN)

    with opened(tmp_path / "shine.mdb") as store:
        store.write_now(fill)
        yield store


def owners(store: Store, server: str = "server2", *, login: str | None = None) -> list[str]:
    with store.read() as txn:
        page = FEED.page(txn, server, login=login, after=b"", limit=100, max_bytes=2**20)
    return [str(item["login"]) for _, _, item in page.entries]


def test_a_peer_gets_the_entries_of_the_owners_it_shares_and_of_one_alone_if_it_asks_so(store: Store) -> None:
    assert owners(store) == ["alice", "dave"]
    assert owners(store, "server3") == ["bob"]
    assert owners(store, "r1") == []
    assert owners(store, login="dave") == ["dave"]
    assert owners(store, login="bob") == [], "an owner that is not shared"


def test_an_entry_travels_with_its_copies_the_incoming_one_first(store: Store) -> None:
    with store.read() as txn:
        [(_, _, item), _] = FEED.page(txn, "server2", login=None, after=b"", limit=9, max_bytes=2**20).entries
    assert item == {
        "login": "alice",
        "blobsB64": [encode_base64(PAIR.incoming.blob), encode_base64(PAIR.outgoing.blob)],
    }


def test_what_the_peer_cannot_take_is_named_and_passed_over(store: Store) -> None:
    with store.read() as txn:
        [(first, _, _), (second, _, _)] = FEED.page(
            txn, "server2", login=None, after=b"", limit=9, max_bytes=2**20, peer_bytes=2**20
        ).entries
        none = FEED.page(txn, "server2", login=None, after=b"", limit=9, max_bytes=2**20, peer_bytes=1)
    assert first != second
    assert (none.entries, none.more, none.too_large) == ([], False, first)


def test_what_is_acknowledged_does_not_come_again(store: Store) -> None:
    with store.read() as txn:
        page = FEED.page(txn, "server2", login="alice", after=b"", limit=9, max_bytes=2**20)
    [(_, mark, _)] = page.entries
    store.write_now(lambda txn: FEED.acknowledge(txn, "server2", mark))
    assert owners(store) == ["dave"]


@pytest.mark.parametrize("mark", ["a text", ("no key", b"signature")])
def test_a_mark_of_another_feed_is_a_defect(store: Store, mark: object) -> None:
    with pytest.raises(AssertionError):
        store.write_now(lambda txn: FEED.acknowledge(txn, "server2", mark))
    assert owners(store) == ["alice", "dave"]


class Taken:
    """The way in, in place of ``CatchUp``: it notes what it is given, and refuses what a test wants."""

    def __init__(self) -> None:
        self.taken: list[tuple[Any, ...]] = []
        self.refuses: dict[str, Refusal] = {}
        self.looked_up: list[tuple[bytes, str]] = []
        self.found: list[str] = []
        """Whose messages can be taken once a sender has been looked up."""

    async def take(self, entries: Sequence[tuple[str, Sequence[bytes]]], *, from_server: str) -> list[Refusal | None]:
        refusals = [self.refuses.get(owner) for owner, _ in entries]
        self.taken += [
            (*blobs, owner, from_server)
            for (owner, blobs), refusal in zip(entries, refusals, strict=True)
            if refusal is None
        ]
        return refusals

    async def find_sender(self, blob: bytes, *, from_server: str) -> None:
        self.looked_up.append((blob, from_server))
        if blob == b"wrong":
            raise BadSignature("no record of the sender is right")
        for owner in self.found:
            self.refuses.pop(owner, None)


def item(*blobs: bytes, login: Any = "Alice") -> dict[str, Any]:
    return {"syncId": "x", "login": login, "blobsB64": [encode_base64(blob) for blob in blobs]}


def apply(taken: Taken, *items: dict[str, Any]) -> list[type[Refusal] | None]:
    refusals = asyncio.run(MessageApply(taken)("server2", items))
    return [None if refusal is None else type(refusal) for refusal in refusals]


def test_two_copies_are_a_pair_and_one_is_an_incoming_copy() -> None:
    taken = Taken()
    assert apply(taken, item(b"in", b"out"), item(b"in", login="bob")) == [None, None]
    assert taken.taken == [(b"in", b"out", "alice", "server2"), (b"in", "bob", "server2")]


def test_what_is_wrong_harms_no_other_item_and_each_has_its_own_answer() -> None:
    taken = Taken()
    taken.refuses = {"mallory": BadSignature("forged")}
    answers = apply(
        taken,
        {"login": "alice", "blobsB64": ["no Base64"]},
        {"login": "alice", "blobsB64": [5]},
        {"login": "alice", "blobsB64": "text"},
        item(b"in", login="a b"),
        item(b"in", login=None),
        item(b"in", login="mallory"),
        item(b"in", b"out"),
    )
    assert answers == [BadBase64, BadRequestFormat, BadRequestFormat, BadLogin, BadFields, BadSignature, None]
    assert taken.taken == [(b"in", b"out", "alice", "server2")]


def test_a_sender_who_is_not_known_is_looked_up_at_the_server_that_gives_the_message() -> None:
    taken = Taken()
    taken.refuses = {"bob": UserNotFound("who?"), "carol": UserNotFound("who?"), "eve": BadSignature("forged")}
    taken.found = ["bob"]
    items = [item(b"1", login=login) for login in ("alice", "bob", "carol", "eve")]
    assert apply(taken, *items) == [None, None, UserNotFound, BadSignature]
    assert taken.looked_up == [(b"1", "server2")] * 2
    assert [what[1] for what in taken.taken] == ["alice", "bob"], "each is stored once"
    taken.refuses = {"dora": UserNotFound("who?")}
    assert apply(taken, item(b"wrong", login="dora")) == [UserNotFound]


def test_a_store_without_room_ends_it_after_all_have_ended() -> None:
    taken = Taken()
    taken.refuses = {"bob": StorageFull("full")}
    with pytest.raises(StorageFull):
        apply(taken, item(b"in", login="bob"), item(b"in", login="carol"))
    assert [what[1] for what in taken.taken] == ["carol"]
