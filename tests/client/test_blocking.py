"""The list of the blocked, as a client reads and changes it."""

from __future__ import annotations

from typing import Any

import pytest

from shine_node.client.blocking import TooManyBlocked, change_blocked, read_blocked
from shine_node.client.history import BadAnswer
from shine_node.client.identity import Identity
from shine_node.protocol.blocking import MAX_BLOCKED
from shine_node.protocol.settings import check_setting_key, parse_setting, setting_text
from shine_node.protocol.signatures import is_signed_by
from tests.client.scripted import scripted
from tests.support.nodes import run

ALICE = Identity.generate("Alice")
NOW = 1_774_700_600_000


class Server:
    """A server that keeps one setting, and checks it."""

    def __init__(self, value: object = None, time_ms: object = NOW) -> None:
        self.kept: dict[str, Any] = {} if value is None else {"value": value, "time_ms": time_ms}
        self.script = {"GetUserParam": self.get, "UpsertUserParam": self.put}

    def get(self, payload: dict[str, Any]) -> dict[str, Any]:
        assert payload == {"login": "Alice", "param": "blocked"}
        return {"exists": bool(self.kept), **self.kept}

    def put(self, payload: dict[str, Any]) -> dict[str, Any]:
        setting = parse_setting(payload, max_value_bytes=65536)
        check_setting_key(setting, ALICE.device.public)
        assert is_signed_by(ALICE.device.public, setting_text(setting), setting.signature)
        assert (setting.login, setting.param) == ("Alice", "blocked")
        self.kept = payload
        return {}


def test_a_list_is_made_grows_and_shrinks() -> None:
    async def story() -> None:
        server = Server()
        async with scripted(server.script) as connection:
            assert await read_blocked(connection, ALICE) == []
            for login, blocked, expected in (
                ("Mallory", True, (["mallory"], True)),
                ("eve", True, (["mallory", "eve"], True)),
                ("MALLORY", True, (["mallory", "eve"], False)),
                ("mallory", False, (["eve"], True)),
                ("mallory", False, (["eve"], False)),
            ):
                assert await change_blocked(connection, ALICE, login, blocked=blocked, now_ms=NOW) == expected
            assert server.kept["value"] == "eve"
            assert server.kept["time_ms"] == NOW + 2, "each is later than the one before, whatever the clock says"
            assert await read_blocked(connection, ALICE) == ["eve"]

    run(story())


def test_a_full_list() -> None:
    async def story() -> None:
        server = Server("\n".join(f"user{number}" for number in range(MAX_BLOCKED)))
        async with scripted(server.script) as connection:
            with pytest.raises(TooManyBlocked, match="unblock one first"):
                await change_blocked(connection, ALICE, "mallory", blocked=True, now_ms=NOW)
            logins, changed = await change_blocked(connection, ALICE, "user0", blocked=False, now_ms=NOW)
            assert (len(logins), changed) == (MAX_BLOCKED - 1, True)

    run(story())


@pytest.mark.parametrize(("value", "time_ms"), [(5, NOW), ("eve", None), ("eve", "x")])
def test_an_answer_that_is_none(value: object, time_ms: object) -> None:
    async def story() -> None:
        async with scripted(Server(value, time_ms).script) as connection:
            with pytest.raises(BadAnswer):
                await read_blocked(connection, ALICE)

    run(story())
