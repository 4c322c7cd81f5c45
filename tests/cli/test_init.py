"""Tests of ``shine_node/cli/__init__.py`` and of ``shine_node/cli/init.py``."""

import os
import stat

import pytest

from shine_node import cli
from shine_node.cli.commands import run_command
from shine_node.config import ListenAddress, load_config
from tests.cli.program import run_program

OWN = ["--login", "home", "--url", "wss://home.example/ws"]


def test_main_runs_a_command(capsys):
    assert cli.main(["init", "--help"]) == 0
    assert "never overwrites" in capsys.readouterr().out


def init(path, *words):
    return run_command(["init", "--config", str(path), *OWN, *words])


def test_the_file_sets_what_was_given_and_shows_the_rest(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "it is mine.toml"
    options = ["--listen", "127.0.0.1:1", "--listen", "[::1]:1", "--data-dir", "data"]
    assert init(path, *options, "--allow-insecure-peers", "--allow-private-peers") == 0
    config = load_config(path)
    assert (config.server.login, config.server.url) == ("home", "wss://home.example/ws")
    assert config.server.listen == (ListenAddress("127.0.0.1", 1), ListenAddress("::1", 1))
    assert config.server.data_dir == tmp_path / "data"
    assert config.server.pool.allow_insecure_peers and config.server.pool.allow_private_peers
    assert "#maxBodyBytes = 65536" in path.read_text(encoding="utf-8")
    shown, said = capsys.readouterr()
    assert said == ""
    assert shown.startswith(f"wrote {path}\n")
    assert f"shine-node run --config '{path}'" in shown


def test_two_nodes_made_from_one_folder_have_each_its_own_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("home", "away"):  # with README's own words
        (tmp_path / name).mkdir()
        assert init(f"{name}/shine-node.toml", "--data-dir", "data") == 0
        assert load_config(tmp_path / name / "shine-node.toml").server.data_dir == tmp_path / name / "data"
    assert init("home/other.toml", "--data-dir", str(tmp_path / "disk")) == 0
    assert load_config(tmp_path / "home" / "other.toml").server.data_dir == tmp_path / "disk"


def test_what_was_not_given_stays_at_its_default(tmp_path):
    path = tmp_path / "node.toml"
    assert init(path, "--listen", ":1") == 0
    assert load_config(path).server.listen == (ListenAddress("", 1),)
    text = path.read_text(encoding="utf-8")
    assert 'listen = ":1"' in text and "#dataDir = " in text and "#allowInsecurePeers = false" in text


@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_the_file_is_not_for_everybody(tmp_path, mask):
    before = os.umask(mask)
    try:
        assert init(tmp_path / "node.toml") == 0
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "node.toml").stat().st_mode) == 0o640


def test_it_never_overwrites(tmp_path, capsys):
    path = tmp_path / "node.toml"
    path.write_text("mine")
    link = tmp_path / "link.toml"
    link.symlink_to(tmp_path / "elsewhere.toml")
    assert init(path) == init(link) == 1
    assert path.read_text() == "mine" and not link.exists()
    assert f"{path} is there already and was left as it is" in capsys.readouterr().err


def test_a_place_that_cannot_be_written(tmp_path, capsys):
    assert init(tmp_path / "none" / "node.toml") == 1
    assert "cannot be written (No such file or directory): make the folder" in capsys.readouterr().err


def test_a_disk_that_is_full_leaves_nothing_behind(tmp_path, monkeypatch, capsys):
    def fail(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    assert init(tmp_path / "node.toml") == 1
    assert list(tmp_path.iterdir()) == []
    assert "No space left on device" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["--login", "a b"], 'server.login = "a b" is no login'),
        (["--url", "ws://home.example/ws"], "server.url"),
        (["--listen", "7070"], "server.listen"),
        (["--data-dir", ""], "server.dataDir"),
        (["--data-dir", "~/data"], "server.dataDir"),
    ],
)
def test_wrong_values_write_nothing(tmp_path, words, name, capsys):
    assert init(tmp_path / "node.toml", *words) == 2
    assert capsys.readouterr().err.startswith(f"shine-node: {name}")
    assert list(tmp_path.iterdir()) == []


def test_as_a_program(tmp_path):
    path = tmp_path / "node.toml"
    assert run_program("init", "--config", path, *OWN, "--data-dir", tmp_path / "d").returncode == 0
    again = run_program("init", "--config", path, *OWN)
    assert again.returncode == 1 and "is there already" in again.stderr
    assert run_program("init", "--config", path).returncode == 2
    (tmp_path / "conf.d").mkdir(exist_ok=True)  # the port that it names may be another program's on this machine
    (tmp_path / "conf.d" / "port.toml").write_text('[server]\nlisten = "127.0.0.1:0"\n')
    checked = run_program("check", "--offline", "--config", path)
    assert checked.returncode in (0, 1), checked.stdout  # of this machine's clock or disk
