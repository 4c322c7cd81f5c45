"""The configuration and the certificate are taken whole or not at all; with real files."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from shine_node.config import Config, config_from_mapping, load_config
from shine_node.control.reload import BadConfiguration, Reloader
from shine_node.protocol.errors import ShineError
from tests.control.conftest import Run


class Running:
    """A node as the reloader sees it."""

    def __init__(self, folder: Path, text: str = "", *, from_file: bool = True) -> None:
        self.path = folder / "node.toml"
        self.write(text)
        self.config = load_config(self.path)
        self.certificates: list[tuple[Path, Path]] = []
        self.certificate_problem = ""
        self.certificate_change = ""
        self.authorities_problem = ""
        self.other_authorities = False
        self.applied = 0
        self.broken = False
        self.reloader = Reloader(
            path=self.path if from_file else None,
            running=lambda: self.config,
            read_certificate=self.read_certificate if self.config.server.tls_cert else None,
            read_authorities=self.read_authorities,
            apply=self.apply,
        )

    def write(self, text: str) -> None:
        head = '[server]\nlogin = "home"\nurl = "wss://home.example/ws"\n'
        self.path.write_text(head + text)

    def read_certificate(self, cert: Path, key: Path) -> str:
        if self.certificate_problem:
            raise ShineError(self.certificate_problem)
        self.certificates.append((cert, key))
        return self.certificate_change

    def read_authorities(self) -> Callable[[], bool]:
        if self.authorities_problem:
            raise ShineError(self.authorities_problem)
        return lambda: self.other_authorities

    def apply(self, config: Config) -> None:
        if self.broken:
            raise ValueError("the cause")
        self.config = config
        self.applied += 1


def test_what_can_be_is_brought_into_force(run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    node = Running(tmp_path)
    before = node.config
    node.write(
        'listen = ":7071"\n[log]\nlevel = "debug"\n[[sync_servers]]\nlogin = "friend"\nurl = "wss://f.example/ws"'
    )

    async def story() -> None:
        assert await node.reloader.reload({}) == {
            "changed": ["log.level", "sync_servers"],
            "needRestart": ["server.listen"],
            "values": {
                "server.listen": '["127.0.0.1:7070"] → [":7071"]',
                "log.level": '"info" → "debug"',
                "sync_servers": "friend: none → wss://f.example/ws",
            },
        }
        assert node.config.log.level == "debug" and [peer.login for peer in node.config.sync_servers] == ["friend"]
        assert node.config.server == before.server
        assert node.certificates == []
        again = await node.reloader.reload({})
        assert (again["changed"], again["needRestart"]) == ([], ["server.listen"])

    run(story())
    listen = 'server.listen (["127.0.0.1:7070"] → [":7071"])'
    assert [record.message for record in caplog.records] == [
        'reloaded; changed: log.level ("info" → "debug"), sync_servers (friend: none → wss://f.example/ws);'
        f" for a restart: {listen}",
        f"reloaded; changed: nothing; for a restart: {listen}",
    ]


def test_a_configuration_with_mistakes_is_refused_whole(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = Running(tmp_path)
    before = node.config
    node.write('[log]\nlevel = "debug"\nformat = 1\n[limits]\nmaxConnections = 0')

    async def story() -> None:
        with pytest.raises(BadConfiguration) as caught:
            await node.reloader.reload({})
        assert (caught.value.status, caught.value.code) == (422, "BAD_CONFIGURATION")
        assert [line.split(" = ")[0] for line in caught.value.detail.splitlines()] == [
            f"{node.path}:6: log.format",
            f"{node.path}:8: limits.maxConnections",
        ]
        await node.reloader.reload_logged()

    run(story())
    assert (node.config, node.applied) == (before, 0)
    assert len(caplog.records) == 2
    assert all(
        record.levelno == logging.ERROR
        and record.message.startswith("nothing was reloaded, all stays as it is: ")
        and "limits.maxConnections = 0" in record.message
        for record in caplog.records
    )


def test_a_certificate_that_cannot_be_used_leaves_all_as_it_is(run: Run, tmp_path: Path) -> None:
    node = Running(tmp_path, 'tlsCert = "a.crt"\ntlsKey = "a.key"')
    before = node.config
    node.write('tlsCert = "b.crt"\ntlsKey = "b.key"\n[log]\nlevel = "debug"')
    node.certificate_problem = "b.crt cannot be used"

    async def story() -> None:
        with pytest.raises(BadConfiguration, match=r"b\.crt cannot be used"):
            await node.reloader.reload({})
        assert (node.config, node.applied) == (before, 0)
        node.certificate_problem = ""
        assert (await node.reloader.reload({}))["changed"] == ["server.tlsCert", "server.tlsKey", "log.level"]
        assert node.certificates == [(tmp_path / "b.crt", tmp_path / "b.key")]
        assert node.config.server.tls_cert == tmp_path / "b.crt"
        await node.reloader.reload_logged()  # with the same files, which may have changed
        assert node.certificates == [(tmp_path / "b.crt", tmp_path / "b.key")] * 2

    run(story())


def test_authorities_that_cannot_be_used_leave_all_as_it_is(run: Run, tmp_path: Path) -> None:
    node = Running(tmp_path, 'tlsCert = "a.crt"\ntlsKey = "a.key"')
    before = node.config
    node.write('tlsCert = "a.crt"\ntlsKey = "a.key"\n[log]\nlevel = "debug"')
    node.authorities_problem = "server.pool.caFile cannot be used"

    async def story() -> None:
        with pytest.raises(BadConfiguration, match=r"server\.pool\.caFile cannot be used"):
            await node.reloader.reload({})
        assert (node.config, node.applied, node.certificates) == (before, 0, [])

    run(story())


def test_what_files_hold_besides_the_configuration_is_told(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    node = Running(tmp_path, 'tlsCert = "a.crt"\ntlsKey = "a.key"')
    node.certificate_change, node.other_authorities = "valid until 2026-01-31 → valid until 2026-04-30", True

    async def story() -> None:
        answer = await node.reloader.reload({})
        assert answer["changed"] == ["certificate", "authorities"]
        assert answer["values"] == {"certificate": node.certificate_change, "authorities": "others than before"}

    run(story())
    assert [record.message for record in caplog.records] == [
        "reloaded; changed: certificate (valid until 2026-01-31 → valid until 2026-04-30), authorities (others than"
        " before); for a restart: nothing"
    ]


@pytest.mark.parametrize(("before", "after"), [("info", "error"), ("error", "warning"), ("error", "error")])
def test_what_has_changed_is_in_the_log_at_every_level(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture, before: str, after: str
) -> None:
    node = Running(tmp_path, f'[log]\nlevel = "{before}"')
    node.write(f'[log]\nlevel = "{after}"\n[limits]\nmaxConnections = 77')
    caplog.set_level(after.upper())
    caplog.handler.setLevel(logging.NOTSET)  # as the node's own, which leaves levels to the loggers

    async def story() -> None:
        await node.reloader.reload_logged()
        await node.reloader.reload_logged()  # by which nothing has changed: a line like others

    run(story())
    [record] = caplog.records
    assert (record.levelno, record.__dict__["always"]) == (logging.INFO, True)
    assert "limits.maxConnections (2000 → 77)" in record.message


@pytest.mark.parametrize("encrypted", [False, True])
def test_encryption_begins_and_ends_with_a_restart(run: Run, tmp_path: Path, encrypted: bool) -> None:
    tls = 'tlsCert = "a.crt"\ntlsKey = "a.key"\n'
    node = Running(tmp_path, tls if encrypted else "")
    before = node.config
    node.write(("" if encrypted else tls) + '[log]\nlevel = "debug"')

    async def story() -> None:
        answer = await node.reloader.reload({})
        assert answer["changed"] == ["log.level"]
        assert answer["needRestart"] == ["server.tlsCert", "server.tlsKey"]
        assert node.config.server == before.server
        assert node.certificates == ([(tmp_path / "a.crt", tmp_path / "a.key")] if encrypted else [])

    run(story())


def test_a_node_without_a_file_reads_its_certificate_only(run: Run, tmp_path: Path) -> None:
    node = Running(tmp_path, 'tlsCert = "a.crt"\ntlsKey = "a.key"', from_file=False)
    node.write("a mistake")

    async def story() -> None:
        assert await node.reloader.reload({}) == {"changed": [], "needRestart": [], "values": {}}
        assert node.certificates == [(tmp_path / "a.crt", tmp_path / "a.key")]

    run(story())


def test_a_defect_at_a_signal_is_logged_and_the_next_one_finds_somebody(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = Running(tmp_path)
    node.write('[log]\nlevel = "debug"')

    async def story() -> None:
        node.broken = True
        await node.reloader.reload_logged()
        [record] = caplog.records
        assert record.message == "a defect in the reload" and record.exc_info
        node.broken = False
        await node.reloader.reload_logged()
        assert node.config.log.level == "debug"

    run(story())


def test_two_that_come_at_once_are_done_one_after_the_other(run: Run, tmp_path: Path) -> None:
    node = Running(tmp_path)
    node.write('[log]\nlevel = "debug"')

    async def story() -> None:
        answers = await asyncio.gather(node.reloader.reload({}), node.reloader.reload({}))
        assert [answer["changed"] for answer in answers] == [["log.level"], []]

    run(story())
    assert config_from_mapping({"server": {"login": "home", "url": "wss://home.example/ws"}}).log != node.config.log
