"""``recover``: what is wrong with a damaged store, and the ways to go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from shine_node.cli.commands import run_command
from shine_node.store.layout import Table
from shine_node.store.owner import put_owner
from shine_node.store.recovery.state import State, read_state
from tests.cli.program import write_config
from tests.store.rooms import OWN, opened
from tests.store.verifying.full import full_store

PEER = '[[sync_servers]]\nlogin = "friend"\nurl = "wss://friend.example/ws"\n'


class Recover:
    """The command on one store, whose end is gone."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.config = write_config(folder)
        self.config.write_text(self.config.read_text().replace('"home"', f'"{OWN}"'))
        (folder / "data").mkdir()
        self.store = full_store(folder / "data")
        self.content = self.store.read_bytes()
        self.capsys = capsys
        self.said = ""

    def damage(self) -> None:
        self.store.write_bytes(self.content[:20_000])

    def backup(self, name: str, content: bytes) -> Path:
        path = self.store.parent / "backups" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        return path

    def __call__(self, *words: str | Path) -> tuple[int, str]:
        status = run_command(["recover", "--config", str(self.config), *map(str, words)])
        shown, self.said = self.capsys.readouterr()
        return status, shown

    @property
    def kept(self) -> list[bytes]:
        return [path.read_bytes() for path in self.store.parent.glob("shine.mdb.damaged-*")]


@pytest.fixture
def recover(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Recover:
    return Recover(tmp_path, capsys)


def test_a_sound_store_is_left_alone(recover: Recover) -> None:
    assert recover() == (0, f"{recover.store} is sound: all of its pages fit together\n")
    assert recover("--from-backup")[0] == 1
    assert "--force" in recover.said
    assert recover.store.read_bytes() == recover.content


def test_it_says_what_is_wrong_and_which_ways_there_are(recover: Recover) -> None:
    recover.damage()
    status, shown = recover()
    assert status == 1
    assert "is cut off" in shown
    assert "there are none in" in shown
    assert "once the users' other server is in [[sync_servers]]" in shown
    recover.backup("shine-1.mdb", recover.content)
    with recover.config.open("a") as config:
        config.write(PEER)
    status, shown = recover()
    assert "recover --from-backup    the newest sound one of 1" in shown
    assert "recover --refill    from friend" in shown
    assert recover.store.read_bytes() == recover.content[:20_000]


def test_from_the_newest_sound_backup(recover: Recover) -> None:
    recover.damage()
    assert recover("--from-backup") == (2, "")
    assert "there is no sound backup" in recover.said
    sound = recover.backup("shine-1.mdb", recover.content)
    recover.backup("shine-2.mdb", recover.content[:30_000])
    status, shown = recover("--from-backup")
    assert status == 0
    assert f"is now the backup {sound}; what was there is" in shown
    assert recover.store.read_bytes() == recover.content
    assert recover.kept == [recover.content[:20_000]]
    assert "shine-1" in read_state(recover.store).recovered_from


def test_from_a_certain_backup(recover: Recover, tmp_path: Path) -> None:
    recover.damage()
    (tmp_path / "x").mkdir()
    mine = full_store(tmp_path / "x")
    with opened(mine) as store:
        store.write_now(lambda txn: txn.put(Table.USERS, b"nobody", b"{}"))
    assert recover("--from-backup", mine) == (2, "")
    assert f"1 things in {mine} are not as they must be, and would be left out; `shine-node verify" in recover.said
    assert recover.kept == []
    assert not recover.store.with_name("shine.mdb.new").exists()
    assert recover("--force", "--from-backup", mine)[0] == 0
    assert recover()[0] == 0
    recover.damage()
    assert recover("--from-backup", tmp_path / "missing")[0] == 2
    with opened(mine) as store:
        store.write_now(lambda txn: txn.delete(Table.USERS, b"nobody"))
    assert recover("--from-backup", mine)[0] == 0
    assert recover()[0] == 0


def test_refilling_needs_somebody_who_fills(recover: Recover) -> None:
    recover.damage()
    assert recover("--refill") == (2, "")
    assert "[[sync_servers]]" in recover.said
    with recover.config.open("a") as config:
        config.write(PEER)
    status, shown = recover("--refill")
    assert status == 0
    assert "a new store that other servers fill: friend; what was there is" in shown
    assert recover.kept == [recover.content[:20_000]]


def test_a_sound_store_that_is_replaced_is_not_called_damaged(recover: Recover) -> None:
    backup = recover.backup("shine-1.mdb", recover.content)
    with recover.config.open("a") as config:
        config.write(PEER)
    for words in (("--from-backup",), ("--from-backup", backup), ("--refill",)):
        assert recover("--force", *words)[0] == 0, recover.said
    assert recover.kept == []
    assert len(list(recover.store.parent.glob("shine.mdb.replaced-*"))) == 3
    assert read_state(recover.store) == State(known=True)


def test_a_store_that_is_gone(recover: Recover) -> None:
    recover.store.unlink()
    assert recover() == (0, f"{recover.store} is not there\n")
    backup = recover.backup("shine-1.mdb", recover.content)
    status, shown = recover("--from-backup", "--force")
    assert (status, recover.kept) == (0, [])
    assert f"is now the backup {backup}\n" in shown


def test_a_node_that_runs_is_not_disturbed(recover: Recover) -> None:
    with opened(recover.store):
        assert recover("--from-backup", "--force") == (2, "")
        assert "in use by another process" in recover.said


def test_one_of_another_server_is_for_a_server_that_was_renamed(recover: Recover) -> None:
    with opened(recover.store) as store:
        store.write_now(lambda txn: put_owner(txn, OWN))
    backup = recover.backup("shine-named.mdb", recover.store.read_bytes())
    recover.config.write_text(recover.config.read_text().replace(f'"{OWN}"', '"renamed"'))
    recover.damage()
    assert recover("--from-backup", backup) == (2, "")
    assert f"{backup} is a backup of the server {OWN}, and this one is renamed" in recover.said
    assert "shine.mdb.new" not in recover.said
    assert not recover.store.with_name("shine.mdb.new").exists()
    assert recover("--force", "--from-backup", backup)[0] == 0, "it is looked through as what it was then"
    assert recover.store.read_bytes() == backup.read_bytes()
