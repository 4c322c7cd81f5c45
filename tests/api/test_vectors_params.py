"""Every vector of the settings over a real socket: what is answered, and what is stored afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shine_node.client.identity import Identity
from shine_node.protocol.access import record_payload
from tests.api.talk import Talk, node
from tests.support.clock import ManualClock
from tests.support.nodes import run
from tests.support.vectors import cases, load_vectors


def user_of(login: str) -> Identity:
    keys = load_vectors("user_params")["keys"][login]
    root, chain, device = (bytes.fromhex(keys[f"{kind}SeedHex"]) for kind in ("root", "blockchain", "device"))
    return Identity.from_seeds(login, root=root, blockchain=chain, device=device)


@pytest.mark.parametrize("case", cases("user_params"))
def test_case(tmp_path: Path, case: dict[str, Any]) -> None:
    async def story() -> None:
        payload, stored = case["payload"], case.get("stored")
        async with node(tmp_path, clock=ManualClock(load_vectors("user_params")["nowMs"])) as server:
            for login in load_vectors("user_params")["keys"]:
                record = user_of(login).access_record([server.access], time_ms=0)
                await server.request("AddUser", record_payload(record))
            async with await Talk.open(server.url) as talk:
                if stored is not None:
                    assert await talk.succeed("UpsertUserParam", stored) == {}
                answer = await talk.ask("UpsertUserParam", payload)
                assert (answer["status"], answer.get("error")) == (case["status"], case["error"]), answer
                assert answer["payload"] == {}
                there = payload if case.get("applied") else stored
                if case["error"] is None:
                    named = {"login": payload["login"].upper(), "param": payload["param"]}
                    assert await talk.succeed("GetUserParam", named) == {"exists": True, **there}
                listed = await talk.succeed("ListUserParams", {"login": case["user"]})
                assert listed["params"] == ([there] if there is not None else [])

    run(story())
