"""What a gate is told: whether a tombstone removes a message that is here."""

from __future__ import annotations

from pathlib import Path

from shine_node.protocol.container import Container
from shine_node.store.environment import Store
from shine_node.store.gate import removes, target_of
from shine_node.store.layout import ItemKey
from shine_node.store.messages import store_pair
from tests.store.rooms import NOW, OWN, first_delivery, make_pair, opened, receipt_of, register, tombstone_of


def told(store: Store, container: Container) -> bool:
    with store.read() as txn:
        return removes(txn, container, ItemKey.of(container))


def test_only_a_tombstone_of_a_message_that_its_owner_has_removes_something(tmp_path: Path) -> None:
    with opened(tmp_path / "shine.mdb") as store:
        store.write_now(lambda txn: (register(txn, "alice", OWN), register(txn, "bob", "r1")))
        pair = make_pair("alice", "bob")
        stone = tombstone_of(pair.incoming.message)

        def put(what: object) -> None:
            store.write_now(
                lambda txn: store_pair(
                    txn,
                    what,  # type: ignore[arg-type]
                    now_ms=NOW,
                    from_client=True,
                    delivery=first_delivery(),
                    own_login=OWN,
                )
            )

        assert not told(store, stone.outgoing), "nothing is here yet"
        put(pair)
        assert not told(store, pair.outgoing)
        assert not told(store, receipt_of(make_pair("bob", "alice").incoming.message).outgoing)
        assert told(store, stone.outgoing)
        assert not told(store, stone.incoming), "the recipient's copy is elsewhere"
        put(stone)
        assert not told(store, stone.outgoing), "it is removed already"


def test_what_a_tombstone_refers_to_is_the_message_of_the_same_owner() -> None:
    pair = make_pair("alice", "bob")
    stone = tombstone_of(pair.incoming.message)
    for copy, of_message in zip(stone, pair, strict=True):
        assert copy.reference is not None
        assert target_of(copy.reference, ItemKey.of(copy)) == ItemKey.of(of_message)
