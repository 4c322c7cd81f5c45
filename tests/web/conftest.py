"""One browser for all tests of the chat page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.web import Web, web


@pytest.fixture(scope="session")
def browser() -> Iterator[Web]:
    """The browser, started once."""
    with web() as started:
        yield started
