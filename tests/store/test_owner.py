"""Whose a store says that it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from shine_node.protocol.errors import StorageFull
from shine_node.store.environment import Store
from shine_node.store.layout import Table
from shine_node.store.owner import OWNER_KEY, OtherServer, check_owner, get_owner, note_owner, put_owner, read_owner
from tests.store.rooms import opened


def serve(path: Path, own_login: str, spoil: Callable[[Store], object] = lambda store: None) -> None:
    """Open a store as a node does that starts."""

    async def start() -> None:
        with opened(path) as store:
            store.start()
            spoil(store)
            await note_owner(store, own_login)

    asyncio.run(start())


def test_a_store_is_of_the_server_that_serves_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "shine.mdb"
    with opened(path) as store, store.read() as txn:
        assert get_owner(txn) == ""
    serve(path, "home")
    assert read_owner(path) == "home"
    with opened(path) as store:
        position = store.position
    serve(path, "home")
    with opened(path) as store:
        assert store.position == position, "nothing was written"
    assert caplog.text == ""
    serve(path, "new")
    assert read_owner(path) == "new"
    assert "was the store of the server home until now, and is that of new" in caplog.text


def test_a_store_that_cannot_be_written_is_served(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def refuse(work: object) -> Awaitable[object]:
        raise StorageFull("no room")

    serve(tmp_path / "shine.mdb", "home", lambda store: setattr(store, "write", refuse))
    assert read_owner(tmp_path / "shine.mdb") == ""
    assert "whose store it is cannot be written" in caplog.text


def test_it_is_kept_once(tmp_path: Path) -> None:
    with opened(tmp_path / "shine.mdb") as store:
        assert store.write_now(lambda txn: put_owner(txn, "home")) == ""
        position = store.position
        assert store.write_now(lambda txn: put_owner(txn, "home")) == "home"
        assert store.position == position
        assert store.write_now(lambda txn: put_owner(txn, "new")) == "home"


@pytest.mark.parametrize("value", [b"", b"two words", b"\xff", b"x" * 31])
def test_what_is_no_login_says_nothing(tmp_path: Path, value: bytes) -> None:
    with opened(tmp_path / "shine.mdb") as store:
        store.write_now(lambda txn: txn.put(Table.META, OWNER_KEY, value))
    assert read_owner(tmp_path / "shine.mdb") == ""


def test_a_backup_of_another_server_is_refused(tmp_path: Path) -> None:
    check_owner(tmp_path, "home", "home")
    check_owner(tmp_path, "", "home")
    with pytest.raises(OtherServer, match=r"is a backup of the server theirs, and this one is home: .* --force"):
        check_owner(tmp_path, "theirs", "home")
