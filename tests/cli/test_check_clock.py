import os

from shine_node import RELEASED_MS
from shine_node.cli.check_clock import MINUTE_MS, STORE_FILE, find_clock, judge_clock
from shine_node.cli.findings import Level, Situation
from shine_node.config import config_from_mapping
from shine_node.node import STORE_FILE as NODES_STORE_FILE

NOW = RELEASED_MS + MINUTE_MS


def judge(now_ms=NOW, written_ms=None, synchronised=True):
    finding = judge_clock(now_ms=now_ms, written_ms=written_ms, synchronised=synchronised)
    assert finding.subject == "clock"
    return finding.level, finding.text


def test_a_clock_that_can_be_right():
    assert judge() == (Level.OK, "it stands at a possible time, and is kept right")
    assert judge(written_ms=NOW + MINUTE_MS)[0] is Level.OK
    level, text = judge(synchronised=None)
    assert level is Level.OK and "cannot be told" in text


def test_a_clock_that_is_wrong():
    level, text = judge(now_ms=RELEASED_MS - 1)
    assert level is Level.ERROR and "before this version was made" in text
    level, text = judge(written_ms=NOW + 90 * MINUTE_MS)
    assert level is Level.ERROR and "90 minutes from now" in text


def test_a_clock_that_nothing_keeps_right():
    level, text = judge(synchronised=False)
    assert level is Level.WARNING and "timedatectl set-ntp true" in text


def test_the_clock_of_this_machine(tmp_path):
    assert STORE_FILE == NODES_STORE_FILE
    server = {"login": "home", "url": "wss://home.example/ws", "dataDir": str(tmp_path)}
    situation = Situation(config_from_mapping({"server": server}), tmp_path / "node.toml")
    [finding] = find_clock(situation)
    assert finding.level in (Level.OK, Level.WARNING)
    store = tmp_path / STORE_FILE
    store.write_bytes(b"")
    os.utime(store, (2**33, 2**33))
    [finding] = find_clock(situation)
    assert finding.level is Level.ERROR and "gone back" in finding.text
