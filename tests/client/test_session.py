"""Sessions of a client at real nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from shine_node.client.connection import RequestRefused
from shine_node.client.identity import Identity
from shine_node.client.session import begin_session
from shine_node.clock import SystemClock
from shine_node.protocol.errors import BadFields
from tests.client.scripted import Refuse, scripted
from tests.support.nodes import LocalServer, register, run, servers

ALICE = Identity.generate("Alice")
CLOCK = SystemClock()


def test_a_session_is_made_once_and_used_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(LocalServer, tmp_path, "home") as (home,):
            await register(ALICE, [home])
            async with await home.connect() as first:
                saved = await begin_session(first, ALICE, None, clock=CLOCK, client_info="test")
                assert (await first.request("ListDialogs", {}))["dialogs"] == []
            async with await home.connect() as second:
                assert await begin_session(second, ALICE, saved, clock=CLOCK, client_info="again") is saved
                [listed] = (await second.request("ListSessions", {}))["sessions"]
                assert (listed["sessionId"], listed["clientInfoFromClient"]) == (saved.session_id, "again")
            async with await home.connect() as third:
                await begin_session(third, ALICE, saved, clock=CLOCK, client_info="")
                await third.request("CloseActiveSession", {"sessionId": saved.session_id})
            async with await home.connect() as fourth:
                other = await begin_session(fourth, ALICE, saved, clock=CLOCK, client_info="")
                assert other.session_id != saved.session_id and other.seed != saved.seed
                assert (await fourth.request("ListDialogs", {}))["dialogs"] == []

    run(story())


def test_somebody_who_is_not_registered(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(LocalServer, tmp_path, "home") as (home,), await home.connect() as client:
            with pytest.raises(RequestRefused, match="UNKNOWN_USER"):
                await begin_session(client, ALICE, None, clock=CLOCK, client_info="")

    run(story())


def test_another_refusal_of_a_login_makes_no_new_session(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(LocalServer, tmp_path, "home") as (home,):
            await register(ALICE, [home])
            async with await home.connect() as client:
                saved = await begin_session(client, ALICE, None, clock=CLOCK, client_info="")
        async with scripted({"SessionChallenge": lambda payload: Refuse(503, "SERVER_BUSY")}) as client:
            with pytest.raises(RequestRefused, match="SERVER_BUSY"):
                await begin_session(client, ALICE, saved, clock=CLOCK, client_info="")

    run(story())


def test_an_answer_without_what_it_must_have() -> None:
    async def story() -> None:
        async with scripted({"AuthChallenge": lambda payload: {}}) as client:
            with pytest.raises(BadFields, match="authNonce is missing"):
                await begin_session(client, ALICE, None, clock=CLOCK, client_info="")

    run(story())
