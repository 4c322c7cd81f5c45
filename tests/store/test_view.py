"""Looking into a store beside the process that writes it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import lmdb
import pytest

from shine_node.store import view as view_module
from shine_node.store.environment import Store, StoreDamaged, StoreError
from shine_node.store.layout import SCHEMA_VERSION, Table, pack_number
from shine_node.store.pages import DamagedPage
from shine_node.store.view import open_view, view_store
from tests.store.rooms import opened

MIB = 2**20

WRITER = """
import sys
from pathlib import Path
from shine_node.store.environment import Store
from shine_node.store.layout import Table

store = Store(Path(sys.argv[1]), map_size=64 * 2**20)
for line in sys.stdin:
    key, size = line.split()
    store.write_now(lambda txn: txn.put(Table.META, key.encode(), bytes(int(size))))
    print("written", flush=True)
store.close()
"""


def test_a_view_sees_each_commit_of_a_running_writer(tmp_path: Path) -> None:
    path = tmp_path / "shine.mdb"
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdin is not None and writer.stdout is not None
        for key, size in (("one", 10), ("two", 20 * MIB)):  # the second is beyond the size that a view begins with
            print(key, size, file=writer.stdin, flush=True)
            assert writer.stdout.readline() == "written\n"
            with view_store(path) as txn:
                assert txn.get(Table.META, key.encode()) == bytes(size)
        with view_store(path) as txn, pytest.raises(lmdb.ReadonlyError):
            txn.put(Table.META, b"three", b"")
        writer.stdin.close()
        assert writer.wait(timeout=30) == 0
    with view_store(path) as txn:
        assert txn.get(Table.META, b"three") is None
        assert txn.get(Table.META, b"one") == bytes(10)


def test_a_store_can_be_opened_after_a_view_and_after_one_that_broke(tmp_path: Path) -> None:
    path = tmp_path / "shine.mdb"
    Store(path, map_size=8 * MIB).close()
    for _ in range(3):
        with pytest.raises(RuntimeError, match="mine"), view_store(path) as txn:
            assert txn.count(Table.USERS) == 0
            raise RuntimeError("mine")
    Store(path, map_size=8 * MIB).close()


def test_what_is_no_store_is_told(tmp_path: Path) -> None:
    with (
        pytest.raises(StoreError, match=r"missing\.mdb cannot be opened to look into it"),
        view_store(tmp_path / "missing.mdb"),
    ):
        pass
    text = tmp_path / "text"
    text.write_bytes(b"no store" * 1000)
    with pytest.raises(StoreError, match="is damaged"), view_store(text):
        pass
    other = tmp_path / "other.mdb"
    lmdb.open(str(other), subdir=False).close()
    with pytest.raises(StoreError, match="is no store of SHiNE node, or of another version of it"), view_store(other):
        pass


def test_a_store_of_another_schema_is_refused_and_one_alone_needs_no_file_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "shine.mdb"
    with opened(path) as store:
        store.write_now(lambda txn: txn.put(Table.META, b"schema", pack_number(SCHEMA_VERSION)))
    (tmp_path / "shine.mdb-lock").unlink()
    with open_view(path, lock=False) as view, view.read() as txn:
        assert txn.count(Table.USERS) == 0
        assert txn.snapshot() > 0
    assert not (tmp_path / "shine.mdb-lock").exists()
    with opened(path) as store:
        store.write_now(lambda txn: txn.put(Table.META, b"schema", pack_number(SCHEMA_VERSION + 1)))
    with pytest.raises(StoreError, match=r"shine\.mdb (has schema 2|was written by a newer version)"), open_view(path):
        pass


def test_a_view_keeps_one_moment_while_the_store_grows(tmp_path: Path) -> None:
    path = tmp_path / "shine.mdb"
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdin is not None and writer.stdout is not None
        print("one 10", file=writer.stdin, flush=True)
        assert writer.stdout.readline() == "written\n"
        with open_view(path, map_size=64 * MIB) as view:
            with view.read() as txn:
                before = txn.snapshot()
                print("two", 20 * MIB, file=writer.stdin, flush=True)
                assert writer.stdout.readline() == "written\n"
                assert txn.get(Table.META, b"two") is None
                assert txn.snapshot() == before
            with view.read() as txn:  # with a smaller map it could not be read any more
                assert txn.get(Table.META, b"two") == bytes(20 * MIB)
        writer.stdin.close()
        assert writer.wait(timeout=30) == 0


def test_damage_is_told_when_it_is_met(tmp_path: Path) -> None:
    path = tmp_path / "shine.mdb"
    store = Store(path, map_size=8 * MIB)
    store.write_now(lambda txn: [txn.put(Table.META, b"%d" % number, bytes(500)) for number in range(99)])
    store.close()
    content = path.read_bytes()
    with open_view(path, lock=False) as view:
        view.check_pages()
        with path.open("r+b") as file:
            for page in range(2, len(content) // 4096):
                if content[page * 4096 + 10] == 2:
                    file.seek(page * 4096 + 10)
                    file.write(b"\0\0")
        with pytest.raises(StoreDamaged), view.read() as txn:
            txn.get(Table.META, b"5")
        with pytest.raises(StoreDamaged):
            view.check_pages()
        with pytest.raises(lmdb.BadValsizeError), view.read() as txn:
            txn.get(Table.META, b"")
    with pytest.raises(StoreDamaged), open_view(path):
        pass


def test_a_look_that_falls_between_two_commits_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "shine.mdb"
    Store(path, map_size=8 * MIB).close()
    head = view_module.read_file_head(path)
    tries: list[int] = []

    def unlucky(*arguments: object) -> None:
        tries.append(1)
        if len(tries) < 3:
            raise DamagedPage("between two commits")

    with open_view(path) as view:
        monkeypatch.setattr(view_module, "check_snapshot", unlucky)
        monkeypatch.setattr(view_module, "read_file_head", lambda path: head._replace(position=head.position + 2))
        view.check_pages()
        assert len(tries) == 3
        monkeypatch.setattr(view_module, "TRIES", 2)
        tries.clear()
        with pytest.raises(StoreDamaged):
            view.check_pages()


def test_a_file_that_always_changes_is_opened_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "shine.mdb"
    Store(path, map_size=8 * MIB).close()
    head = view_module.read_file_head(path)
    positions = iter(range(10**6))

    def changed(path: Path) -> None:
        raise StoreDamaged(path, "between two commits")

    monkeypatch.setattr(view_module, "examine_file", changed)
    monkeypatch.setattr(view_module, "read_file_head", lambda path: head._replace(position=next(positions)))
    with open_view(path) as view, view.read() as txn:
        assert txn.count(Table.META) == 1
