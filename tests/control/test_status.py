"""``Status`` of a real store, and the warnings in the log."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import orjson
import pytest

from shine_node import __version__
from shine_node.config import Config, config_from_mapping
from shine_node.control import status as status_module
from shine_node.control.backups import NewestBackup
from shine_node.control.health import DAY_MS, NO_CREDENTIAL
from shine_node.control.status import WATCH_SECONDS, Gauges, Status
from shine_node.peers.snapshot import LinkState, PoolSnapshot
from shine_node.store.environment import Store
from shine_node.store.layout import Table
from shine_node.sync.outcomes import NONE_YET, Outcome
from tests.control.conftest import Run
from tests.control.test_health import snapshot
from tests.support.clock import ManualClock

MIB = 2**20


@pytest.fixture(autouse=True)
def a_clock_that_is_kept_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shine_node.control.status.is_synchronised", lambda: True)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "shine.mdb", map_size=4 * MIB)
    yield store
    store.close()


def config(min_free_mib: int = 0, **server: object) -> Config:
    own = {"login": "Home", "url": "wss://home.example/ws", **server}
    return config_from_mapping({"server": own, "crypto": {"maxQueue": 10}, "storage": {"minFreeMiB": min_free_mib}})


def test_a_disk_of_the_backups_that_does_not_answer(store: Store, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    answered, looks = threading.Event(), []

    def read(folder: Path, own_login: str) -> NewestBackup:
        looks.append(threading.current_thread().daemon)
        answered.wait(60)
        return NewestBackup(folder, folder / "shine-a.mdb", 1, 2)

    monkeypatch.setattr(status_module, "BACKUP_SECONDS", 0.01)
    monkeypatch.setattr(status_module, "read_newest", read)

    async def story() -> None:
        status = make_status(store, ManualClock())
        try:
            for _ in range(20):  # more than there are threads that the whole process shares
                answer = await status.status({})
                assert "(its disk has not answered within 0.01 s)" in str(answer["warnings"])
            assert looks == [True]
            await asyncio.wait_for(asyncio.to_thread(lambda: None), 30)
        finally:
            answered.set()
        monkeypatch.setattr(status_module, "BACKUP_SECONDS", 30)
        assert (await status.status({}))["backup"]["fileBytes"] == 2
        assert (await status.status({}))["backup"]["fileBytes"] == 2
        assert len(looks) in (2, 3)

    run(story())


def make_status(
    store: Store,
    clock: ManualClock,
    *,
    peers: PoolSnapshot | None = None,
    crypto_waiting: int = 3,
    problems: tuple[str, ...] = (),
    sessions: Mapping[str, Outcome] | None = None,
    configured: tuple[str, ...] = ("peer0",),
    not_after_ms: int | None = None,
    current: Config | None = None,
    refused: Sequence[str] = (),
) -> Status:
    refused = list(refused)
    gauges = Gauges(
        urls=lambda: ["ws://127.0.0.1:7070/ws"],
        connections=lambda: 5,
        crypto_waiting=lambda: crypto_waiting,
        attempts=lambda: 2,
        peers=lambda: peers or snapshot(),
        sessions=lambda login: (sessions or {}).get(login, NONE_YET),
        problems=lambda: problems,
        configured=lambda: configured,
        config=lambda: current or config(),
        certificate=lambda: not_after_ms,
        since_start=lambda: {"registrations": 1},
        refused_news=lambda: refused.pop() if refused else "",
    )
    return Status(config=config(), clock=clock, store=store, gauges=gauges)


ROWS = range(84)


def fill(store: Store) -> None:
    """Take more than four fifths of the map."""
    for row in ROWS:
        store.write_now(lambda txn, key=b"%d" % row: txn.put(Table.SESSIONS, key, bytes(40_000)))


def empty(store: Store) -> None:
    for row in ROWS:
        store.write_now(lambda txn, key=b"%d" % row: txn.delete(Table.SESSIONS, key))


def test_a_node_that_is_well(run: Run, store: Store) -> None:
    async def story() -> None:
        clock = ManualClock()
        status = make_status(store, clock, peers=snapshot(LinkState.CONNECTED))
        await clock.advance(90.5)
        answer = orjson.loads(orjson.dumps(await status.status({})))
        sizes = answer["store"]
        assert 0 < sizes.pop("usedBytes") <= sizes.pop("fileBytes") < 4 * MIB
        assert 0 < sizes.pop("usedShare") < 0.1
        assert sizes.pop("diskFreeBytes") > 0
        assert sizes == {"path": str(store.path), "mapBytes": 4 * MIB, "users": 0, "messages": 0, "unreadableRows": 0}
        [link] = answer["peers"].pop("links")
        assert answer == {
            "version": __version__,
            "login": "Home",
            "url": "wss://home.example/ws",
            "uptimeSeconds": 90,
            "listening": ["ws://127.0.0.1:7070/ws"],
            "connections": 5,
            "queues": {"crypto": 3, "writer": 0, "attempts": 2, "openDeliveries": 0},
            "store": sizes,
            "backup": {
                "folder": str(config().server.data_dir / "backups"),
                "file": None,
                "madeAtMs": 0,
                "fileBytes": 0,
            },
            "peers": {"atMs": 0, "known": 1, "maxConnections": 256},
            "sinceStart": {"registrations": 1},
            "certificate": None,
            "clock": {"nowMs": 1_774_700_090_500, "synchronised": True},
            "warnings": [],
            "notes": [],
        }
        assert link == {
            "serverLogin": "peer0",
            "url": "wss://peer0.example/ws",
            "state": "connected",
            "well": True,
            "permanent": True,
            "capabilities": [],
            "connectedAtMs": None,
            "lastActivityMs": None,
            "lastPingMs": None,
            "lastPongMs": None,
            "nextTryMs": None,
            "reconnects": 0,
            "waitingRealtime": 0,
            "waitingNormal": 0,
            "waitingBulk": 0,
            "inFlight": None,
            "succeeded": 0,
            "failed": 0,
            "timedOut": 0,
            "lastError": "",
            "syncedAtMs": None,
            "notSyncedSinceMs": None,
            "notSyncedBecause": "",
        }

    run(story())


def test_what_is_no_concern_of_the_operator(run: Run, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shine_node.control.status.is_synchronised", lambda: False)

    async def story() -> None:
        clock = ManualClock()
        status = make_status(
            store,
            clock,
            peers=snapshot(LinkState.CONNECTED, LinkState.PAUSE),
            not_after_ms=clock.now_ms() + 30 * DAY_MS,
        )
        answer = await status.status({})
        assert answer["warnings"] == []
        assert answer["notes"] == [
            "1 of 1 servers of users cannot be reached and are tried again: peer1",
            "nothing keeps the clock of this machine right: timedatectl set-ntp true, or install chrony",
        ]
        assert answer["certificate"] == {"notAfterMs": clock.now_ms() + 30 * DAY_MS, "daysLeft": 30}
        assert answer["clock"] == {"nowMs": clock.now_ms(), "synchronised": False}

    run(story())


def test_the_log_warns_of_a_certificate_once(run: Run, store: Store, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        clock = ManualClock()
        status = make_status(store, clock, not_after_ms=clock.now_ms() + 21 * DAY_MS)
        watching = asyncio.ensure_future(status.watch())
        await clock.advance(3 * WATCH_SECONDS)
        watching.cancel()
        assert [record.message[:39] for record in caplog.records] == ["the certificate expires in 20 days: ren"]

    run(story())


def test_a_certificate_that_systemd_has_handed_over(run: Run, store: Store) -> None:
    async def story() -> None:
        clock, folder = ManualClock(), "/run/credentials/shine-node.service"
        server = {"tlsCert": f"{folder}/tls.crt", "tlsKey": f"{folder}/tls.key"}
        status = make_status(store, clock, not_after_ms=clock.now_ms() + DAY_MS, current=config(**server))
        [warning] = (await status.status({}))["warnings"]
        assert "systemctl restart shine-node" in warning

    run(story())


def test_a_server_that_speaks_plainly_to_others(
    run: Run, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        clock = ManualClock()
        status = make_status(store, clock, current=config(listen=["127.0.0.1:1", "192.0.2.1:7070"]))
        [warning] = (await status.status({}))["warnings"]
        assert "without encryption at 192.0.2.1:7070, where" in warning
        watching = asyncio.ensure_future(status.watch())
        await clock.advance(3 * WATCH_SECONDS)
        watching.cancel()
        assert [record.message for record in caplog.records] == [warning]
        (tmp_path / "tls.crt").write_text("none")
        monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
        assert (await make_status(store, clock).status({}))["warnings"] == [NO_CREDENTIAL]

    run(story())


def test_a_disk_that_is_near_its_rule(run: Run, store: Store) -> None:
    async def story() -> None:
        [warning] = (await make_status(store, ManualClock(), current=config(2**24)).status({}))["warnings"]
        assert "MiB are free on the disk" in warning

    run(story())


def test_the_log_says_that_a_certificate_has_ended_and_reminds_of_it_each_day(
    run: Run, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        clock = ManualClock()
        status = make_status(store, clock, not_after_ms=clock.now_ms() + 2 * DAY_MS + 1)
        watching = asyncio.ensure_future(status.watch())
        await clock.advance(3 * DAY_MS / 1000 + WATCH_SECONDS)
        watching.cancel()

    run(story())
    assert [(record.levelname, record.message.partition(":")[0]) for record in caplog.records] == [
        ("WARNING", "the certificate expires in 2 days"),
        ("WARNING", "the certificate expires in 1 days"),
        ("WARNING", "the certificate expires in 0 days"),
        ("ERROR", "the certificate has expired, nobody can connect"),
        ("ERROR", "the certificate has expired, nobody can connect"),
    ]


def test_what_bounds_have_refused_is_one_line_in_the_log(
    run: Run, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        clock = ManualClock()
        status = make_status(store, clock, refused=["", "2 by limits.maxMessagesPerDay (the last one about bob)", ""])
        watching = asyncio.ensure_future(status.watch())
        await clock.advance(4 * WATCH_SECONDS)
        watching.cancel()

    run(story())
    assert [record.message for record in caplog.records] == [
        "bounds of users have refused within the last 60 s: 2 by limits.maxMessagesPerDay (the last one about bob)"
    ]


def test_how_sessions_have_ended_stands_with_the_peer(run: Run, store: Store) -> None:
    async def story() -> None:
        peers = snapshot(LinkState.CONNECTED, LinkState.CONNECTED)
        sessions = {"peer0": Outcome(7, None, ""), "peer1": Outcome(7, 8, "messages: no room")}
        answer = orjson.loads(
            orjson.dumps(await make_status(store, ManualClock(), peers=peers, sessions=sessions).status({}))
        )
        names = ("serverLogin", "syncedAtMs", "notSyncedSinceMs", "notSyncedBecause")
        assert [tuple(link[name] for name in names) for link in answer["peers"]["links"]] == [
            ("peer0", 7, None, ""),
            ("peer1", 7, 8, "messages: no room"),
        ]

    run(story())


def test_counts(run: Run, store: Store) -> None:
    def rows(txn) -> None:
        for table, count in ((Table.USERS, 2), (Table.CONTAINERS, 3), (Table.DUE_ATTEMPTS, 4)):
            for number in range(count):
                txn.put(table, bytes([number]), b"row")

    store.write_now(rows)

    async def story() -> None:
        answer = await make_status(store, ManualClock()).status({})
        assert (answer["store"]["users"], answer["store"]["messages"]) == (2, 3)
        assert answer["queues"]["openDeliveries"] == 4

    run(story())


def test_all_that_is_not_well_is_told(run: Run, store: Store) -> None:
    fill(store)

    async def story() -> None:
        status = make_status(
            store,
            ManualClock(),
            peers=snapshot(LinkState.PAUSE),
            crypto_waiting=9,
            problems=("no certificate",),
            not_after_ms=ManualClock().now_ms() + 3 * DAY_MS,
        )
        full, queue, certificate_ends, peer, certificate = (await status.status({}))["warnings"]
        assert certificate_ends.startswith("the certificate expires in 3 days")
        assert full.startswith("the store has taken 8")
        assert queue.startswith("9 signatures wait to be checked, at 10 requests are refused")
        assert peer == "1 of 1 configured peers cannot be reached and are tried again: peer0"
        assert certificate == "no certificate"

    run(story())


def test_of_a_disk_without_room_only_one_tells(run: Run, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_module.shutil, "disk_usage", lambda folder: SimpleNamespace(free=MIB))

    async def story() -> None:
        guards = "less than 128 MiB are free"
        status = make_status(store, ManualClock(), problems=(guards,))
        [soon, _] = (await status.status({}))["warnings"]
        assert soon.startswith("1 MiB are free")
        store.no_room = "the server's disk has too little room for new messages"
        assert (await status.status({}))["warnings"] == [guards]

    run(story())


def test_a_store_whose_file_is_gone(run: Run, store: Store) -> None:
    store.path.unlink()

    async def story() -> None:
        answer = await make_status(store, ManualClock()).status({})
        assert (answer["store"]["fileBytes"], answer["store"]["diskFreeBytes"]) == (0, None)
        assert answer["warnings"] == [
            f"{store.path} is gone (No such file or directory), what is written now is lost: stop, and restore a backup"
        ]

    run(story())


def test_the_log_warns_once_of_a_store_that_fills_up(
    run: Run, store: Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        clock = ManualClock()
        status = make_status(store, clock)
        watching = asyncio.ensure_future(status.watch())
        await clock.advance(5 * WATCH_SECONDS)
        assert caplog.records == []
        fill(store)
        await clock.advance(5 * WATCH_SECONDS)
        [record] = caplog.records
        assert record.levelno == logging.WARNING
        assert record.message.startswith("the store has taken 8")

        empty(store)
        await clock.advance(WATCH_SECONDS)
        fill(store)
        monkeypatch.setattr(status_module.shutil, "disk_usage", lambda folder: SimpleNamespace(free=MIB))
        await clock.advance(2 * WATCH_SECONDS)
        assert sorted(record.message.split(" ")[0] for record in caplog.records[1:]) == ["1", "the"]
        watching.cancel()
        await asyncio.wait([watching])

    run(story())


def test_snapshots_of_processes_that_were_killed_are_let_go_of(
    run: Run, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[None] = []
    monkeypatch.setattr(store, "free_dead_readers", lambda: looked.append(None))

    async def story() -> None:
        clock = ManualClock()
        watching = asyncio.ensure_future(make_status(store, clock).watch())
        await clock.advance(3 * WATCH_SECONDS)
        watching.cancel()
        await asyncio.wait([watching])

    run(story())
    assert len(looked) >= 3
