"""A file that was to take a store's place when the power went, on a disk where that takes two steps."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shine_node.store.files import StoreError, take_lock
from shine_node.store.recovery.state import State, read_state, state_file, write_state
from shine_node.store.recovery.unfinished import finish_placing, finish_unheld

NAMES = ("shine.mdb", "shine.mdb.new", "shine.mdb.damaged-1")


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        ((), ()),
        (("shine.mdb",), ("shine.mdb",)),
        (("shine.mdb", "shine.mdb.new"), ("shine.mdb", "shine.mdb.new")),
        (("shine.mdb.new", "shine.mdb.damaged-1"), ("shine.mdb.new", "", "shine.mdb.damaged-1")),
        (("shine.mdb.damaged-1",), ("shine.mdb.damaged-1",)),
    ],
)
def test_what_is_whole_has_the_name(tmp_path: Path, there: tuple[str, ...], expected: tuple[str, ...]) -> None:
    store = tmp_path / "shine.mdb"
    for name in there:
        (tmp_path / name).write_text(name)
    write_state(store, State(known=True, placing="shine.mdb.damaged-1"))
    finish_placing(store)
    found = {name: (tmp_path / name).read_text() for name in NAMES if (tmp_path / name).exists()}
    assert found == {name: text for name, text in zip(NAMES, expected, strict=False) if text}
    assert read_state(store) == State(known=True)


def test_nothing_was_begun(tmp_path: Path) -> None:
    finish_placing(tmp_path / "shine.mdb")
    assert not state_file(tmp_path / "shine.mdb").exists()
    (tmp_path / "shine.mdb.new").touch()
    finish_placing(tmp_path / "shine.mdb")
    assert not (tmp_path / "shine.mdb").exists()


def test_the_lock_is_taken_only_where_something_is_to_be_ended(tmp_path: Path) -> None:
    store = tmp_path / "shine.mdb"
    finish_unheld(store)
    assert not list(tmp_path.iterdir())
    (tmp_path / "shine.mdb.damaged-1").write_text("kept")
    write_state(store, State(known=True, placing="shine.mdb.damaged-1"))
    lock = take_lock(store)
    with pytest.raises(StoreError, match="in use"):
        finish_unheld(store)
    os.close(lock)
    assert not store.exists()
    finish_unheld(store)
    assert store.read_text() == "kept"
    os.close(take_lock(store))
