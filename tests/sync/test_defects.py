"""A defect is told with its traceback, once a minute for each peer."""

from __future__ import annotations

import asyncio
import logging

import pytest

from shine_node.peers.repeats import QUIET_SECONDS
from shine_node.protocol.errors import InternalError
from shine_node.sync.defects import Defects
from tests.support.clock import ManualClock


def test_a_defect_is_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    defects = Defects(clock)

    def meet(server_login: str) -> None:
        try:
            raise ZeroDivisionError("of all things")
        except ZeroDivisionError:
            refusal = defects.refusal(server_login)
        assert isinstance(refusal, InternalError)
        assert "of all things" not in str(refusal), "it is for the log"

    with caplog.at_level(logging.INFO):
        for _ in range(9):
            meet("server2")
        assert len(caplog.records) == 1
        assert "of all things" in caplog.text
        meet("server3")
        asyncio.run(clock.advance(QUIET_SECONDS))
        meet("server2")
    assert [record.getMessage() for record in caplog.records] == [
        f"a defect over an entry of {login}" for login in ("server2", "server3", "server2")
    ]
