"""The operator has entries sent again: of one user, or of all who have another server; over a control socket too."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from shine_node.client.identity import Identity
from shine_node.client.settings import make_setting
from shine_node.control.unsynced import MarkUnsynced
from shine_node.protocol.access import AccessServer
from shine_node.protocol.errors import BadFields, BadLogin, NotAccessServer, Refusal, UserNotFound
from shine_node.protocol.settings import setting_payload
from shine_node.store.environment import Transaction
from shine_node.store.layout import Table
from shine_node.store.settings import acknowledge_setting
from tests.api.talk import node
from tests.control.conftest import Asker
from tests.support.nodes import LocalServer, eventually, now_ms, run

ELSEWHERE = AccessServer("elsewhere", "ws://127.0.0.1:9/ws")


@asynccontextmanager
async def home(folder: Path) -> AsyncIterator[tuple[LocalServer, MarkUnsynced]]:
    """A node with alice and bob, who have another server too, carol, who has not, and dave, who is elsewhere."""
    async with node(folder, login="home") as server:
        for login, count in (("Alice", 2), ("bob", 1), ("carol", 1), ("dave", 0)):
            user = Identity.generate(login)
            homes = [] if login == "dave" else [server.access]
            record = user.access_record([*homes, *([] if login == "carol" else [ELSEWHERE])], time_ms=now_ms() - 10)
            await server.node.users.add(record)
            for number in range(count):
                setting = make_setting(user, f"p{number}x", "v", time_ms=now_ms())
                await server.request("UpsertUserParam", setting_payload(setting))
        assert unsynced(server) == 3
        await server.node.store.write(acknowledge_all)
        operation = server.node._control._operations["MarkUnsynced"].run
        owner = getattr(operation, "__self__", None)
        assert isinstance(owner, MarkUnsynced)
        yield server, owner


def acknowledge_all(txn: Transaction) -> None:
    for row in list(txn.scan_keys(Table.SETTINGS_UNSYNCED)):
        acknowledge_setting(txn, row)


def unsynced(server: LocalServer) -> int:
    with server.node.store.read() as txn:
        return txn.count(Table.SETTINGS_UNSYNCED)


async def until_unsynced(server: LocalServer, count: int) -> None:
    async def so_many() -> bool:
        return unsynced(server) == count

    await eventually(so_many)


def test_all_of_one_user(tmp_path: Path) -> None:
    async def story() -> None:
        async with home(tmp_path) as (server, operator):
            assert await operator.mark_unsynced({"login": "ALICE"}) == {"settings": 2, "messages": 0}
            await until_unsynced(server, 2)
            assert await operator.mark_unsynced({"login": "carol"}) == {"settings": 0, "messages": 0}

    run(story())


def test_all_of_all_users(tmp_path: Path) -> None:
    async def story() -> None:
        async with home(tmp_path) as (server, operator):
            assert await operator.mark_unsynced({}) == {"settings": 3, "messages": 0}
            await until_unsynced(server, 3)

    run(story())


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        ({"login": "nobody"}, UserNotFound),
        ({"login": "dave"}, NotAccessServer),
        ({"login": "a b"}, BadLogin),
        ({"login": ""}, BadFields),
    ],
)
def test_what_is_refused(tmp_path: Path, payload: dict[str, Any], error: type[Refusal]) -> None:
    async def story() -> None:
        async with home(tmp_path) as (server, operator):
            with pytest.raises(error):
                await operator.mark_unsynced(payload)
            with server.node.store.read() as txn:
                assert txn.count(Table.RESYNC) == 0

    run(story())


def test_over_the_control_socket(tmp_path: Path) -> None:
    async def story() -> None:
        async with home(tmp_path) as (server, _), Asker(server.folder / "data" / "control.sock") as asker:
            answer = await asker.ask("MarkUnsynced", {"login": "alice"})
            assert (answer["status"], answer["payload"]) == (200, {"settings": 2, "messages": 0})
            await until_unsynced(server, 2)
            assert (await asker.ask("MarkUnsynced", {"login": "nobody"}))["error"] == "USER_NOT_FOUND"
            assert (await asker.ask("MarkUnsynced"))["payload"] == {"settings": 3, "messages": 0}

    run(story())
