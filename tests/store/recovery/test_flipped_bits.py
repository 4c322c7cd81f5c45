"""A state file of which one bit has flipped: what is remembered may be wrong or lost, and nothing fails for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from shine_node.store.files import StoreDamaged, StoreGone
from shine_node.store.recovery.start import find_damage, recovery_notice
from shine_node.store.recovery.state import State, read_state, state_file, write_state
from shine_node.store.recovery.unfinished import finish_placing
from tests.store.rooms import NOW
from tests.store.verifying.full import full_store

KEPT, PLACING = "shine.mdb.damaged-20261130-120000", "shine.mdb.damaged-20261130-120003"
FULL = State(True, "boot", "a page", 5, 6, NOW, NOW, "the backup /b/shine-1.mdb", KEPT, 2, PLACING, "boot")


@pytest.mark.parametrize("there", [True, False])
def test_every_bit(tmp_path: Path, there: bool) -> None:
    store = full_store(tmp_path) if there else tmp_path / "shine.mdb"
    (tmp_path / KEPT).write_bytes(b"damaged")
    write_state(store, FULL)
    content = state_file(store).read_bytes()
    before = {path.name for path in tmp_path.iterdir()}
    states = set()
    for bit in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        state_file(store).write_bytes(flipped)
        state = read_state(store)
        states.add(state)
        finish_placing(store)
        assert read_state(store).placing == ""
        notice = recovery_notice(store)
        assert not notice or str(tmp_path / KEPT) in notice
        damage = find_damage(store, state, boot="another", now_ms=NOW)
        if there:
            assert damage is None or type(damage) is StoreDamaged
        else:
            assert (type(damage) is StoreGone) == state.known
        assert {path.name for path in tmp_path.iterdir()} == before
    assert len(states) > len(content), "most of them can be read"
    assert {"", KEPT} < {state.kept for state in states}
