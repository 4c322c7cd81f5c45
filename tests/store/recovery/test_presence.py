"""Whether a store that was there is there still."""

from __future__ import annotations

from pathlib import Path

import pytest

from shine_node.store.files import StoreError, StoreGone
from shine_node.store.recovery.presence import find_gone, has_bytes, refuse_gone
from shine_node.store.recovery.state import State, state_file, write_state


def test_a_store_of_which_nobody_knows_may_be_made(tmp_path: Path) -> None:
    store = tmp_path / "shine.mdb"
    refuse_gone(store)
    write_state(store, State(placing="shine.mdb.damaged-1"))
    refuse_gone(store)
    assert not has_bytes(store)


def test_a_store_that_is_known_is_there_or_gone(tmp_path: Path) -> None:
    store = tmp_path / "shine.mdb"
    write_state(store, State(known=True))
    with pytest.raises(StoreGone, match=rf"now it is not there: put it back .*remove {state_file(store)} too"):
        refuse_gone(store)
    store.touch()
    with pytest.raises(StoreGone, match="now it is empty, and was not"):
        refuse_gone(store)
    store.write_bytes(b"x")
    refuse_gone(store)
    assert has_bytes(store) and find_gone(store, State(known=True)) is None


def test_nobody_is_told_to_remove_what_says_how_to_end_what_was_interrupted(tmp_path: Path) -> None:
    store = tmp_path / "shine.mdb"
    write_state(store, State(known=True, placing="shine.mdb.damaged-1"))
    with pytest.raises(StoreError, match="takes its place: try again in a moment") as caught:
        refuse_gone(store)
    assert not isinstance(caught.value, StoreGone)
