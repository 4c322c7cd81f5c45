from __future__ import annotations

from pathlib import Path

import pytest

from shine_node.control.health import (
    DAY_MS,
    LEAST_CERTIFICATE_DAYS,
    LEAST_FREE_MIB,
    MIB,
    NO_CREDENTIAL,
    StoreReading,
    certificate_warnings,
    clock_warnings,
    comfortable_mib,
    peer_notes,
    peer_warnings,
    plain_warnings,
    queue_warnings,
    store_warnings,
)
from shine_node.peers.snapshot import LinkState, PeerSnapshot, PoolSnapshot

LEAST_FREE_BYTES = LEAST_FREE_MIB * MIB


def reading(used: int = 0, free: int | None = 10 * LEAST_FREE_BYTES, trouble: str = "") -> StoreReading:
    return StoreReading(Path("/data/shine.mdb"), 0, used, 1000 * MIB, free, trouble, 0, 0, 0)


def snapshot(*states: LinkState) -> PoolSnapshot:
    peers = [
        PeerSnapshot(
            server_login=f"peer{number}",
            url=f"wss://peer{number}.example/ws",
            state=state,
            permanent=True,
            capabilities=(),
            connected_at_ms=None,
            last_activity_ms=None,
            last_ping_ms=None,
            last_pong_ms=None,
            next_try_ms=None,
            reconnects=0,
            waiting_realtime=0,
            waiting_normal=0,
            waiting_bulk=0,
            in_flight=None,
            succeeded=0,
            failed=0,
            timed_out=0,
            last_error="",
        )
        for number, state in enumerate(states)
    ]
    return PoolSnapshot(0, len(peers), 256, tuple(peers))


@pytest.mark.parametrize(
    ("store", "about"),
    [
        (reading(), []),
        (reading(used=800 * MIB - 1), []),
        (reading(used=800 * MIB), ["map"]),
        (reading(free=LEAST_FREE_BYTES), []),
        (reading(free=LEAST_FREE_BYTES - 1), ["disk"]),
        (reading(free=0), ["disk"]),
        (reading(free=LEAST_FREE_BYTES)._replace(comfortable_mib=LEAST_FREE_MIB + 1), ["disk"]),
        (reading(free=20 * MIB)._replace(comfortable_mib=20), []),
        (reading(free=0)._replace(refusing=True), []),
        (reading(trouble="it is broken"), ["trouble"]),
        (reading(free=None, trouble="it is gone"), ["trouble"]),
        (reading(900 * MIB, 0, "it is full"), ["map", "disk", "trouble"]),
    ],
)
def test_what_is_not_well_with_the_store(store: StoreReading, about: list[str]) -> None:
    assert list(store_warnings(store)) == about


def test_what_is_said_of_the_store() -> None:
    warnings = store_warnings(reading(850 * MIB, 5 * MIB, "it is broken"))
    assert warnings == {
        "map": "the store has taken 85% of its 1000 MiB: raise storage.mapSizeMiB and restart, or new messages will be"
        " refused when it is full",
        "disk": "5 MiB are free on the disk of /data: make room, or new messages will be refused when it is full",
        "trouble": "it is broken",
    }


@pytest.mark.parametrize(
    ("crypto", "writer", "begins"),
    [
        (0, 0, []),
        (7, 79, []),
        (8, 0, ["8 signatures"]),
        (0, 80, ["80 writes"]),
        (10, 100, ["10 signatures", "100 writes"]),
    ],
)
def test_queues_that_are_nearly_full(crypto: int, writer: int, begins: list[str]) -> None:
    warnings = queue_warnings(crypto=crypto, crypto_bound=10, writer=writer, writer_bound=100)
    assert [" ".join(warning.split()[:2]) for warning in warnings] == begins


def test_links_that_are_not_well() -> None:
    every = {f"peer{number}" for number in range(6)}
    assert peer_warnings(snapshot(), every) == []
    assert peer_warnings(snapshot(LinkState.CONNECTED, LinkState.IDLE, LinkState.CLOSED), every) == []
    states = (LinkState.CONNECTED, LinkState.PAUSE, LinkState.CONNECTING)
    assert peer_warnings(snapshot(*states), every) == [
        "2 of 3 configured peers cannot be reached and are tried again: peer1, peer2"
    ]
    [many] = peer_warnings(snapshot(*[LinkState.PAUSE] * 6), every)
    assert many == (
        "6 of 6 configured peers cannot be reached and are tried again: peer0, peer1, peer2, peer3, peer4, …"
    )


def test_links_that_only_users_want_are_no_warning() -> None:
    states = (LinkState.CONNECTED, LinkState.PAUSE, LinkState.PAUSE)
    assert peer_warnings(snapshot(*states), {"peer0"}) == []
    assert peer_notes(snapshot(*states), {"peer0"}) == [
        "2 of 2 servers of users cannot be reached and are tried again: peer1, peer2"
    ]
    assert peer_notes(snapshot(*states), {"peer0", "peer1", "peer2"}) == []


def test_a_certificate_that_ends_soon() -> None:
    now_ms = 1000 * DAY_MS
    assert certificate_warnings(None, now_ms) == []
    assert certificate_warnings(now_ms + LEAST_CERTIFICATE_DAYS * DAY_MS, now_ms) == []
    [soon] = certificate_warnings(now_ms + LEAST_CERTIFICATE_DAYS * DAY_MS - 1, now_ms)
    assert "expires in 20 days" in soon
    [today] = certificate_warnings(now_ms + 1, now_ms)
    assert "expires in 0 days" in today
    [over] = certificate_warnings(now_ms, now_ms)
    assert "has expired" in over
    assert "read again by themselves" in soon and "read again by themselves" in over


@pytest.mark.parametrize("left", [DAY_MS, -DAY_MS])
def test_a_certificate_that_systemd_hands_over_is_not_read_again(left: int) -> None:
    [warning] = certificate_warnings(1000 * DAY_MS + left, 1000 * DAY_MS, handed_over=True)
    assert "systemctl restart shine-node" in warning and "by themselves" not in warning


def test_when_a_disk_is_nearly_full() -> None:
    assert comfortable_mib(128) == 256
    assert comfortable_mib(1000) == 2000
    assert comfortable_mib(0) == LEAST_FREE_MIB


def test_a_server_that_should_have_a_certificate() -> None:
    url = "wss://home.example/ws"
    assert plain_warnings(url, [], missing=False) == []
    assert plain_warnings("ws://home.example/ws", [":7070"], missing=False) == []
    assert plain_warnings(url, [], missing=True) == plain_warnings(url, [":1"], missing=True) == [NO_CREDENTIAL]
    [exposed] = plain_warnings(url, [":7070"], missing=False)
    assert "without encryption at :7070" in exposed and "server.tlsCert" in exposed


def test_a_clock_that_nothing_keeps_right() -> None:
    assert clock_warnings(True) == clock_warnings(None) == []
    [finding] = clock_warnings(False)
    assert "timedatectl" in finding
