"""Backups of a node that runs, and its store on another machine: what people see of it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from shine_node.client.identity import Identity
from shine_node.client.messages import SignedPair, make_message, make_receipt, make_tombstone
from shine_node.protocol.access import record_payload
from shine_node.store.layout import Flag, ItemKey, Kind
from shine_node.store.view import view_store
from tests.cli.program import LAUNCHER
from tests.scenarios.sync_world import alice_at_two, equal, history, session
from tests.scenarios.world import Home, World, tell
from tests.store.rooms import read_rows
from tests.support.devices import make_session
from tests.support.nodes import PATIENCE, Server, ServerProcess, now_ms, register, run, servers, toml_text

ALICE, BOB = Identity.generate("alice"), Identity.generate("bob")


async def command(server: Server, *words: str | Path) -> str:
    """Run a command on the configuration of a server, in a process of its own, and return what it printed."""
    config = server.folder / "node.toml"
    config.write_text(toml_text(server.settings), encoding="utf-8")
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        str(LAUNCHER),
        words[0],
        "--config",
        str(config),
        *map(str, words[1:]),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    shown, said = await asyncio.wait_for(program.communicate(), PATIENCE * 2)
    assert program.returncode == 0, said.decode()
    return shown.decode()


async def messages(server: Server) -> dict[str, dict[str, Any]]:
    """What alice's client is shown of her chat with bob, by ``baseKey``."""
    found: dict[str, dict[str, Any]] = {}
    async with await server.connect() as client:
        await make_session(client.request, ALICE, now_ms())
        page: dict[str, Any] = {"cursor": "", "hasMore": True}
        while page["hasMore"]:
            cursor = {"cursor": page["cursor"]} if page["cursor"] else {}
            page = await client.request("GetDirectMessages", {"peerLogin": "bob", **cursor}, timeout=PATIENCE)
            found |= {message["baseKey"]: message for message in page["messages"]}
    return found


class Load:
    """Messages of alice to bob, one after the other on some connections, until it is told to stop."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._stopping = False
        self._more = asyncio.Event()
        self.answered: list[SignedPair] = []

    async def send(self) -> None:
        async with await self._server.connect() as client:
            while not self._stopping:
                pair = make_message(ALICE, "bob", f"message {len(self.answered)}" * 50, time_ms=now_ms())
                await client.request("SendMessagePair", pair.payload, timeout=PATIENCE)
                self.answered.append(pair)
                self._more.set()

    async def until(self, count: int) -> None:
        while len(self.answered) < count:
            self._more.clear()
            await asyncio.wait_for(self._more.wait(), PATIENCE)

    def stop(self) -> None:
        self._stopping = True


def test_a_backup_under_load_holds_what_was_answered_before_it_and_is_put_back(tmp_path: Path) -> None:
    async def story() -> None:
        limits = {"messagesPerMinutePerSender": 0}
        async with servers(ServerProcess, tmp_path, "home", limits=limits) as (home,):
            await register(ALICE, [home])
            await register(BOB, [home])
            load = Load(home)
            async with asyncio.TaskGroup() as tasks:
                for _ in range(4):
                    tasks.create_task(load.send())
                await load.until(200)
                before = list(load.answered)
                target = tmp_path / "copy.mdb"
                await command(home, "backup", target)
                during = len(load.answered)
                await load.until(during + 50)
                load.stop()
            assert during > len(before), "the node went on meanwhile"
            with view_store(target) as txn:
                there = {key.message.base_key for key in read_rows(txn)}
            assert {pair.base_key for pair in before} <= there
            later = {pair.base_key for pair in load.answered} - there
            assert len(later) >= 50

            await home.stop()
            shown = await command(home, "restore", target)
            assert "what was there is" in shown
            await home.start()
            found = await messages(home)
            assert set(found) == there
            assert {message["deliveryState"] for message in found.values()} == {"delivered"}

    run(story())


def test_an_export_of_a_node_that_runs_becomes_the_same_node_elsewhere(tmp_path: Path) -> None:
    """With messages that were removed and read, one that is still being delivered, and alice's session."""

    async def story() -> None:
        async with servers(ServerProcess, tmp_path, "home", "far") as (home, far):
            await register(ALICE, [home])
            await register(BOB, [far])
            await home.request("AddUser", _record(BOB, far))
            sent = [make_message(ALICE, "bob", f"message {number}", time_ms=now_ms()) for number in range(5)]
            for pair in sent:
                await home.send(pair)
            await home.send(make_tombstone(ALICE, sent[0].message, time_ms=now_ms()))
            await far.send(make_receipt(BOB, sent[2].message, time_ms=now_ms()))
            await far.stop()
            waiting = make_message(ALICE, "bob", "this waits", time_ms=now_ms())
            assert await home.send(waiting) == "accepted"
            before = await messages(home)
            file = tmp_path / "home.jsonl"
            await command(home, "export", file)

            async with servers(ServerProcess, tmp_path / "new", "home") as (new,):
                await new.stop()
                for path in new.store_file.parent.iterdir():
                    path.unlink()
                assert ", 0 passed over, 0 refused" in await command(new, "import", file)
                await new.start()
                assert await messages(new) == before
                async with await new.connect() as client:
                    await make_session(client.request, ALICE, now_ms())
                    sessions = await client.request("ListSessions", {}, timeout=PATIENCE)
                assert len(sessions["sessions"]) == 3, "the two of before are still good"
                await new.stop()
                with view_store(new.store_file) as txn:
                    rows = read_rows(txn)
                key = ItemKey.outgoing(waiting.message, Kind.MESSAGE)
                assert rows[key].delivery is not None
                assert rows[key].delivery.attempts >= 1
                assert rows[ItemKey.outgoing(sent[0].message, Kind.MESSAGE)].flags is Flag.REMOVED

    run(story())


@pytest.mark.parametrize("way", ["backup", "export"])
@pytest.mark.parametrize("lost", [0, 3])
def test_a_store_that_is_put_back_becomes_equal_to_the_other_server(
    tmp_path: Path, way: str, lost: int, caplog: pytest.LogCaptureFixture
) -> None:
    """It says that it was restored only where it lacks something: else nothing need be sent to it again."""

    async def story(world: World) -> None:
        a1, a2, _, alice = await alice_at_two(world)
        for number in range(4):
            await world.send((a1, a2)[number % 2], alice.writes("bob", f"before {number}"))
            await world.passes(1)
        await session(world, 3)
        file = tmp_path / "kept"
        await command(a2, way, file)
        for number in range(lost):
            await world.send((a1, a2)[number % 2], alice.writes("bob", f"since {number}"))
            await world.passes(1)
        await session(world, 2 if lost else 0)
        assert equal(a1, a2)
        before = history(a1)
        await _put_back(a2, way, file)
        assert (history(a2) == before) == (not lost)
        await session(world, 4)
        assert equal(a1, a2)
        assert history(a2) == before
        assert ("a2 was restored from a backup" in caplog.text) == bool(lost)

    tell(tmp_path, story)


async def _put_back(home: Home, way: str, file: Path) -> None:
    await home.stop()
    if way == "backup":
        await command(home, "restore", file)
    else:
        for path in home.store_file.parent.iterdir():
            path.unlink()
        await command(home, "import", file)
    await home.start()


def _record(who: Identity, server: Server) -> dict[str, object]:
    return record_payload(who.access_record([server.access], time_ms=now_ms()))
