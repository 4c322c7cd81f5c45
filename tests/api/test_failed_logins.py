"""Log-ins that fail, over real sockets: who is made to wait, for how long, and who is not."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from shine_node.api.failed_logins import LINE_SECONDS, MAX_LINES, FailedLogins
from shine_node.client.identity import Identity
from shine_node.config import config_from_mapping
from shine_node.protocol.access import record_payload
from tests.api.talk import Talk, node
from tests.support.clock import ManualClock
from tests.support.nodes import LocalServer, run

CONFIG = config_from_mapping({"server": {"login": "home", "url": "wss://home.example/ws"}})
ALICE = Identity.generate("alice")
HOME, ELSEWHERE, NEIGHBOUR = "198.51.100.7", "203.0.113.9", "2001:db8:1:2::3"


async def at(server: LocalServer, address: str) -> Talk:
    """Connect through a proxy on this machine that says whose the connection is."""
    return await Talk.open(server.url, headers={"X-Forwarded-For": address})


async def known(server: LocalServer, user: Identity) -> None:
    record = user.access_record([server.access], time_ms=server.node._clock.now_ms() - 1000)
    await server.request("AddUser", record_payload(record))


async def fails(talk: Talk, login: str = "alice") -> tuple[int, str]:
    """Try to create a session without a challenge, and return how it is refused."""
    payload = {
        "login": login,
        "sessionKey": "ed25519/" + "A" * 43 + "=",
        "storagePwd": "",
        "timeMs": 1,
        "authNonce": "x",
        "deviceKey": "A" * 43 + "=",
        "signatureB64": "A" * 86 + "==",
        "clientInfo": "",
    }
    return await talk.refused("CreateAuthSession", payload)


def test_after_so_many_failures_the_address_waits_and_the_user_is_not_locked_out_elsewhere(tmp_path: Path) -> None:
    async def story() -> None:
        clock = ManualClock(1_774_700_600_000)
        async with node(tmp_path, clock=clock, limits={"failedLogins": 8}) as server:
            await known(server, ALICE)
            async with await at(server, ELSEWHERE) as stranger, await at(server, HOME) as alice:
                for _ in range(2):  # a quarter of 8 is for one user
                    assert (await fails(stranger))[0] == 422
                assert await fails(stranger) == (429, "RATE_LIMITED")
                answer = await stranger.ask("AuthChallenge", {"login": "ALICE"})
                assert answer["status"] == 429
                assert 0 < answer["payload"]["retryAfterMs"] <= 300_001
                await alice.succeed("AuthChallenge", {"login": "alice"})
                for number in range(6):
                    assert (await fails(stranger, f"other{number}"))[0] == 422
                assert (await fails(stranger, "other9"))[0] == 429, "and 8 for all of them"
                assert (await stranger.refused("SessionChallenge", {"sessionId": "x"}))[0] == 429
                assert (await stranger.refused("SessionLogin", {"sessionId": "x"}))[0] == 429
                await stranger.succeed("Ping")
                await clock.advance(76)
                assert (await fails(stranger, "other9"))[0] == 422
                assert (await fails(stranger, "other9"))[0] == 429

    run(story())


def test_a_network_of_ipv6_is_one_address_and_another_connection_does_not_help(tmp_path: Path) -> None:
    async def story() -> None:
        async with node(tmp_path, limits={"failedLogins": 1}) as server:
            async with await at(server, NEIGHBOUR) as one:
                assert (await one.refused("SessionChallenge", {"sessionId": "x"})) == (422, "SESSION_NOT_FOUND")
            async with await at(server, "2001:db8:1:2::ffff") as other:
                assert (await other.refused("AuthChallenge", {"login": "nobody"}))[0] == 429
            async with await at(server, "2001:db8:1:3::3") as stranger:
                assert (await stranger.refused("AuthChallenge", {"login": "nobody"}))[0] == 422

    run(story())


def test_what_succeeds_or_cannot_be_read_is_not_counted(tmp_path: Path) -> None:
    async def story() -> None:
        async with node(tmp_path, limits={"failedLogins": 1}) as server:
            await known(server, ALICE)
            async with await at(server, HOME) as talk:
                for _ in range(5):
                    await talk.succeed("AuthChallenge", {"login": "alice"})
                    assert (await talk.refused("AuthChallenge", {"login": 7}))[0] == 400

    run(story())


def test_this_machine_itself_is_not_counted_nor_anybody_where_there_is_no_limit(tmp_path: Path) -> None:
    async def story() -> None:
        async with node(tmp_path, limits={"failedLogins": 1}) as server:
            async with await Talk.open(server.url) as talk:
                for _ in range(5):
                    assert (await fails(talk))[0] == 422
            server.node._failed_logins.limits = replace(server.node.config.limits, failed_logins=0)
            async with await at(server, HOME) as talk:
                for _ in range(5):
                    assert (await fails(talk))[0] == 422

    run(story())


def test_the_log_has_each_address_that_is_shut_out_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with node(tmp_path, limits={"failedLogins": 4}) as server:
            for address in (HOME, ELSEWHERE, NEIGHBOUR):
                async with await at(server, address) as talk:
                    for number in range(7):
                        await fails(talk, f"user{number}")
            failed = server.node._failed_logins
            assert (failed.failed, failed.refused) == (12, 9)

    run(story())
    assert lines(caplog) == [
        f"log-ins from {address} are refused for a while: too many have failed (limits.failedLogins)"
        for address in (HOME, ELSEWHERE, NEIGHBOUR)
    ]


def test_tokens_that_are_wrong_count_and_the_log_has_who_guesses(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        clock = ManualClock(1_774_700_600_000)
        registration = {"mode": "token", "token": "a long and good token"}
        async with node(tmp_path, clock=clock, limits={"failedLogins": 3}, registration=registration) as server:
            record = record_payload(ALICE.access_record([server.access], time_ms=clock.now_ms() - 1000))
            async with await at(server, ELSEWHERE) as stranger, await at(server, HOME) as alice:
                for _ in range(5):
                    assert (await stranger.refused("AddUser", record))[0] == 403, "it asks whether one is wanted"
                for op in ("AddUser", "SetUserAccess", "AddUser"):
                    guess = record | {"registrationToken": "geheim"}
                    assert await stranger.refused(op, guess) == (403, "REGISTRATION_CLOSED")
                right = record | {"registrationToken": "a long and good token"}
                answer = await stranger.ask("AddUser", right)
                assert (answer["status"], answer["error"]) == (429, "RATE_LIMITED"), "nor is a right one looked at"
                assert answer["payload"]["retryAfterMs"] > 0
                assert (await stranger.refused("AuthChallenge", {"login": "alice"}))[0] == 429
                await alice.succeed("AddUser", right)
            failed = server.node._failed_logins
            assert (failed.wrong_tokens, failed.failed, failed.refused) == (3, 0, 2)
            assert server.node.users.registrations == 1

    caplog.set_level(logging.INFO, "shine_node.directory.users")
    run(story())
    assert lines(caplog) == [
        f"a wrong token for a registration came from {ELSEWHERE}",
        f"log-ins from {ELSEWHERE} are refused for a while: too many have failed (limits.failedLogins)",
    ]
    assert [r.message for r in caplog.records if r.name == "shine_node.directory.users"] == [
        f"alice is a user of this server now, from {HOME}"
    ]
    assert "geheim" not in caplog.text and "good token" not in caplog.text


def test_who_has_many_addresses_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    failed = FailedLogins(replace(CONFIG.limits, failed_logins=100), clock)

    def guess() -> None:
        for number in range(2 * MAX_LINES):
            for _ in range(2):
                assert not failed.check_token(f"10.0.0.{number}", False)

    guess()
    assert len(lines(caplog)) == MAX_LINES
    run(clock.advance(LINE_SECONDS + 1))
    guess()
    assert len(lines(caplog)) == 2 * MAX_LINES
    assert failed.wrong_tokens == 8 * MAX_LINES
    assert failed.check_token("127.0.0.1", True)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.name == "shine_node.api.failed_logins"]
