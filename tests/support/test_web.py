"""The browser of the tests: found, or named, or said to be missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import web


def test_a_browser_is_found_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHINE_CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert web.find_browser() is None
    program = tmp_path / "chromium-browser"
    program.touch(0o755)
    assert web.find_browser() == str(program)


def test_a_browser_that_is_asked_for_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "mine"
    for named in ("", str(program), str(tmp_path)):
        monkeypatch.setenv("SHINE_CHROMIUM", named)
        with pytest.raises(FileNotFoundError, match="install it"):
            web.find_browser()
    program.touch(0o755)
    monkeypatch.setenv("SHINE_CHROMIUM", str(program))
    assert web.find_browser() == str(program)
