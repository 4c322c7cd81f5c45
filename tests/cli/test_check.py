import asyncio
import json

import pytest

from shine_node.cli import check_clock, check_disk, control
from shine_node.cli.check import find
from shine_node.cli.check_disk import Mount
from shine_node.cli.commands import run_command
from shine_node.cli.findings import Level
from shine_node.cli.node_process import NodeProcess, ReservedPort
from tests.cli.program import run_program, write_config
from tests.support.nodes import run


@pytest.fixture(autouse=True)
def a_machine_that_is_well(monkeypatch):
    """Whatever the machine of the tests is like."""
    monkeypatch.setattr(check_clock, "is_synchronised", lambda: True)
    monkeypatch.setattr(check_disk, "read_mounts", lambda: [Mount("/", "ext4", False)])


def check(path, capsys):
    status = run_command(["check", "--config", str(path)])
    shown, said = capsys.readouterr()
    assert said == ""
    return status, shown


def test_all_is_well(tmp_path, capsys):
    path = write_config(tmp_path)
    status, shown = check(path, capsys)
    assert status == 0
    assert shown.startswith(f"ok       configuration  {path} has no mistakes\n")
    assert shown.endswith("\nall is well\n")
    assert {"listen", "url", "registration", "dataDir", "disk"} < {finding.subject for finding in find(path)}
    assert not (tmp_path / "data").exists()


def test_for_programs(tmp_path, capsys):
    path = write_config(tmp_path, "[registration]\ntoken = 'geheim'")
    assert run_command(["check", "--json", "--offline", "--config", str(path)]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["status"] == 1
    assert {"level": "ok", "subject": "network", "text": "not looked at (--offline)"} in found["findings"]


def test_of_a_node_that_runs(tmp_path, capsys):
    with ReservedPort() as port:
        url = f"ws://127.0.0.1:{port.number}/ws"
        pool = "server.pool.allowInsecurePeers = true\nserver.pool.allowPrivatePeers = true\n"
        path = write_config(tmp_path, pool)
        text = path.read_text().replace("wss://home.example/ws", url).replace(":0", f":{port.number}")
        path.write_text(text)

        async def story():
            node = await NodeProcess.start(path)
            try:
                assert await asyncio.to_thread(run_command, ["check", "--config", str(path)]) == 0
            finally:
                await node.stop()

        run(story())
    shown = capsys.readouterr().out
    assert f"127.0.0.1:{port.number} is used by the running node itself" in shown
    assert f"home answers at {url}" in shown


def test_a_node_that_answers_strangely_counts_as_none(tmp_path, monkeypatch):
    monkeypatch.setattr(control, "ask", lambda *arguments, **named: {"listening": "everywhere"})
    assert any("when the node runs" in finding.text for finding in find(write_config(tmp_path)))


def test_warnings(tmp_path, capsys):
    status, shown = check(write_config(tmp_path, "[registration]\ntoken = 'geheim'"), capsys)
    assert status == 1
    assert "\nwarning  registration" in shown and "geheim" not in shown


def test_what_will_not_work(tmp_path, capsys):
    status, shown = check(write_config(tmp_path, "server.tlsCert = 'none'\nserver.tlsKey = 'none'"), capsys)
    assert status == 2 and "\nerror    certificate" in shown


def test_mistakes_of_the_configuration(tmp_path, capsys):
    path = write_config(tmp_path, "[log]\nlevel = 1\nformat = 2")
    status, shown = check(path, capsys)
    assert status == 2
    assert shown.startswith(f"error    configuration  {path}:6: log.level = 1 is no text in quotes")
    assert shown.endswith("\n2 errors\n")
    assert {finding.level for finding in find(path)} == {Level.ERROR}


def test_exit_statuses(tmp_path):
    path = write_config(tmp_path)
    assert run_program("check", "--config", path).returncode in (0, 1)  # the clock may be kept right by nothing
    path.chmod(0o644)
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "token.toml").write_text('[registration]\nmode = "token"\ntoken = "geheim"')
    assert run_program("check", "--config", path).returncode == 1
    assert run_program("check", "--config", tmp_path / "none.toml").returncode == 2
