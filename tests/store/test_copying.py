"""Copies of stores that are in use, and whether they would be noticed if they were not whole."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import lmdb
import pytest

from shine_node.store import copying
from shine_node.store.copying import Copied, check_copy, copy_store, estimate_copy, finish_copy, migrate_copy
from shine_node.store.environment import Store, StoreError, Transaction
from shine_node.store.layout import SCHEMA_VERSION, Table, pack_number
from shine_node.store.lineage import begin_run, list_runs
from shine_node.store.owner import put_owner, read_owner
from shine_node.store.schema import SCHEMA_KEY, STEPS, StoreOutdated, write_schema
from shine_node.store.view import view_store
from tests.store.rich import EVERYTHING, do, found
from tests.store.rooms import MAP_SIZE, MIB, opened

pytestmark = pytest.mark.core

RUN = b"12345678"


def fill(path: Path, *, body: int = 0) -> None:
    with opened(path) as store:
        found(store)
        for number, step in enumerate(EVERYTHING):
            do(store, number, step)
        store.write_now(lambda txn: begin_run(txn, RUN, 1))
        if body:
            store.write_now(lambda txn: [txn.put(Table.META, b"big %d" % n, bytes(body)) for n in range(10)])


def copy(source: Path, target: Path) -> Copied:
    with target.open("wb") as stream:
        return copy_store(source, stream.write, map_size=MAP_SIZE)


def tables(path: Path) -> dict[Table, list[tuple[bytes, bytes]]]:
    with view_store(path) as txn:
        return {table: list(txn.scan(table)) for table in Table}


def test_a_copy_is_what_the_store_was_and_smaller(tmp_path: Path) -> None:
    source, target = tmp_path / "shine.mdb", tmp_path / "copy.mdb"
    fill(source, body=MIB)
    with opened(source) as store:
        store.write_now(lambda txn: [txn.delete(Table.META, b"big %d" % n) for n in range(9)])
        position = store.position
    before = tables(source)
    copied = copy(source, target)
    assert copied.quiet
    assert copied.position == position
    assert copied.before == copied.after == {table: len(rows) for table, rows in before.items()}
    assert target.stat().st_size < source.stat().st_size - 5 * MIB
    assert target.stat().st_size <= estimate_copy(source, map_size=MAP_SIZE)
    assert tables(target) == before
    finish_copy(target, copied.position)
    assert check_copy(target, copied) == []
    with opened(target) as restored, restored.read() as txn:
        assert list_runs(txn, 99)[-1] == (RUN, position), "its own commits are numbered anew"
        assert restored.position < position


def test_a_store_that_never_ran_has_no_run_to_end(tmp_path: Path) -> None:
    source, target = tmp_path / "shine.mdb", tmp_path / "copy.mdb"
    Store(source, map_size=MAP_SIZE).close()
    copied = copy(source, target)
    finish_copy(target, copied.position)
    assert check_copy(target, copied) == []
    with view_store(target) as txn:
        assert list_runs(txn, 9) == []


WRITER = """
import sys
from pathlib import Path
from shine_node.store.environment import Store
from shine_node.store.layout import Table
store = Store(Path(sys.argv[1]), map_size=64 * 2**20)
number = 0
while sys.stdin.readline():
    for _ in range(20):
        store.write_now(lambda txn: txn.put(Table.READ_MARKS, b"a\\0b\\0%d" % number, bytes(8)))
        number += 1
    print(number, flush=True)
store.close()
"""


def test_beside_a_process_that_writes(tmp_path: Path) -> None:
    source, target = tmp_path / "shine.mdb", tmp_path / "copy.mdb"
    fill(source, body=2 * MIB)
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(source)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdin is not None and writer.stdout is not None

        def more() -> int:
            assert writer.stdin is not None and writer.stdout is not None
            print(file=writer.stdin, flush=True)
            return int(writer.stdout.readline())

        first = more()
        with target.open("wb") as stream:

            def take(data: bytes) -> None:
                if stream.tell() < MIB:  # what it frees meanwhile stays taken: the map would soon be full
                    more()
                stream.write(data)

            copied = copy_store(source, take, map_size=MAP_SIZE)
        writer.stdin.close()
        assert writer.wait(60) == 0
    assert not copied.quiet
    assert copied.before[Table.READ_MARKS] < copied.after[Table.READ_MARKS]
    finish_copy(target, copied.position)
    assert check_copy(target, copied) == []
    with view_store(target) as txn:
        assert txn.count(Table.READ_MARKS) >= first


def test_whatever_ends_the_taking_ends_the_copying(tmp_path: Path) -> None:
    source = tmp_path / "shine.mdb"
    fill(source, body=2 * MIB)

    def take(data: bytes) -> None:
        raise KeyboardInterrupt

    files = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(KeyboardInterrupt):
        copy_store(source, take, map_size=MAP_SIZE)
    assert not [thread for thread in threading.enumerate() if thread.name == "store-copy"]
    assert len(list(Path("/proc/self/fd").iterdir())) == files
    fill(source)


def test_a_copying_that_fails(tmp_path: Path) -> None:
    source = tmp_path / "shine.mdb"
    fill(source)

    class Env:
        def copyfd(self, descriptor: int, compact: bool) -> None:
            os.write(descriptor, b"the beginning")
            raise lmdb.IncompatibleError("a page leak")

    taken: list[bytes] = []
    with pytest.raises(StoreError, match=r"cannot be copied \(a page leak\): use `export`"):
        copying._pump(Env(), source, taken.append)
    assert taken == [b"the beginning"]


def test_what_is_no_whole_copy_is_refused(tmp_path: Path) -> None:
    source, target = tmp_path / "shine.mdb", tmp_path / "copy.mdb"
    fill(source, body=MIB)
    copied = copy(source, target)
    whole = target.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:1000], b"", b"no store" * 5000):
        target.write_bytes(damaged)
        with pytest.raises(StoreError, match=r"copy\.mdb"):
            check_copy(target)
    with pytest.raises(StoreError, match="is no store"):
        check_copy(tmp_path)
    with pytest.raises(StoreError, match="nothing"):
        check_copy(tmp_path / "nothing")
    with pytest.raises(StoreError, match="cannot be finished"):
        finish_copy(tmp_path / "nothing", 1)
    target.write_bytes(whole)
    assert check_copy(target, copied) == check_copy(target) == []
    for counts in ({**copied.before, Table.HISTORY: 10_000}, {**copied.before, Table.HISTORY: 1}):
        with pytest.raises(StoreError, match="rows in history"):
            check_copy(target, copied._replace(before=counts, after=counts))
        with pytest.raises(StoreError, match="rows in history"):
            check_copy(target, copied._replace(before=counts, after=counts, quiet=False))
    other = {**copied.before, Table.DUE_ATTEMPTS: 50}
    assert check_copy(target, copied._replace(before=other, after=other, quiet=False)) == []
    with pytest.raises(StoreError, match="rows in due_attempts"):
        check_copy(target, copied._replace(before=other, after=other))


def test_a_copy_of_a_store_whose_index_is_not_right_is_told_of(tmp_path: Path) -> None:
    source, target = tmp_path / "shine.mdb", tmp_path / "copy.mdb"
    fill(source)

    def work(txn: Transaction) -> None:
        txn.put(Table.CONTAINERS, pack_number(2**40), b"")

    with opened(source) as store:
        store.write_now(work)
    copied = copy(source, target)
    seen: list[None] = []
    assert len(check_copy(target, copied, lambda: seen.append(None))) == 1
    assert len(seen) == sum(copied.after.values())


@pytest.mark.parametrize(("before", "expected"), [("", "home"), ("theirs", "theirs")])
def test_a_copy_says_whose_it_is(tmp_path: Path, before: str, expected: str) -> None:
    source, target = tmp_path / "shine.mdb", tmp_path / "copy.mdb"
    with opened(source) as store:
        if before:
            store.write_now(lambda txn: put_owner(txn, before))
    copied = copy(source, target)
    assert finish_copy(target, copied.position) == before
    assert finish_copy(target, copied.position, "home") == expected
    assert check_copy(target, copied) == []
    assert read_owner(target) == expected


def test_a_copy_of_an_older_schema_is_brought_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "shine.mdb"
    fill(path)
    before = tables(path)
    migrate_copy(path, map_size=MAP_SIZE)
    assert tables(path) == before
    with opened(path) as store:
        store.write_now(lambda txn: write_schema(txn, SCHEMA_VERSION - 1))
    with pytest.raises(StoreOutdated):
        check_copy(path)
    with pytest.raises(StoreError, match="cannot be brought from schema"):
        migrate_copy(path, map_size=MAP_SIZE)
    monkeypatch.setitem(STEPS, SCHEMA_VERSION, lambda txn: txn.put(Table.READ_MARKS, b"new", bytes(8)))
    names = {file.name for file in tmp_path.iterdir()}
    migrate_copy(path, map_size=MAP_SIZE)
    assert {file.name for file in tmp_path.iterdir()} == names, "nothing is written beside it"
    check_copy(path)
    after = tables(path)
    assert (b"new", bytes(8)) in after[Table.READ_MARKS]
    assert (SCHEMA_KEY, pack_number(SCHEMA_VERSION)) in after[Table.META]


def test_what_is_no_store_is_not_made_one(tmp_path: Path) -> None:
    empty = tmp_path / "empty.mdb"
    empty.write_bytes(b"")
    migrate_copy(empty, map_size=MAP_SIZE)
    assert empty.read_bytes() == b""
    other = tmp_path / "other.mdb"
    with lmdb.open(str(other), subdir=False, max_dbs=4, map_size=MIB) as env, env.begin(write=True) as txn:
        env.open_db(b"theirs", txn=txn)
    before = other.read_bytes()
    migrate_copy(other, map_size=MAP_SIZE)
    assert other.read_bytes() == before
    odd = tmp_path / "odd.mdb"
    with opened(odd) as store:
        store.write_now(lambda txn: txn.put(Table.META, SCHEMA_KEY, b"1"))
    with pytest.raises(StoreError, match="cannot be brought up to date"):
        migrate_copy(odd, map_size=MAP_SIZE)
