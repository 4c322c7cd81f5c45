"""The parts of a node: each is made as the configuration says, and what cannot be made is told."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest

from shine_node import parts as parts_module
from shine_node.client.messages import make_message
from shine_node.client.settings import make_setting
from shine_node.config import Config
from shine_node.parts import (
    STORE_FILE,
    Ground,
    StartError,
    StartMistake,
    lay_ground,
    make_access_pull,
    make_access_push,
    make_catch_up,
    make_deliverer,
    make_intake,
    make_lookup,
    make_pool,
    make_settings,
    make_worker,
    own_certificate,
    own_pages,
    sync_servers,
)
from shine_node.peers.pool import Pool
from shine_node.protocol.access import AccessServer
from shine_node.protocol.errors import InternalError, ShineError, TooLarge, UserNotFound
from shine_node.protocol.settings import setting_payload
from shine_node.store.environment import StoreError
from tests.cli.certificates import write_certificate
from tests.support.clock import ManualClock
from tests.support.nodes import run
from tests.support.whole_node import ALICE, config, threads_of_a_node

FRIEND = {"login": "friend", "url": "ws://127.0.0.1:9/ws"}


def no_connection(server_login: str) -> None:
    raise AssertionError(f"nobody connects to {server_login}")


@contextmanager
def ground_of(settings: Config) -> Iterator[Ground]:
    """Lay the ground of a node that never starts."""
    ground = lay_ground(settings, ManualClock(), on_fatal=lambda: None)
    try:
        yield ground
    finally:
        ground.readers.close()
        ground.store.close()


def pool_of(ground: Ground) -> Pool:
    return make_pool(ground, on_connected=no_connection)


# --- the ground ---


def test_the_ground_is_laid_where_and_as_the_configuration_says(tmp_path: Path) -> None:
    settings = config(tmp_path, storage={"mapSizeMiB": 24}, crypto={"threads": 3}, sync_servers=[FRIEND])
    with ground_of(settings) as ground:
        assert ground.store.path == tmp_path / "data" / STORE_FILE
        assert ground.store.path.is_file()
        assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
        assert ground.store.map_size == 24 * 2**20
        assert (ground.config, ground.users.own_login) == (settings, "server1")
        assert ground.directory.sync_servers == sync_servers(settings) == (AccessServer("friend", FRIEND["url"]),)
        assert not threads_of_a_node()  # nothing runs before it is started


def test_a_data_folder_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StartMistake, match=r"file/data cannot be made: .*Fix server\.dataDir"):
        lay_ground(
            config(tmp_path, server={"dataDir": str(tmp_path / "file" / "data")}), ManualClock(), on_fatal=lambda: None
        )

    def full(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(StartError, match="No space left") as caught:  # there may be room again soon
        lay_ground(config(tmp_path), ManualClock(), on_fatal=lambda: None)
    assert not isinstance(caught.value, StartMistake)


def test_two_stores_of_one_folder(tmp_path: Path) -> None:
    with ground_of(config(tmp_path)), pytest.raises(StoreError, match="in use by another process"):
        lay_ground(config(tmp_path), ManualClock(), on_fatal=lambda: None)


# --- the certificate ---


def test_a_certificate_is_read_where_the_configuration_names_one(tmp_path: Path) -> None:
    assert own_certificate(config(tmp_path)) is None
    cert, key = write_certificate(tmp_path)
    certificate = own_certificate(config(tmp_path, server={"tlsCert": str(cert), "tlsKey": str(key)}))
    assert certificate is not None
    assert certificate.problem == ""
    with pytest.raises(ShineError, match="cannot be read"):
        own_certificate(config(tmp_path, server={"tlsCert": str(cert), "tlsKey": str(tmp_path / "none")}))


# --- the chat page ---


def test_the_chat_page_is_read_unless_it_is_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {"/", "/index.html"} <= own_pages(config(tmp_path)).paths
    off = config(tmp_path, server={"chatPage": False})
    assert own_pages(off).paths == set()
    monkeypatch.setattr(parts_module, "WEB_FOLDER", tmp_path)
    with pytest.raises(
        StartError, match=r"no index\.html.*Install this program again, or set server\.chatPage = false"
    ):
        own_pages(config(tmp_path))
    assert own_pages(off).paths == set()


# --- what stands on the ground ---


def test_the_links_have_the_settings_of_the_configuration(tmp_path: Path) -> None:
    numbers = {
        "pingIdleSeconds": 101,
        "pongTimeoutSeconds": 102,
        "requestTimeoutSeconds": 103,
        "connectTimeoutSeconds": 104,
        "callerTimeoutSeconds": 105,
        "maxQueuePerPeer": 106,
        "refreshSeconds": 107,
        "idleCloseSeconds": 108,
        "maxConnections": 109,
        "snapshotSeconds": 110,
    }
    settings = config(
        tmp_path,
        server={"pool": {**numbers, "caFile": str(tmp_path / "ca.pem"), "allowPrivatePeers": False}},
        limits={"maxFrameBytes": 777_777, "maxBlockBytes": 65536},
    )
    with ground_of(settings) as ground:
        kept = asdict(pool_of(ground)._settings)
        assert kept.pop("max_frame_bytes") == 777_777
        assert kept.pop("ca_file") == tmp_path / "ca.pem"
        assert (kept.pop("allow_insecure_peers"), kept.pop("allow_private_peers")) == (True, False)
        assert {name.replace("_", ""): value for name, value in kept.items()} == {
            name.lower(): value for name, value in numbers.items()
        }


def test_nobody_is_found_where_there_is_no_peer_to_ask(tmp_path: Path) -> None:
    async def story() -> None:
        with ground_of(config(tmp_path, sync_servers=[FRIEND])) as ground:
            lookup = make_lookup(ground, pool_of(ground), takes_anyone=lambda: False)
            assert await lookup.find("bob") is None
            lookup.refresh_soon("bob")  # asks the configured peer, to which there is no link
            await lookup.close()

    run(story())


def test_the_intake_the_deliverer_and_the_worker_keep_to_the_configuration(tmp_path: Path) -> None:
    delivery = {
        "scheduleSeconds": [0, 7, 70],
        "leaseMs": 11_000,
        "firstAttemptTimeoutMs": 1200,
        "workerIntervalMs": 1300,
        "maxConcurrent": 14,
    }

    async def story() -> None:
        with ground_of(config(tmp_path, delivery=delivery, limits={"maxBodyBytes": 5})) as ground:
            pool = pool_of(ground)
            lookup = make_lookup(ground, pool, takes_anyone=lambda: True)
            intake = make_intake(ground, lookup)
            pair = make_message(ALICE, "bob", "123456", time_ms=1)
            with pytest.raises(TooLarge):
                await intake.send_pair(pair.incoming, pair.outgoing)
            catch_up = make_catch_up(ground, lookup, defect=InternalError)
            [refusal] = await catch_up.take([("alice", (pair.incoming, pair.outgoing))], from_server="friend")
            assert isinstance(refusal, TooLarge)
            deliverer = make_deliverer(ground, pool, lookup)
            assert intake._quotas is catch_up._quotas is deliverer._quotas is ground.quotas
            worker = make_worker(ground, deliverer)
            assert [part._lease_ms for part in (intake, worker)] == [11_000, 11_000]
            for schedule in (intake._schedule, deliverer._schedule, worker._schedule):
                assert schedule.offsets_ms == (0, 7_000, 70_000)
            assert deliverer._first_attempt_timeout_ms == 1200
            assert (worker._interval, worker._slow._most) == (1.3, 14)
            await worker.close()
            await deliverer.close()
            await lookup.close()

    run(story())


def test_settings_keep_to_the_configuration(tmp_path: Path) -> None:
    async def story() -> None:
        with ground_of(config(tmp_path, limits={"maxBodyBytes": 5})) as ground:
            lookup = make_lookup(ground, pool_of(ground), takes_anyone=lambda: True)
            settings = make_settings(ground, lookup)
            for value, error in (("123456", TooLarge), ("12345", UserNotFound)):
                setting = make_setting(ALICE, "theme", value, time_ms=1)
                with pytest.raises(error):
                    await settings.submit(setting_payload(setting), ask_peers=True)
            await lookup.close()

    run(story())


def test_records_are_asked_for_as_the_configuration_says(tmp_path: Path) -> None:
    with ground_of(config(tmp_path, sync={"pageLimit": 7, "accessIntervalSeconds": 77})) as ground:
        pull = make_access_pull(ground, pool_of(ground), takes_anyone=lambda: True)
        assert (pull._page_limit, pull._interval_seconds) == (7, 77)


def test_records_are_told_as_the_configuration_says(tmp_path: Path) -> None:
    with ground_of(config(tmp_path, sync={"accessIntervalSeconds": 77})) as ground:
        assert make_access_push(ground, pool_of(ground))._interval_seconds == 77
