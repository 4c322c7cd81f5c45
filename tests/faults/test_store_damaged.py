"""A damaged store does not end in a loop of restarts: the node says so, keeps the file, and goes on where it can."""

from __future__ import annotations

import asyncio
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shine_node.client.identity import Identity
from shine_node.client.messages import make_message
from shine_node.process import NEEDS_OWNER
from shine_node.protocol.access import record_payload
from shine_node.store.environment import Transaction
from shine_node.store.layout import Table
from shine_node.store.pages import read_head, read_nodes, read_tree
from shine_node.store.recovery.start import MOST_STARTS
from shine_node.store.recovery.state import read_state
from shine_node.store.view import view_store
from tests.cli.program import LAUNCHER
from tests.store.rooms import opened
from tests.support.nodes import ServerProcess, now_ms, run, toml_text

PAGE = 4096
SECONDS = 60
ENDED = """
import os, sys
sys.path.insert(0, {launcher!r})
from shine_node import cli, node
from shine_node.store.recovery import start
{what} = lambda *arguments, **named: os.kill(os.getpid(), 9)
sys.exit(cli.main(sys.argv[1:]))
"""
"""The node, with an opening of the store, or a look at it before that, which something ends."""
LOOKS_LONG = """
import sys, time
sys.path.insert(0, {launcher!r})
from shine_node import cli
from shine_node.store.recovery import start

def look(*arguments, **named):
    print("looking", flush=True)
    time.sleep(3600)

start.examine_file = look
sys.exit(cli.main(sys.argv[1:]))
"""
"""The node, with a store that takes an hour to be looked at."""


def ended(server: ServerProcess, *, timeout: float = SECONDS) -> tuple[int, list[str]]:
    """Run the node until it ends by itself; return its status and the critical lines of its log."""
    config = server.folder / "node.toml"
    config.write_text(toml_text(server.settings))
    done = subprocess.run(
        [sys.executable, str(LAUNCHER), "run", "--config", str(config)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return done.returncode, [line for line in done.stderr.splitlines() if " CRITICAL " in line]


async def with_messages(server: ServerProcess, count: int = 60) -> Identity:
    """Let somebody write, so that there are pages."""
    await server.start()
    alice = Identity.generate("alice")
    record = alice.access_record([server.access], time_ms=now_ms())
    await server.request("AddUser", record_payload(record))
    for number in range(count):
        await server.send(make_message(alice, "alice", f"{number} " * 100, time_ms=now_ms() + number))
    return alice


def leaf_of(path: Path, table: Table) -> int:
    """Return where the first leaf of a table begins in the file."""
    content = path.read_bytes()
    head = read_head(content, len(content))
    main = read_nodes(content[head.main.root * PAGE :][:PAGE], head.main.root, PAGE, leaf=True)
    tree = read_tree(next(node.value for node in main if node.key == table.value))
    number = tree.root
    for _ in range(tree.depth - 1):
        number = read_nodes(content[number * PAGE :][:PAGE], number, PAGE, leaf=False)[-1].page
    return number * PAGE


def damage_page(path: Path, place: int) -> None:
    """Let a page be no page."""
    with path.open("r+b") as file:
        file.seek(place + 10)
        file.write(struct.pack("H", 0))


def damage_leaf(path: Path, table: Table) -> None:
    """Let a page of a table be no page, also for the process that has the file open."""
    damage_page(path, leaf_of(path, table))


def middle_leaf(path: Path) -> int:
    """Return where a leaf begins that the opening does not touch."""
    content = path.read_bytes()
    head = read_head(content, len(content))
    main = read_nodes(content[head.main.root * PAGE :][:PAGE], head.main.root, PAGE, leaf=True)
    tree = read_tree(next(node.value for node in main if node.key == Table.CONTAINERS.value))
    assert tree.depth == 2
    nodes = read_nodes(content[tree.root * PAGE :][:PAGE], tree.root, PAGE, leaf=False)
    return nodes[len(nodes) // 2].page * PAGE


@pytest.mark.parametrize("policy", ["backup", "refill", "stop"])
def test_without_a_way_to_go_on_it_ends_with_one_line_and_again_so(tmp_path: Path, policy: str) -> None:
    server = ServerProcess("home", tmp_path, storage={"whenDamaged": policy})

    async def before() -> None:
        await with_messages(server, 3)
        await server.discard()

    run(before())
    path = server.store_file
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    for _ in range(3):
        status, lines = ended(server)
        assert status == NEEDS_OWNER
        [line] = lines
        assert "shine.mdb is damaged" in line
        assert "`shine-node recover`" in line
        assert path.read_bytes() == content[: len(content) // 2]
    assert [file.name for file in path.parent.glob("shine.mdb.damaged*")] == []
    path.write_bytes(content)  # the owner has brought the file back

    async def after() -> None:
        await server.start()
        await server.request("GetUser", {"login": "alice"})
        await server.stop()

    run(after())
    assert read_state(path).damage == ""


@pytest.mark.parametrize(
    ("schema", "said"), [(99, "written by a newer version"), (0, "cannot be brought from schema 0")]
)
def test_a_store_of_another_schema_is_left_alone(tmp_path: Path, schema: int, said: str) -> None:
    server = ServerProcess("home", tmp_path)

    async def before() -> None:
        await with_messages(server, 1)
        await server.discard()

    run(before())
    path = server.store_file
    with opened(path) as store:
        store.write_now(lambda txn: txn.put(Table.META, b"schema", struct.pack(">Q", schema)))
    content = path.read_bytes()
    status, [line] = ended(server)
    assert status == NEEDS_OWNER
    assert said in line
    assert path.read_bytes() == content


def test_it_goes_on_from_the_newest_sound_backup_and_says_so(tmp_path: Path) -> None:
    server = ServerProcess("home", tmp_path)

    async def before() -> None:
        await with_messages(server, 10)
        await server.stop()

    run(before())
    path = server.store_file
    content = path.read_bytes()
    backups = path.parent / "backups"
    backups.mkdir()
    (backups / "shine-1.mdb").write_bytes(content)
    (backups / "shine-2.mdb").write_bytes(content[:20_000])  # newer, and not sound
    path.write_bytes(bytes(len(content)))

    async def after() -> dict[str, Any]:
        await server.start()
        assert (await server.request("GetUser", {"login": "alice"}))["exists"]
        log = server.process.log_tail()
        status = await asyncio.to_thread(run_status, server)
        await server.stop()
        assert log.count("CRITICAL") == 1
        return {"log": log, "status": status}

    found = run(after())
    assert "the node goes on with the backup" in found["log"]
    assert "shine-1.mdb" in found["log"]
    assert "the damaged file is" in found["status"].lower()
    [kept] = path.parent.glob("shine.mdb.damaged-*")
    assert kept.read_bytes() == bytes(len(content))
    kept.unlink()

    async def later() -> str:
        await server.start()
        status = await asyncio.to_thread(run_status, server)
        await server.discard()
        return status

    assert "damaged" not in run(later())
    path.write_bytes(bytes(len(content)))  # and again, within a day
    status, [line] = ended(server)
    assert status == NEEDS_OWNER
    assert "may be failing" in line


def run_status(server: ServerProcess, command: str = "status", *options: str) -> str:
    """What ``status`` prints, or another command."""
    config = server.folder / "node.toml"
    line = [sys.executable, str(LAUNCHER), command, *options, "--config", str(config)]
    return subprocess.run(line, capture_output=True, text=True, timeout=SECONDS, check=False).stdout


@pytest.mark.parametrize("how", ["reading", "writing"])
def test_what_is_met_while_it_runs_ends_it_in_order_and_once(tmp_path: Path, how: str) -> None:
    server = ServerProcess("home", tmp_path)

    async def story() -> int:
        alice = await with_messages(server)
        damage_leaf(server.store_file, Table.USERS if how == "reading" else Table.CONTAINERS)
        process = server.process._process
        for number in range(3):
            try:
                if how == "reading":
                    await server.request("GetUser", {"login": f"nobody{number}"})
                else:
                    await server.send(make_message(alice, "alice", "one more", time_ms=now_ms() + 1000))
            except Exception:  # it is refused, or the connection is lost
                break
        status = await asyncio.wait_for(process.wait(), SECONDS)
        log = server.process.log_tail(200)
        server._process = None
        await server.discard()
        assert log.count("the store is damaged, the node stops") == 1, log
        return status

    assert run(story()) == 1
    state = read_state(server.store_file)
    assert state.damage
    content = server.store_file.read_bytes()
    for _ in range(2):
        status, [line] = ended(server)
        assert status == NEEDS_OWNER
        assert "is damaged" in line
    assert server.store_file.read_bytes() == content


def test_after_a_crash_every_page_is_looked_at(tmp_path: Path) -> None:
    server = ServerProcess("home", tmp_path)

    async def story(end: str) -> None:
        await server.start()
        await (server.kill() if end == "kill" else server.stop())

    async def before() -> None:
        alice = await with_messages(server)
        for number in range(60):  # so many bytes that those of before are not added up again by a start
            await server.send(make_message(alice, "alice", "long " * 12_000, time_ms=now_ms() + 100 + number))
        await server.stop()

    run(before())
    damage_page(server.store_file, middle_leaf(server.store_file))
    run(story("stop"))  # the opening does not touch it
    run(story("kill"))
    status, [line] = ended(server)
    assert status == NEEDS_OWNER
    assert "in the table containers" in line
    run(server.discard())


def test_a_start_that_the_damage_ends_is_followed_by_one_that_says_so(tmp_path: Path) -> None:
    server = ServerProcess("home", tmp_path)

    async def before() -> None:
        await with_messages(server)
        await server.stop()

    run(before())
    damage_page(server.store_file, middle_leaf(server.store_file))
    content = server.store_file.read_bytes()
    status, _ = ended(server)  # it adds up the newest items, and LMDB trusts the page
    assert status == -signal.SIGABRT
    for _ in range(2):
        status, [line] = ended(server)
        assert status == NEEDS_OWNER
        assert "in the table containers" in line
    assert server.store_file.read_bytes() == content
    run(server.discard())


@pytest.mark.parametrize("what", ["node.Node.__init__", "start.examine_file"])
def test_starts_that_are_ended_in_the_middle_are_not_made_for_ever(tmp_path: Path, what: str) -> None:
    server = ServerProcess("home", tmp_path)

    async def before() -> None:
        await with_messages(server, 3)
        await server.discard()

    run(before())
    file = tmp_path / "ended.py"
    file.write_text(ENDED.format(launcher=str(LAUNCHER.parent), what=what))
    config = server.folder / "node.toml"
    config.write_text(toml_text(server.settings))
    command = [sys.executable, str(file), "run", "--config", str(config)]
    found = []
    for _ in range(MOST_STARTS + 1):
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        found.append(done.returncode)
    assert found == [-signal.SIGKILL] * MOST_STARTS + [NEEDS_OWNER]
    assert "3 starts in a row" in done.stderr
    assert "`shine-node verify --repair`" in done.stderr
    assert "Traceback" not in done.stderr

    async def after() -> None:
        await server.start()
        await server.request("GetUser", {"login": "alice"})
        await server.stop()

    run(after())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_look_that_takes_long_is_broken_off(tmp_path: Path, number: signal.Signals) -> None:
    server = ServerProcess("home", tmp_path)

    async def before() -> None:
        await with_messages(server, 1)
        await server.discard()

    run(before())
    state = read_state(server.store_file)
    file = tmp_path / "looks.py"
    file.write_text(LOOKS_LONG.format(launcher=str(LAUNCHER.parent)))
    config = server.folder / "node.toml"
    config.write_text(toml_text(server.settings))
    command = [sys.executable, str(file), "run", "--config", str(config)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "looking\n"
            process.send_signal(number)
            assert process.wait(SECONDS) == 0
        finally:
            process.kill()
    assert read_state(server.store_file) == state


def test_rows_that_cannot_be_read_cost_what_needs_them(tmp_path: Path) -> None:
    server = ServerProcess("home", tmp_path)

    async def before() -> None:
        await with_messages(server, 5)
        for login in ("bob", "carol"):
            record = Identity.generate(login).access_record([server.access], time_ms=now_ms())
            await server.request("AddUser", record_payload(record))
        await server.discard()

    run(before())

    def damage(txn: Transaction) -> None:
        bob = txn.get(Table.USERS, b"bob") or b""
        txn.put(Table.USERS, b"bob", bob.replace(b'"local"', b'"lokal"'))
        first = next(txn.scan_keys(Table.HISTORY))
        txn.put(Table.HISTORY, first, b"\xff" + (txn.get(Table.HISTORY, first) or b"")[1:])
        txn.put(Table.DUE_ATTEMPTS, b"\0", b"\xff")
        txn.put(Table.RESYNC, b"alice\0" + bytes(8), b"\xff")
        for name in (b"usage", b"lineage"):
            txn.put(Table.META, name, b"\xff")

    with opened(server.store_file) as store:
        store.write_now(damage)

    async def after() -> tuple[str, str]:
        await server.start()
        for login in ("alice", "carol"):
            assert (await server.request("GetUser", {"login": login}))["exists"]
        with pytest.raises(Exception, match="INTERNAL_ERROR"):
            await server.request("GetUser", {"login": "bob"})
        status = await asyncio.to_thread(run_status, server)
        check = await asyncio.to_thread(run_status, server, "check", "--offline")
        log = server.process.log_tail(200)
        await server.stop()
        assert "the row of the user bob cannot be read: run `shine-node verify --repair`" in log
        assert "Traceback" not in log
        return status, check

    for text in run(after()):
        assert "rows of the store could not be read: stop the node, and run `shine-node verify --repair`" in text


def test_a_file_that_is_gone_is_not_replaced_by_an_empty_one(tmp_path: Path) -> None:
    server = ServerProcess("home", tmp_path, storage={"whenDamaged": "stop"})

    async def before() -> None:
        await with_messages(server, 1)
        await server.discard()

    run(before())
    away = server.store_file.rename(tmp_path / "away.mdb")
    for _ in range(2):
        status, [line] = ended(server)
        assert status == NEEDS_OWNER
        assert "there was a store" in line
        assert "put it back" in line
        assert "`shine-node recover`" in line
        assert not server.store_file.exists()
    away.rename(server.store_file)

    async def exists(login: str) -> bool:
        await server.start()
        found = await server.request("GetUser", {"login": login})
        await server.discard()
        return bool(found["exists"])

    assert run(exists("alice"))
    for file in server.store_file.parent.glob("shine.mdb*"):
        file.unlink()
    assert not run(exists("alice"))


def test_an_empty_file_is_no_new_store(tmp_path: Path) -> None:
    server = ServerProcess("home", tmp_path)

    async def before() -> None:
        await with_messages(server, 1)
        await server.discard()

    run(before())
    server.store_file.write_bytes(b"")
    status, [line] = ended(server)
    assert status == NEEDS_OWNER
    assert "now it is empty, and was not" in line
    with pytest.raises(Exception, match="cannot be opened"), view_store(server.store_file):
        pass
