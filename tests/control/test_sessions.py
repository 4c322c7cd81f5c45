"""The operator ends the sessions of a user: those that are connected are cut, and the others are gone too."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from shine_node.store.sessions import list_sessions
from tests.api.test_events import house
from tests.control.conftest import Asker
from tests.support.nodes import run


def test_all_sessions_of_a_user_end_and_nobody_elses(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "shine_node.control.sessions")

    async def story() -> None:
        async with (
            house(tmp_path, "Alice", "bob") as here,
            Asker(here.server.folder / "data" / "control.sock") as asker,
        ):
            phone, desk, bob = await here.device("alice"), await here.device("alice"), await here.device("bob")
            assert (await asker.ask("SignOut", {"login": "ALICE"}))["payload"] == {"sessions": 2}
            for device in (phone, desk):
                assert "1008: the operator of this server has ended all sessions" in await device.loss()
            assert await bob.silent()
            with here.server.node.store.read() as txn:
                assert list_sessions(txn, "alice") == []
                assert len(list_sessions(txn, "bob")) == 1
            again = await here.device("alice")
            assert len((await again.request("ListSessions"))["sessions"]) == 1
            assert (await asker.ask("SignOut", {"login": "carol"}))["error"] == "USER_NOT_FOUND"
            assert (await asker.ask("SignOut"))["error"] == "BAD_FIELDS"

    run(story())
    assert [record.message for record in caplog.records] == ["the operator has ended the sessions of alice: 2"]
