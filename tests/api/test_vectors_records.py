"""Every vector of the access records over a real socket: by ``AddUser`` and by ``SetUserAccess``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.api.talk import Talk, node
from tests.support.clock import ManualClock
from tests.support.nodes import LocalServer, run
from tests.support.vectors import cases, load_vectors

FRIEND = {"login": "friend", "url": "wss://127.0.0.1:1/ws"}


def a_node(folder: Path, case: dict[str, Any]) -> Any:
    """Return a node on the clock of a case, at which everybody may register."""
    secure = {"url": "wss://one.example/ws", "pool": {"allowInsecurePeers": case.get("allowInsecureUrl", False)}}
    clock = ManualClock(case.get("nowMs", load_vectors("access_records")["nowMs"]))
    return node(folder, clock=clock, server=secure, sync_servers=[FRIEND])


async def talk_as_friend(server: LocalServer) -> Talk:
    """Return a connection of a peer that the operator configured: it may bring the first record of anybody."""
    talk = await Talk.open(server.url)
    await talk.succeed("ServerHello", {"serverLogin": "friend", "protocolVersion": 1, "capabilities": []})
    return talk


async def newest(talk: Talk, login: str) -> dict[str, Any]:
    known = await talk.succeed("GetUserAccess", {"login": login})
    return {key: value for key, value in known.items() if key not in ("exists", "history")}


async def tell(talk: Talk, op: str, case: dict[str, Any]) -> None:
    """Tell the record of a case and check what is answered and what is known afterwards."""
    record, stored = case["record"], case.get("stored")
    answer = await talk.ask(op, record)
    assert (answer["status"], answer.get("error")) == (case["status"], case["error"]), answer
    if case["error"] is None:
        assert answer["payload"] == ({} if op == "AddUser" else {"applied": case["applied"]})
        assert await newest(talk, record["login"]) == (record if case["applied"] else stored)
    elif stored is not None:
        assert await newest(talk, stored["login"]) == stored
    else:
        known = await talk.ask("GetUser", {"login": record["login"]})
        assert not known["ok"] or known["payload"] == {"exists": False}  # nothing has come of it


@pytest.mark.parametrize("case", cases("access_records"))
def test_case(tmp_path: Path, case: dict[str, Any]) -> None:
    async def story() -> None:
        async with a_node(tmp_path, case) as server, await talk_as_friend(server) as talk:
            if "stored" in case:
                await talk.succeed("AddUser", case["stored"])
            elif case["error"] is not None:
                await tell(talk, "AddUser", case)
            await tell(talk, "SetUserAccess", case)
        if "stored" not in case and case["error"] is None:
            async with a_node(tmp_path / "other", case) as server, await talk_as_friend(server) as talk:
                await tell(talk, "AddUser", case)

    run(story())
