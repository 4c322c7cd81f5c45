"""Whom an owner takes nothing from: what the setting says now."""

from __future__ import annotations

from pathlib import Path

from shine_node.protocol.settings import Setting
from shine_node.store import blocks as blocks_module
from shine_node.store.blocks import MOST_REMEMBERED_BYTES, blocks
from shine_node.store.environment import Store
from shine_node.store.settings import put_setting
from tests.store.rooms import NOW, OWN, opened, register


def put(store: Store, value: str, time_ms: int, param: str = "blocked") -> None:
    setting = Setting("Alice", param, time_ms, value, b"\1" * 32, b"\2" * 64)
    store.write_now(lambda txn: put_setting(txn, setting, now_ms=NOW, own_login=OWN, most=10))


def test_the_newest_list_counts(tmp_path: Path) -> None:
    with opened(tmp_path / "shine.mdb") as store:
        store.write_now(lambda txn: register(txn, "alice", OWN))

        def found(*senders: str) -> list[bool]:
            with store.read() as txn:
                return [blocks(txn, "alice", sender) for sender in senders]

        assert found("mallory", "eve") == [False, False]
        put(store, "mallory", NOW, param="theme")
        assert found("mallory", "eve") == [False, False]
        put(store, "Mallory\nalice", NOW)
        assert found("mallory", "eve", "alice") == [True, False, False]
        put(store, "eve", NOW + 1)
        assert found("mallory", "eve") == [False, True]
        put(store, "", NOW + 2)
        assert found("mallory", "eve") == [False, False]
        with store.read() as txn:
            assert not blocks(txn, "bob", "mallory")


def test_a_list_is_read_once_and_a_very_long_one_is_not_kept(tmp_path: Path) -> None:
    with opened(tmp_path / "shine.mdb") as store:
        store.write_now(lambda txn: register(txn, "alice", OWN))

        def looks() -> int:
            """Say how many lists are kept, after two looks."""
            blocks_module._remembered.cache_clear()
            with store.read() as txn:
                assert blocks(txn, "alice", "mallory")
                assert blocks(txn, "alice", "mallory")
            return blocks_module._remembered.cache_info().misses

        put(store, "mallory", NOW)
        assert looks() == 1
        put(store, "mallory" + "\n" * MOST_REMEMBERED_BYTES, NOW + 1)
        assert looks() == 0
