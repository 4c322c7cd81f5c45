import dataclasses

import orjson
import pytest

from shine_node.peers.snapshot import LinkState, PeerSnapshot, PoolSnapshot, log_lines, printable

NOW = 1_774_700_000_000
PEER = PeerSnapshot(
    server_login="server2",
    url="wss://two.example/ws",
    state=LinkState.CONNECTED,
    permanent=True,
    capabilities=("connection-pool",),
    connected_at_ms=NOW - 60_000,
    last_activity_ms=NOW - 1000,
    last_ping_ms=None,
    last_pong_ms=None,
    next_try_ms=None,
    reconnects=1,
    waiting_realtime=1,
    waiting_normal=2,
    waiting_bulk=3,
    in_flight="GetBlocks",
    succeeded=10,
    failed=20,
    timed_out=30,
    last_error="link lost",
)


def pool(*peers: PeerSnapshot) -> PoolSnapshot:
    return PoolSnapshot(at_ms=NOW, known_peers=7, max_connections=256, peers=peers)


def test_one_line_of_totals() -> None:
    idle = dataclasses.replace(PEER, state=LinkState.IDLE)
    assert log_lines(pool(PEER, PEER, idle)) == [
        "links: 1 idle, 2 connected; 7 peers known; waiting 18, succeeded 30, failed 60, timed out 90, reconnects 3"
    ]
    assert log_lines(pool()) == [
        "links: none; 7 peers known; waiting 0, succeeded 0, failed 0, timed out 0, reconnects 0"
    ]


@pytest.mark.parametrize(
    ("age_ms", "seen"),
    [
        (1000, "seen 1 s ago"),
        (-5000, "seen 0 s ago"),
        (119_999, "seen 119 s ago"),
        (120_000, "seen 2 min ago"),
        (7_199_000, "seen 119 min ago"),
        (7_200_000, "seen 2 h ago"),
        (None, "never seen"),
    ],
)
def test_one_line_for_each_peer_that_is_not_well(age_ms: int | None, seen: str) -> None:
    ill = dataclasses.replace(
        PEER, state=LinkState.PAUSE, last_activity_ms=None if age_ms is None else NOW - age_ms, last_error="refused"
    )
    lines = log_lines(pool(PEER, ill))
    assert lines[1:] == [f"link to server2 (wss://two.example/ws): pause, {seen}; refused"]


def test_who_is_well() -> None:
    well = {state for state in LinkState if dataclasses.replace(PEER, state=state).well}
    assert well == {LinkState.CONNECTED, LinkState.IDLE, LinkState.CLOSED}
    connecting = dataclasses.replace(PEER, state=LinkState.CONNECTING, last_error="")
    assert log_lines(pool(connecting))[1].endswith("connecting, seen 1 s ago; no error")


def test_it_is_plain_data() -> None:
    document = orjson.loads(orjson.dumps(pool(PEER)))
    assert document["peers"][0]["state"] == "connected"
    assert document["peers"][0]["waiting_bulk"] == 3


def test_texts_of_peers_stay_on_one_short_line() -> None:
    assert printable("no\nsuch\x1b[31m user\u2028Ж") == "no?such?[31m user?Ж"
    assert printable("x" * 200) == "x" * 200
    assert printable("x" * 201) == "x" * 199 + "…"
