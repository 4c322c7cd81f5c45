"""What the judges of users beside their history find, and what mends it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.store.verifying.plants import PEOPLE, found_and_mended


@pytest.mark.parametrize("name", PEOPLE)
def test_planted_damage_is_found_and_mended(tmp_path: Path, name: str) -> None:
    found_and_mended(tmp_path, *PEOPLE[name])
