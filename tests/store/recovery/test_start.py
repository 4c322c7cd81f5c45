"""Before a node opens its store."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shine_node.store.files import StoreDamaged, StoreError, StoreGone, StoreSuspect, take_lock
from shine_node.store.recovery import start as start_module
from shine_node.store.recovery import succeed
from shine_node.store.recovery.decide import QUIET_MS
from shine_node.store.recovery.start import (
    LONG_START_SECONDS,
    MOST_STARTS,
    Rules,
    end_run,
    end_start,
    find_damage,
    prepare_store,
    recovery_notice,
)
from shine_node.store.recovery.state import State, read_state, state_file, write_state
from shine_node.store.refill import list_refilling
from tests.store.rooms import MAP_SIZE, NOW, OWN, opened
from tests.store.verifying.full import full_store


def rules(folder: Path, policy: str = "backup", *refill_from: str) -> Rules:
    return Rules(policy, OWN, MAP_SIZE, folder / "backups", refill_from)


def damaged_store(folder: Path) -> Path:
    """A store of which the end is gone, and a sound backup of it."""
    path = full_store(folder)
    (folder / "backups").mkdir()
    (folder / "backups" / "shine-1.mdb").write_bytes(path.read_bytes())
    path.write_bytes(path.read_bytes()[:20_000])
    return path


def test_a_sound_store_is_left_alone(tmp_path: Path) -> None:
    path = full_store(tmp_path)
    content = path.read_bytes()
    prepare_store(path, rules(tmp_path), now_ms=NOW, boot="b")
    assert read_state(path) == State(known=True, running="b", starts=1)
    assert path.read_bytes() == content
    end_run(path)
    assert read_state(path) == State(known=True)
    assert recovery_notice(path) == ""
    prepare_store(path, rules(tmp_path), now_ms=NOW, boot="")
    assert read_state(path).running == "unknown"


def test_a_store_that_is_in_use_is_not_looked_at(tmp_path: Path) -> None:
    path = damaged_store(tmp_path)
    lock = take_lock(path)
    with pytest.raises(StoreError, match="in use"):
        prepare_store(path, rules(tmp_path), now_ms=NOW, boot="b")
    os.close(lock)
    assert not state_file(path).exists()


def test_a_backup_takes_the_place_of_a_damaged_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = damaged_store(tmp_path)
    prepare_store(path, rules(tmp_path), now_ms=NOW, boot="b")
    assert path.read_bytes() == (tmp_path / "backups" / "shine-1.mdb").read_bytes()
    assert [record.levelname for record in caplog.records] == ["CRITICAL"]
    assert "shine-1.mdb. The damaged file is kept as" in caplog.text
    state = read_state(path)
    assert state.recovered_at_ms == NOW
    assert (tmp_path / state.kept).stat().st_size == 20_000
    assert "the node goes on with the backup" in recovery_notice(path)
    assert recovery_notice(path, State()) == ""
    (tmp_path / state.kept).unlink()
    assert recovery_notice(path) == ""


def test_an_empty_store_takes_the_place_of_a_damaged_one(tmp_path: Path) -> None:
    path = damaged_store(tmp_path)
    (tmp_path / "backups" / "shine-1.mdb").unlink()
    prepare_store(path, rules(tmp_path, "refill", "friend"), now_ms=NOW, boot="b")
    with opened(path) as store, store.read() as txn:
        assert list_refilling(txn) == ["friend"]


@pytest.mark.parametrize("policy", ["backup", "refill", "stop"])
def test_without_a_way_nothing_is_touched(tmp_path: Path, policy: str) -> None:
    path = damaged_store(tmp_path)
    if policy != "stop":
        (tmp_path / "backups" / "shine-1.mdb").unlink()
    content = path.read_bytes()
    for _ in range(2):
        with pytest.raises(StoreDamaged, match=r"cut off.*; (there is no sound backup|storage\.whenDamaged is)"):
            prepare_store(path, rules(tmp_path, policy), now_ms=NOW, boot="b")
    assert path.read_bytes() == content
    assert not list(tmp_path.glob("*.damaged*"))


def test_what_cannot_be_put_there_leaves_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = damaged_store(tmp_path)
    content = path.read_bytes()

    def full(store: Path, backup: Path, *, now_ms: int) -> Path:
        store.with_name("shine.mdb.new").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(succeed, "put_backup", full)
    with pytest.raises(StoreDamaged, match=r"nothing could be put in its place: .*No space left"):
        prepare_store(path, rules(tmp_path), now_ms=NOW, boot="b")
    assert path.read_bytes() == content
    assert not (tmp_path / "shine.mdb.new").exists()


def test_what_lmdb_met_counts_at_the_second_time_until_the_file_is_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = full_store(tmp_path)
    end_run(path, damage="MDB_CORRUPTED")
    prepare_store(path, rules(tmp_path), now_ms=NOW, boot="b")
    assert "damage was met (MDB_CORRUPTED), and every page fits" in caplog.text
    assert read_state(path) == State(known=True, running="b", doubted_at_ms=NOW, starts=1)
    end_run(path)
    prepare_store(path, rules(tmp_path), now_ms=NOW, boot="b")
    end_run(path, damage="MDB_CORRUPTED")
    assert find_damage(path, read_state(path), boot="b", now_ms=NOW + 2 * QUIET_MS) is None
    with pytest.raises(StoreDamaged, match="MDB_CORRUPTED"):
        prepare_store(path, rules(tmp_path), now_ms=NOW, boot="b")
    with pytest.raises(StoreDamaged, match="MDB_CORRUPTED"):
        prepare_store(path, rules(tmp_path), now_ms=NOW, boot="b")
    other = tmp_path / "other"
    other.write_bytes(path.read_bytes())
    other.replace(path)
    prepare_store(path, rules(tmp_path), now_ms=NOW, boot="b")
    assert read_state(path) == State(known=True, running="b", doubted_at_ms=NOW, starts=1)


def test_how_a_run_ended_may_not_be_written_down(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = full_store(tmp_path)
    state_file(path).with_name("shine.mdb.state.new").mkdir()
    prepare_store(path, rules(tmp_path), now_ms=NOW, boot="b")
    end_run(path)
    assert caplog.text.count("cannot be written down") == 2


def test_after_a_crash_every_page_is_looked_at_and_after_a_loss_of_power_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = full_store(tmp_path)
    looks: list[bool] = []
    monkeypatch.setattr(start_module, "examine_file", lambda store, *, thorough: looks.append(thorough))
    for running in ("this", "earlier", "unknown", ""):
        write_state(path, State(known=True, running=running))
        assert find_damage(path, read_state(path), boot="this", now_ms=NOW) is None
    assert looks == [True, False, True, False]
    find_damage(path, State(), boot="", now_ms=NOW, thorough=True)
    assert looks[-1] is True


def test_an_empty_file_is_new_only_once(tmp_path: Path) -> None:
    path = tmp_path / "shine.mdb"
    path.touch()
    for _ in range(2):
        prepare_store(path, rules(tmp_path), now_ms=NOW, boot="b")
        end_run(path)  # something else kept the node from opening it
    full_store(tmp_path)
    end_run(path)
    os.truncate(path, 0)
    for _ in range(2):
        with pytest.raises(StoreGone, match="now it is empty, and was not; there is no sound backup: put it back"):
            prepare_store(path, rules(tmp_path), now_ms=NOW, boot="b")


def test_a_file_that_is_gone_is_not_replaced_by_an_empty_one(tmp_path: Path) -> None:
    path = tmp_path / "shine.mdb"
    prepare_store(path, rules(tmp_path), now_ms=NOW, boot="b")
    assert read_state(path) == State(running="b", starts=1), "there is none yet"
    full_store(tmp_path)
    end_start(path)
    assert read_state(path) == State(known=True, running="b")
    content = path.read_bytes()
    path.unlink()
    for _ in range(2):
        with pytest.raises(StoreGone, match=rf"there was a store {path}, and now it is not there; .*put it back"):
            prepare_store(path, rules(tmp_path), now_ms=NOW, boot="b")
        assert not path.exists()
    with pytest.raises(StoreGone, match="nothing could be put in its place"):
        prepare_store(path, rules(tmp_path, "refill", "x" * 600), now_ms=NOW, boot="b")
    path.write_bytes(content)  # it was put back
    prepare_store(path, rules(tmp_path), now_ms=NOW, boot="b")
    assert read_state(path) == State(known=True, running="b", starts=1)
    path.unlink()
    state_file(path).unlink()  # to begin with nothing
    prepare_store(path, rules(tmp_path), now_ms=NOW, boot="b")


def test_a_backup_takes_the_place_of_a_file_that_is_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = damaged_store(tmp_path)
    end_run(path)
    path.unlink()
    prepare_store(path, rules(tmp_path), now_ms=NOW, boot="b")
    assert path.read_bytes() == (tmp_path / "backups" / "shine-1.mdb").read_bytes()
    assert "shine-1.mdb." in caplog.text
    assert "is kept" not in caplog.text
    assert read_state(path).kept == ""


def test_a_loop_of_starts_that_are_ended_has_an_end(tmp_path: Path) -> None:
    path = full_store(tmp_path)
    for _ in range(2):  # the owner starts it again, and is told again
        for number in range(MOST_STARTS):
            prepare_store(path, rules(tmp_path), now_ms=NOW, boot="b")
            assert read_state(path).starts == number + 1
        with pytest.raises(StoreSuspect, match=r"3 starts in a row .* every page of .*shine\.mdb fits: .*--repair"):
            prepare_store(path, rules(tmp_path), now_ms=NOW, boot="b")
    for _ in range(2 * MOST_STARTS):  # a loss of power says nothing
        prepare_store(path, rules(tmp_path), now_ms=NOW, boot=f"b{_}")
    for end in (end_start, end_run):
        for _ in range(2 * MOST_STARTS):
            prepare_store(path, rules(tmp_path), now_ms=NOW, boot="b")
            end(path)
    prepare_store(path, rules(tmp_path), now_ms=NOW, boot="b")
    path.write_bytes(path.read_bytes()[:20_000])  # what is found to be wrong counts
    with pytest.raises(StoreDamaged, match="cut off"):
        prepare_store(path, rules(tmp_path), now_ms=NOW, boot="b")
    assert read_state(path).starts == 0


def test_starts_are_counted_where_the_start_of_the_machine_is_not_known(tmp_path: Path) -> None:
    path = full_store(tmp_path)
    write_state(path, State(known=True, starts=MOST_STARTS))  # the last one has ended in order
    prepare_store(path, rules(tmp_path), now_ms=NOW, boot="")
    assert read_state(path) == State(known=True, running="unknown", starts=1)
    write_state(path, State(known=True, looking="unknown", starts=MOST_STARTS))
    with pytest.raises(StoreSuspect, match="was looked at"):
        prepare_store(path, rules(tmp_path), now_ms=NOW, boot="")


def test_a_start_that_took_long_until_it_was_broken_off_stays_counted(tmp_path: Path) -> None:
    path = full_store(tmp_path)
    for seconds, starts in ((LONG_START_SECONDS, 2), (LONG_START_SECONDS - 1, 0)):
        write_state(path, State(known=True, looking="b", starts=2))
        end_start(path, seconds=seconds)
        assert read_state(path).starts == starts


def test_that_it_has_started_may_not_be_written_down(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = full_store(tmp_path)
    state_file(path).with_name("shine.mdb.state.new").mkdir()
    end_start(path)
    assert "that the node has started cannot be written down" in caplog.text


class Killed(BaseException):
    """What ends a process: nothing of it is done any more."""


@pytest.mark.parametrize("where", ["find_damage", "_go_on"])
def test_a_loop_of_starts_that_are_ended_while_they_look_has_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    path = damaged_store(tmp_path)

    def kill(*arguments: object, **options: object) -> None:
        raise Killed

    for _ in range(2):  # the owner starts it again
        with monkeypatch.context() as killing:
            killing.setattr(start_module, where, kill)
            for number in range(MOST_STARTS):
                with pytest.raises(Killed):
                    prepare_store(path, rules(tmp_path), now_ms=NOW, boot="b")
                assert read_state(path) == State(starts=number + 1, looking="b")
            with pytest.raises(StoreSuspect, match=r"3 starts in a row .*, the last one while .* was looked at"):
                prepare_store(path, rules(tmp_path), now_ms=NOW, boot="b")
            assert read_state(path) == State()
            for number in range(2 * MOST_STARTS):  # a loss of power says nothing
                with pytest.raises(Killed):
                    prepare_store(path, rules(tmp_path), now_ms=NOW, boot=f"b{number}")
            state_file(path).unlink()
    write_state(path, State(starts=2, looking="b"))
    prepare_store(path, rules(tmp_path), now_ms=NOW, boot="b")
    assert (read_state(path).starts, read_state(path).looking) == (1, ""), "the first one of another store"


def test_a_mark_outlives_a_look_that_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = full_store(tmp_path)
    end_run(path, damage="MDB_CORRUPTED")
    marked = read_state(path)

    def kill(*arguments: object, **options: object) -> None:
        raise Killed

    with monkeypatch.context() as killing:
        killing.setattr(start_module, "find_damage", kill)
        with pytest.raises(Killed):
            prepare_store(path, rules(tmp_path), now_ms=NOW, boot="b")
    assert read_state(path) == marked._replace(starts=1, looking="b")
    prepare_store(path, rules(tmp_path), now_ms=NOW, boot="b")
    assert read_state(path).doubted_at_ms == NOW


def test_a_look_that_fails_with_a_word_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = full_store(tmp_path)
    prepare_store(path, rules(tmp_path), now_ms=NOW, boot="b")

    def fail(*arguments: object, **options: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(start_module, "examine_file", fail)
    for _ in range(2 * MOST_STARTS):
        with pytest.raises(OSError, match="Input/output error"):
            prepare_store(path, rules(tmp_path), now_ms=NOW, boot="b")
        assert read_state(path)._replace(known=True) == State(known=True, running="b")
