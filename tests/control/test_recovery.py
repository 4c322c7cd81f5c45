"""What the configuration says of a damaged store, and what its owner has to know of one."""

from __future__ import annotations

from pathlib import Path

from shine_node.config import Config, config_from_mapping
from shine_node.control.recovery import STORE_FILE, damage_notice, store_file, store_rules
from shine_node.store.recovery.state import mark_damage, read_state, write_state
from tests.store.rooms import NOW, opened
from tests.store.verifying.full import full_store


def config(folder: Path, **storage: str) -> Config:
    peers = [{"login": "Friend", "url": "wss://friend.example/ws"}]
    server = {"login": "Home", "url": "wss://home.example/ws", "dataDir": str(folder)}
    return config_from_mapping({"server": server, "storage": storage, "sync_servers": peers})


def test_the_rules(tmp_path: Path) -> None:
    rules = store_rules(config(tmp_path))
    assert rules.policy == "backup"
    assert rules.own_login == "home"
    assert rules.backups == tmp_path / "backups"
    assert rules.refill_from == ("Friend",)
    assert store_rules(config(tmp_path, backupDir="/b", whenDamaged="stop")).backups == Path("/b")
    assert store_file(config(tmp_path)) == tmp_path / STORE_FILE


def test_what_there_is_to_say(tmp_path: Path) -> None:
    assert damage_notice(config(tmp_path), now_ms=NOW) == ("", False)
    assert not list(tmp_path.iterdir())
    path = full_store(tmp_path)
    assert damage_notice(config(tmp_path), now_ms=NOW) == ("", False)
    with opened(path):
        assert damage_notice(config(tmp_path), now_ms=NOW) == ("", False)
    mark_damage(path, "met by LMDB")
    assert damage_notice(config(tmp_path), now_ms=NOW) == ("", False)
    write_state(path, read_state(path)._replace(doubted_at_ms=NOW))
    text, unusable = damage_notice(config(tmp_path), now_ms=NOW)
    assert unusable
    assert "met by LMDB" in text
    path.with_name("x").write_bytes(path.read_bytes()[:9000])
    path.with_name("x").replace(path)
    text, unusable = damage_notice(config(tmp_path), now_ms=NOW)
    assert unusable
    assert "cut off" in text
