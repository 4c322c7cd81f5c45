"""``status`` of real nodes, and how it reads."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from shine_node import __version__
from shine_node.cli import control
from shine_node.cli.commands import run_command
from shine_node.cli.node_process import NodeProcess, ReservedPort
from shine_node.cli.status import render
from tests.cli.program import run_program, write_config
from tests.support.nodes import ServerProcess, eventually, run, servers

NOW_MS = 1_774_700_000_000


def link(login: str, **changes: Any) -> dict[str, Any]:
    return {
        "serverLogin": login,
        "state": "connected",
        "connectedAtMs": NOW_MS - 4_000_000,
        "lastActivityMs": NOW_MS - 1000,
        "waitingRealtime": 0,
        "waitingNormal": 0,
        "waitingBulk": 0,
        "succeeded": 0,
        "failed": 0,
        "timedOut": 0,
        "lastError": "",
        "syncedAtMs": None,
        "notSyncedSinceMs": None,
        "notSyncedBecause": "",
        **changes,
    }


def status_of(
    *links: dict[str, Any], warnings: tuple[str, ...] = (), notes: tuple[str, ...] = (), **store: Any
) -> dict[str, Any]:
    return {
        "version": "1.2.3",
        "login": "home",
        "url": "wss://home.example/ws",
        "uptimeSeconds": 90_061,
        "listening": ["ws://127.0.0.1:7070/ws", "ws://[::1]:7070/ws"],
        "connections": 1,
        "queues": {"crypto": 2, "writer": 3, "attempts": 1, "openDeliveries": 4},
        "store": {
            "path": "/data/shine.mdb",
            "fileBytes": 3_000_000,
            "usedBytes": 100_000,
            "mapBytes": 2**30,
            "usedShare": 0.0001,
            "diskFreeBytes": 2**33,
            "users": 1,
            "messages": 12,
            **store,
        },
        "backup": {"folder": "/backups", "file": None, "madeAtMs": 0, "fileBytes": 0},
        "peers": {"atMs": NOW_MS, "known": 5, "maxConnections": 256, "links": list(links)},
        "sinceStart": {
            "registrations": 2,
            "failedLogins": 1,
            "refusedLogins": 0,
            "wrongTokens": 0,
            "refusedByLimits": {"maxStoredMiBPerUser": 0, "maxMessagesPerDay": 0},
        },
        "certificate": {"notAfterMs": NOW_MS, "daysLeft": 62},
        "clock": {"nowMs": NOW_MS, "synchronised": True},
        "warnings": list(warnings),
        "notes": list(notes),
    }


def test_how_it_reads() -> None:
    resting = {"state": "pause", "connectedAtMs": None, "lastActivityMs": None, "failed": 3, "lastError": "refused"}
    busy = {"waitingRealtime": 1, "waitingNormal": 2, "waitingBulk": 3, "succeeded": 40, "timedOut": 5}
    lines = list(
        render(status_of(link("friend", **busy), link("bo", **resting), warnings=("one", "two"), notes=("three",)))
    )
    assert lines == [
        "warning: one",
        "warning: two",
        "note:    three",
        "",
        "node    home at wss://home.example/ws, version 1.2.3, up 1 d 1 h",
        "listen  ws://127.0.0.1:7070/ws, ws://[::1]:7070/ws; 1 connection",
        "store   /data/shine.mdb: 1 user, 12 copies of messages;",
        "        98 KiB of 1.0 GiB in use (0.0%), file 2.9 MiB, 8.0 GiB free on its disk",
        "backup  none in /backups",
        "certif. valid for 62 days; clock kept right",
        "queues  2 for signatures, 3 for the disk; 4 open deliveries, 1 attempt under way",
        "since   its start: 2 registrations, 1 failed log-in, 0 more not looked at",
        "peers   5 known, 2 links of at most 256",
        "  friend  connected for 1 h 6 min   queue 1/2/3  40 succeeded, 0 failed, 5 timed out",
        "  bo      pause, never seen         queue 0/0/0  0 succeeded, 3 failed, 0 timed out; last error: refused",
        "",
        "2 warnings",
    ]
    without = {**status_of(), "certificate": None, "clock": {"nowMs": NOW_MS, "synchronised": False}}
    assert list(render(without))[5] == "certif. none, TLS is left to a proxy; clock kept right by nothing"
    over = {**status_of(), "certificate": {"daysLeft": -1}, "clock": {"nowMs": NOW_MS, "synchronised": None}}
    assert list(render(over))[5] == "certif. expired; clock perhaps kept right"
    assert list(render(status_of(diskFreeBytes=None)))[3:] == [
        "        98 KiB of 1.0 GiB in use (0.0%), file 2.9 MiB",
        "backup  none in /backups",
        "certif. valid for 62 days; clock kept right",
        "queues  2 for signatures, 3 for the disk; 4 open deliveries, 1 attempt under way",
        "since   its start: 2 registrations, 1 failed log-in, 0 more not looked at",
        "peers   5 known, 0 links of at most 256",
        "",
        "all is well",
    ]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"connectedAtMs": NOW_MS - 59_999}, "connected for 59 s"),
        ({"connectedAtMs": NOW_MS - 61_000}, "connected for 1 min 1 s"),
        ({"connectedAtMs": NOW_MS + 5_000}, "connected for 0 s"),  # the clock was put right meanwhile
        ({"state": "pause", "lastActivityMs": NOW_MS - 3_600_000}, "pause, seen 1 h 0 min ago"),
        ({"state": "connecting", "lastActivityMs": None}, "connecting, never seen"),
    ],
)
def test_the_state_of_a_link(changes: dict[str, Any], says: str) -> None:
    assert f"  friend  {says}  " in list(render(status_of(link("friend", **changes))))[9]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, "0 timed out; last error: x"),
        ({"syncedAtMs": NOW_MS - 12_000}, "0 timed out; synced 12 s ago; last error: x"),
        (
            {"notSyncedSinceMs": NOW_MS - 300_000, "notSyncedBecause": "messages: no"},
            "0 timed out; never synced, trying for 5 min 0 s (messages: no); last error: x",
        ),
        (
            {"syncedAtMs": NOW_MS - 330_000, "notSyncedSinceMs": NOW_MS - 300_000, "notSyncedBecause": "messages: no"},
            "0 timed out; last synced 5 min 30 s ago, trying for 5 min 0 s (messages: no); last error: x",
        ),
    ],
)
def test_how_sessions_with_a_peer_have_ended(changes: dict[str, Any], says: str) -> None:
    assert list(render(status_of(link("friend", lastError="x", **changes))))[9].endswith(says)


def test_what_came_to_strangers_and_users() -> None:
    counts = {"registrations": 1, "failedLogins": 40, "refusedLogins": 300, "wrongTokens": 1}
    refused = {"maxStoredMiBPerUser": 0, "maxMessagesPerDay": 7, "messagesPerMinutePerSender": 2}
    lines = list(render({**status_of(), "sinceStart": {**counts, "refusedByLimits": refused}}))
    at = lines.index("since   its start: 1 registration, 40 failed log-ins, 300 more not looked at, 1 wrong token")
    assert lines[at + 1] == "        refused 7 by limits.maxMessagesPerDay, 2 by limits.messagesPerMinutePerSender"


def test_two_nodes_that_have_synced_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def story() -> None:
        async with servers(ServerProcess, tmp_path, "friend") as [friend]:
            peer = {"login": "friend", "url": friend.access.url}
            async with servers(ServerProcess, tmp_path, "home", sync_servers=[peer]) as [home]:
                words = ["status", "--config", str(home.folder / "node.toml")]

                async def synced() -> bool:
                    assert await asyncio.to_thread(run_command, words) in (0, 1)
                    return re.search(r"; synced \d+ s ago$", capsys.readouterr().out, re.MULTILINE) is not None

                await eventually(synced)
                await asyncio.to_thread(run_command, [*words, "--json"])
                [described] = json.loads(capsys.readouterr().out)["peers"]["links"]
                assert described["syncedAtMs"] >= described["connectedAtMs"]
                assert (described["notSyncedSinceMs"], described["notSyncedBecause"]) == (None, "")

    run(story())


def test_a_node_that_is_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(tmp_path)

    async def story() -> None:
        node = await NodeProcess.start(config)
        try:
            assert await asyncio.to_thread(run_command, ["status", "--config", str(config)]) == 0
            lines = capsys.readouterr().out.splitlines()
            if lines[0].startswith("note: "):  # of the clock of this machine
                lines = lines[2:]
            assert lines[0].startswith(f"node    home at wss://home.example/ws, version {__version__}, up ")
            assert lines[1] == f"listen  {node.url}; 0 connections"
            assert lines[2] == f"store   {tmp_path / 'data' / 'shine.mdb'}: 0 users, 0 copies of messages;"
            assert lines[-1] == "all is well"
            assert await asyncio.to_thread(run_command, ["status", "--json", "--config", str(config)]) == 0
            said = json.loads(capsys.readouterr().out)
            assert said["listening"] == [node.url]
            bounds = ("maxStoredMiBPerUser", "maxMessagesPerDay", "messagesPerMinutePerSender")
            assert said["sinceStart"] == {
                **dict.fromkeys(("registrations", "failedLogins", "refusedLogins", "wrongTokens"), 0),
                "refusedByLimits": dict.fromkeys(bounds, 0),
            }
            found = await asyncio.to_thread(run_program, "status", "--config", config)
            assert (found.returncode, found.stderr) == (0, "")
            assert found.stdout.endswith("\nall is well\n")
        finally:
            await node.stop()

    run(story())


def test_a_node_with_a_peer_that_is_away(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def story() -> None:
        with ReservedPort() as port:
            peer = {"login": "friend", "url": f"ws://127.0.0.1:{port.number}/ws"}
            async with servers(ServerProcess, tmp_path, "home", sync_servers=[peer]) as [server]:
                words = ["status", "--config", str(server.folder / "node.toml")]

                async def resting() -> bool:
                    assert await asyncio.to_thread(run_command, words) == 1
                    return "  friend  pause, never seen  " in capsys.readouterr().out

                await eventually(resting)
                assert await asyncio.to_thread(run_command, words) == 1
                first, *_, line, empty, last = capsys.readouterr().out.splitlines()
                assert line.startswith("  friend  ") and "last error: " in line
                assert first == "warning: 1 of 1 configured peers cannot be reached and are tried again: friend"
                assert (empty, last) == ("", "1 warning")
                assert await asyncio.to_thread(run_command, [*words, "--json"]) == 1
                [described] = json.loads(capsys.readouterr().out)["peers"]["links"]
                assert (described["serverLogin"], described["well"]) == ("friend", False)

    run(story())


def test_no_node_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(tmp_path)
    assert run_command(["status", "--config", str(config)]) == 2
    shown, said = capsys.readouterr()
    assert shown == ""
    assert said.startswith("shine-node: nobody answers at ")
    assert f"Start the node with `shine-node run --config {config}`" in said
    assert run_command(["status", "--config", str(tmp_path / "none.toml")]) == 2
    assert "the configuration cannot be used, so the node cannot be found" in capsys.readouterr().err


def test_a_node_that_is_too_busy_to_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> dict[str, Any]:
        raise control.AskRefused("SERVER_BUSY", "too many ask at once: try again in a moment")

    monkeypatch.setattr(control, "ask", refuse)
    assert run_command(["status", "--config", str(write_config(tmp_path))]) == 2
    assert "the node runs, and does not say how it is (too many ask at once" in capsys.readouterr().err


def test_a_node_of_another_version(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["status", "--config", str(write_config(tmp_path))]
    for answer, version in (({"version": "9.0"}, "9.0"), ({"queues": 1, "store": 2, "peers": 3}, "another")):
        monkeypatch.setattr(control, "ask", lambda *arguments, answer=answer: answer)
        assert run_command(words) == 2
        assert capsys.readouterr().err == (
            f"shine-node: the node is of version {version}, this program is {__version__}:"
            " restart the node, or use --json\n"
        )
        assert run_command([*words, "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == answer


def test_the_newest_backup() -> None:
    status = status_of()
    assert "backup  none in /backups" in list(render(status))
    file = {"file": "/backups/shine-home-1.mdb", "madeAtMs": NOW_MS - 90_060_000, "fileBytes": 3 * 2**20}
    status["backup"] = {"folder": "/backups", **file}
    assert "backup  /backups/shine-home-1.mdb, 1 d 1 h ago, 3.0 MiB" in list(render(status))
