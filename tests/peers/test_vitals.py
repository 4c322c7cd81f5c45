from shine_node.peers.vitals import Vitals
from tests.support.clock import ManualClock


def test_pings_are_due_after_silence_of_the_peer_only() -> None:
    clock = ManualClock(monotonic=1000.0)
    vitals = Vitals(clock)
    assert vitals.ping_due(120) == 1120
    vitals.connected(1010.0)
    assert vitals.ping_due(120) == 1130
    vitals.heard(1020.0)
    assert vitals.ping_due(120) == 1140
    vitals.active_at = 1100.0  # this server sent something
    assert vitals.ping_due(120) == 1140
    vitals.pinged(1140.0)
    assert vitals.ping_due(120) == 1260


def test_a_new_connection_begins_anew() -> None:
    vitals = Vitals(ManualClock(monotonic=1000.0))
    assert (vitals.connects, vitals.connected_at, vitals.active_at) == (0, None, None)
    vitals.pinged(1001.0)
    vitals.ponged_at = 1002.0
    vitals.connected(1003.0)
    assert (vitals.connects, vitals.connected_at, vitals.active_at, vitals.used_at) == (1, 1003.0, 1003.0, 1003.0)
    assert vitals.pinged_at is None
    assert vitals.ponged_at is None


def test_times_are_shown_by_the_wall_clock_as_it_is_now() -> None:
    clock = ManualClock(now_ms=5_000_000, monotonic=1000.0)
    vitals = Vitals(clock)
    assert vitals.wall(None) is None
    assert vitals.wall(990.5) == 4_990_500
    assert vitals.wall(1001.0) == 5_001_000
    clock.jump(-1_000_000)
    assert vitals.wall(990.5) == 3_990_500
