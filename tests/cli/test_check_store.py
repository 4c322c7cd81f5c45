"""What ``check`` says of the store."""

from __future__ import annotations

from pathlib import Path

import pytest

from shine_node.cli.check_store import PRODUCERS, find_damaged_store, find_other_server, find_unreadable_rows
from shine_node.cli.findings import Level, Situation
from shine_node.config import load_config
from shine_node.store.owner import put_owner
from shine_node.store.recovery.state import State, write_state
from tests.cli.program import write_config
from tests.store.rooms import opened
from tests.store.verifying.full import full_store


@pytest.fixture
def situation(tmp_path: Path) -> Situation:
    path = write_config(tmp_path)
    (tmp_path / "data").mkdir()
    return Situation(load_config(path), path)


def test_the_store_of_another_server(situation: Situation) -> None:
    assert find_other_server in PRODUCERS
    assert find_other_server(situation) == []
    path = full_store(situation.config.server.data_dir)
    assert find_other_server(situation) == [], "it does not say whose it is"
    for owner, count in (("home", 0), ("theirs", 1)):
        with opened(path) as store:
            store.write_now(lambda txn, owner=owner: put_owner(txn, owner))
        findings = find_other_server(situation)
        assert len(findings) == count
    assert findings[0].level is Level.WARNING
    assert "is the store of the server theirs, and server.login is home: correct server.login" in findings[0].text
    assert find_other_server(situation._replace(listening=("ws://127.0.0.1:1/ws",))) == []
    path.write_bytes(path.read_bytes()[:9000])
    assert find_other_server(situation) == []


def test_the_store(situation: Situation) -> None:
    assert find_damaged_store in PRODUCERS
    assert find_damaged_store(situation) == []
    path = full_store(situation.config.server.data_dir)
    [finding] = find_damaged_store(situation)
    assert (finding.level, finding.subject) == (Level.OK, "store")
    (path.parent / "shine.mdb.damaged-1").touch()
    write_state(path, State(recovered_from="the backup x", kept="shine.mdb.damaged-1"))
    [finding] = find_damaged_store(situation)
    assert finding.level is Level.WARNING
    assert "goes on with the backup x" in finding.text
    path.write_bytes(path.read_bytes()[:9000])
    [finding] = find_damaged_store(situation)
    assert finding.level is Level.ERROR
    assert "shine-node recover" in finding.text


def test_a_file_that_is_gone(situation: Situation) -> None:
    path = full_store(situation.config.server.data_dir)
    write_state(path, State(known=True))
    path.unlink()
    [finding] = find_damaged_store(situation)
    assert finding.level is Level.ERROR
    assert "there was a store" in finding.text


def test_rows_that_could_not_be_read(situation: Situation) -> None:
    assert find_unreadable_rows in PRODUCERS
    assert find_unreadable_rows(situation) == []
    [finding] = find_unreadable_rows(situation._replace(unreadable_rows=1))
    assert finding.level is Level.WARNING
    assert finding.text.startswith("1 row of the store could not be read: stop the node, and run `shine-node verify")
