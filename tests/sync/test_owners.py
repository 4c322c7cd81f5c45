"""Whose entries a peer may have: only those of users who have just these two servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shine_node.store.environment import Store
from shine_node.sync.owners import sharing
from tests.store.rooms import OWN, opened, register

OTHER = "Other.Server"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with opened(tmp_path / "shine.mdb") as store:
        for login, homes in (
            ("alice", (OWN, OTHER)),
            ("bob", (OTHER.upper(), OWN.upper())),
            ("lonely", (OWN,)),
            ("third", (OWN, "third.server")),
            ("away", (OTHER, "third.server")),
        ):
            store.write_now(lambda txn, login=login, homes=homes: register(txn, login, *homes))  # type: ignore[misc]
        yield store


def of(store: Store, server: str, login: str | None = None) -> list[str]:
    with store.read() as txn:
        serves = sharing(txn, server, own_login=OWN, login=login)
        everyone = ("alice", "bob", "lonely", "third", "away", "nobody")
        found = [owner for owner in everyone if serves(owner)]
        assert found == [owner for owner in everyone if serves(owner)], "it is the same when it is asked again"
        return found


def test_only_owners_with_both_servers(store: Store) -> None:
    assert of(store, "other.server") == of(store, "OTHER.server") == ["alice", "bob"]
    assert of(store, "third.server") == ["third"]
    assert of(store, OWN) == of(store, "stranger") == []


def test_of_one_login_only_where_it_is_asked_for(store: Store) -> None:
    assert of(store, OTHER, "bob") == ["bob"]
    assert of(store, OTHER, "third") == of(store, OTHER, "nobody") == []
