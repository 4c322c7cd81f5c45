"""One browser for all tests of the chat page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.web import NO_BROWSER, Web, find_browser, web
from tests.web.serving import serve
from tests.web.ui import Ui


@pytest.fixture(scope="session")
def browser() -> Iterator[Web]:
    """The browser, started once; where there is none the tests are skipped, unless ``SHINE_CHROMIUM`` asks for them."""
    path = find_browser()
    if path is None:
        pytest.skip(NO_BROWSER)
    with web(path) as started:
        yield started


@pytest.fixture(scope="session")
def ui(browser: Web) -> Iterator[Ui]:
    """The page with the stand-in for its core."""
    with serve() as (url, files):
        yield Ui(browser, url, files)
