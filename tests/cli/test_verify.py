"""``verify`` on real stores, also beside a running node."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from shine_node.cli.commands import run_command
from shine_node.cli.node_process import NodeProcess
from shine_node.cli.verify import told
from shine_node.store.environment import Transaction
from shine_node.store.layout import Table
from shine_node.store.recovery.state import mark_damage, read_state
from shine_node.store.verifying.findings import Finding, Problem, Report
from tests.cli.program import run_program, write_config
from tests.store.rooms import OWN, opened
from tests.store.verifying.full import full_store
from tests.support.nodes import run


class Verify:
    """The command on one store."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.config = write_config(folder)
        self.config.write_text(self.config.read_text().replace('"home"', f'"{OWN}"'))
        (folder / "data").mkdir()
        self.store = full_store(folder / "data")
        self.capsys = capsys
        self.said = ""

    def __call__(self, *words: str | Path) -> tuple[int, str]:
        given = [] if "--store" in words else ["--config", str(self.config)]
        status = run_command(["verify", *given, *map(str, words)])
        shown, self.said = self.capsys.readouterr()
        return status, shown

    def plant(self, work: Callable[[Transaction], object]) -> None:
        with opened(self.store) as store:
            store.write_now(work)


@pytest.fixture
def verify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Verify:
    return Verify(tmp_path, capsys)


def unlist(txn: Transaction) -> None:
    txn.delete(Table.DUE_ATTEMPTS, next(txn.scan_keys(Table.DUE_ATTEMPTS)))
    txn.put(Table.USERS, b"nob\x1bdy", b"{}")


def test_a_sound_store(verify: Verify) -> None:
    status, shown = verify()
    assert status == 0
    assert shown.startswith("all is well: ")
    described = json.loads(verify("--json")[1])
    assert described["clean"] is True
    assert described["findings"] == []
    assert described["signatures"] > 10


def test_what_is_found_is_told_and_mended(verify: Verify) -> None:
    verify.plant(unlist)
    status, shown = verify()
    assert status == 1
    assert "1 rows that their index does not know\n  history: message alice|" in shown
    assert "is open, and not in due_attempts" in shown
    assert "0x6e6f621b6479: cannot be read" in shown
    assert "2 things are not as they must be: stop the node and use --repair" in shown
    assert "`shine-node user resync`" in shown
    described = json.loads(verify("--json")[1])
    assert described["counts"] == {"no_index": 1, "unreadable": 1}
    mark_damage(verify.store, "met by LMDB")
    status, shown = verify("--repair")
    assert status == 1
    assert "and are mended" in shown
    [copy] = verify.store.parent.glob("shine.mdb.before-repair-*")
    [kept] = verify.store.parent.glob("shine.mdb.quarantine-*.jsonl")
    assert f"copy: {copy}\nquarantine: {kept}\n" in shown
    assert kept.stat().st_mode & 0o777 == copy.stat().st_mode & 0o777 == 0o600
    assert read_state(verify.store).damage == ""
    assert verify()[0] == 0
    assert verify("--store", copy)[0] == 1


def test_a_repair_for_scripts_without_a_copy(verify: Verify) -> None:
    verify.plant(unlist)
    status, shown = verify("--repair", "--no-copy", "--json")
    assert status == 1
    described = json.loads(shown)
    assert described["repaired"] == 2
    assert "copy" not in described
    assert Path(described["quarantine"]).exists()
    status, shown = verify("--repair", "--no-copy")
    assert (status, shown.partition(":")[0]) == (0, "all is well")


def test_a_backup_is_looked_at_without_leaving_anything_beside_it(verify: Verify, tmp_path: Path) -> None:
    backup = tmp_path / "backups" / "shine-1.mdb"
    backup.parent.mkdir()
    backup.write_bytes(verify.store.read_bytes())
    for words in (("--store", backup), ("--store", backup, "--login", OWN.upper())):
        assert verify(*words)[0] == 0
    assert [path.name for path in backup.parent.iterdir()] == ["shine-1.mdb"]
    assert verify("--store", backup, "--login", OWN, "--repair", "--no-copy")[0] == 0
    backup.write_bytes(backup.read_bytes()[:9000])
    assert verify("--store", backup)[0] == 2
    assert "is damaged" in verify.said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--login", "x"), "--login goes with --store"),
        (("--store", "x", "--repair"), "give --login SERVER"),
        (("--no-copy",), "--no-copy goes with --repair"),
        (("--store", "/nowhere/x.mdb"), "No such file"),
        (("--store", "/nowhere/x.mdb", "--login", "x", "--repair"), "No such file"),
    ],
)
def test_what_cannot_be_done(verify: Verify, words: tuple[str, ...], said: str) -> None:
    assert verify(*words) == (2, "")
    assert said in verify.said


def test_beside_a_running_node(verify: Verify) -> None:
    async def story() -> None:
        node = await NodeProcess.start(verify.config)
        try:
            found = run_program("verify", "--config", verify.config)
            assert (found.returncode, found.stderr) == (0, "")
            refused = run_program("verify", "--config", verify.config, "--repair")
            assert refused.returncode == 2
            assert "in use by another process" in refused.stderr
        finally:
            await node.stop()

    run(story())


def test_long_lists_are_cut_and_notes_are_told_as_such() -> None:
    report = Report()
    for number in range(30):
        report.add(Finding(Problem.OTHER_KEY, Table.CONTAINERS, number.to_bytes(8, "big"), "x"))
    lines = told(report, repaired=False)
    assert lines[0] == "30 entries signed by a key that was not in force at their time (nothing is to be done)"
    assert lines[-2] == "  and 10 more"
    assert lines[-1].startswith("all is well")
    report.add(Finding(Problem.NO_INDEX, Table.HISTORY, b"k", "x"))
    assert told(report, repaired=True)[0].startswith("1 rows that their index")
    assert told(report, repaired=True)[-1].endswith("and are mended")
