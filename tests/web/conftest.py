"""One browser for all tests of the chat page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.web import Web, web
from tests.web.serving import serve
from tests.web.ui import Ui


@pytest.fixture(scope="session")
def browser() -> Iterator[Web]:
    """The browser, started once."""
    with web() as started:
        yield started


@pytest.fixture(scope="session")
def ui(browser: Web) -> Iterator[Ui]:
    """The page with the stand-in for its core."""
    with serve() as (url, files):
        yield Ui(browser, url, files)
