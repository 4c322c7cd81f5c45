"""Every vector of the envelope over a real socket: a node as it is out of the box, one connection a case."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.talk import LoopThread, Talk, loop_thread
from tests.support.clock import ManualClock
from tests.support.nodes import LocalServer
from tests.support.vectors import cases, frame_of, load_vectors


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LoopThread, LocalServer]]:
    """A fresh node with default limits that takes no registrations, and the loop that it runs on."""
    folder = tmp_path_factory.mktemp("envelope")
    now_ms = load_vectors("envelope")["nowMs"]
    with loop_thread() as loop:
        server = LocalServer("server1", folder, clock=ManualClock(now_ms), registration={"mode": "closed"})
        try:
            loop.run(server.start())
            yield loop, server
        finally:
            loop.run(server.discard())


def fits(answer: dict[str, Any], allowed: dict[str, Any]) -> bool:
    """Say whether an answer is one that a case allows."""
    if "close" in allowed or (answer["status"], answer.get("error")) != (allowed["status"], allowed["error"]):
        return False
    if answer["ok"] is not (allowed["error"] is None) or not isinstance(answer["payload"], dict):
        return False
    if any(answer[name] != allowed[name] for name in ("op", "requestId") if name in allowed):
        return False
    return allowed.get("payloadHas", {}).items() <= answer["payload"].items()


@pytest.mark.parametrize("case", cases("envelope"))
def test_case(home: tuple[LoopThread, LocalServer], case: dict[str, Any]) -> None:
    loop, server = home

    async def story() -> None:
        async with await Talk.open(server.url) as talk:
            await talk.say(frame_of(case), text=case["kind"] == "text")
            closes = [allowed["close"] for allowed in case["anyOf"] if "close" in allowed]
            if closes:
                assert await talk.end() in closes
                return
            answer = await talk.hear()
            assert any(fits(answer, allowed) for allowed in case["anyOf"]), answer
            if answer["ok"]:
                assert "error" not in answer
            else:
                assert answer["message"]
            assert "ts" in await talk.succeed("Ping")

    loop.run(story())
