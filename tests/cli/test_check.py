import asyncio
import json
import os
import subprocess

import pytest

from shine_node.cli import check_clock, check_disk, control
from shine_node.cli.check import find
from shine_node.cli.check_disk import Mount
from shine_node.cli.commands import run_command
from shine_node.cli.findings import Level
from shine_node.cli.node_process import NodeProcess, ReservedPort
from shine_node.cli.node_user import NodeUser, as_node
from shine_node.config import load_config
from tests.cli.program import run_program, write_config
from tests.support.nodes import run

NODE = 54321
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root looks for somebody else")


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
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "token.toml").write_text('[registration]\ntoken = "has no effect"')
    assert run_program("check", "--config", path).returncode == 1
    assert run_program("check", "--config", tmp_path / "none.toml").returncode == 2


def test_a_lock_of_an_editor_beside_a_token(tmp_path, capsys):
    """As root, who may read all: the folder of the tests is closed to others."""
    path = write_config(tmp_path)
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "2.toml").write_text('[registration]\nmode = "token"\ntoken = "geheim-und-lang-genug"')
    (tmp_path / "conf.d" / ".#2.toml").symlink_to("somebody@here.1234:1")
    assert check(path, capsys)[0] == 0


@pytest.fixture
def packaged(open_folder):
    """A configuration and a data folder as the package makes them: the owner writes files as root, 0644."""
    etc = open_folder / "etc"
    (etc / "conf.d").mkdir(parents=True)
    path = write_config(etc)
    path.write_text(path.read_text().replace('"data"', f'"{open_folder}/data"'))
    (open_folder / "data").mkdir(mode=0o700)
    (etc / "conf.d" / "20-token.toml").write_text('[registration]\nmode = "token"\ntoken = "geheim-und-lang-genug"')
    for made in (path, *(etc / "conf.d").iterdir()):
        made.chmod(0o644)
    (etc / "conf.d").chmod(0o755)
    etc.chmod(0o750)
    os.chown(etc, 0, NODE)
    os.chown(open_folder / "data", NODE, NODE)
    return path


@needs_root
def test_root_judges_by_the_rights_of_the_nodes_user(packaged, capsys):
    status, shown = check(packaged, capsys)
    assert status == 0, shown
    token = packaged.parent / "conf.d" / "20-token.toml"
    token.chmod(0o600)
    status, shown = check(packaged, capsys)
    assert status == 2
    advice = f"chgrp {NODE} {token} && chmod 640 {token}"
    assert f"{token} cannot be read by {NODE}, whom the node runs as: {advice}\n" in shown
    subprocess.run(["sh", "-c", advice], check=True)
    assert check(packaged, capsys)[0] == 0
    with as_node(NodeUser(NODE, NODE)):
        assert load_config(packaged).registration.token == "geheim-und-lang-genug"
    packaged.parent.chmod(0o755)
    token.chmod(0o644)
    status, shown = check(packaged, capsys)
    assert status == 1 and shown.count("can be read by every user") == 1


@needs_root
def test_root_of_a_container_that_may_be_nobody_else(packaged, capsys, monkeypatch):
    def refuse(groups):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "setgroups", refuse)
    status, shown = check(packaged, capsys)
    assert status == 1
    assert "warning  rights         what the node may do cannot be told: this root may not act as" in shown
