"""The list of the blocked, as a client reads and changes it."""

from __future__ import annotations

from typing import Any

import pytest

from shine_node.client.blocking import ListContended, TooManyBlocked, change_blocked, read_blocked
from shine_node.client.history import BadAnswer
from shine_node.client.identity import Identity
from shine_node.client.settings import make_setting
from shine_node.protocol.blocking import MAX_BLOCKED
from shine_node.protocol.container import CLIENT_AHEAD_MS
from shine_node.protocol.settings import check_setting_key, parse_setting, setting_payload, setting_text
from shine_node.protocol.signatures import is_signed_by
from tests.client.scripted import scripted
from tests.support.nodes import run

ALICE = Identity.generate("Alice")
NOW = 1_774_700_600_000


class Server:
    """A server that keeps one setting, signed as it was given, and checks what it is sent."""

    def __init__(
        self, value: str | None = None, time_ms: int = NOW, signer: Identity = ALICE, lies: dict[str, Any] | None = None
    ) -> None:
        kept = None if value is None else make_setting(signer, "blocked", value, time_ms=time_ms)
        self.kept: dict[str, Any] = {} if kept is None else {**setting_payload(kept), **(lies or {})}
        self.overtaken: list[str] = []
        """Lists that another device writes just after the next ones that are sent."""
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
        if self.overtaken:
            later = make_setting(ALICE, "blocked", self.overtaken.pop(0), time_ms=setting.time_ms + 1)
            self.kept = setting_payload(later)
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


@pytest.mark.parametrize(
    ("server", "detail"),
    [
        (Server("eve", lies={"value": 5}), "value"),
        (Server("eve", lies={"time_ms": "x"}), "time_ms"),
        (Server("eve", lies={"value": "friend"}), "not signed by its user"),
        (Server("eve", lies={"time_ms": NOW + 1}), "not signed by its user"),
        (Server("eve", lies={"param": "other"}), "not signed by its user"),
        (Server("eve", signer=Identity.generate("Bob")), "device_key"),
        (Server("eve", signer=Identity.generate("Alice")), "device_key"),
    ],
)
def test_a_list_that_its_user_has_not_signed_is_none(server: Server, detail: str) -> None:
    async def story() -> None:
        kept = server.kept
        async with scripted(server.script) as connection:
            with pytest.raises(BadAnswer, match=detail):
                await read_blocked(connection, ALICE)
            with pytest.raises(BadAnswer, match=detail):
                await change_blocked(connection, ALICE, "mallory", blocked=True, now_ms=NOW)
        assert server.kept is kept

    run(story())


def test_a_list_of_a_time_far_ahead_is_not_signed_on() -> None:
    async def story() -> None:
        for ahead_ms, is_taken in ((CLIENT_AHEAD_MS - 1, True), (CLIENT_AHEAD_MS, False)):
            server = Server("eve", NOW + ahead_ms)
            async with scripted(server.script) as connection:
                if is_taken:
                    await change_blocked(connection, ALICE, "eve", blocked=False, now_ms=NOW)
                    assert server.kept["time_ms"] == NOW + ahead_ms + 1
                else:
                    with pytest.raises(BadAnswer, match="clock of this machine"):
                        await change_blocked(connection, ALICE, "eve", blocked=False, now_ms=NOW)

    run(story())


def test_what_another_device_writes_in_the_same_moment_is_kept() -> None:
    async def story() -> None:
        server = Server("eve")
        server.overtaken = ["eve\ncarol", "eve\ncarol\ndave"]
        async with scripted(server.script) as connection:
            expected = ["eve", "carol", "dave", "mallory"]
            assert await change_blocked(connection, ALICE, "mallory", blocked=True, now_ms=NOW) == (expected, True)
            server.overtaken = ["mallory"] * 3
            with pytest.raises(ListContended, match="try again"):
                await change_blocked(connection, ALICE, "mallory", blocked=False, now_ms=NOW)
            assert await read_blocked(connection, ALICE) == ["mallory"]

    run(story())
