"""What the judges of the history find, and what mends it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.store.verifying.plants import ITEMS, found_and_mended


@pytest.mark.parametrize("name", ITEMS)
def test_planted_damage_is_found_and_mended(tmp_path: Path, name: str) -> None:
    found_and_mended(tmp_path, *ITEMS[name])
