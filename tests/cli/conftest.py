"""What the tests of the commands share."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that others may enter, as they may not enter those of pytest."""
    folder = Path(tempfile.mkdtemp(prefix="shine-open-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)
