"""The commands where a node has had a store open that is gone: none makes an empty one in its place without a word."""

import base64
import os

import pytest

from shine_node.cli.commands import run_command
from shine_node.client.identity import Identity
from shine_node.store.files import take_lock
from shine_node.store.recovery.start import end_run
from shine_node.store.recovery.state import read_state, state_file, write_state
from tests.cli.stores import Commands, names, tables

KEY = base64.b64encode(Identity.from_seeds("zoe", root=b"1" * 32, blockchain=b"2" * 32, device=b"3" * 32).root.public)
ADD = ("add", "--login", "zoe", *(f"--{name}-key={KEY.decode()}" for name in ("solana", "blockchain", "device")))
KEPT = "shine.mdb.damaged-1"


@pytest.fixture
def home(tmp_path, capsys):
    """A server whose store a node has had open."""
    home = Commands(tmp_path / "home", capsys)
    assert home("export", tmp_path / "store.jsonl") == 0
    end_run(home.store)
    return home


def user(home, *words):
    status = run_command(["user", words[0], "--config", str(home.config), *words[1:]])
    home.shown, home.said = home.capsys.readouterr()
    return status


COMMANDS = {
    "add": lambda home: user(home, *ADD),
    "sign-out": lambda home: user(home, "sign-out", "alice"),
    "list": lambda home: user(home, "list"),
    "show": lambda home: user(home, "show", "alice"),
    "import": lambda home: home("import", home.folder.parent / "store.jsonl"),
    "export": lambda home: home("export", home.folder.parent / "again.jsonl"),
    "backup": lambda home: home("backup", home.folder.parent / "copy.mdb"),
    "verify": lambda home: home("verify"),
    "repair": lambda home: home("verify", "--repair"),
    "status": lambda home: home("status"),
}
WRITE = ("add", "sign-out", "import")


@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_store_that_is_gone_is_told_and_not_replaced(home, command, empty):
    home.store.unlink()
    if empty:
        home.store.touch()
    before = names(home.data)
    assert COMMANDS[command](home) != 0
    reason = "it is empty, and was not" if empty else "it is not there"
    assert f"there was a store {home.store}, and now {reason}: put it back" in home.said
    assert f"remove {state_file(home.store)} too" in home.said
    assert "just starting or stopping" not in home.said
    assert names(home.data) == before
    assert not empty or home.store.stat().st_size == 0


def test_an_import_may_begin_anew(home):
    home.store.unlink()
    assert home("import", "--force", home.folder.parent / "store.jsonl") == 0
    assert home.store.stat().st_size > 0
    assert user(home, "list") == 0


@pytest.mark.parametrize("command", WRITE)
@pytest.mark.parametrize("force", [False, True])
def test_what_was_interrupted_is_ended_first(home, command, force):
    """The power went between the two steps in which another file takes the store's place."""
    rows = tables(home.store)
    home.store.rename(home.data / KEPT)
    write_state(home.store, read_state(home.store)._replace(placing=KEPT))
    if command == "import" and force:
        assert home("import", "--force", home.folder.parent / "store.jsonl") == 0
    else:
        assert COMMANDS[command](home) == 0
    assert read_state(home.store).placing == ""
    assert not (home.data / KEPT).exists()
    after = tables(home.store)
    assert all(set(rows[table]) & set(after[table]) for table in rows if rows[table])


@pytest.mark.parametrize("command", COMMANDS)
def test_while_another_file_takes_its_place_nothing_is_done(home, command):
    home.store.rename(home.data / KEPT)
    write_state(home.store, read_state(home.store)._replace(placing=KEPT))
    before = names(home.data)
    lock = take_lock(home.store)
    assert COMMANDS[command](home) != 0
    os.close(lock)
    said = "is in use by another process" if command in WRITE else "is not there while another file takes its place"
    assert said in home.said
    assert names(home.data) == before


@pytest.mark.parametrize("command", ["list", "export", "backup"])
def test_where_there_was_none_it_is_not_there_yet(tmp_path, capsys, command):
    home = Commands(tmp_path / "home", capsys, filled=False)
    assert COMMANDS[command](home) == 1
    assert "is not there yet: the first start of the node makes it" in home.said
