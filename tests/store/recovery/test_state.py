"""What is remembered of a store."""

from __future__ import annotations

from pathlib import Path

import pytest

from shine_node.store.recovery import state as state_module
from shine_node.store.recovery.state import (
    State,
    boot_id,
    clear_damage,
    is_marked,
    mark_damage,
    read_state,
    state_file,
    write_state,
)
from tests.store.verifying.full import full_store


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "shine.mdb"
    assert read_state(path) == State()
    state = State(True, "boot", "broken", 5, 6, 7, 8, "a backup", "shine.mdb.kept", 2, "shine.mdb.placing", "boot")
    write_state(path, state)
    assert read_state(path) == state
    assert state_file(path).stat().st_mode & 0o777 == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["shine.mdb.state"]


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"known": 1, "running": null, "damage": 5, "other": 6}'])
def test_what_cannot_be_read_is_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "shine.mdb"
    state_file(path).write_bytes(content)
    assert read_state(path) == State()


@pytest.mark.parametrize(
    "name",
    ["/etc/passwd", "shine.mdb", "shine.mdb./x", "shine.mdb.\0", "..", "other.mdb.damaged-1", "shine.mdb." + "x" * 250],
)
def test_what_is_no_name_beside_the_store_is_none(tmp_path: Path, name: str) -> None:
    path = tmp_path / "shine.mdb"
    write_state(path, State(known=True, kept=name, placing=name))
    assert read_state(path) == State(known=True)


def test_a_mark_is_of_one_file_as_it_was(tmp_path: Path) -> None:
    path = full_store(tmp_path)
    clear_damage(path)
    assert not state_file(path).exists()
    assert not is_marked(path, read_state(path))
    mark_damage(path, "a page is gone")
    assert is_marked(path, read_state(path))
    content = path.read_bytes()
    path.write_bytes(content[:100])  # of what cannot be read nobody knows how far it has come
    assert not is_marked(path, read_state(path))
    path.write_bytes(content)
    other = tmp_path / "other"
    other.write_bytes(content)
    path.rename(tmp_path / "gone")
    assert not is_marked(path, read_state(path))
    other.rename(path)
    assert not is_marked(path, read_state(path))
    (tmp_path / "gone").replace(path)
    assert is_marked(path, read_state(path))
    clear_damage(path)
    assert read_state(path).damage == ""


def test_the_start_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert boot_id() == boot_id() != ""
    monkeypatch.setattr(state_module, "_BOOT_ID", tmp_path / "missing")
    assert boot_id() == ""
