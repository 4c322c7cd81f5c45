"""Finds and loads the test vectors: language-neutral cases that are no part of this repository.

They are looked for in the folder that ``$SHINE_VECTORS`` names, else in ``shared/vectors`` beside the repository's
folder. Where there are none, the tests that need them are skipped and say so; a folder that is named and lacks a file
is an error.
"""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import Any

import pytest

__all__ = ["cases", "frame_of", "load_vectors", "vectors_folder"]

REPOSITORY = Path(__file__).resolve().parents[2]
NOT_FOUND = "the test vectors are not here: set SHINE_VECTORS to their folder"


def vectors_folder() -> Path | None:
    """Return the folder of the vectors, or ``None`` where there is none."""
    named = os.environ.get("SHINE_VECTORS")
    if named:
        return Path(named)
    beside = REPOSITORY.parent / "shared" / "vectors"
    return beside if beside.is_dir() else None


@functools.cache
def _read(path: Path) -> dict[str, Any]:
    document = json.loads(path.read_text(encoding="ascii"))
    assert isinstance(document, dict) and document["cases"], f"{path} holds no cases"
    return document


def load_vectors(name: str) -> dict[str, Any]:
    """Return one file of vectors as it stands, read once; nobody may change what it holds. Skips where there are none.

    Args:
        name: the file's name, with or without ``.json``.
    """
    folder = vectors_folder()
    if folder is None:
        pytest.skip(NOT_FOUND, allow_module_level=True)
    return _read(folder / f"{name.removesuffix('.json')}.json")


def cases(name: str, *, kind: str | None = None) -> list[Any]:
    """Return the cases of a file as parameters of a test, their names as ids.

    Args:
        name: the file's name, with or without ``.json``.
        kind: only the cases of this ``kind``; that there are none is an error.
    """
    if vectors_folder() is None:
        return [pytest.param({}, id="no-vectors", marks=pytest.mark.skip(reason=NOT_FOUND))]
    found = [case for case in load_vectors(name)["cases"] if kind is None or case["kind"] == kind]
    if not found:
        raise ValueError(f"{name} has no case of kind {kind}")
    return [pytest.param(case, id=case["name"].encode("unicode_escape").decode("ascii")) for case in found]


def frame_of(case: dict[str, Any]) -> str | bytes:
    """Return the frame of a case of ``envelope.json``: a text, or bytes where the case gives them."""
    if "frameHex" in case:
        return bytes.fromhex(case["frameHex"])
    if "frameParts" in case:
        return "".join(text * times for text, times in case["frameParts"])
    frame = case["frame"]
    assert isinstance(frame, str)
    return frame
