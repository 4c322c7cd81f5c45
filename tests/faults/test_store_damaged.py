"""A damaged store does not end in a loop of restarts: the node says so, keeps the file, and goes on where it can."""

from __future__ import annotations

import asyncio
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
from shine_node.store.layout import Table, pack_number
from shine_node.store.pages import read_head, read_nodes, read_tree
from shine_node.store.recovery.state import read_state
from shine_node.store.usage import REACH_KEY
from shine_node.store.view import view_store
from tests.cli.program import LAUNCHER
from tests.store.rooms import opened
from tests.support.nodes import ServerProcess, now_ms, run, toml_text

PAGE = 4096
SECONDS = 60


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


def damage_leaf(path: Path, table: Table) -> None:
    """Let a page of a table be no page, also for the process that has the file open."""
    with path.open("r+b") as file:
        file.seek(leaf_of(path, table) + 10)
        file.write(struct.pack("H", 0))


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


def run_status(server: ServerProcess) -> str:
    """What ``status`` prints."""
    config = server.folder / "node.toml"
    command = [sys.executable, str(LAUNCHER), "status", "--config", str(config)]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False).stdout


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
        await with_messages(server)
        await server.stop()

    run(before())
    with opened(server.store_file) as store:  # else the opening would read the newest items, to add them up
        store.write_now(lambda txn: txn.put(Table.META, REACH_KEY, pack_number(2**62)))
    with server.store_file.open("r+b") as file:
        file.seek(middle_leaf(server.store_file) + 10)
        file.write(struct.pack("H", 0))
    run(story("stop"))  # the opening does not touch it
    run(story("kill"))
    status, [line] = ended(server)
    assert status == NEEDS_OWNER
    assert "in the table containers" in line
    run(server.discard())


def test_an_empty_file_is_no_new_store(tmp_path: Path) -> None:
    server = ServerProcess("home", tmp_path)

    async def before() -> None:
        await with_messages(server, 1)
        await server.discard()

    run(before())
    server.store_file.write_bytes(b"")
    status, [line] = ended(server)
    assert status == NEEDS_OWNER
    assert "it is empty, and was not" in line
    with pytest.raises(Exception, match="cannot be opened"), view_store(server.store_file):
        pass
