"""Whom an owner takes nothing from: what the setting says now."""

from __future__ import annotations

from pathlib import Path

from shine_node.protocol.settings import Setting
from shine_node.store.blocks import blocks
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
