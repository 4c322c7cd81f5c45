"""What is looked at in a store that is opened, and how one of an older schema is brought to that of the program."""

from __future__ import annotations

import functools
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from shine_node.store.environment import Store, Transaction
from shine_node.store.files import StoreUnsuitable
from shine_node.store.layout import SCHEMA_VERSION, Table, pack_number
from shine_node.store.schema import (
    SCHEMA_KEY,
    STEPS,
    StoreOutdated,
    check_schema,
    last_numbers,
    migrate,
    read_schema,
    write_schema,
)
from shine_node.store.unreadable import UnreadableRow
from shine_node.store.view import view_store
from tests.store.rooms import MAP_SIZE, opened
from tests.support.vectors import REPOSITORY

OLDER = SCHEMA_VERSION - 1


def test_the_version(tmp_path: Path) -> None:
    path = tmp_path / "shine.mdb"
    with opened(path) as store:
        with store.read() as txn:
            assert check_schema(txn, path)
        store.write_now(lambda txn: txn.delete(Table.META, SCHEMA_KEY))
        with store.read() as txn:
            assert not check_schema(txn, path)
        store.write_now(write_schema)
        with store.read() as txn:
            assert txn.get(Table.META, SCHEMA_KEY) == pack_number(SCHEMA_VERSION)
        store.write_now(lambda txn: txn.put(Table.META, SCHEMA_KEY, pack_number(SCHEMA_VERSION + 1)))
        with store.read() as txn, pytest.raises(StoreUnsuitable, match="newer version"):
            check_schema(txn, path)


def aged(path: Path) -> None:
    """Make a store of an older schema, with something in it."""
    with opened(path) as store:
        store.write_now(lambda txn: txn.put(Table.READ_MARKS, b"kept", b"1"))
        store.write_now(lambda txn: write_schema(txn, OLDER))


def rows(path: Path) -> dict[Table, list[tuple[bytes, bytes]]]:
    with view_store(path) as txn:
        return {table: list(txn.scan(table)) for table in Table}


def mark(name: bytes) -> Callable[[Transaction], None]:
    """Return a step that writes down after which others it has come."""
    return lambda txn: txn.put(Table.READ_MARKS, name, bytes([sum(1 for _ in txn.scan(Table.READ_MARKS))]))


def test_steps_run_in_order_from_the_schema_that_is_there(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "shine.mdb"
    steps = {number: mark(b"%d" % number) for number in (5, 3, 4, 6)}
    caplog.set_level(logging.INFO)
    with opened(path) as store:
        store.write_now(lambda txn: txn.put(Table.READ_MARKS, b"kept", b"1"))
        store.write_now(lambda txn: write_schema(txn, 3))
        store.write_now(lambda txn: migrate(txn, path, steps=steps, version=5))
        with store.read() as txn:
            assert list(txn.scan(Table.READ_MARKS)) == [(b"4", b"\1"), (b"5", b"\2"), (b"kept", b"1")]
            assert read_schema(txn, path, version=5) == 5
    assert "is brought from schema 3 to 5" in caplog.text


def test_a_step_that_fails_or_is_not_known_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "shine.mdb"

    def fail(txn: Transaction) -> None:
        txn.put(Table.READ_MARKS, b"half", b"")
        raise ValueError("no such row")

    with opened(path) as store:
        store.write_now(lambda txn: write_schema(txn, 0))
        for second in ({}, {2: fail}):
            steps = {1: mark(b"1"), **second}
            with pytest.raises(
                StoreUnsuitable, match=r"cannot be brought from schema 0 to 2 .*nothing of it was changed"
            ):
                store.write_now(functools.partial(migrate, path=path, steps=steps, version=2))
            with store.read() as txn:
                assert read_schema(txn, path) == 0
                assert list(txn.scan(Table.READ_MARKS)) == []


def test_the_node_brings_a_store_up_to_date_and_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "shine.mdb"
    aged(path)
    with pytest.raises(StoreOutdated, match="start the node first"):
        Store(path, map_size=MAP_SIZE)
    with pytest.raises(StoreOutdated, match="start the node first"), view_store(path):
        pass
    with pytest.raises(StoreUnsuitable, match="cannot be brought"):
        Store(path, map_size=MAP_SIZE, migrates=True)
    monkeypatch.setitem(STEPS, SCHEMA_VERSION, mark(b"new"))
    Store(path, map_size=MAP_SIZE, migrates=True).close()
    assert rows(path)[Table.READ_MARKS] == [(b"kept", b"1"), (b"new", b"\1")]
    Store(path, map_size=MAP_SIZE, migrates=True).close()
    assert rows(path)[Table.READ_MARKS] == [(b"kept", b"1"), (b"new", b"\1")], "not a second time"


def test_a_new_store_has_the_schema_of_the_program_and_a_newer_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "shine.mdb"
    Store(path, map_size=MAP_SIZE, migrates=True).close()
    assert (SCHEMA_KEY, pack_number(SCHEMA_VERSION)) in rows(path)[Table.META]
    with opened(path) as store:
        store.write_now(lambda txn: write_schema(txn, SCHEMA_VERSION + 1))
    with pytest.raises(StoreUnsuitable, match=r"newer version.*install that version again"):
        Store(path, map_size=MAP_SIZE, migrates=True)


KILLED = """
import sys, time
from pathlib import Path
from shine_node.store.environment import Store
from shine_node.store.layout import SCHEMA_VERSION, Table
from shine_node.store.schema import STEPS

def step(txn):
    for number in range(2000):
        txn.put(Table.READ_MARKS, b"new %d" % number, bytes(500))
    txn.delete(Table.READ_MARKS, b"kept")
    print("in the middle", flush=True)
    time.sleep(600)

STEPS[SCHEMA_VERSION] = step
Store(Path(sys.argv[1]), map_size=64 * 2**20, migrates=True)
"""


def test_a_process_killed_in_the_middle_of_a_step_leaves_the_store_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "shine.mdb"
    aged(path)
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path)], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "in the middle\n"
        process.kill()
    with pytest.raises(StoreOutdated):
        Store(path, map_size=MAP_SIZE)
    monkeypatch.setitem(STEPS, SCHEMA_VERSION, mark(b"new"))
    Store(path, map_size=MAP_SIZE, migrates=True).close()
    assert rows(path)[Table.READ_MARKS] == [(b"kept", b"1"), (b"new", b"\1")]


def test_numbers_go_on_from_the_greatest(tmp_path: Path) -> None:
    with opened(tmp_path / "shine.mdb") as store:
        store.write_now(lambda txn: txn.put(Table.CONTAINERS, pack_number(70), b""))
        with store.read() as txn:
            assert last_numbers(txn, 50) == {Table.CONTAINERS: 70, Table.ACCESS_RECORDS: 50}
            assert last_numbers(txn, 90)[Table.CONTAINERS] == 90
        store.write_now(lambda txn: txn.put(Table.ACCESS_RECORDS, b"x", b""))
        with store.read() as txn, pytest.raises(UnreadableRow):
            last_numbers(txn, 0)
